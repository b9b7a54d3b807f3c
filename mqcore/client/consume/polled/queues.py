"""The queues of a pull consumer: what is cached of each, the loop that fills it, and the batches that wait for a poll.

One task per queue pulls ahead of the application, within three limits. A seek gives the queue a new *turn*: what was
pulled in an earlier turn, or is just being pulled, is never handed out.
Source: RocketMQ DefaultLitePullConsumerImpl.java, PullTaskImpl; AssignedMessageQueue.java.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Sequence

from mqcore import clock
from mqcore.cause_log import CauseLog
from mqcore.client.consume.membership import HeldQueue, Membership
from mqcore.client.consume.polled.codec import Batch
from mqcore.client.consume.polled.queue import AssignedQueue
from mqcore.client.consume.pull_loop import (
    BROKER_FLOW_CONTROL_DELAY_S,
    FAILED_DELAY_S,
    MIB,
    check_sql_version,
    pause_after,
    pause_behind,
    received,
)
from mqcore.client.errors import ClientStateError
from mqcore.client.model.messages import ReceivedMessage, Settler
from mqcore.client.model.outcome import Outcome
from mqcore.client.session import forks
from mqcore.client.session.broker_api import PullRequest, PullResponse, PullTaker
from mqcore.client.settings.pull_consumer import PullConsumerSettings
from mqcore.client.telemetry.consumer_hooks import ConsumeContext, FilterContext
from mqcore.codes import ResponseCode
from mqcore.errors import BrokerError, MQError
from mqcore.protocol.heartbeat import SubscriptionData, is_tag_type

log = CauseLog(logging.getLogger(__name__))

LOOK_AGAIN_S = 1.0
"""RocketMQ looks every 50 ms whether there is room again. Here the one who makes room wakes the loop; this is for
what nobody tells of."""


class ReadyBatches:
    """Batches in order of arrival, and those who wait for one.

    Another thread than the event loop's may call ``take_now``, and must let the loop call ``made_room`` then.
    """

    def __init__(self) -> None:
        self._batches: deque[Batch] = deque()
        self._lock = threading.Lock()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._closed = False
        forks.watch(self)

    def __len__(self) -> int:
        return len(self._batches)

    def put(self, batch: Batch) -> None:
        with self._lock:
            self._batches.append(batch)
        self._news.set()

    def put_back(self, batch: Batch) -> None:
        """Return what is left of a batch: it is the next one."""
        if batch:
            with self._lock:
                self._batches.appendleft(batch)
            self._news.set()

    def take_now(self) -> Batch | None:
        """Return the next batch, or None when there is none now."""
        with self._lock:
            while self._batches:
                batch = self._batches.popleft()
                if batch.is_current:
                    return batch
        return None

    def made_room(self) -> None:
        """Tell the pull loops that there are fewer batches than before."""
        self._room.set()

    async def take(self, timeout_s: float | None) -> Batch | None:
        """Return the next batch, or None when *timeout_s* passes or the consumer closes."""
        loop = asyncio.get_running_loop()
        deadline_s = None if timeout_s is None else loop.time() + timeout_s
        while not self._closed:
            batch = self.take_now()
            self.made_room()
            if batch is not None:
                return batch
            left_s = None if deadline_s is None else deadline_s - loop.time()
            if left_s is not None and left_s <= 0:
                return None
            self._news.clear()
            await wait_event(self._news, left_s)
        return None

    def drop_stale(self) -> None:
        """Forget batches of queues that were given up or sent elsewhere."""
        with self._lock:
            self._batches = deque(batch for batch in self._batches if batch.is_current)
        self._room.set()

    async def wait_room(self) -> None:
        self._room.clear()
        await wait_event(self._room, LOOK_AGAIN_S)

    def close(self) -> None:
        """Let everybody who waits go."""
        self._closed = True
        with self._lock:
            self._batches.clear()
        self._news.set()

    def after_fork(self, parent_pid: int) -> None:
        """In a forked child: a lock that somebody held is made anew, and the batches are the parent's."""
        self._lock = threading.Lock()
        self._batches.clear()


async def wait_event(event: asyncio.Event, timeout_s: float | None) -> None:
    """Return when *event* is set, or after *timeout_s*."""
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        pass


class PollService:
    """The consume service of a consumer that polls: what was pulled goes to the ready batches."""

    settler: Settler | None = None

    def __init__(self, ready: ReadyBatches) -> None:
        self.ready = ready

    def start(self) -> None:
        """Nothing runs here."""

    def submit(self, held: HeldQueue, messages: Sequence[ReceivedMessage], dispatch: bool) -> None:
        """Only the loops below bring messages, and they know the turn."""
        raise ClientStateError("a pull consumer takes batches, not single messages")

    def set_concurrency(self, concurrency: int) -> None:
        """Nothing runs here."""

    async def consume_directly(self, message: ReceivedMessage) -> Outcome:
        return Outcome(0, ClientStateError("this consumer polls, it has no handler to call"))

    def let_go(self, held: HeldQueue) -> None:
        """The assignment drops what is stale."""

    def halt(self) -> None:
        self.ready.close()

    async def close(self, timeout_s: float) -> None:
        self.halt()


class LitePullLoop:
    """Pulls one queue ahead of the application, in one turn of it. One task per queue runs one of these."""

    def __init__(
        self, membership: Membership, settings: PullConsumerSettings, assigned: AssignedQueue, ready: ReadyBatches
    ) -> None:
        self._membership = membership
        self._settings = settings
        self._assigned = assigned
        self._held = assigned.held
        self._turn = assigned.turn
        self._ready = ready
        self._master: str | None = None

    @property
    def is_current(self) -> bool:
        return self._turn == self._assigned.turn and not self._held.dropped

    async def run(self) -> None:
        """Loop until the queue is dropped or sent elsewhere. What nobody foresaw is logged and the pull tried again."""
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
        """Pull once, if there is room; return how long to rest before the next pull, seconds."""
        self._held.last_pull_s = clock.now_s()
        if self._assigned.paused:
            await wait_event(self._assigned.resumed, LOOK_AGAIN_S)
            return 0.0
        settings = self._settings
        if len(self._ready) * settings.pull_batch_size > settings.pull_threshold_for_all:
            await self._ready.wait_room()
            return 0.0
        if self._queue_is_full():
            await self._held.wait_change(LOOK_AGAIN_S)
            return 0.0
        subscription = self._membership.subscriptions.get(self._held.queue.topic)
        if subscription is None:
            return FAILED_DELAY_S
        begin = clock.monotonic_s()
        messages: list[ReceivedMessage] = []

        def take(response: PullResponse, records: memoryview) -> None:
            retry_topic, held = self._membership.retry_topic, self._held
            messages.extend(
                received(
                    response,
                    records,
                    held.queue,
                    subscription,
                    retry_topic=retry_topic,
                    held=held,
                    acyclic=True,
                    names=self._membership.hub.namespace,
                )
            )

        response = await self._pull(subscription, take)
        if not self.is_current:
            return 0.0
        return await self._take(response, messages, (clock.monotonic_s() - begin) * 1000)

    def _queue_is_full(self) -> bool:
        """RocketMQ's checks of one queue, in its order: messages, bytes, and how far apart the first and the last."""
        held, settings = self._held, self._settings
        return (
            held.count > settings.pull_threshold_for_queue
            or held.size // MIB > settings.pull_threshold_size_for_queue_mib
            or held.span > settings.max_span
        )

    async def _pull(self, subscription: SubscriptionData, take: PullTaker) -> PullResponse:
        membership, queue, settings = self._membership, self._held.queue, self._settings
        self._master = None
        address, is_slave = await membership.hub.pull_address(queue, membership.preferred_broker_id.get(queue, 0))
        self._master = None if is_slave else address
        by_tag = is_tag_type(subscription.expression_type)
        if not by_tag:
            check_sql_version(membership.hub.broker_versions.get(address, 0), address)
        request = PullRequest(
            group=membership.group,
            queue=queue,
            offset=self._assigned.next_offset,
            messages_max=settings.pull_batch_size,
            sub_version=0 if by_tag else subscription.sub_version,
            expression_type=subscription.expression_type,
            subscription=subscription.sub_string,
            hold_s=settings.hold_timeout_s,
            lite=True,
        )
        return await membership.hub.api.pull(address, request, settings.pull_timeout_s, take)

    async def _take(self, response: PullResponse, messages: list[ReceivedMessage], time_ms: float) -> float:
        membership, assigned, queue = self._membership, self._assigned, self._held.queue
        membership.preferred_broker_id[queue] = response.suggested_broker_id
        self._held.behind = max(0, response.max_offset - response.next_offset)
        if response.code == ResponseCode.SUCCESS:
            if membership.hooks.any:
                messages = await self._shown_to_hooks(messages)
                if not self.is_current:
                    return 0.0
            membership.statistics[queue.topic].add_pull(len(messages), time_ms)
        is_moved = response.code == ResponseCode.PULL_OFFSET_MOVED
        if is_moved and self._master is None and response.next_offset < assigned.next_offset:
            return pause_behind(membership.group, queue, assigned.next_offset, response)
        # From here on nothing waits: what lies before the next offset is in a batch, or it is done.
        asked, assigned.next_offset = assigned.next_offset, response.next_offset
        if is_moved:
            log.warning(
                "offset is illegal, corrected",
                group=membership.group,
                queue=queue,
                offset=asked,
                corrected=response.next_offset,
                min=response.min_offset,
                max=response.max_offset,
            )
            return FAILED_DELAY_S if response.next_offset == asked else 0.0
        if messages:
            self._ready.put(Batch(assigned, messages))
        return 0.0

    async def _shown_to_hooks(self, messages: list[ReceivedMessage]) -> list[ReceivedMessage]:
        """Let the hooks look at what a pull brought, and return what their filters leave.

        Nobody knows when the application is done with a message that it polls, so the hooks before and after consuming
        are called one after the other, at the pull, as Java does it.
        """
        hooks, group, queue = self._membership.hooks, self._membership.group, self._held.queue
        found = FilterContext(group=group, queue=queue, messages=messages)
        await hooks.filter_messages(found)
        if found.messages:
            context = ConsumeContext(group=group, queue=queue, messages=found.messages)
            await hooks.before_consume(context)
            await hooks.after_consume(context)
        return found.messages

    def _pause_after(self, error: BrokerError) -> float:
        if error.code == ResponseCode.FLOW_CONTROL:
            return BROKER_FLOW_CONTROL_DELAY_S
        log.warning("pull refused", group=self._membership.group, queue=self._held.queue, error=error)
        return FAILED_DELAY_S
