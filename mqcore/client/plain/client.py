"""The client for programs without an event loop: the names of mqcore.aio, without ``async``.

All work is done in one background thread; handlers run in a pool of threads. Objects may be used from any thread. They
do not survive a fork once they have been started: the child makes its own, and leaves those of its parent alone.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from mqcore.client import asynchronous
from mqcore.client.consume.declared import Declared, H
from mqcore.client.errors import ClientClosedError
from mqcore.client.model.counters import ClientCounts, ProducerCounts
from mqcore.client.model.messages import Message, ReceivedMessage
from mqcore.client.model.receipt import SendReceipt
from mqcore.client.model.selectors import QueueSelector, ShardKey
from mqcore.client.model.subscription import Topics
from mqcore.client.model.transaction import Outcome, TransactionReceipt, TransactionState
from mqcore.client.plain.calls import PlainFace, face_of, plain, run_here
from mqcore.client.produce.batching import SendFuture
from mqcore.client.produce.fault_strategy import BrokerFault
from mqcore.client.produce.producer import Producer as AsyncProducer
from mqcore.client.produce.transactions import TransactionProducer as AsyncTransactionProducer
from mqcore.client.produce.transactions import in_transaction
from mqcore.client.session.handler_threads import HandlerThreads
from mqcore.client.session.inside import is_inside_any
from mqcore.client.session.loop_thread import LoopThread
from mqcore.client.session.stop_signals import run_until, stop_signals
from mqcore.client.settings.classes import ClientSettings, ConsumerSettings, ProducerSettings
from mqcore.client.settings.options import ClientOptions, ConsumerOptions, ProducerOptions, PullConsumerOptions
from mqcore.client.settings.pull_consumer import PullConsumerSettings
from mqcore.client.telemetry.instrumentation import NOT_INSTRUMENTED
from mqcore.client.telemetry.producer_hooks import ProducerHook
from mqcore.errors import ConfigError
from mqcore.protocol.message import MessageQueue

if TYPE_CHECKING:
    from mqcore.client.plain.admin import Admin
    from mqcore.client.plain.consumer import Consumer, PlainBatchHandler, PlainHandler
    from mqcore.client.plain.pull_consumer import PlainQueuesCallback, PullConsumer

PlainCheck = Callable[[ReceivedMessage], Outcome]
PlainExecute = Callable[[Message, SendReceipt], Outcome]


@face_of(asynchronous.Client)
class Client(PlainFace[asynchronous.Client]):
    """A client of the brokers behind some name servers; see ``mqcore.aio.Client`` for the arguments."""

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        settings: ClientSettings | None = None,
        *,
        config_file: Path | str | None = None,
        **changes: Unpack[ClientOptions],
    ) -> None:
        inner = asynchronous.Client(name_servers, settings, config_file=config_file, **changes)
        super().__init__(LoopThread(), inner)
        # What watches a client watches its calls, and these are made in the caller's thread.
        self.instrumentation, inner.instrumentation = inner.instrumentation, NOT_INSTRUMENTED
        self._declared: Declared[Consumer] = Declared(self.consumer)

    @property
    def client_id(self) -> str:
        """The name by which brokers and other members of a group know this client."""
        return self._inner.client_id

    @property
    def admin(self) -> Admin:
        from mqcore.client.plain.admin import Admin  # few ask for it, and it takes long to import

        return Admin(self._thread, self._inner.admin)

    @property
    def counts(self) -> ClientCounts:
        return self._inner.counts

    report_counts = plain(asynchronous.Client.report_counts)

    def start(self) -> None:
        self._thread.call(self._inner.start())
        self._start_declared()

    def _start_declared(self) -> None:
        for consumer in self._declared.take_waiting():
            consumer.start()

    def run(self, *, signals: Iterable[int] | None = None) -> None:
        """Start the handlers declared by ``on`` and return when the client is closed; interrupted, close it first.

        In the main thread SIGTERM and SIGINT, or the *signals* that are given, close it, too: handlers finish what they
        have in hand, in at most close_timeout_s, offsets are committed, groups left. A second one ends the program as
        it would without this.
        """
        from mqcore.client.plain.consumer import all_closed

        stop = asyncio.Event()

        def stop_soon() -> None:
            with suppress(ClientClosedError):  # somebody else was faster
                self._thread.post(stop.set)

        try:
            self._thread.call(self._inner.start())  # from here on there is a thread to be told
            with stop_signals(signals, stop_soon), suppress(ClientClosedError):
                self._start_declared()
                self._thread.call(run_until(stop, all_closed(self._declared.started())))
        finally:
            self.close()

    def close(self) -> None:
        """Close consumers and producers that are still open, then the connections. Without effect in a forked child.

        A handler of one of the consumers does not wait for it; its consumer's ``wait_closed`` tells.
        """
        if is_inside_any(self._inner.instance):
            threading.Thread(target=contextvars.Context().run, args=(self.close,), name="mqcore closing").start()
            return
        self._thread.end_with(self._inner.close)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def producer(
        self, group: str, settings: ProducerSettings | None = None, **changes: Unpack[ProducerOptions]
    ) -> Producer:
        return self.instrumentation.make(Producer, self._thread, self._inner.producer(group, settings, **changes))

    def transaction_producer(
        self,
        group: str,
        check: PlainCheck,
        settings: ProducerSettings | None = None,
        **changes: Unpack[ProducerOptions],
    ) -> TransactionProducer:
        """Return a producer that can also send in transactions. *check* is a plain function, called in a thread."""
        inner = self._inner.transaction_producer(group, check, settings, **changes)
        return self.instrumentation.make(TransactionProducer, self._thread, inner)

    def consumer(
        self,
        group: str,
        topics: Topics,
        *,
        handler: PlainHandler | None = None,
        batch_handler: PlainBatchHandler | None = None,
        settings: ConsumerSettings | None = None,
        **changes: Unpack[ConsumerOptions],
    ) -> Consumer:
        """Return a consumer, to be used inside ``with``. Handlers are plain functions, run by *concurrency* threads."""
        from mqcore.client.consume.push.in_threads import ThreadHandler  # as in the asyncio client
        from mqcore.client.plain.consumer import HANDLER_THREADS_MAX, Consumer

        if handler is not None and batch_handler is not None:
            raise ConfigError("give handler or batch_handler, not both")
        wanted = self._inner.configuration.settings(ConsumerSettings(), settings, changes)
        if handler is None and batch_handler is None:
            inner = self._inner.consumer(group, topics, settings=wanted)
            return self.instrumentation.make(Consumer, self._thread, inner, None)
        watched = self.instrumentation.handler
        if handler is not None:
            handler = watched(group, handler, is_batch=False)
        if batch_handler is not None:
            batch_handler = watched(group, batch_handler, is_batch=True)
        pool = HandlerThreads(HANDLER_THREADS_MAX, "mqcore handler")
        inner = self._inner.consumer(
            group,
            topics,
            handler=None if handler is None else ThreadHandler(handler, pool, self._thread),
            batch_handler=None if batch_handler is None else ThreadHandler(batch_handler, pool, self._thread),
            settings=wanted,
        )
        return self.instrumentation.make(Consumer, self._thread, inner, pool)

    def on(
        self,
        topics: Topics,
        *,
        group: str,
        batch: int | None = None,
        settings: ConsumerSettings | None = None,
        **changes: Unpack[ConsumerOptions],
    ) -> Callable[[H], H]:
        """Return a decorator that makes a function the handler of *topics* for *group*; see ``consumer``.

        With *batch* it is called with up to so many messages, and may return a Done. The consumer starts with the
        client, or with the next ``start`` or ``run``.
        """
        return self._declared.on(topics, group=group, batch=batch, settings=settings, **changes)

    def pull_consumer(
        self,
        group: str,
        topics: Topics = (),
        *,
        on_assigned: PlainQueuesCallback | None = None,
        on_revoked: PlainQueuesCallback | None = None,
        settings: PullConsumerSettings | None = None,
        **changes: Unpack[PullConsumerOptions],
    ) -> PullConsumer:
        from mqcore.client.plain.pull_consumer import Callbacks, PullConsumer  # not everybody polls

        callbacks = Callbacks()
        inner = self._inner.pull_consumer(
            group,
            topics,
            on_assigned=callbacks.of_queues(on_assigned),
            on_revoked=callbacks.of_queues(on_revoked),
            settings=settings,
            **changes,
        )
        return self.instrumentation.make(PullConsumer, self._thread, inner, callbacks)

    # Pulling without a group; see consume/polled/pull_api.py.

    queues = plain(asynchronous.Client.queues)
    pull = plain(asynchronous.Client.pull)
    max_offset = plain(asynchronous.Client.max_offset)
    min_offset = plain(asynchronous.Client.min_offset)
    search_offset = plain(asynchronous.Client.search_offset)
    committed_offset = plain(asynchronous.Client.committed_offset)
    commit_offset = plain(asynchronous.Client.commit_offset)
    send_back = plain(asynchronous.Client.send_back)


@face_of(AsyncProducer)
class Producer(PlainFace[AsyncProducer]):
    """Sends messages in the name of a group; see ``mqcore.aio.Producer``. Many threads may send at once."""

    def __init__(self, thread: LoopThread, inner: AsyncProducer) -> None:
        super().__init__(thread, inner)
        self._short_way = inner.short_way()
        self._join = inner.join
        self.group = inner.group

    start = plain(AsyncProducer.start)
    flush = plain(AsyncProducer.flush)
    send_oneway = plain(AsyncProducer.send_oneway)
    send_batch = plain(AsyncProducer.send_batch)
    request = plain(AsyncProducer.request)
    reply = plain(AsyncProducer.reply)
    recall = plain(AsyncProducer.recall)
    queues = plain(AsyncProducer.queues)

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
        shard_key: ShardKey | None = None,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> SendReceipt:
        choose = None
        if queue is not None or shard_key is not None or selector is not None:
            choose = AsyncProducer.choice(message, queue, shard_key, selector)
        receipt = self._short_way.send(message, choose, timeout_s)
        if isinstance(receipt, SendReceipt):
            return receipt
        if receipt is not None:
            return self._thread.call(self._inner.send_again(receipt.outgoing, receipt.failed))
        work = self._inner.send(message, queue=queue, shard_key=shard_key, selector=selector, timeout_s=timeout_s)
        return self._thread.call(work)

    def send_soon(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        shard_key: ShardKey | None = None,
        selector: QueueSelector | None = None,
    ) -> SendFuture:
        """Give *message* to the next batch and return at once, or when there is room; ``result`` has the receipt."""
        if queue is None and shard_key is None and selector is None and (future := self._join(message)) is not None:
            return future
        return self._inner.send_soon_blocking(
            self._thread, message, queue=queue, shard_key=shard_key, selector=selector
        )

    def add_hook(self, hook: ProducerHook) -> None:
        """Let *hook* look at every send from now on. It runs in the client's event loop and must not block."""
        self._inner.add_hook(hook)

    @property
    def counts(self) -> ProducerCounts:
        return self._inner.counts

    @property
    def faults(self) -> list[BrokerFault]:
        """What is known of the brokers, the best first; empty unless send_latency_fault_enable is on."""
        return self._inner.faults


@face_of(AsyncTransactionProducer)
class TransactionProducer(Producer):
    """A producer that can also send in transactions; see ``mqcore.aio.TransactionProducer``."""

    def __init__(self, thread: LoopThread, inner: AsyncTransactionProducer) -> None:
        super().__init__(thread, inner)
        self._transactional = inner

    def send_in_transaction(
        self, message: Message, execute: PlainExecute, *, timeout_s: float | None = None
    ) -> TransactionReceipt:
        """Send *message* as a half, run *execute* in this thread, and tell the broker the outcome.

        What *execute* raises counts as UNKNOWN and is logged: the broker will ask *check*.
        """

        async def send_half() -> SendReceipt:
            return self.send_half(message, timeout_s=timeout_s)

        async def end(receipt: SendReceipt, state: TransactionState, error: BaseException | None) -> TransactionReceipt:
            return self.end(message, receipt, state, error)

        return run_here(in_transaction(message, execute, send_half, end))

    def send_half(self, message: Message, *, timeout_s: float | None = None) -> SendReceipt:
        return self._thread.call(self._transactional.send_half(message, timeout_s=timeout_s))

    def end(
        self, message: Message, receipt: SendReceipt, state: TransactionState, error: BaseException | None = None
    ) -> TransactionReceipt:
        return self._thread.call(self._transactional.end(message, receipt, state, error))
