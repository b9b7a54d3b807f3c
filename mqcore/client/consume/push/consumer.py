"""The consumer of mqcore.aio: a member of a group, which gets its share of the group's messages.

Two ways to consume. With a handler: it is called for each message, returning means done, raising means again later.
Without: iterate, or call ``receive``; a message is done when the next one is asked for, or when it is acked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakKeyDictionary

from mqcore.cause_log import CauseLog
from mqcore.client.consume.assignment import Assignment
from mqcore.client.consume.handling import BatchHandler, ConsumeService, EachMessage
from mqcore.client.consume.membership import CallsWatch, Membership
from mqcore.client.consume.offsets import FileOffsets, MemoryOffsets, OffsetStore, RemoteOffsets
from mqcore.client.consume.push.batches import BatchStream
from mqcore.client.consume.push.concurrently import ConcurrentService
from mqcore.client.consume.push.in_threads import ThreadedService, ThreadHandler
from mqcore.client.consume.push.orderly import OrderlyService
from mqcore.client.consume.push.orderly_in_threads import ThreadedOrderlyService
from mqcore.client.consume.push.streams import Handoff, Source, StreamService
from mqcore.client.consume.queue_locks import QueueLocks
from mqcore.client.errors import ClientClosedError, ClientStateError
from mqcore.client.model.counters import ConsumerCounts
from mqcore.client.model.messages import ReceivedMessage
from mqcore.client.model.subscription import Expression, subscription_data
from mqcore.client.model.validators import check_count, check_topic
from mqcore.client.session.identity import client_id
from mqcore.client.session.inside import in_background, is_inside
from mqcore.client.session.tasks import Periodic
from mqcore.client.settings.classes import ConsumerSettings, changed_while_running
from mqcore.client.telemetry.consumer_hooks import ConsumerHook
from mqcore.errors import ArgumentError, MQError
from mqcore.protocol.heartbeat import SUB_ALL, ConsumeFromWhere, ConsumerData, ConsumeType, MessageModel, is_tag_type
from mqcore.protocol.message import MessageQueue

if TYPE_CHECKING:
    from mqcore.client.session.session import Session
    from mqcore.client.telemetry.trace import TraceDispatcher

log = CauseLog(logging.getLogger(__name__))

RECEIVE_MAX = 32
BATCH_FILL_S = 0.2

GOODBYE_S = 5.0
"""How long closing may take beyond its timeout, to commit offsets, give back locks and tell the brokers."""


class Consumer:
    """A member of a consumer group. Made by ``Client.consumer``; used inside ``async with``.

    Leaving the block ends the work in hand, commits offsets and leaves the group, so that the others take over at once.
    When the block is left by an exception, the message last iterated over is not done: it comes again.
    """

    def __init__(
        self,
        hub: Session,
        group: str,
        topics: Mapping[str, Expression],
        settings: ConsumerSettings,
        handler: BatchHandler | None = None,
    ) -> None:
        if not topics:
            raise ArgumentError("a consumer needs at least one topic")
        self._hub = hub
        subscriptions = {check_topic(topic): subscription_data(topic, text) for topic, text in topics.items()}
        self._membership = Membership(hub, group, settings, self._offset_store(hub, group, settings), subscriptions)
        if not self._membership.is_broadcasting:
            retry = self._membership.retry_topic
            subscriptions[retry] = subscription_data(retry, SUB_ALL)
        self._locks = QueueLocks(self._membership)
        self._source: Source | None = None
        self._service = self._make_service(handler)
        self._assignment = Assignment(self._membership, self._service, self._locks)
        self._rebalance = Periodic(
            f"rebalance of {group}",
            self._assignment.rebalance,
            first_s=settings.rebalance_interval_s,
            every_s=settings.rebalance_interval_s,
        )
        self._assignment.rebalance_soon = self._rebalance.wake
        self._streams: WeakKeyDictionary[asyncio.Task[Any], MessageStream] = WeakKeyDictionary()
        self._batches: WeakKeyDictionary[asyncio.Task[Any], BatchStream] = WeakKeyDictionary()
        self._tracer: TraceDispatcher | None = None
        if settings.trace:
            from mqcore.client.consume.trace import trace_consumer  # few trace, and it takes long to import

            self._tracer = trace_consumer(self._membership, settings)
        self._is_open = False
        self._is_closing = False
        self._ended = asyncio.Event()
        self._closings: set[asyncio.Task[None]] = set()
        self.on_ended: Callable[[], None] = lambda: None
        self.group = group
        # What operators may ask of it has many bodies, and who only sends does without.
        from mqcore.client.consume.remote_control import RemoteControl

        self.control: RemoteControl = RemoteControl(self._membership, self._service, self._assignment.forget)

    # Life cycle.

    async def start(self) -> None:
        """Join the group and take queues. A topic without a route is looked for again every few seconds.

        Raises ClientStateError when this client is in the group already, and BrokerError when a broker refuses an
        expression.
        """
        if self._ended.is_set():
            raise ClientClosedError(f"the consumer of group {self.group} was closed: make a new one")
        await self._hub.start()
        self._hub.add_consumer(self)
        self._is_open = True
        try:
            await self._membership.offsets.load()
            if self._tracer is not None:
                await self._tracer.start()
            await self._find_routes()
            await self._check_expressions()
            await self._hub.heartbeat()
            self._service.start()
            if self._membership.needs_broker_locks:
                self._locks.start()
            await self._assignment.rebalance()
            self._rebalance.start()
        except BaseException:
            # Handlers may be at work. Who is cancelled again leaves them at it: ``close`` waits for them then.
            await asyncio.shield(self._close_in_background(drain=True, timeout_s=None))
            raise

    def _close_in_background(self, *, drain: bool, timeout_s: float | None) -> asyncio.Task[None]:
        closing = in_background(self._close(drain, timeout_s), f"closing {self.group}")
        self._closings.add(closing)
        closing.add_done_callback(self._closings.discard)
        return closing

    async def close(self, *, drain: bool = True, timeout_s: float | None = None) -> None:
        """Hand out nothing more, wait at most *timeout_s* for what is in hand (or not at all), commit, leave the group.

        It returns after *timeout_s*, GOODBYE_S and the timeout of one call at the latest, even if no broker answers. A
        second caller waits until the first has done it. A handler of this consumer does not wait: it returns first, its
        message counts, and ``wait_closed`` tells when all is done.
        """
        if is_inside(self._membership):
            self._close_in_background(drain=drain, timeout_s=timeout_s)
            return
        await self._close(drain, timeout_s)

    async def _close(self, drain: bool, timeout_s: float | None) -> None:
        if not self._is_open:
            if self._is_closing:
                await self._ended.wait()
            return
        self._service.halt()  # before anybody, in whatever thread, can see that it is closed
        self._is_closing = True
        self._is_open = False
        try:
            await self._leave(self._hub.settings.close_timeout_s if timeout_s is None else timeout_s, drain=drain)
        finally:
            self._ended.set()
            self.on_ended()

    async def _leave(self, timeout_s: float, *, drain: bool) -> None:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        self._service.halt()
        await self._assignment.stop(timeout_s)
        await self._rebalance.stop()
        await self._service.close(max(0.0, deadline_s - loop.time()) if drain else 0.0)
        try:
            async with asyncio.timeout(GOODBYE_S):
                await self._say_goodbye()
        except TimeoutError:
            log.warning("left without all goodbyes, brokers do not answer", group=self.group)
        self._assignment.drop_all()
        await self._hub.remove_consumer(self)

    async def _say_goodbye(self) -> None:
        await self._locks.stop()
        await self._membership.offsets.persist(list(self._membership.held))
        if self._membership.needs_broker_locks:
            await self._locks.unlock_all()
        if self._tracer is not None:
            await self._tracer.close()

    async def wait_closed(self) -> None:
        """Return when the consumer has been closed: what a program with a handler waits for."""
        await self._ended.wait()

    def after_fork(self, parent_pid: int) -> None:
        """In a forked child: be closed, as the connections and the queues are the parent's."""
        self._is_open = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        streams: list[MessageStream | BatchStream] = [*self._streams.values(), *self._batches.values()]
        for stream in streams:
            if kind is None:
                stream.done_with_last()
            else:
                stream.abandon_last()
        await self.close()

    # Consuming without a handler.

    def __aiter__(self) -> MessageStream:
        """Iterate. A task that breaks out of its loop and begins another one goes on with the same iteration."""
        source = self._source_or_raise()
        task = asyncio.current_task()
        if task is None:
            raise ClientStateError("messages are iterated over in a task")
        return self._streams.setdefault(task, MessageStream(source))

    async def receive(self, max_messages: int = RECEIVE_MAX, timeout_s: float | None = None) -> list[ReceivedMessage]:
        """Return up to *max_messages*, waiting for the first; none when *timeout_s* passes or the consumer closes.

        Each must be settled by ``ack``, ``nack`` or ``reject``; what is not comes again after the consume timeout.
        """
        check_count("max_messages", max_messages)
        return await self._source_or_raise().receive(max_messages, timeout_s)

    async def receive_batch(self, max_messages: int, fill_s: float) -> list[ReceivedMessage]:
        """As ``receive`` without a timeout, but wait *fill_s* for more when there are some."""
        check_count("max_messages", max_messages)
        return await self._source_or_raise().receive(max_messages, None, fill_s)

    def batches(self, max_messages: int, timeout_s: float = BATCH_FILL_S) -> BatchStream:
        """Iterate over batches of up to *max_messages*; a batch is full when *timeout_s* passed since its first one.

        Asking for the next batch says that what is unsettled of the one before is done, also when a task has left its
        loop and begins another one.
        """
        check_count("max_messages", max_messages)
        source = self._source_or_raise()
        task = asyncio.current_task()
        if task is None:
            raise ClientStateError("batches are iterated over in a task")
        stream = BatchStream(source, max_messages, timeout_s, self.persist_offsets, self._batches.get(task))
        self._batches[task] = stream
        return stream

    def abandon(self, messages: ReceivedMessage | Sequence[ReceivedMessage]) -> None:
        """Say that nobody will settle *messages*, one or several: closing does not wait for them, they come again."""
        for message in (messages,) if isinstance(messages, ReceivedMessage) else messages:
            if self._source is not None and not message.settled:
                self._source.abandon(message)

    # While it runs.

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues held now."""
        return sorted(self._membership.held)

    def pause(self) -> None:
        """Pull nothing more; what has been pulled is still consumed."""
        self._membership.paused = True

    def resume(self) -> None:
        self._membership.paused = False
        self.rebalance_soon()

    async def subscribe(self, topic: str, expression: Expression = SUB_ALL) -> None:
        """Consume *topic* too from now on, or with another *expression*. All members of the group should do so.

        Raises BrokerError when a broker refuses the expression.
        """
        topic = self._hub.namespace.unwrap(check_topic(topic))
        self._membership.subscriptions[topic] = subscription_data(topic, expression)
        if self._is_open:
            await self._find_routes()
            await self._check_expressions()
            await self._hub.heartbeat()
            self._rebalance.wake()

    async def unsubscribe(self, topic: str) -> None:
        """Consume *topic* no more: its queues are given up at once."""
        topic = self._hub.namespace.unwrap(topic)
        if self._membership.subscriptions.pop(topic, None) is not None and self._is_open:
            await self._hub.heartbeat()
            await self._assignment.rebalance()

    @property
    def counts(self) -> ConsumerCounts:
        """What has been received since the start, what has failed, and what is to be done. From any thread."""
        return self._membership.counts()

    def received(self) -> dict[str, int]:
        """How many messages have been pulled since the start, by topic. From any thread."""
        return {topic: one.totals()[0] for topic, one in list(self._membership.statistics.items())}

    def watch_calls(self, watch: CallsWatch) -> None:
        """Let *watch* be told, in the event loop, of what handlers' calls have taken; it must not block."""
        self._membership.watch_calls = watch

    @property
    def session(self) -> Session:
        """The session whose member it is."""
        return self._hub

    @property
    def has_ended(self) -> bool:
        """Whether it has been closed, and will count nothing more."""
        return self._ended.is_set()

    @property
    def is_closed(self) -> bool:
        """Whether it has been closed, or is being closed just now: nothing more is handed out then."""
        return self._is_closing

    @property
    def settings(self) -> ConsumerSettings:
        """The settings in force."""
        return self._membership.settings

    def change(self, /, **changes: object) -> None:
        """Change settings while the consumer runs: concurrency, batch sizes, thresholds and the like.

        Raises ConfigError for one that other members or work under way rely on, TypeError for an unknown one.
        """
        self._membership.settings = changed_while_running(self._membership.settings, changes)
        self._service.set_concurrency(self._membership.settings.concurrency)

    @property
    def concurrency(self) -> int:
        """How many handlers may run at once; can be set while the consumer runs."""
        return self._membership.settings.concurrency

    @concurrency.setter
    def concurrency(self, value: int) -> None:
        self.change(concurrency=value)

    def add_hook(self, hook: ConsumerHook) -> None:
        """Let *hook* look at what is pulled and at each call of the handler; see ConsumerHook."""
        self._membership.hooks.add(hook)

    def rebalance_soon(self) -> None:
        self._rebalance.wake()

    def topics(self) -> Iterable[str]:
        return self._membership.subscriptions

    async def persist_offsets(self) -> None:
        await self._membership.offsets.persist(list(self._membership.held))

    def heartbeat_data(self) -> ConsumerData:
        settings = self._membership.settings
        return ConsumerData(
            self.group,
            ConsumeType.CONSUME_PASSIVELY,
            MessageModel[settings.message_model],
            ConsumeFromWhere[settings.from_where],
            list(self._membership.subscriptions.values()),
        )

    # The inside.

    def _make_service(self, handler: BatchHandler | None) -> ConsumeService:
        orderly = self._membership.settings.orderly
        if handler is not None:
            own = handler.handler if isinstance(handler, EachMessage) else handler
            if isinstance(own, ThreadHandler):
                if orderly:
                    return ThreadedOrderlyService(self._membership, handler, self._locks, own)
                return ThreadedService(self._membership, handler, own)
            if orderly:
                return OrderlyService(self._membership, handler, self._locks)
            return ConcurrentService(self._membership, handler)
        if orderly:
            handoff = self._source = Handoff()
            return OrderlyService(self._membership, EachMessage(handoff.handle), self._locks, handoff)
        stream = self._source = StreamService(self._membership)
        return stream

    @staticmethod
    def _offset_store(hub: Session, group: str, settings: ConsumerSettings) -> OffsetStore:
        if settings.message_model == "CLUSTERING":
            return RemoteOffsets(hub, group)
        if settings.offsets_dir is None:
            return MemoryOffsets()
        stable_id = client_id(hub.settings, stable=True)
        return FileOffsets(Path(settings.offsets_dir), stable_id, group, hub.namespace)

    def _source_or_raise(self) -> Source:
        if self._source is None:
            raise ClientStateError("this consumer has a handler: its messages cannot be iterated over too")
        if not self._is_open:
            if self._is_closing:
                raise ClientClosedError(f"the consumer of group {self.group} is closed: make a new one")
            raise ClientStateError(
                f"the consumer of group {self.group} is not open: use it inside a with statement, or call start()"
            )
        return self._source

    async def _find_routes(self) -> None:
        for topic in self._membership.subscriptions:
            try:
                await self._hub.routes.refresh(topic)
            except MQError as error:
                log.warning("route not found yet", topic=topic, error=error)

    async def _check_expressions(self) -> None:
        for topic, subscription in self._membership.subscriptions.items():
            address = self._hub.routes.random_broker_address(topic)
            if address is not None and not is_tag_type(subscription.expression_type):
                await self._hub.api.check_subscription(address, self.group, subscription)


class MessageStream:
    """One iteration over a consumer. Asking for the next message says that the one before is done."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._last: ReceivedMessage | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        self.done_with_last()
        messages = await self._source.receive(1, None)
        if not messages:
            raise StopAsyncIteration
        self._last = messages[0]
        return self._last

    def done_with_last(self) -> None:
        last, self._last = self._last, None
        if last is not None and not last.settled:
            last.ack()

    def abandon_last(self) -> None:
        last, self._last = self._last, None
        if last is not None and not last.settled:
            self._source.abandon(last)
