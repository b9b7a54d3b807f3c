"""The consumer of mqcore.client: an asyncio consumer, driven from other threads."""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from types import TracebackType
from typing import Self, TypeVar

from mqcore import clock
from mqcore.client.consume.push.batches import PlainBatch
from mqcore.client.consume.push.consumer import BATCH_FILL_S, RECEIVE_MAX
from mqcore.client.consume.push.consumer import Consumer as AsyncConsumer
from mqcore.client.errors import ClientStateError
from mqcore.client.model.counters import ConsumerCounts
from mqcore.client.model.messages import ReceivedMessage, Settler
from mqcore.client.plain.calls import PlainFace, face_of, in_loop, plain, until_closed
from mqcore.client.session.loop_thread import LoopThread
from mqcore.client.session.postbox import Postbox
from mqcore.client.settings.classes import ConsumerSettings
from mqcore.client.telemetry.consumer_hooks import ConsumerHook
from mqcore.protocol.message import MessageQueue

M = TypeVar("M")

HANDLER_THREADS_MAX = 1000
"""What ``concurrency`` can be raised to; a thread is made only when it has something to do."""

FETCH_MAX = 512
"""Messages that an iteration may fetch at once, when its thread works them off fast."""

FETCH_TIME_S = 0.02
"""An iteration that works off a full fetch in this time fetches twice as much; another one RECEIVE_MAX."""

PlainHandler = Callable[[ReceivedMessage], object]
PlainBatchHandler = Callable[[Sequence[ReceivedMessage]], object]


@face_of(AsyncConsumer)
class Consumer(PlainFace[AsyncConsumer]):
    """A member of a consumer group; see ``mqcore.aio.Consumer``. Each thread that iterates has its own iteration."""

    def __init__(self, thread: LoopThread, inner: AsyncConsumer, pool: Executor | None) -> None:
        super().__init__(thread, inner)
        self._streams = threading.local()
        self._all_streams: list[MessageStream | BatchStream] = []
        self._settler: ThreadSettler | None = None
        self.group = inner.group
        if pool is not None:
            inner.on_ended = lambda: pool.shutdown(wait=False, cancel_futures=True)

    start = plain(AsyncConsumer.start)
    wait_closed = until_closed(AsyncConsumer.wait_closed)
    subscribe = plain(AsyncConsumer.subscribe)
    unsubscribe = plain(AsyncConsumer.unsubscribe)
    persist_offsets = plain(AsyncConsumer.persist_offsets)
    change = in_loop(AsyncConsumer.change)
    pause = in_loop(AsyncConsumer.pause)
    resume = in_loop(AsyncConsumer.resume)

    def close(self, *, drain: bool = True, timeout_s: float | None = None) -> None:
        if self._thread.is_open:
            self._thread.call(self._inner.close(drain=drain, timeout_s=timeout_s))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._thread.is_open:
            for stream in self._all_streams:
                stream.end(done=kind is None)
        self.close()

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Iterate. A thread that breaks out of its loop and begins another one goes on with the same iteration."""
        stream: MessageStream | None = getattr(self._streams, "mine", None)
        if stream is None:
            stream = self._streams.mine = MessageStream(self)
            self._all_streams.append(stream)
        return stream

    def receive(self, max_messages: int = RECEIVE_MAX, timeout_s: float | None = None) -> list[ReceivedMessage]:
        return self._settled_here(self._thread.call(self._inner.receive(max_messages, timeout_s)))

    def batches(self, max_messages: int, timeout_s: float = BATCH_FILL_S) -> BatchStream:
        before: BatchStream | None = getattr(self._streams, "batches", None)
        stream = self._streams.batches = BatchStream(self, max_messages, timeout_s, before)
        if before is not None:
            self._all_streams.remove(before)
        self._all_streams.append(stream)
        return stream

    def receive_batch(self, max_messages: int, fill_s: float) -> list[ReceivedMessage]:
        return self._settled_here(self._thread.call(self._inner.receive_batch(max_messages, fill_s)))

    def _settled_here(self, messages: list[ReceivedMessage]) -> list[ReceivedMessage]:
        for message in messages:
            message.settle_through(self._settler_here)
        return messages

    def _settler_here(self, settler: Settler) -> ThreadSettler:
        """Return the one settler of this consumer: what is said to it by and by goes to the loop together."""
        if self._settler is None:
            self._settler = ThreadSettler(self._thread, settler)
        return self._settler

    def abandon(self, messages: ReceivedMessage | Sequence[ReceivedMessage]) -> None:
        self._thread.post(self._inner.abandon, messages)

    @property
    def queues(self) -> list[MessageQueue]:
        return self._inner.queues

    @property
    def counts(self) -> ConsumerCounts:
        return self._inner.counts

    @property
    def is_closed(self) -> bool:
        return self._inner.is_closed

    @property
    def settings(self) -> ConsumerSettings:
        return self._inner.settings

    @property
    def concurrency(self) -> int:
        return self._inner.concurrency

    @concurrency.setter
    def concurrency(self, value: int) -> None:
        self.change(concurrency=value)

    def add_hook(self, hook: ConsumerHook) -> None:
        """Let *hook* look at what is pulled and at each call of the handler; it runs in the client's own thread."""
        self._inner.add_hook(hook)


async def all_closed(consumers: Sequence[Consumer]) -> None:
    """Return when each of *consumers* has been closed: for the event loop of their client."""
    await asyncio.gather(*(consumer._inner.wait_closed() for consumer in consumers))


class MessageStream:
    """One thread's iteration over a consumer. Asking for the next message says that the one before is done.

    Messages are fetched several at a time, and more when the thread is fast: a slow one leaves the others their share.
    One that was fetched and not reached when the consumer closes comes again. Closing, from whatever thread, ends the
    iteration, also while the loop's body runs.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._fetched: deque[ReceivedMessage] = deque()
        self._fetch_count = RECEIVE_MAX
        self._full_s = -math.inf  # when a fetch last brought as many as it asked for
        self._last: ReceivedMessage | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage:
        try:
            return self._following()
        except ClientStateError:
            if not self._consumer.is_closed:
                raise
            raise StopIteration from None

    def _following(self) -> ReceivedMessage:
        self.done_with_last()
        while self._fetched and self._fetched[0].is_dropped:
            self._fetched.popleft()
        if not self._fetched:
            self._fetch()
        if not self._fetched:
            raise StopIteration
        self._last = self._fetched.popleft()
        self._last.restart_timer()
        return self._last

    def _fetch(self) -> None:
        is_fast = clock.monotonic_s() - self._full_s < FETCH_TIME_S
        self._fetch_count = min(2 * self._fetch_count, FETCH_MAX) if is_fast else RECEIVE_MAX
        self._fetched.extend(self._consumer.receive(self._fetch_count))
        self._full_s = clock.monotonic_s() if len(self._fetched) == self._fetch_count else -math.inf
        for message in self._fetched:
            message.stop_timer()  # the consume timeout is for work, not for waiting here

    def done_with_last(self) -> None:
        last, self._last = self._last, None
        if last is not None and not last.settled:
            last.ack()

    def end(self, *, done: bool) -> None:
        """Give back what was fetched and not reached, and the last message too unless it is *done*."""
        if done:
            self.done_with_last()
        left = [*self._fetched] if self._last is None else [self._last, *self._fetched]
        self._last = None
        self._fetched.clear()
        self._consumer.abandon(left)


class BatchStream:
    """One thread's iteration over batches, which goes on where *before* was left.

    Asking for the next batch says that what is unsettled of the one before is done.
    """

    def __init__(self, consumer: Consumer, count_max: int, fill_s: float, before: BatchStream | None = None) -> None:
        self._consumer = consumer
        self._count_max = count_max
        self._fill_s = fill_s
        self._last: PlainBatch | None = None
        if before is not None:
            self._last, before._last = before._last, None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> PlainBatch:
        try:
            return self._following()
        except ClientStateError:
            if not self._consumer.is_closed:
                raise
            raise StopIteration from None

    def _following(self) -> PlainBatch:
        if self._last is not None:
            self._last.ack()
        self._last = None
        messages = self._consumer.receive_batch(self._count_max, self._fill_s)
        if not messages:
            raise StopIteration
        self._last = PlainBatch(messages, self._consumer.persist_offsets)
        return self._last

    def end(self, *, done: bool) -> None:
        """Say what becomes of the last batch when the consumer closes."""
        last, self._last = self._last, None
        if last is None:
            return
        if done:
            last.ack()
        else:
            self._consumer.abandon([message for message in last if not message.settled])


class ThreadSettler:
    """Settles messages from another thread than the event loop's."""

    __slots__ = ("_acked", "_settler", "_thread")

    def __init__(self, thread: LoopThread, settler: Settler) -> None:
        self._thread = thread
        self._settler = settler
        self._acked: Postbox[ReceivedMessage] = Postbox(thread, settler.ack_all)

    def ack(self, message: ReceivedMessage) -> None:
        self._acked.put(message)

    def ack_all(self, messages: Sequence[ReceivedMessage]) -> None:
        self._thread.post(self._settler.ack_all, messages)

    def nack(self, message: ReceivedMessage, delay_level: int) -> None:
        self._thread.post(self._settler.nack, message, delay_level)
