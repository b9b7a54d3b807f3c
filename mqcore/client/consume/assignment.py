"""Which queues a consumer holds: computing its part of the group's queues, taking new ones, giving up old ones.

Source: RocketMQ RebalanceImpl.java, RebalancePushImpl.java.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from mqcore.cause_log import CauseLog
from mqcore.client.consume.handling import ConsumeService
from mqcore.client.consume.membership import HeldQueue, Membership
from mqcore.client.consume.pull_loop import QueuePullLoop
from mqcore.client.consume.queue_locks import QueueLocks
from mqcore.client.model.process_queue import ProcessQueue
from mqcore.client.model.rebalance import allocate, strategy_of
from mqcore.client.session.tasks import cancel_and_wait
from mqcore.client.settings.classes import ConsumeFromWhere
from mqcore.errors import MQError
from mqcore.protocol.message import MessageQueue
from mqcore.protocol.names import is_retry_topic

logger = logging.getLogger(__name__)
log = CauseLog(logger)

CONSUME_LOCK_WAIT_S = 1.0
ROUTE_RETRY_S = 2.0
"""How soon a topic without a route is looked for again; the retry topic appears a moment after the first heart-beat."""

HALF_AN_HOUR_MS = 30 * 60 * 1000


class Assignment:
    """Keeps ``membership.held`` what the group's division says, and a pull loop running for each held queue."""

    def __init__(self, membership: Membership, service: ConsumeService, locks: QueueLocks) -> None:
        self._membership = membership
        self._service = service
        self._locks = locks
        self._strategy = strategy_of(membership.settings.strategy)
        self._pulls: dict[MessageQueue, asyncio.Task[None]] = {}
        self._rebalancing = asyncio.Lock()
        self._closed = False
        self._route_delay_s = ROUTE_RETRY_S
        self.rebalance_soon: Callable[[], None] = lambda: None

    async def rebalance(self) -> None:
        """Compute and apply the division of every subscribed topic; one that cannot be divided now stays as it is."""
        async with self._rebalancing:
            for topic in list(self._membership.subscriptions):
                if self._closed:
                    return
                try:
                    await self._rebalance_topic(topic)
                except MQError as error:
                    log.warning("rebalance failed", group=self._membership.group, topic=topic, error=error)
            for queue, held in list(self._membership.held.items()):
                if queue.topic not in self._membership.subscriptions:
                    await self._give_up(held)

    async def forget(self, held: HeldQueue) -> None:
        """Let go of a queue without a word to anybody; the rebalance that follows takes it anew."""
        self._drop(held)
        self.rebalance_soon()

    async def stop(self, timeout_s: float) -> None:
        """Take no queue any more and end all pull loops; what is held stays held, so that work in hand can finish.

        A rebalance under way is waited for, at most *timeout_s*: it may just be taking a broker's lock, which somebody
        has to give back.
        """
        self._closed = True
        try:
            async with asyncio.timeout(timeout_s), self._rebalancing:
                pass
        except TimeoutError:
            logger.warning("closing in the middle of a rebalance group=%s", self._membership.group)
        pulls = list(self._pulls.values())
        self._pulls.clear()
        await cancel_and_wait(*pulls)

    def drop_all(self) -> None:
        for held in list(self._membership.held.values()):
            self._drop(held)

    # One topic.

    async def _rebalance_topic(self, topic: str) -> None:
        membership = self._membership
        queues = await membership.hub.routes.subscribe_queues(topic)
        if not queues:
            if not is_retry_topic(topic):
                log.warning("no route, queues stay as they are", group=membership.group, topic=topic)
            self._look_again_for_routes()
            return
        self._route_delay_s = ROUTE_RETRY_S
        if membership.is_broadcasting:
            wanted = queues
        else:
            members = await membership.hub.consumer_ids(topic, membership.group)
            if members is None:
                return
            try:
                # By their long names, as other members of the group, in whatever language, have it.
                names = membership.hub.namespace
                wanted = allocate(self._strategy, membership.hub.client_id, names.wrap_queues(queues), members)
                wanted = [names.unwrap_queue(queue) for queue in wanted]
            except Exception as error:  # a strategy may be the application's own
                log.warning(
                    "strategy failed, queues stay as they are", exc_info=error, group=membership.group, topic=topic
                )
                return
        await self._apply(topic, [queue for queue in wanted if queue.topic == topic])

    def _look_again_for_routes(self) -> None:
        if self._route_delay_s < self._membership.settings.rebalance_interval_s:
            asyncio.get_running_loop().call_later(self._route_delay_s, self.rebalance_soon)
            self._route_delay_s *= 2

    async def _apply(self, topic: str, wanted: list[MessageQueue]) -> None:
        """Give up what is not *wanted* and take what is new.

        Java also gives the subscription a new version and heart-beats here. Brokers compare versions only to refuse a
        pull that is newer than the heart-beat they know, so a version that changes with the subscription will do.
        """
        membership = self._membership
        for queue, held in list(membership.held.items()):
            if queue.topic != topic:
                continue
            if queue not in wanted:
                await self._give_up(held)
            elif held.pull_expired():
                log.error("no pull for too long, taking the queue anew", group=membership.group, queue=queue)
                await self._give_up(held)
            elif held.dropped and held.try_unlock_times:
                await self._give_up(held)  # it was in work when it was to be given up; once it rests it is taken anew
        fresh = await asyncio.gather(*(self._prepare(queue) for queue in wanted if queue not in membership.held))
        for taken in fresh:
            if taken is not None:
                held, start = taken
                membership.held[held.queue] = held
                self._start_pulling(held, start)

    async def _prepare(self, queue: MessageQueue) -> tuple[HeldQueue, int] | None:
        """Make a process queue for *queue* and find where to start; None when it cannot be taken now."""
        membership = self._membership
        held = self._new_queue(queue)
        if membership.needs_broker_locks and not await self._locks.lock(held):
            logger.info("queue is locked by another member group=%s queue=%s", membership.group, queue)
            return None
        membership.offsets.forget(queue)
        try:
            start = await self.start_offset(queue)
        except MQError as error:
            log.warning("start offset unknown, queue not taken", group=membership.group, queue=queue, error=error)
            return None
        logger.info("queue taken group=%s queue=%s offset=%d", membership.group, queue, start)
        return held, start

    def _new_queue(self, queue: MessageQueue) -> HeldQueue:
        return ProcessQueue(queue)

    async def _give_up(self, held: HeldQueue) -> None:
        """Let another member have a queue; it stays for the next round when order matters and a handler is still busy.

        The offset is stored first: the next owner starts there. Under an orderly group's lock the handler must have
        ended, and what it has done counts, which in Java comes again; then the lock is freed at once. (Java keeps it
        20 s longer when messages are cached, to no use: they are not consumed any more.)
        """
        membership = self._membership
        held.dropped = True
        self._service.let_go(held)
        rests = not membership.needs_broker_locks or await self._await_rest(held)
        await membership.offsets.persist([held.queue])
        membership.offsets.forget(held.queue)
        if not rests:
            held.try_unlock_times += 1
            log.warning("queue is still in work", group=membership.group, queue=held.queue)
            return
        if membership.needs_broker_locks:
            await self._locks.unlock([held.queue])
        self._drop(held)
        logger.info("queue given up group=%s queue=%s", membership.group, held.queue)

    @staticmethod
    async def _await_rest(held: HeldQueue) -> bool:
        """Wait until no handler works on an orderly queue, not for long; return whether that is so."""
        held.leaving = True
        try:
            async with asyncio.timeout(CONSUME_LOCK_WAIT_S):
                await held.consume_lock.acquire()
        except TimeoutError:
            return False
        finally:
            held.leaving = False
        held.consume_lock.release()
        return True

    def _start_pulling(self, held: HeldQueue, start: int) -> None:
        loop = QueuePullLoop(self._membership, self._service, held, start, reset=self.forget)
        task = asyncio.create_task(loop.run(), name=f"mqcore pulling {held.queue}")
        self._pulls[held.queue] = task
        task.add_done_callback(lambda _: self._on_pulling_ended(held))

    def _on_pulling_ended(self, held: HeldQueue) -> None:
        """Take a queue anew whose pull loop has ended although nobody gave the queue up: it must not just stand there.

        A loop ends only when its queue is dropped, or by a cancellation; so this is a second line of defence.
        """
        if self._closed or held.dropped or self._membership.held.get(held.queue) is not held:
            return
        log.error("pulling has ended, taking the queue anew", group=self._membership.group, queue=held.queue)
        self._drop(held)
        self.rebalance_soon()

    def _drop(self, held: HeldQueue) -> None:
        held.dropped = True
        self._service.let_go(held)
        held.clear()
        if self._membership.held.get(held.queue) is held:
            del self._membership.held[held.queue]
            self._membership.offsets.forget(held.queue)
            self._membership.preferred_broker_id.pop(held.queue, None)
            pull = self._pulls.pop(held.queue, None)
            if pull is not None and pull is not asyncio.current_task():
                pull.cancel()

    # Where to start.

    async def start_offset(self, queue: MessageQueue) -> int:
        """Return the offset to pull first: what the group has stored, else by the setting ``from_where``.

        Raises MQError when a broker cannot be asked. Source: RebalancePushImpl.java, computePullFromWhere.
        """
        membership = self._membership
        stored = await membership.offsets.stored(queue)
        if stored is not None and stored >= 0:
            return stored
        settings = membership.settings
        is_retry = is_retry_topic(queue.topic)
        if settings.from_where == ConsumeFromWhere.EARLIEST or (
            is_retry and settings.from_where == ConsumeFromWhere.LATEST
        ):
            return 0
        address = await membership.hub.master_address(queue)
        if is_retry or settings.from_where == ConsumeFromWhere.LATEST:
            return await membership.hub.api.max_offset(address, queue)
        return await membership.hub.api.search_offset(address, queue, self._from_timestamp_ms())

    def _from_timestamp_ms(self) -> int:
        given = self._membership.settings.from_timestamp
        if given is None:
            return self._membership.started_ms - HALF_AN_HOUR_MS
        seconds = given if isinstance(given, int | float) else given.timestamp()
        return int(seconds * 1000)
