"""The consumer of mqcore.client: an asyncio consumer, driven from other threads."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from mqcore.client.consumer import RECEIVE_MAX
from mqcore.client.consumer import Consumer as AsyncConsumer
from mqcore.client.consuming import BatchHandler
from mqcore.client.loop_thread import LoopThread
from mqcore.client.messages import ReceivedMessage, Settler
from mqcore.protocol.message import MessageQueue

PlainHandler = Callable[[ReceivedMessage], object]
PlainBatchHandler = Callable[[Sequence[ReceivedMessage]], object]


class Consumer:
    """A member of a consumer group; see ``mqcore.aio.Consumer``. Each thread that iterates has its own iteration."""

    def __init__(self, thread: LoopThread, inner: AsyncConsumer, pool: ThreadPoolExecutor | None) -> None:
        self._thread = thread
        self._inner = inner
        self._pool = pool
        self._streams = threading.local()
        self._all_streams: list[MessageStream] = []
        self.group = inner.group

    def start(self) -> None:
        self._thread.call(self._inner.start())

    def close(self, *, drain: bool = True, timeout_s: float | None = None) -> None:
        if self._thread.is_open:
            self._thread.call(self._inner.close(drain=drain, timeout_s=timeout_s))
            if self._pool is not None:
                self._pool.shutdown(wait=False, cancel_futures=True)

    def wait_closed(self) -> None:
        """Return when the consumer has been closed: what a program with a handler waits for."""
        self._thread.call(self._inner.wait_closed())

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
        """Return up to *max_messages*, waiting for the first; settle each by ``ack``, ``nack`` or ``reject``."""
        messages = self._thread.call(self._inner.receive(max_messages, timeout_s))
        for message in messages:
            message.settle_through(lambda settler: ThreadSettler(self._thread, settler))
        return messages

    def abandon(self, messages: Sequence[ReceivedMessage]) -> None:
        """Say that nobody will settle *messages*: closing does not wait for them, and they come again."""
        for message in messages:
            self._thread.post(self._inner.abandon, message)

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues held now."""
        return self._inner.queues

    def pause(self) -> None:
        """Pull nothing more; what has been pulled is still consumed."""
        self._thread.post(self._inner.pause)

    def resume(self) -> None:
        self._thread.post(self._inner.resume)


class MessageStream:
    """One thread's iteration over a consumer. Asking for the next message says that the one before is done.

    Messages are fetched several at a time. One that was fetched and not reached when the consumer closes comes again.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._fetched: deque[ReceivedMessage] = deque()
        self._last: ReceivedMessage | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage:
        self.done_with_last()
        while self._fetched and self._fetched[0].is_dropped:
            self._fetched.popleft()
        if not self._fetched:
            self._fetched.extend(self._consumer.receive())
            for message in self._fetched:
                message.stop_timer()  # the consume timeout is for work, not for waiting here
        if not self._fetched:
            raise StopIteration
        self._last = self._fetched.popleft()
        self._last.restart_timer()
        return self._last

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


class ThreadSettler:
    """Settles messages from another thread than the event loop's."""

    __slots__ = ("_settler", "_thread")

    def __init__(self, thread: LoopThread, settler: Settler) -> None:
        self._thread = thread
        self._settler = settler

    def ack(self, message: ReceivedMessage) -> None:
        self._thread.post(self._settler.ack, message)

    def nack(self, message: ReceivedMessage, delay_level: int) -> None:
        self._thread.post(self._settler.nack, message, delay_level)


def for_each(handler: PlainHandler) -> PlainBatchHandler:
    """Call *handler* for each message of a batch."""

    def handle_all(messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            handler(message)

    return handle_all


def run_in_pool(pool: ThreadPoolExecutor, handler: PlainBatchHandler) -> BatchHandler:
    """Make an async handler of *handler*, which runs in *pool*."""

    def guarded(messages: Sequence[ReceivedMessage]) -> None:
        try:
            handler(messages)
        except StopIteration as error:  # a future refuses to hold one, and its waiter would never wake
            raise RuntimeError("the handler raised StopIteration") from error

    async def handle(messages: Sequence[ReceivedMessage]) -> None:
        await asyncio.get_running_loop().run_in_executor(pool, guarded, messages)

    return handle
