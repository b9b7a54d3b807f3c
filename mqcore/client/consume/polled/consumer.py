"""The pull consumer of mqcore.aio: the application asks for messages when it wants them, and says where to read.

It either shares topics with its group (``subscribe``) or reads queues of its choice (``assign``). Queues are pulled
ahead in the background. Reading without a group is in pull_api.py.
Source: RocketMQ DefaultLitePullConsumerImpl.java.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from mqcore import clock
from mqcore.cause_log import CauseLog
from mqcore.client.consume.membership import CallsWatch, Membership
from mqcore.client.consume.offsets import FileOffsets, MemoryOffsets, OffsetStore
from mqcore.client.consume.polled.assignment import LiteAssignment, QueuesCallback
from mqcore.client.consume.polled.codec import Batch
from mqcore.client.consume.polled.offsets import CommitOffsets, timestamp_ms
from mqcore.client.consume.polled.queue import AssignedQueue
from mqcore.client.consume.polled.queues import PollService, ReadyBatches
from mqcore.client.consume.polled.watch import RouteWatch, TopicCallback
from mqcore.client.errors import ClientClosedError, ClientStateError
from mqcore.client.model.counters import ConsumerCounts
from mqcore.client.model.messages import ReceivedMessage
from mqcore.client.model.subscription import Expression, subscription_data
from mqcore.client.model.validators import check_count, check_topic
from mqcore.client.session.identity import client_id
from mqcore.client.session.tasks import Periodic, cancel_and_wait
from mqcore.client.settings.classes import MessageModel as Model
from mqcore.client.settings.pull_consumer import PullConsumerSettings
from mqcore.client.telemetry.consumer_hooks import ConsumerHook
from mqcore.errors import ArgumentError, ClientError, MQError
from mqcore.protocol.heartbeat import (
    SUB_ALL,
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
    is_tag_type,
)
from mqcore.protocol.message import MessageQueue

if TYPE_CHECKING:
    from mqcore.client.session.session import Session
    from mqcore.client.telemetry.trace import TraceDispatcher

log = CauseLog(logging.getLogger(__name__))

MUTUALLY_EXCLUSIVE = "Subscribe and assign are mutually exclusive."


class PullConsumer:
    """Reads queues at the application's pace. Made by ``Client.pull_consumer``; used inside ``async with``.

    ``poll`` returns what one pull brought; iterating gives message by message. With ``auto_commit`` a message counts as
    done when the next poll, or the next step of the iteration, begins; what is done is committed every
    ``auto_commit_interval_s``, when a queue is given up, and at the end. Leaving the block in order commits the last
    messages too; leaving it by an exception does not, and they come again.
    """

    def __init__(
        self,
        hub: Session,
        group: str,
        topics: Mapping[str, Expression],
        settings: PullConsumerSettings,
        on_assigned: QueuesCallback | None = None,
        on_revoked: QueuesCallback | None = None,
    ) -> None:
        subscriptions = {check_topic(topic): subscription_data(topic, text) for topic, text in topics.items()}
        self._hub = hub
        self._settings = settings
        self._offsets = _offset_store(hub, group, settings)
        self._membership = Membership(hub, group, settings.as_member(), self._offsets, subscriptions)
        self._ready = ReadyBatches()
        self._unfinished: dict[MessageQueue, int] = {}
        self._tracer: TraceDispatcher | None = None
        if settings.trace:
            from mqcore.client.consume.trace import trace_consumer  # few trace, and it takes long to import

            self._tracer = trace_consumer(self._membership, settings)
        service = PollService(self._ready)
        self._assignment = LiteAssignment(
            self._membership, settings, service, self._unfinished, on_assigned, on_revoked
        )
        every_s = settings.rebalance_interval_s
        self._rebalance = Periodic(
            f"rebalance of {group}", self._assignment.rebalance, first_s=every_s, every_s=every_s
        )
        self._assignment.rebalance_soon = self._rebalance.wake
        self._watch = RouteWatch(hub, group, settings.topic_check_interval_s)
        self._commit_due_s = 0.0
        self._committing: asyncio.Task[None] | None = None
        self._is_open = False
        self._is_closing = False
        self._ended = asyncio.Event()
        self.group = group
        # As for the other consumers: imported where somebody consumes.
        from mqcore.client.consume.polled.control import PullRemoteControl

        self.control: PullRemoteControl = PullRemoteControl(self._membership, settings, service, self._assignment)

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
            await self._offsets.load()
            if self._tracer is not None:
                await self._tracer.start()
            for topic in list(self._membership.subscriptions):
                await self._find_route(topic)
            await self._hub.heartbeat()
            await self._assignment.rebalance()
            self._rebalance.start()
            self._watch.start()
        except BaseException:
            await self.close(drain=False)
            raise

    async def close(self, *, drain: bool = True, timeout_s: float | None = None) -> None:
        """Stop pulling, commit, leave the group, all within *timeout_s*; whoever polls gets nothing more.

        With *drain* and ``auto_commit`` everything that the application has got counts as done, without *drain* only
        what it had finished. A second caller waits until the first has done it.
        """
        if self._is_closing:
            await self._ended.wait()
        if not self._is_open:
            return
        self._is_closing = True
        timeout_s = self._hub.settings.close_timeout_s if timeout_s is None else timeout_s
        try:
            await self._leave(timeout_s, drain=drain)
        finally:
            self._is_open = False
            self._ended.set()

    async def _leave(self, timeout_s: float, *, drain: bool) -> None:
        deadline_s = clock.monotonic_s() + timeout_s
        self._ready.close()
        await self._watch.stop()
        await self._assignment.stop(timeout_s)
        await self._rebalance.stop()
        if self._settings.auto_commit:
            self._note_positions(with_unfinished=drain)
        try:
            async with asyncio.timeout(max(0.0, deadline_s - clock.monotonic_s())):
                await self._assignment.revoke_all()
                await self._offsets.persist(list(self._membership.held))
        except TimeoutError:
            log.warning("closed before all offsets were committed", group=self.group, timeout_s=timeout_s)
        if self._committing is not None:
            await cancel_and_wait(self._committing)
        if self._tracer is not None:
            await self._tracer.close()
        self._assignment.drop_all()
        await self._hub.remove_consumer(self)

    async def wait_closed(self) -> None:
        """Return when the consumer has been closed."""
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
        await self.close(drain=kind is None)

    # What to read.

    async def subscribe(self, topic: str, expression: Expression = SUB_ALL) -> None:
        """Share *topic* with the group; another expression for the same topic replaces the first."""
        if self._assignment.named is not None:
            raise ClientStateError(MUTUALLY_EXCLUSIVE)
        topic = self._hub.namespace.unwrap(check_topic(topic))
        self._membership.subscriptions[topic] = subscription_data(topic, expression)
        if self._is_open:
            await self._find_route(topic)
            await self._hub.heartbeat()
            await self._assignment.rebalance()

    async def unsubscribe(self, topic: str) -> None:
        """Give up *topic*; without effect when it is not subscribed."""
        if self._assignment.named is not None:
            raise ClientStateError(MUTUALLY_EXCLUSIVE)
        topic = self._hub.namespace.unwrap(topic)
        if topic in self._membership.subscriptions:
            await self._assignment.release(topic)
            del self._membership.subscriptions[topic]
            if self._is_open:
                await self._hub.heartbeat()

    async def assign(
        self, queues: Iterable[MessageQueue], *, expression: Expression | Mapping[str, Expression] = SUB_ALL
    ) -> None:
        """Read exactly *queues*, whatever the group's other members read. Each begins where the group has committed.

        A later call replaces the set; queues that are in both go on where they are. *expression* is for all topics, or
        says for each topic which messages are wanted.
        """
        if self._assignment.named is None and self._membership.subscriptions:
            raise ClientStateError(MUTUALLY_EXCLUSIVE)
        chosen = set(queues)
        wanted: dict[str, SubscriptionData] = {}
        for topic in {check_topic(queue.topic) for queue in chosen}:
            text = expression.get(topic, SUB_ALL) if isinstance(expression, Mapping) else expression
            wanted[topic] = subscription_data(topic, text)
            if self._is_open:
                await self._hub.routes.refresh(topic)
                await self._check_expression(wanted[topic])
        subscriptions = self._membership.subscriptions
        subscriptions |= wanted
        self._assignment.name(chosen)
        if self._is_open:
            await self._assignment.rebalance()
        for topic in set(subscriptions) - set(wanted):
            del subscriptions[topic]

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
    def assignment(self) -> list[MessageQueue]:
        """The queues read now, sorted."""
        return sorted(self._assignment.queues)

    def topics(self) -> Iterable[str]:
        """The topics subscribed to, or of the assigned queues."""
        return tuple(self._membership.subscriptions)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return all readable queues of *topic*, as the name server has them now; none when it has no route."""
        await self._hub.routes.refresh(topic)
        return sorted(await self._hub.routes.subscribe_queues(topic))

    def watch_queues(self, topic: str, callback: TopicCallback) -> None:
        """Call *callback* with *topic* and all its queues when these have changed since the last look."""
        self._watch.add(check_topic(topic), callback)

    def add_hook(self, hook: ConsumerHook) -> None:
        """Let *hook* look at what each pull brings, and take out what is not wanted; see ConsumerHook."""
        self._membership.hooks.add(hook)

    # Getting messages.

    async def poll(self, timeout_s: float | None = None, max_messages: int | None = None) -> list[ReceivedMessage]:
        """Return the next messages, all of one queue, in order; none when *timeout_s* passes or the consumer closes.

        What earlier polls returned is done: with ``auto_commit`` it will be committed.
        """
        self._check_open()
        check_poll(timeout_s, max_messages)
        self._finish_unfinished()
        batch = await self._ready.take(self._settings.poll_timeout_s if timeout_s is None else timeout_s)
        if batch is None:
            return []
        messages = batch.take(max_messages)
        self._ready.put_back(batch)
        self.hand_out(batch)
        return messages

    def __aiter__(self) -> Self:
        self._check_open()
        return self

    async def __anext__(self) -> ReceivedMessage:
        self._finish_unfinished()
        while (batch := await self._ready.take(None)) is not None:
            message = batch.take_one()
            if message is not None:
                self._ready.put_back(batch)
                self.hand_out(batch)
                return message
        raise StopAsyncIteration

    def claim_now(self) -> Batch | None:
        """Take a batch as ``claim`` does, if there is one; for any thread. ``note`` has to follow."""
        return self._ready.take_now()

    async def claim(self, timeout_s: float | None) -> Batch | None:
        """Take a batch, from which another thread hands out messages that ``note`` counts; None when closing."""
        if not self._is_closing:
            self._check_open()
        self._finish_unfinished()
        return await self._ready.take(timeout_s)

    def note(self, batches: Iterable[Batch]) -> None:
        """Note, in the event loop, what was taken from claimed *batches* until now, and commit when that is due."""
        for batch in batches:
            batch.is_noted = False
            self.hand_out(batch)
        self._ready.made_room()
        self._commit_when_due()

    def hand_out(self, batch: Batch) -> None:
        """Note that the application has got what was taken from *batch*, and is done with all that it got before."""
        in_hand_offset = batch.in_hand_offset
        if batch.is_current and batch.catch_up():
            self._unfinished.clear()
            self._unfinished[batch.assigned.held.queue] = in_hand_offset

    # Moving about.

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on in *queue* at *offset*: no later poll returns what was pulled before this call.

        ClientError when the queue is not read by this consumer, or has no such offset.
        """
        self._check_assigned(queue)
        first, end = await asyncio.gather(self._min_offset(queue), self._max_offset(queue))
        if not first <= offset <= end:
            raise ClientError(
                f"Seek offset illegal, seek offset = {offset}, min offset = {first}, max offset = {end}: {queue}"
            )
        await self._seek(queue, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the queue's first message."""
        self._check_assigned(queue)
        await self._seek(queue, await self._min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on behind the queue's last message."""
        self._check_assigned(queue)
        await self._seek(queue, await self._max_offset(queue))

    async def seek_to_time(self, queue: MessageQueue, when: datetime | float) -> None:
        """Go on at the first message stored at *when* (a datetime, or seconds since 1970) or later."""
        self._check_assigned(queue)
        await self._seek(queue, await self.offset_for_time(queue, when))

    async def offset_for_time(self, queue: MessageQueue, when: datetime | float) -> int:
        """Return the offset of the message stored at *when* (a datetime, or seconds since 1970), or the nearest one."""
        address = await self._hub.master_address(queue)
        return await self._hub.api.search_offset(address, queue, timestamp_ms(when))

    def pause(self, *queues: MessageQueue) -> None:
        """Pull nothing more of *queues*, or of all assigned ones; what has been pulled can still be polled."""
        for assigned in self._chosen(queues):
            assigned.resumed.clear()

    def resume(self, *queues: MessageQueue) -> None:
        for assigned in self._chosen(queues):
            assigned.resumed.set()

    @property
    def paused(self) -> list[MessageQueue]:
        """The paused queues, sorted."""
        return sorted(assigned.held.queue for assigned in list(self._assignment.queues.values()) if assigned.paused)

    # Offsets.

    def position(self, queue: MessageQueue) -> int:
        """Return the offset of the next message that a poll would return of *queue*."""
        self._check_assigned(queue)
        assigned = self._assignment.queues.get(queue)
        if assigned is None:
            raise ClientStateError(f"the place to start is not known yet: {queue}")
        return assigned.position

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the offset that the group has committed in *queue*, or None when it has none."""
        known = self._offsets.known(queue) if queue in self._assignment.queues else None
        return await self._offsets.stored(queue) if known is None else known

    async def commit(self, offsets: Mapping[MessageQueue, int] | Iterable[MessageQueue] | None = None) -> None:
        """Commit, and return when it is stored: everything that the application has got, or that of some queues.

        A mapping gives the offsets themselves: of the message to consume next. Raises MQError when a broker does not
        take it, ClientError for queues that this consumer does not read.
        """
        self._check_open()
        chosen: dict[MessageQueue, int] = {}
        for queue in self._assignment.queues if offsets is None else offsets:
            self._check_assigned(queue)
            if isinstance(offsets, Mapping):
                chosen[queue] = offsets[queue]
            elif queue in self._assignment.queues:
                chosen[queue] = self._assignment.position(queue, with_unfinished=True)
        if isinstance(self._offsets, CommitOffsets):
            await self._offsets.commit(chosen)
            return
        for queue, offset in chosen.items():
            self._offsets.update(queue, offset, increase_only=False)
        await self._offsets.persist(chosen)

    # What the client instance asks.

    def rebalance_soon(self) -> None:
        self._rebalance.wake()

    async def persist_offsets(self) -> None:
        await self._offsets.persist(list(self._membership.held))

    def heartbeat_data(self) -> ConsumerData:
        """Tell brokers of this member. Who assigns queues to itself subscribes to nothing."""
        subscribed = self._assignment.named is None
        return ConsumerData(
            self.group,
            ConsumeType.CONSUME_ACTIVELY,
            MessageModel[self._membership.settings.message_model],
            ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            list(self._membership.subscriptions.values()) if subscribed else [],
        )

    # The inside.

    def _check_open(self) -> None:
        if not self._is_open:
            raise ClientStateError(
                "The consumer not running, please start it first: use it inside a with statement, or call start()"
            )

    def _check_assigned(self, queue: MessageQueue) -> None:
        self._check_open()
        named = self._assignment.named
        if queue in self._assignment.queues or (named is not None and queue in named):
            return
        why = "" if named is not None else ", may be rebalancing"
        raise ClientError(f"The message queue is not in assigned list{why}, message queue: {queue}")

    async def _seek(self, queue: MessageQueue, offset: int) -> None:
        self._check_assigned(queue)
        self._unfinished.pop(queue, None)
        assigned = self._assignment.queues.get(queue)
        if assigned is None:
            self._assignment.start_at(queue, offset)
        else:
            await self._assignment.seek(assigned, offset)

    async def _min_offset(self, queue: MessageQueue) -> int:
        return await self._hub.api.min_offset(await self._hub.master_address(queue), queue)

    async def _max_offset(self, queue: MessageQueue) -> int:
        return await self._hub.api.max_offset(await self._hub.master_address(queue), queue)

    def _chosen(self, queues: tuple[MessageQueue, ...]) -> list[AssignedQueue]:
        for queue in queues:
            self._check_assigned(queue)
        held = self._assignment.queues
        return [held[queue] for queue in queues or tuple(held) if queue in held]

    def _finish_unfinished(self) -> None:
        """What the application had in hand is done."""
        self._unfinished.clear()
        self._commit_when_due()

    def _commit_when_due(self) -> None:
        """Commit in the background what is done, if the last time is long enough ago."""
        if self._settings.auto_commit and clock.monotonic_s() >= self._commit_due_s:
            self._commit_due_s = clock.monotonic_s() + self._settings.auto_commit_interval_s
            self._note_positions(with_unfinished=False)
            if self._committing is None or self._committing.done():
                self._committing = asyncio.create_task(self.persist_offsets(), name=f"mqcore commit of {self.group}")

    def _note_positions(self, *, with_unfinished: bool) -> None:
        for queue in self._assignment.queues:
            position = self._assignment.position(queue, with_unfinished=with_unfinished)
            self._offsets.update(queue, position, increase_only=False)

    async def _find_route(self, topic: str) -> None:
        try:
            await self._hub.routes.refresh(topic)
        except MQError as error:
            log.warning("route not found yet", topic=topic, error=error)
            return
        await self._check_expression(self._membership.subscriptions[topic])

    async def _check_expression(self, subscription: SubscriptionData) -> None:
        """Let a broker compile an SQL92 expression; BrokerError when it cannot."""
        address = self._hub.routes.random_broker_address(subscription.topic)
        if address is not None and not is_tag_type(subscription.expression_type):
            await self._hub.api.check_subscription(address, self.group, subscription)


def check_poll(timeout_s: float | None, max_messages: int | None) -> None:
    """Raise ArgumentError when these cannot be the arguments of a poll."""
    if timeout_s is not None and timeout_s < 0:
        raise ArgumentError(f"poll: got timeout_s {timeout_s}, wanted 0 or more")
    if max_messages is not None:
        check_count("max_messages", max_messages)


def _offset_store(hub: Session, group: str, settings: PullConsumerSettings) -> OffsetStore:
    if settings.message_model == Model.CLUSTERING:
        return CommitOffsets(hub, group)
    if settings.offsets_dir is None:
        return MemoryOffsets()
    stable_id = client_id(hub.settings, stable=True)
    return FileOffsets(Path(settings.offsets_dir), stable_id, group, hub.namespace)
