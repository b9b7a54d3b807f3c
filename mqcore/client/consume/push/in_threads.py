"""Concurrent consumption by plain handlers: threads take messages from one line themselves, one after the other.

So a handler that is fast costs no hand-over between threads for each message (``line``). What became of the messages
goes back to the event loop, many at a time when they come fast; the loop alone moves offsets and sends messages back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any

from mqcore.cause_log import CauseLog
from mqcore.client.consume.handling import BatchHandler, EachMessage, batch_size_of, outcome_of
from mqcore.client.consume.membership import HeldQueue, Membership
from mqcore.client.consume.push.codec import HandlerLine, HandlerStretch
from mqcore.client.consume.push.concurrently import ConcurrentService
from mqcore.client.consume.workers import TaskGroup
from mqcore.client.model.messages import ReceivedMessage
from mqcore.client.model.outcome import Outcome
from mqcore.client.session import forks
from mqcore.client.session.inside import CALL
from mqcore.client.session.loop_thread import LoopThread
from mqcore.client.session.postbox import Postbox

logger = logging.getLogger(__name__)
log = CauseLog(logger)

START_AGAIN_S = 1.0
"""When no thread could be started, it is tried again after this time."""

Report = tuple[HandlerStretch, Sequence[ReceivedMessage], Outcome, float]
"""Messages of a stretch, what became of them, and the time that it took, ms."""


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


class ThreadedService(ConcurrentService):
    """Runs a plain handler on at most *concurrency* batches at once, in the order in which they were pulled.

    While there are hooks around handlers, which are the event loop's, messages go their way through the loop instead.
    """

    def __init__(self, membership: Membership, handler: BatchHandler, plain: ThreadHandler) -> None:
        super().__init__(membership, handler)
        self._reports: Postbox[Report] = Postbox(plain.thread, self._finish)
        self._line = HandlerLine(
            plain.function,
            0 if isinstance(handler, EachMessage) else batch_size_of(handler, membership.settings),
            membership.settings.concurrency,
            membership,
            start=plain.pool.submit,
            tell=lambda: plain.thread.post(self._collect),
            other=self._report,
            failed=lambda error: log.error("a handler's thread failed", exc_info=error),
        )
        self._stretches: dict[HandlerStretch, None] = {}  # those of which not all have been given back
        self._sending_back = TaskGroup()
        self._is_given_up = False
        self._news = asyncio.Event()
        forks.watch(self)

    def after_fork(self, parent_pid: int) -> None:
        """In a forked child: what stands in line is the parent's."""
        self._line.after_fork()

    def submit(self, held: HeldQueue, messages: Sequence[ReceivedMessage], dispatch: bool) -> None:
        if self._membership.hooks.any_around:
            super().submit(held, messages, dispatch)
            return
        if self._closing or not messages:
            return
        # Messages that came back have the topic that they had at first, and are counted there.
        names = self._membership.hub.namespace
        stretch = HandlerStretch(held, messages, is_odd=held.queue.topic == names.wrap(self._membership.retry_topic))
        self._stretches[stretch] = None
        held.in_line.append(stretch)
        self._trying_to_start(self._line.put, stretch)

    def _trying_to_start(self, step: Callable[..., None], *arguments: object) -> None:
        try:
            step(*arguments)
        except RuntimeError as error:  # the machine has no thread for us now
            log.error("handlers have to wait", exc_info=error, group=self._membership.group)
            asyncio.get_running_loop().call_later(START_AGAIN_S, self._trying_to_start, self._line.start)

    def set_concurrency(self, concurrency: int) -> None:
        super().set_concurrency(concurrency)
        self._line.set_limit(concurrency)

    def halt(self) -> None:
        super().halt()
        self._line.halt()

    async def close(self, timeout_s: float) -> None:
        self.halt()
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                while self._in_hand():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            logger.warning("giving up %d handlers that did not end within %s s", self._in_hand(), timeout_s)
        self._is_given_up = True
        left_s = max(0.0, deadline_s - loop.time())
        await self._sending_back.close(left_s)
        await super().close(left_s)

    def _in_hand(self) -> int:
        return sum(stretch.in_hand for stretch in self._stretches)

    def _report(
        self,
        stretch: HandlerStretch,
        messages: Sequence[ReceivedMessage],
        result: object,
        error: BaseException | None,
        time_ms: float,
    ) -> None:
        """Be called in a thread with what is more than done."""
        self._reports.put((stretch, messages, outcome_of(self._membership, messages, result, error), time_ms))

    def _collect(self) -> None:
        """Take back in the loop what threads are done with."""
        for stretch, done, times_ms, passed in self._line.collect():
            held = stretch.held
            if done:
                self._membership.consumed(done[0].topic, len(done), 0, times_ms)
                if not self._is_lost(held):
                    self._finisher.done(held, done)
            self._give_back(stretch, len(done) + passed)

    def _finish(self, reports: Sequence[Report]) -> None:
        """Take back in the loop that of which more is to be said."""
        for stretch, messages, outcome, time_ms in reports:
            held, left = stretch.held, len(messages) - outcome.done
            self._membership.consumed(messages[0].topic, outcome.done, left, (time_ms,), outcome.error)
            if self._is_lost(held):
                self._give_back(stretch, len(messages))
                continue
            if outcome.done:
                self._finisher.done(held, messages[: outcome.done])
                self._give_back(stretch, outcome.done)
            if left:
                self._send_back(stretch, messages[outcome.done :], outcome.delay_level)

    def _is_lost(self, held: HeldQueue) -> bool:
        """Whether another member consumes its messages again, whatever became of them here."""
        return held.dropped or self._is_given_up

    def _give_back(self, stretch: HandlerStretch, count: int) -> None:
        stretch.held.hand_back_in_line(stretch, count)
        if stretch.back == stretch.count:
            del self._stretches[stretch]
        self._news.set()

    def _send_back(self, stretch: HandlerStretch, messages: Sequence[ReceivedMessage], delay_level: int) -> None:
        async def send_back() -> None:
            try:
                await self._fail(stretch.held, messages, delay_level)
            finally:
                self._give_back(stretch, len(messages))

        self._sending_back.spawn(send_back, f"sending back for {self._membership.group}")
