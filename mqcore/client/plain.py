"""The client for programs without an event loop: the names of mqcore.aio, without ``async``.

All work is done in one background thread; handlers run in a pool of threads. Objects may be used from any thread. They
do not survive a fork: the child makes its own, and leaves those of its parent alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from types import TracebackType
from typing import Self

from mqcore.client import asynchronous
from mqcore.client.loop_thread import LoopThread
from mqcore.client.messages import Message, SendReceipt
from mqcore.client.plain_consumer import Consumer, PlainBatchHandler, PlainHandler, for_each, run_in_pool
from mqcore.client.producer import Producer as AsyncProducer
from mqcore.client.pull_api import MESSAGES_MAX, PullResult
from mqcore.client.selectors import QueueSelector
from mqcore.client.settings import ClientSettings, ConsumerSettings, ProducerSettings, changed
from mqcore.client.subscription import Expression, Topics
from mqcore.errors import ConfigError
from mqcore.protocol.heartbeat import SUB_ALL
from mqcore.protocol.message import MessageQueue
from mqcore.protocol.names import TOOLS_CONSUMER_GROUP


class Client:
    """A client of the brokers behind some name servers; see ``mqcore.aio.Client`` for the arguments."""

    def __init__(
        self, name_servers: str | Sequence[str] | None = None, settings: ClientSettings | None = None, **changes: object
    ) -> None:
        self._inner = asynchronous.Client(name_servers, settings, **changes)
        self._thread = LoopThread()

    @property
    def client_id(self) -> str:
        """The name by which brokers and other members of a group know this client."""
        return self._inner.client_id

    def start(self) -> None:
        """Begin the background work. Nothing is connected before it is needed."""
        self._thread.call(self._inner.start())

    def close(self) -> None:
        """Close consumers and producers that are still open, then the connections. Without effect in a forked child."""
        if self._thread.is_open:
            self._thread.call(self._inner.close())
            self._thread.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def producer(self, group: str, settings: ProducerSettings | None = None, **changes: object) -> Producer:
        """Return a producer, to be used inside ``with``. Keyword arguments are the fields of ProducerSettings."""
        return Producer(self._thread, self._inner.producer(group, settings, **changes))

    def consumer(
        self,
        group: str,
        topics: Topics,
        *,
        handler: PlainHandler | None = None,
        batch_handler: PlainBatchHandler | None = None,
        settings: ConsumerSettings | None = None,
        **changes: object,
    ) -> Consumer:
        """Return a consumer, to be used inside ``with``. Handlers are plain functions, run by *concurrency* threads."""
        if handler is not None and batch_handler is not None:
            raise ConfigError("give handler or batch_handler, not both")
        wanted = changed(settings or ConsumerSettings(), changes)
        work = batch_handler if handler is None else for_each(handler)
        pool = None if work is None else ThreadPoolExecutor(wanted.concurrency, "mqcore handler")
        in_pool = None if work is None or pool is None else run_in_pool(pool, work)
        inner = self._inner.consumer(group, topics, batch_handler=in_pool, settings=wanted)
        return Consumer(self._thread, inner, pool)

    # Pulling without a group; see pull_api.py.

    def queues(self, topic: str) -> list[MessageQueue]:
        return self._thread.call(self._inner.queues(topic))

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_messages: int = MESSAGES_MAX,
        *,
        expression: Expression = SUB_ALL,
        wait_s: float = 0.0,
        group: str = TOOLS_CONSUMER_GROUP,
    ) -> PullResult:
        work = self._inner.pull(queue, offset, max_messages, expression=expression, wait_s=wait_s, group=group)
        return self._thread.call(work)

    def max_offset(self, queue: MessageQueue) -> int:
        return self._thread.call(self._inner.max_offset(queue))

    def min_offset(self, queue: MessageQueue) -> int:
        return self._thread.call(self._inner.min_offset(queue))

    def search_offset(self, queue: MessageQueue, when: datetime | float) -> int:
        return self._thread.call(self._inner.search_offset(queue, when))

    def committed_offset(self, group: str, queue: MessageQueue) -> int | None:
        return self._thread.call(self._inner.committed_offset(group, queue))

    def commit_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        self._thread.call(self._inner.commit_offset(group, queue, offset))


class Producer:
    """Sends messages in the name of a group; see ``mqcore.aio.Producer``. Many threads may send at once."""

    def __init__(self, thread: LoopThread, inner: AsyncProducer) -> None:
        self._thread = thread
        self._inner = inner
        self.group = inner.group

    def start(self) -> None:
        self._thread.call(self._inner.start())

    def close(self, *, drain: bool = True, timeout_s: float | None = None) -> None:
        if self._thread.is_open:
            self._thread.call(self._inner.close(drain=drain, timeout_s=timeout_s))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        shard_key: str | int | None = None,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> SendReceipt:
        """Send *message* and return what the broker said when it had stored it."""
        work = self._inner.send(message, queue=queue, shard_key=shard_key, selector=selector, timeout_s=timeout_s)
        return self._thread.call(work)

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        shard_key: str | int | None = None,
        selector: QueueSelector | None = None,
    ) -> None:
        """Send *message* without asking whether it arrived."""
        self._thread.call(self._inner.send_oneway(message, queue=queue, shard_key=shard_key, selector=selector))

    def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None, timeout_s: float | None = None
    ) -> list[SendReceipt]:
        """Send *messages* of one topic in one request, to one queue."""
        return self._thread.call(self._inner.send_batch(messages, queue=queue, timeout_s=timeout_s))

    def queues(self, topic: str) -> Sequence[MessageQueue]:
        return self._thread.call(self._inner.queues(topic))
