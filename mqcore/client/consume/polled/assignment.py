"""Which queues a pull consumer reads: those of the group's division, or those that the application named.

The division and its application are those of every consumer (consume/assignment.py). Here it is added that the
application hears of queues before it loses them and before new ones are pulled, and that it may move about in them.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from mqcore.cause_log import CauseLog, name_of
from mqcore.client.consume.assignment import Assignment
from mqcore.client.consume.membership import HeldQueue, Membership
from mqcore.client.consume.polled.queue import AssignedQueue, PolledQueue
from mqcore.client.consume.polled.queues import LitePullLoop, PollService
from mqcore.client.consume.pull_loop import FAILED_DELAY_S
from mqcore.client.consume.queue_locks import QueueLocks
from mqcore.client.model.rebalance import sorted_queues
from mqcore.client.session.tasks import cancel_and_wait
from mqcore.client.settings.pull_consumer import PullConsumerSettings
from mqcore.protocol.message import MessageQueue

log = CauseLog(logging.getLogger(__name__))

QueuesCallback = Callable[[Sequence[MessageQueue]], Awaitable[None] | None]
"""Called with the queues that were assigned, or that are about to be revoked."""


async def tell(callback: Callable[..., Awaitable[None] | None] | None, *arguments: object) -> None:
    """Call the application; what it raises is logged, because the group's division goes on without it."""
    if callback is None:
        return
    try:
        answer = callback(*arguments)
        if inspect.isawaitable(answer):
            await answer
    except Exception as error:
        log.error("callback failed", exc_info=error, name=name_of(callback))


class LiteAssignment(Assignment):
    """Keeps ``queues`` what the division or the application says, with a pull loop for each.

    *unfinished* has the offsets of messages that the application has got and not yet finished, by queue.
    """

    def __init__(
        self,
        membership: Membership,
        settings: PullConsumerSettings,
        service: PollService,
        unfinished: Mapping[MessageQueue, int],
        on_assigned: QueuesCallback | None,
        on_revoked: QueuesCallback | None,
    ) -> None:
        super().__init__(membership, service, QueueLocks(membership))
        self._settings = settings
        self._ready = service.ready
        self._unfinished = unfinished
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._fresh: list[AssignedQueue] = []
        self._starts: dict[MessageQueue, int] = {}
        self._named: set[MessageQueue] | None = None
        self.queues: dict[MessageQueue, AssignedQueue] = {}

    @property
    def named(self) -> set[MessageQueue] | None:
        """The queues that the application assigned; None while the group divides them."""
        return self._named

    def name(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly *queues* from the next rebalance on."""
        self._named = set(queues)
        self._starts = {queue: start for queue, start in self._starts.items() if queue in self._named}

    def start_at(self, queue: MessageQueue, offset: int) -> None:
        """Begin at *offset* when *queue*, which is named and not held yet, is taken."""
        self._starts[queue] = offset

    async def release(self, topic: str) -> None:
        """Give up all queues of *topic*."""
        async with self._rebalancing:
            await self._apply(topic, [])

    async def seek(self, assigned: AssignedQueue, offset: int) -> None:
        """Go on at *offset*. From here on nothing is handed out that lies before it in an earlier turn."""
        assigned.turn_to(offset)
        self._ready.drop_stale()
        pull = self._pulls.pop(assigned.held.queue, None)
        self._begin(assigned)
        if pull is not None:
            await cancel_and_wait(pull)

    def position(self, queue: MessageQueue, *, with_unfinished: bool) -> int:
        """Return where the application is in *queue*; what it has in hand counts as done only if so wished."""
        position = self.queues[queue].position
        return position if with_unfinished else self._unfinished.get(queue, position)

    async def revoke_all(self) -> None:
        """Tell the application, at the end, that it loses everything."""
        if self.queues:
            await tell(self._on_revoked, sorted_queues(self.queues))

    # What the shared logic calls.

    async def _rebalance_topic(self, topic: str) -> None:
        if self._named is None:
            await super()._rebalance_topic(topic)
        else:
            await self._apply(topic, [queue for queue in sorted_queues(self._named) if queue.topic == topic])

    async def _apply(self, topic: str, wanted: list[MessageQueue]) -> None:
        lost = [queue for queue in sorted_queues(self.queues) if queue.topic == topic and queue not in wanted]
        if lost:
            await tell(self._on_revoked, lost)
        try:
            await super()._apply(topic, wanted)
        finally:
            fresh, self._fresh = self._fresh, []
            if fresh:
                await tell(self._on_assigned, sorted_queues(assigned.held.queue for assigned in fresh))
            for assigned in fresh:
                self._begin(assigned)

    async def start_offset(self, queue: MessageQueue) -> int:
        start = self._starts.pop(queue, None)
        return await super().start_offset(queue) if start is None else start

    def _new_queue(self, queue: MessageQueue) -> HeldQueue:
        return PolledQueue(queue)

    async def _give_up(self, held: HeldQueue) -> None:
        if self._settings.auto_commit and held.queue in self.queues:
            done = self.position(held.queue, with_unfinished=False)
            self._membership.offsets.update(held.queue, done, increase_only=False)
        await super()._give_up(held)

    def _start_pulling(self, held: HeldQueue, start: int) -> None:
        """Note the queue; its loop begins when the application has heard of it, and perhaps sought in it."""
        assert isinstance(held, PolledQueue)  # as made here
        assigned = self.queues[held.queue] = AssignedQueue(held, start)
        self._fresh.append(assigned)

    def _drop(self, held: HeldQueue) -> None:
        super()._drop(held)
        assigned = self.queues.get(held.queue)
        if assigned is not None and assigned.held is held:
            del self.queues[held.queue]
            self._ready.drop_stale()

    def _begin(self, assigned: AssignedQueue) -> None:
        """Start the queue's loop, unless it has one of its present turn or was given up."""
        queue = assigned.held.queue
        if self._closed or assigned.held.dropped or queue in self._pulls:
            return
        loop = LitePullLoop(self._membership, self._settings, assigned, self._ready)
        task = self._pulls[queue] = asyncio.create_task(loop.run(), name=f"mqcore pulling {queue}")
        task.add_done_callback(lambda _: self._on_loop_ended(assigned, loop))

    def _on_loop_ended(self, assigned: AssignedQueue, loop: LitePullLoop) -> None:
        """Start a loop that somebody has cancelled although its queue and its turn go on: a second line of defence.

        Not at once: when a program ends and all its tasks are cancelled, a new one would be left hanging.
        """
        if loop.is_current and not self._closed and self.queues.get(assigned.held.queue) is assigned:
            self._pulls.pop(assigned.held.queue, None)
            asyncio.get_running_loop().call_later(FAILED_DELAY_S, self._begin, assigned)
