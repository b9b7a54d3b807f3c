"""Concurrent consumption by plain handlers: threads take messages from one line themselves, one after the other.

So a handler that is fast costs no hand-over between threads for each message. What became of the messages goes back to
the event loop, many at a time when they come fast; the loop alone moves offsets and sends messages back.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from typing import Any, Generic, TypeVar

from mqcore.cause_log import CauseLog
from mqcore.client.consume.handling import BatchHandler, EachMessage, batch_size_of, run_plain_handler
from mqcore.client.consume.membership import HeldQueue, Membership
from mqcore.client.consume.push.concurrently import ConcurrentService, QueueMessages
from mqcore.client.consume.workers import TaskGroup
from mqcore.client.errors import ClientStateError
from mqcore.client.model.messages import ReceivedMessage
from mqcore.client.model.outcome import ALL_DONE, Outcome
from mqcore.client.session import forks
from mqcore.client.session.inside import CALL
from mqcore.client.session.loop_thread import LoopThread
from mqcore.client.session.postbox import Postbox

logger = logging.getLogger(__name__)
log = CauseLog(logger)

START_AGAIN_S = 1.0
"""When no thread could be started, it is tried again after this time."""

DONE_ONE = ALL_DONE[1]
"""A handler's call for one message that came back: nearly all of them, where handlers are fast."""

T = TypeVar("T")
R = TypeVar("R")


class ThreadHandler:
    """A plain function as a handler of mqcore.aio: it runs in *pool*, and what it calls goes into the loop of *thread*.

    *function* takes a message, or a list of them.
    """

    def __init__(self, function: Callable[[Any], object], pool: Executor, thread: LoopThread) -> None:
        self.function = function
        self.pool = pool
        self.thread = thread

    async def __call__(self, messages: Any) -> object:
        call = CALL.get()

        def inside() -> object:
            before = CALL.set(call)
            try:
                return self.function(messages)
            except StopIteration as error:  # a future refuses to hold one, and its waiter would never wake
                raise RuntimeError("the handler raised StopIteration") from error
            finally:
                CALL.reset(before)

        return await asyncio.get_running_loop().run_in_executor(self.pool, inside)


class ThreadWorkers(Generic[T, R]):
    """Calls *work* for each item put in, in order, in threads of *pool*, with at most *limit* calls under way at once.

    *begin* is called with each item when a thread takes it, by one thread at a time; *report* in the thread that
    worked, with the item and what *work* returned. Any thread may call the methods.
    """

    def __init__(
        self,
        pool: Executor,
        begin: Callable[[T], object],
        work: Callable[[T], R],
        report: Callable[[tuple[T, R]], object],
        limit: int,
    ) -> None:
        self._pool = pool
        self._begin = begin
        self._work = work
        self._report = report
        self._limit = limit
        self._line: deque[T] = deque()
        self._alive = 0
        self._is_starting = False  # a thread is alive that has not taken its first item
        self._is_halted = False
        self._lock = threading.Lock()
        forks.watch(self)

    def put(self, items: Iterable[T]) -> None:
        """Put *items* in line. Raises RuntimeError when they wait there and no thread can be started for them."""
        with self._lock:
            if not self._is_halted:
                self._line.extend(items)
                self._start()

    def set_limit(self, limit: int) -> None:
        """Let *limit* calls run at once from now on. Those under way end as they would have."""
        with self._lock:
            self._limit = limit
            self._start()

    def halt(self) -> list[T]:
        """Take nothing more, and return the items that nobody has taken; calls under way go on."""
        with self._lock:
            self._is_halted = True
            left = list(self._line)
            self._line.clear()
        return left

    def after_fork(self, parent_pid: int) -> None:
        """In a forked child: a lock that somebody held is made anew, and the items are the parent's."""
        self._lock = threading.Lock()
        self._line.clear()

    def _start(self) -> None:
        # One at a time: it sees to the next when it takes an item. So fast work is mostly done by one thread, while one
        # that waits for something lets the next begin.
        if self._line and not self._is_starting and self._alive < self._limit:
            try:
                self._pool.submit(self._live)
            except RuntimeError:
                if not self._alive:
                    raise
                return  # those that live take what there is
            self._is_starting = True
            self._alive += 1

    def _live(self) -> None:
        is_first = True
        while (found := self._take(is_first)) is not None:
            is_first = False
            (item,) = found
            try:
                self._report((item, self._work(item)))
            except ClientStateError:  # the loop has ended, and nobody wants to know
                self.halt()
            except Exception as error:  # a thread that ended here would be counted for ever
                log.error("a handler's thread failed", exc_info=error)

    def _take(self, is_first: bool) -> tuple[T] | None:
        """Return the next item for a thread that lives; None when the thread is to end."""
        with self._lock:
            if is_first:
                self._is_starting = False
            if not self._line or self._alive > self._limit:
                self._alive -= 1
                return None
            item = self._line.popleft()
            self._begin(item)
            self._start()
            return (item,)


Report = tuple[QueueMessages, tuple[Outcome, float] | None]
"""Messages and what became of them, with the time that it took, ms; None if no handler was called."""


def hand_out(batch: QueueMessages) -> None:
    """Note that a thread works on *batch*. It does so before it looks whether the queue has been given up."""
    held, messages = batch
    held.hand_out(len(messages))


class ThreadedService(ConcurrentService):
    """Runs a plain handler on at most *concurrency* batches at once, in the order in which they were pulled.

    While there are hooks around handlers, which are the event loop's, messages go their way through the loop instead.
    """

    def __init__(self, membership: Membership, handler: BatchHandler, plain: ThreadHandler) -> None:
        super().__init__(membership, handler)
        self._plain = plain
        self._is_each = isinstance(handler, EachMessage)
        self._reports: Postbox[Report] = Postbox(plain.thread, self._finish)
        self._threads: ThreadWorkers[QueueMessages, tuple[Outcome, float] | None] = ThreadWorkers(
            plain.pool, hand_out, self._handle, self._reports.put, membership.settings.concurrency
        )
        self._sending_back = TaskGroup()
        self._under_way = 0  # batches in line or in a thread
        self._is_given_up = False
        self._news = asyncio.Event()

    def submit(self, held: HeldQueue, messages: Sequence[ReceivedMessage], dispatch: bool) -> None:
        if self._membership.hooks.any_around:
            super().submit(held, messages, dispatch)
            return
        if self._closing:
            return
        size = batch_size_of(self._handler, self._membership.settings)
        batches = [(held, messages[at : at + size]) for at in range(0, len(messages), size)]
        self._under_way += len(batches)
        self._put(batches)

    def _put(self, batches: Sequence[QueueMessages]) -> None:
        try:
            self._threads.put(batches)
        except RuntimeError as error:  # the machine has no thread for us now
            log.error("handlers have to wait", exc_info=error, group=self._membership.group)
            asyncio.get_running_loop().call_later(START_AGAIN_S, self._put, ())

    def set_concurrency(self, concurrency: int) -> None:
        super().set_concurrency(concurrency)
        self._threads.set_limit(concurrency)

    def halt(self) -> None:
        super().halt()
        self._under_way -= len(self._threads.halt())

    async def close(self, timeout_s: float) -> None:
        self.halt()
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                while self._under_way:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            logger.warning("giving up %d handlers that did not end within %s s", self._under_way, timeout_s)
        self._is_given_up = True
        left_s = max(0.0, deadline_s - loop.time())
        await self._sending_back.close(left_s)
        await super().close(left_s)

    def _handle(self, batch: QueueMessages) -> tuple[Outcome, float] | None:
        """Be called in a thread: let the application consume *batch*, unless nobody wants it any more."""
        held, messages = batch
        if held.dropped or self._closing:
            return None
        return run_plain_handler(self._membership, self._plain.function, messages, is_each=self._is_each)

    def _finish(self, reports: Sequence[Report]) -> None:
        """Take back in the loop what threads are done with."""
        self._under_way -= len(reports)
        self._news.set()
        done: defaultdict[HeldQueue, list[ReceivedMessage]] = defaultdict(list)
        calls: defaultdict[str, list[float]] = defaultdict(list)  # ms of those for one message, done
        for (held, messages), ended in reports:
            if ended is None:
                held.hand_back(len(messages))
                continue
            outcome, cost_ms = ended
            if outcome is DONE_ONE:
                calls[messages[0].topic].append(cost_ms)
            else:
                left = len(messages) - outcome.done
                self._membership.consumed(messages[0].topic, outcome.done, left, (cost_ms,), outcome.error)
            if held.dropped or self._is_given_up:  # another member consumes them again, whatever became of them here
                held.hand_back(len(messages))
                continue
            done[held].extend(messages[: outcome.done])
            if outcome.done < len(messages):
                self._send_back(held, messages[outcome.done :], outcome.delay_level)
        for topic, times_ms in calls.items():
            self._membership.consumed(topic, len(times_ms), 0, times_ms)
        for held, finished in done.items():
            if finished:
                self._finisher.done(held, finished)
                held.hand_back(len(finished))

    def _send_back(self, held: HeldQueue, messages: Sequence[ReceivedMessage], delay_level: int) -> None:
        async def send_back() -> None:
            try:
                await self._fail(held, messages, delay_level)
            finally:
                held.hand_back(len(messages))

        self._sending_back.spawn(send_back, f"sending back for {self._membership.group}")
