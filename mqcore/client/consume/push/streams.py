"""Consuming without a handler: messages wait in a buffer until the application asks for them.

Messages of one queue come in order. One that was handed out and not settled when the consumer closes is delivered
again, to this group, as its offset was not committed.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from mqcore import clock
from mqcore.client.consume.handling import describe_outcome
from mqcore.client.consume.membership import HeldQueue, Membership
from mqcore.client.consume.push.concurrently import RESUBMIT_DELAY_S, Finisher
from mqcore.client.consume.workers import TaskGroup
from mqcore.client.errors import ClientStateError, Reject, Retry
from mqcore.client.model.messages import DEAD_LETTER, ReceivedMessage, Settler
from mqcore.client.model.outcome import Abandoned, Outcome
from mqcore.client.telemetry.consumer_hooks import ConsumeContext

_DONE = Outcome(1)


class Source(Protocol):
    """Where an application that iterates gets its messages from."""

    async def receive(self, count_max: int, timeout_s: float | None, fill_s: float = 0.0) -> list[ReceivedMessage]:
        """Return up to *count_max* messages, waiting for the first; none when *timeout_s* passes or on closing.

        When there are some, wait for more at most *fill_s*.
        """

    def abandon(self, message: ReceivedMessage) -> None:
        """Do not wait for *message*, which was handed out, to be settled: nobody will."""


class MessageBuffer:
    """Messages ready for the application, in order of arrival, and those who wait for one."""

    def __init__(self, on_passed_over: Callable[[ReceivedMessage], None] = lambda message: None) -> None:
        """*on_passed_over* is told of each message that is not handed out because its queue was given up."""
        self._on_passed_over = on_passed_over
        self._ready: deque[ReceivedMessage] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self.closed = False

    def put(self, messages: Sequence[ReceivedMessage]) -> None:
        """Offer *messages*; without effect when the buffer is closed."""
        if not self.closed:
            self._ready.extend(messages)
            self._wake(len(messages))

    def put_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """Return messages that were taken and not handed out, to be taken first."""
        if self.closed:
            return
        self._ready.extendleft(reversed(messages))
        self._wake(len(messages))

    async def take(self, count_max: int, timeout_s: float | None, fill_s: float = 0.0) -> list[ReceivedMessage]:
        """Return up to *count_max* messages, waiting for the first; none when *timeout_s* passes or the buffer closes.

        When there are some, wait for more at most *fill_s*. Messages of queues that were given up meanwhile are passed
        over.
        """
        loop = asyncio.get_running_loop()
        deadline_s = None if timeout_s is None else loop.time() + timeout_s
        full_at_s: float | None = None
        while True:
            while self._ready and self._ready[0].is_dropped:
                self._on_passed_over(self._ready.popleft())
            now_s = loop.time()
            if self._ready and full_at_s is None:
                full_at_s = now_s + fill_s
            until_s = deadline_s if not self._ready or full_at_s is None else full_at_s
            is_late = until_s is not None and now_s >= until_s
            if len(self._ready) >= count_max or is_late or self.closed:
                taken = [self._ready.popleft() for _ in range(min(count_max, len(self._ready)))]
                kept = self._without_dropped(taken)
                if kept or is_late or self.closed:
                    return kept
                continue
            await self._wait(None if until_s is None else until_s - now_s)

    def pass_over_dropped(self) -> None:
        """Forget the messages of queues that were given up, without waiting for somebody who takes."""
        self._ready = deque(self._without_dropped(self._ready))

    def _without_dropped(self, messages: Iterable[ReceivedMessage]) -> list[ReceivedMessage]:
        kept: list[ReceivedMessage] = []
        for message in messages:
            if message.is_dropped:
                self._on_passed_over(message)
            else:
                kept.append(message)
        return kept

    def close(self) -> list[ReceivedMessage]:
        """Let everybody who waits go, and return what nobody has taken."""
        self.closed = True
        left = list(self._ready)
        self._ready.clear()
        self._wake(len(self._waiters))
        return left

    async def _wait(self, timeout_s: float | None) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            if waiter not in self._waiters:
                self._wake(1)  # it was woken in the same turn in which it gave up: another one can have the message
            raise
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _wake(self, count: int) -> None:
        while count > 0 and self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1


class StreamService:
    """Concurrent consumption by iterating: as many messages may be in hand as the application takes.

    Hooks are called for each message: before it is handed out, and when it is settled.
    """

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._buffer = MessageBuffer()
        self._finisher = Finisher(membership)
        self._tasks = TaskGroup()
        self._contexts: dict[ReceivedMessage, ConsumeContext] = {}
        self.settler: Settler | None = self

    def start(self) -> None:
        self._finisher.start()

    def submit(self, held: HeldQueue, messages: Sequence[ReceivedMessage], dispatch: bool) -> None:
        self._buffer.put(messages)

    def set_concurrency(self, concurrency: int) -> None:
        """The application takes as many as it likes."""

    async def receive(self, count_max: int, timeout_s: float | None, fill_s: float = 0.0) -> list[ReceivedMessage]:
        messages = await self._buffer.take(count_max, timeout_s, fill_s)
        if self._membership.hooks.any_around:
            try:
                await self._before(messages)
            except BaseException:
                self._buffer.put_back(messages)
                raise
        now_s = clock.now_s()
        for message in messages:
            message.consume_started_s = now_s
            _held_of(message).hand_out(1)
        return messages

    async def consume_directly(self, message: ReceivedMessage) -> Outcome:
        return no_handler()

    def let_go(self, held: HeldQueue) -> None:
        self._buffer.pass_over_dropped()

    def halt(self) -> None:
        self._buffer.close()

    async def close(self, timeout_s: float) -> None:
        self.halt()
        await self._tasks.close(timeout_s)
        await self._finisher.stop()

    def ack(self, message: ReceivedMessage) -> None:
        self.ack_all([message])

    def ack_all(self, messages: Sequence[ReceivedMessage]) -> None:
        """Be told that *messages* are done, of whatever queues; those of a queue leave it together."""
        by_queue: defaultdict[HeldQueue, list[ReceivedMessage]] = defaultdict(list)
        times_ms: defaultdict[str, list[float]] = defaultdict(list)
        now_s = clock.now_s()
        for message in messages:
            cost_ms = (now_s - message.consume_started_s) * 1000
            times_ms[message.topic].append(cost_ms)
            by_queue[_held_of(message)].append(message)
            if self._contexts:
                self._tell_hooks(message, _DONE, cost_ms)
        for topic, times in times_ms.items():
            self._membership.consumed(topic, len(times), 0, times)
        for held, done in by_queue.items():
            held.hand_back(len(done))
            self._finisher.done(held, done)

    def nack(self, message: ReceivedMessage, delay_level: int) -> None:
        held = _held_of(message)
        held.hand_back(1)
        cost_ms = (clock.now_s() - message.consume_started_s) * 1000
        self._membership.consumed(message.topic, 0, 1, (cost_ms,), Reject() if delay_level == DEAD_LETTER else Retry())
        self._tell_hooks(message, Outcome(0, None, delay_level), cost_ms)
        if not held.dropped:
            self._tasks.spawn(lambda: self._send_back(held, message, delay_level), "sending back")

    def abandon(self, message: ReceivedMessage) -> None:
        """Nothing waits for it: its offset stays uncommitted."""
        self._contexts.pop(message, None)

    async def _before(self, messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            context = ConsumeContext(group=self._membership.group, queue=message.queue, messages=(message,))
            await self._membership.hooks.before_consume(context)
            self._contexts[message] = context

    def _tell_hooks(self, message: ReceivedMessage, outcome: Outcome, cost_ms: float) -> None:
        context = self._contexts.pop(message, None)
        if context is not None:
            describe_outcome(context, outcome, cost_ms, self._membership.settings.consume_timeout_s)
            self._tasks.spawn(lambda: self._membership.hooks.after_consume(context), "hooks")

    async def _send_back(self, held: HeldQueue, message: ReceivedMessage, delay_level: int) -> None:
        if await self._finisher.failed(held, [message], delay_level):
            asyncio.get_running_loop().call_later(RESUBMIT_DELAY_S, self._again, held, message)

    def _again(self, held: HeldQueue, message: ReceivedMessage) -> None:
        again = message.anew(self)
        if not held.dropped and not self._buffer.closed and held.replace(again):
            self._buffer.put([again])


class Handoff:
    """Iteration over an orderly consumer: a handler that gives its message to the buffer and waits until it is settled.

    So the queue's lock, its order and its pauses are those of a handler, and ``concurrency`` says how many queues may
    have a message in hand at once.
    """

    def __init__(self) -> None:
        self._buffer = MessageBuffer(self.abandon)
        self._outcomes: dict[ReceivedMessage, asyncio.Future[None]] = {}

    async def receive(self, count_max: int, timeout_s: float | None, fill_s: float = 0.0) -> list[ReceivedMessage]:
        return await self._buffer.take(count_max, timeout_s, fill_s)

    async def handle(self, message: ReceivedMessage) -> None:
        """Be the handler of the orderly service."""
        if self._buffer.closed:
            raise Abandoned
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if message.settled:
            message = message.anew(self)
        self._outcomes[message] = outcome
        try:
            self._buffer.put([message])
            await outcome
        finally:
            del self._outcomes[message]

    def ack_all(self, messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            self.ack(message)

    def ack(self, message: ReceivedMessage) -> None:
        outcome = self._outcomes.get(message)
        if outcome is not None and not outcome.done():
            outcome.set_result(None)

    def nack(self, message: ReceivedMessage, delay_level: int) -> None:
        outcome = self._outcomes.get(message)
        if outcome is not None and not outcome.done():
            outcome.set_exception(Reject() if delay_level == DEAD_LETTER else Retry(delay_level))

    def abandon(self, message: ReceivedMessage) -> None:
        outcome = self._outcomes.get(message)
        if outcome is not None and not outcome.done():
            outcome.set_exception(Abandoned())

    def let_go(self) -> None:
        """Hand out nothing of queues that were given up, and let nobody wait for it."""
        self._buffer.pass_over_dropped()

    def close(self) -> None:
        """Hand out nothing more; only what has been handed out is waited for."""
        for message in self._buffer.close():
            self.abandon(message)


def no_handler() -> Outcome:
    """What a consumer without a handler answers when it is told to consume a certain message now."""
    return Outcome(0, ClientStateError("this consumer iterates, it has no handler to call"))


def _held_of(message: ReceivedMessage) -> HeldQueue:
    assert message.held is not None  # a message without a queue has no settler, and never comes here
    return message.held
