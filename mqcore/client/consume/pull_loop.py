"""The loop that pulls one queue into a consumer, and what is made of an answer: one loop for all kinds of consumers.

Source: RocketMQ DefaultMQPushConsumerImpl.java, pullMessage; PullAPIWrapper.java.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

from mqcore import clock
from mqcore.cause_log import CauseLog
from mqcore.client.consume.handling import ConsumeService
from mqcore.client.consume.membership import HeldQueue, Membership
from mqcore.client.model.messages import ReceivedMessage, Settler
from mqcore.client.model.namespace import Namespace
from mqcore.client.model.subscription import tags_wanted
from mqcore.client.session.broker_api import PullRequest, PullResponse, PullTaker
from mqcore.client.session.failures import is_gone
from mqcore.client.telemetry.consumer_hooks import FilterContext
from mqcore.codes import MQVersion, ResponseCode
from mqcore.errors import BrokerError, ClientError, MQError
from mqcore.protocol.buffer import Buffer
from mqcore.protocol.codec import decode_pulled
from mqcore.protocol.heartbeat import SubscriptionData, is_tag_type
from mqcore.protocol.message import MessageQueue

log = CauseLog(logging.getLogger(__name__))

FAILED_DELAY_S = 1.0
FULL_DELAY_S = 0.05
BROKER_FLOW_CONTROL_DELAY_S = 0.02
PAUSED_DELAY_S = 1.0
IDLE_WAIT_S = 10.0
"""How long a queue whose offset was illegal waits for the handlers that still work on it."""

MIB = 1024 * 1024

Reset = Callable[[HeldQueue], Awaitable[None]]
"""Forgets a queue whose offset was corrected, so that it is taken anew."""


def received(
    response: PullResponse,
    records: Buffer,
    queue: MessageQueue,
    subscription: SubscriptionData,
    *,
    retry_topic: str | None = None,
    held: HeldQueue | None = None,
    settler: Settler | None = None,
    acyclic: bool = False,
    names: Namespace,
) -> list[ReceivedMessage]:
    """Return the messages of a pull that the subscription really wants; those of *retry_topic* show their first topic.

    *records* are copied from; they need not stay.
    *acyclic* says that neither *held* nor *settler* leads back to a message: see ``decode_pulled``.
    Raises ProtocolError at a record that contradicts the layout.
    """
    return decode_pulled(
        ReceivedMessage,
        records,
        queue,
        tags_wanted(subscription),
        response.min_offset,
        response.max_offset,
        None if retry_topic is None else names.wrap(retry_topic),
        held,
        settler,
        acyclic,
        names.unwrap if names else None,
    )


class PullingLoop(ABC):
    """Pulls the queue of *held* until that is dropped: a task for each queue runs one of these.

    What is the same for all consumers is here. They differ in when there is room for more, in what a pull asks for, and
    in where messages go.
    """

    def __init__(self, membership: Membership, held: HeldQueue, pull_timeout_s: float) -> None:
        self._membership = membership
        self._held = held
        self._pull_timeout_s = pull_timeout_s
        self._master: str | None = None
        """Where the last pull went, unless that is a slave."""

    @property
    def is_current(self) -> bool:
        """Whether what is pulled is still wanted."""
        return not self._held.dropped

    @property
    @abstractmethod
    def next_offset(self) -> int:
        """Where the next pull begins."""

    @abstractmethod
    async def _wait_for_room(self) -> float | None:
        """Wait until there may be room for more; return how long to rest then, seconds, or None: pull now."""

    @abstractmethod
    def _request(self, subscription: SubscriptionData, is_slave: bool) -> PullRequest:
        """Return what to ask a broker for, at the next offset."""

    @abstractmethod
    def _received(
        self, response: PullResponse, records: memoryview, subscription: SubscriptionData
    ) -> list[ReceivedMessage]:
        """Return the messages of an answer."""

    @abstractmethod
    def _take(self, response: PullResponse, messages: list[ReceivedMessage]) -> float:
        """Take *messages*, if any, and go on at the offset behind them; return how long to rest, seconds."""

    @abstractmethod
    async def _correct(self, response: PullResponse) -> float:
        """Go on at the offset that a broker names, as there is nothing at ours; return how long to rest, seconds."""

    async def run(self) -> None:
        """Loop until the queue is dropped. A failure that nobody foresaw is logged here and the pull tried again."""
        while self.is_current:
            try:
                pause_s = await self._step()
            except BrokerError as error:
                pause_s = self._pause_after(error)
            except MQError as error:
                log.warning("pull failed", group=self._membership.group, queue=self._held.queue, error=error)
                pause_s = await pause_after(error, self._membership, self._held.queue, self._master)
            except Exception as error:
                log.warning("pull failed", exc_info=error, group=self._membership.group, queue=self._held.queue)
                pause_s = FAILED_DELAY_S
            if pause_s:
                await asyncio.sleep(pause_s)

    async def _step(self) -> float:
        """Pull once, if the consumer has room; return how long to rest before the next pull, seconds."""
        self._held.last_pull_s = clock.now_s()
        pause_s = await self._wait_for_room()
        if pause_s is not None:
            return pause_s
        subscription = self._membership.subscriptions.get(self._held.queue.topic)
        if subscription is None:
            return FAILED_DELAY_S
        begin = clock.monotonic_s()
        messages: list[ReceivedMessage] = []

        def take(response: PullResponse, records: memoryview) -> None:
            messages.extend(self._received(response, records, subscription))

        response = await self._pull(subscription, take)
        if not self.is_current:
            return 0.0
        return await self._answered(response, messages, (clock.monotonic_s() - begin) * 1000)

    async def _pull(self, subscription: SubscriptionData, take: PullTaker) -> PullResponse:
        membership, queue = self._membership, self._held.queue
        self._master = None
        address, is_slave = await membership.hub.pull_address(queue, membership.preferred_broker_id.get(queue, 0))
        self._master = None if is_slave else address
        if not is_tag_type(subscription.expression_type):
            check_sql_version(membership.hub.broker_versions.get(address, 0), address)
        return await membership.hub.api.pull(address, self._request(subscription, is_slave), self._pull_timeout_s, take)

    async def _answered(self, response: PullResponse, messages: list[ReceivedMessage], time_ms: float) -> float:
        membership, held, queue = self._membership, self._held, self._held.queue
        membership.preferred_broker_id[queue] = response.suggested_broker_id
        held.behind = max(0, response.max_offset - response.next_offset)
        if response.code == ResponseCode.PULL_OFFSET_MOVED:
            if self._master is None and response.next_offset < self.next_offset:
                return pause_behind(membership.group, queue, self.next_offset, response)
            log.warning(
                "offset is illegal, corrected",
                group=membership.group,
                queue=queue,
                offset=self.next_offset,
                corrected=response.next_offset,
                min=response.min_offset,
                max=response.max_offset,
            )
            return await self._correct(response)
        if response.code == ResponseCode.SUCCESS:
            if membership.hooks.any:
                messages = await self._shown_to_hooks(messages, time_ms)
                if not self.is_current:
                    return 0.0
            membership.statistics[queue.topic].add_pull(len(messages), time_ms)
        return self._take(response, messages)

    async def _shown_to_hooks(self, messages: list[ReceivedMessage], time_ms: float) -> list[ReceivedMessage]:
        """Let the hooks look at what a pull brought, and return what their filters leave."""
        context = FilterContext(
            group=self._membership.group, queue=self._held.queue, messages=messages, pull_time_ms=time_ms
        )
        await self._membership.hooks.filter_messages(context)
        return context.messages

    def _pause_after(self, error: BrokerError) -> float:
        if error.code == ResponseCode.FLOW_CONTROL:
            return BROKER_FLOW_CONTROL_DELAY_S
        if error.code in (ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST):
            self._membership.hub.heartbeat_soon()  # the broker has restarted, or has not heard of a change yet
        log.warning("pull refused", group=self._membership.group, queue=self._held.queue, error=error)
        return FAILED_DELAY_S


class QueuePullLoop(PullingLoop):
    """Pulls *held* from *next_offset* on, for *service* to hand out."""

    def __init__(
        self,
        membership: Membership,
        service: ConsumeService,
        held: HeldQueue,
        next_offset: int,
        *,
        reset: Reset,
    ) -> None:
        super().__init__(membership, held, membership.settings.pull_timeout_s)
        self._service = service
        self._reset = reset
        self._next_offset = next_offset

    @property
    def next_offset(self) -> int:
        return self._next_offset

    async def _wait_for_room(self) -> float | None:
        membership, held = self._membership, self._held
        if membership.paused:
            return PAUSED_DELAY_S
        if self._is_full():
            await held.wait_change(FULL_DELAY_S)
            return 0.0
        return FAILED_DELAY_S if membership.needs_broker_locks and not held.locked else None

    def _is_full(self) -> bool:
        """Whether more would be too much: of messages, of bytes, or too far ahead of an unfinished one."""
        held, settings = self._held, self._membership.settings
        count_max, mib_max = self._membership.queue_thresholds()
        if held.count > count_max or held.size // MIB > mib_max:
            return True
        return not settings.orderly and held.span > settings.max_span

    def _request(self, subscription: SubscriptionData, is_slave: bool) -> PullRequest:
        settings = self._membership.settings
        return PullRequest(
            group=self._membership.group,
            queue=self._held.queue,
            offset=self._next_offset,
            messages_max=settings.pull_batch_size,
            sub_version=subscription.sub_version,
            expression_type=subscription.expression_type,
            subscription=subscription.sub_string if settings.send_expression_with_pull else None,
            commit_offset=None if is_slave else self._offset_to_commit(),
            hold_s=settings.hold_timeout_s,
        )

    def _offset_to_commit(self) -> int | None:
        """The offset to commit by the pull itself: only when nothing before it is unfinished.

        Java commits by every pull. A broker may work on such a pull after the commit that follows it, and set the
        group back: who takes the queue over then consumes twice. From here on only this pull's answer can bring
        anything to finish, and a broker commits before it answers, so this commit cannot be late.
        """
        committed = self._membership.offsets.known(self._held.queue)
        if committed != self._next_offset or committed == 0 or self._membership.is_broadcasting:
            return None
        return committed

    def _received(
        self, response: PullResponse, records: memoryview, subscription: SubscriptionData
    ) -> list[ReceivedMessage]:
        return received(
            response,
            records,
            self._held.queue,
            subscription,
            retry_topic=self._membership.retry_topic,
            held=self._held,
            settler=self._service.settler,
            names=self._membership.hub.namespace,
        )

    def _take(self, response: PullResponse, messages: list[ReceivedMessage]) -> float:
        held, self._next_offset = self._held, response.next_offset
        if messages:
            dispatch = held.put(messages)
            held.pulled_to = response.next_offset
            self._service.submit(held, messages, dispatch)
            return self._membership.settings.pull_interval_s
        if not held.count:
            self._membership.commit(held, response.next_offset)
        return 0.0

    async def _shown_to_hooks(self, messages: list[ReceivedMessage], time_ms: float) -> list[ReceivedMessage]:
        return await super()._shown_to_hooks(messages, time_ms) if self._membership.hooks.any_filter else messages

    async def _correct(self, response: PullResponse) -> float:
        """Go to the offset that the broker names, backwards too: what was asked for is not there.

        RocketMQ waits ten seconds for handlers that still work on the queue; here they are waited for, as long at most.
        """
        held, membership = self._held, self._membership
        held.dropped = True
        try:
            await held.wait_idle(IDLE_WAIT_S)
            membership.offsets.update(held.queue, response.next_offset, increase_only=False)
            await membership.offsets.persist([held.queue])
        finally:
            await self._reset(held)  # whatever happened: a queue that is held and dropped would be pulled by nobody
        return 0.0


async def pause_after(error: MQError, membership: Membership, queue: MessageQueue, master: str | None) -> float:
    """Return how long to rest after a pull that failed, seconds, when *master*, or a slave, was pulled from.

    The next pull goes to the master, or to a slave while there is none, as soon as a name server says who that is.
    """
    if not is_gone(error):
        return FAILED_DELAY_S
    membership.preferred_broker_id.pop(queue, None)
    return 0.0 if await membership.hub.masters.wait(queue.broker_name, master, FAILED_DELAY_S) else FAILED_DELAY_S


def pause_behind(group: str, queue: MessageQueue, offset: int, response: PullResponse) -> float:
    """Return how long to rest when a slave says that its queue ends before *offset*.

    It has not got the rest yet. A master may say so; to go back by what a slave says would give out messages twice, and
    commit less than was committed.
    """
    log.warning("a slave is behind", group=group, queue=queue, offset=offset, max=response.max_offset)
    return FAILED_DELAY_S


def check_sql_version(broker_version: int, address: str) -> None:
    """Raise ClientError when a broker is too old for SQL92, or has not answered a heart-beat yet."""
    if broker_version < MQVersion.V4_1_0_SNAPSHOT:
        raise ClientError(
            f"The broker[{address}] does not upgrade to support for filter message by SQL92: version {broker_version}"
        )
