"""The queues of a pull consumer: what is cached of each, the loop that fills it, and the batches that wait for a poll.

One task per queue pulls ahead of the application, within three limits. A seek gives the queue a new *turn*: what was
pulled in an earlier turn, or is just being pulled, is never handed out.
Source: RocketMQ DefaultLitePullConsumerImpl.java, PullTaskImpl; AssignedMessageQueue.java.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Sequence

from mqcore.client.consume.membership import HeldQueue, Membership
from mqcore.client.consume.polled.codec import Batch
from mqcore.client.consume.polled.queue import AssignedQueue
from mqcore.client.consume.pull_loop import FAILED_DELAY_S, MIB, PullingLoop, received
from mqcore.client.errors import ClientStateError
from mqcore.client.model.messages import ReceivedMessage, Settler
from mqcore.client.model.outcome import Outcome
from mqcore.client.session import forks
from mqcore.client.session.broker_api import PullRequest, PullResponse
from mqcore.client.settings.pull_consumer import PullConsumerSettings
from mqcore.client.telemetry.consumer_hooks import ConsumeContext
from mqcore.protocol.heartbeat import SubscriptionData, is_tag_type

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


class LitePullLoop(PullingLoop):
    """Pulls one queue ahead of the application, in one turn of it."""

    def __init__(
        self, membership: Membership, settings: PullConsumerSettings, assigned: AssignedQueue, ready: ReadyBatches
    ) -> None:
        super().__init__(membership, assigned.held, settings.pull_timeout_s)
        self._settings = settings
        self._assigned = assigned
        self._turn = assigned.turn
        self._ready = ready

    @property
    def is_current(self) -> bool:
        return self._turn == self._assigned.turn and not self._held.dropped

    @property
    def next_offset(self) -> int:
        return self._assigned.next_offset

    async def _wait_for_room(self) -> float | None:
        if self._assigned.paused:
            await wait_event(self._assigned.resumed, LOOK_AGAIN_S)
        elif len(self._ready) * self._settings.pull_batch_size > self._settings.pull_threshold_for_all:
            await self._ready.wait_room()
        elif self._queue_is_full():
            await self._held.wait_change(LOOK_AGAIN_S)
        else:
            return None
        return 0.0

    def _queue_is_full(self) -> bool:
        """RocketMQ's checks of one queue, in its order: messages, bytes, and how far apart the first and the last."""
        held, settings = self._held, self._settings
        return (
            held.count > settings.pull_threshold_for_queue
            or held.size // MIB > settings.pull_threshold_size_for_queue_mib
            or held.span > settings.max_span
        )

    def _request(self, subscription: SubscriptionData, is_slave: bool) -> PullRequest:
        settings = self._settings
        return PullRequest(
            group=self._membership.group,
            queue=self._held.queue,
            offset=self._assigned.next_offset,
            messages_max=settings.pull_batch_size,
            sub_version=0 if is_tag_type(subscription.expression_type) else subscription.sub_version,
            expression_type=subscription.expression_type,
            subscription=subscription.sub_string,
            hold_s=settings.hold_timeout_s,
            lite=True,
        )

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
            acyclic=True,
            names=self._membership.hub.namespace,
        )

    def _take(self, response: PullResponse, messages: list[ReceivedMessage]) -> float:
        # Nothing waits here: what lies before the next offset is in a batch, or it is done.
        self._assigned.next_offset = response.next_offset
        if messages:
            self._ready.put(Batch(self._assigned, messages))
        return 0.0

    async def _correct(self, response: PullResponse) -> float:
        asked, self._assigned.next_offset = self._assigned.next_offset, response.next_offset
        return FAILED_DELAY_S if response.next_offset == asked else 0.0

    async def _shown_to_hooks(self, messages: list[ReceivedMessage], time_ms: float) -> list[ReceivedMessage]:
        """Let the hooks before and after consuming look, too, one after the other.

        Nobody knows when the application is done with a message that it polls: it is done at the pull, as in Java.
        """
        found = await super()._shown_to_hooks(messages, time_ms)
        if found:
            hooks = self._membership.hooks
            context = ConsumeContext(group=self._membership.group, queue=self._held.queue, messages=found)
            await hooks.before_consume(context)
            await hooks.after_consume(context)
        return found
