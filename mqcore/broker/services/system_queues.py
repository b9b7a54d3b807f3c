"""What the broker itself takes out of queues of its own, in order and at least once: one loop, for whatever service.

A message that has to wait for something (its time, the end of its transaction) is put into a queue of a system topic,
and a service takes it out when it may go on. The queue is the only memory of it: what has been consumed is a position
for each queue, and nothing that is not behind the position is forgotten by a crash. Such services differ in what they
do with one message, and in where their positions are saved; reading, waiting, trying again, starting and stopping are
here.

The loop of a queue is a task of the event loop. It reads a bounded batch, hands one unit after the other to the
service, and moves the position behind each that is done with. It comes again at once while there is more, when the
service says so for a unit that cannot be done with yet, and for a queue that is empty when somebody tells it of a put.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from mqcore import clock
from mqcore.broker.ports import QueueUnit, StoreView

logger = logging.getLogger(__name__)

DONE: Final = 0.0
"""What a service says of a unit that it is done with."""

RETRY_S: Final = 0.1
"""After this what was refused, or is not dispatched yet, is tried again."""

UNITS_PER_TURN: Final = 64

Consume = Callable[[int, QueueUnit], Awaitable[float]]
"""Called with (queue id, unit): DONE, or after how many seconds to be asked about it again.

It may be asked about a unit that it has been done with before a crash, or before it was cancelled: at least once."""

Save = Callable[[Mapping[int, int]], Awaitable[None]]
"""Makes positions, by queue id, durable; raises OSError."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long the loop of a queue waits, s."""

    first_turn: float = 1.0
    retry: float = RETRY_S
    error_pause: float = 10.0
    idle_poll: float = 5.0
    """A queue that is empty is told of a put; this is for what nobody told."""


class SystemQueues:
    """The queues of a system topic that one service consumes, a task for each, so that none waits for another."""

    pace = Pace()

    def __init__(
        self,
        topic: str,
        queue_ids: Iterable[int],
        store: StoreView,
        consume: Consume,
        save: Save,
        pace: Pace | None = None,
    ) -> None:
        self.positions: dict[int, int] = {}
        """The next queue offset to be consumed, by queue id; 0 for a queue that is missing. The owner fills it."""
        self._topic = topic
        self._store = store
        self._consume = consume
        self._save = save
        if pace is not None:
            self.pace = pace
        self._filled = {queue_id: asyncio.Event() for queue_id in queue_ids}
        self._hurried = {queue_id: asyncio.Event() for queue_id in self._filled}
        self._tasks: list[asyncio.Task[None]] = []

    # Life cycle.

    def start(self) -> None:
        """Start the tasks; the store must have recovered."""
        clock.on_move(self.look_again)
        self._tasks = [
            asyncio.create_task(self._run(queue_id), name=f"{self._topic}-{queue_id}") for queue_id in self._filled
        ]

    async def stop(self) -> None:
        """Stop the tasks, each between two units or in the middle of one, and save the positions."""
        clock.off_move(self.look_again)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        await self.save()

    async def save(self) -> None:
        """Make the positions durable. What is consumed after the last time is consumed again after a crash."""
        await self._save(dict(self.positions))

    # News.

    def tell(self, queue_id: int) -> None:
        """Something was put into the queue."""
        self._filled[queue_id].set()

    def look_again(self) -> None:
        """What a unit waits for may have come in every queue: whoever waits is asked again at once."""
        for event in (*self._hurried.values(), *self._filled.values()):
            event.set()

    # Positions.

    def max_offset(self, queue_id: int) -> int:
        """Return the end of the queue."""
        return self._store.max_offset(self._topic, queue_id)

    def correct(self, queue_id: int) -> bool:
        """Move a position that lies outside its queue to the queue's nearer end; True if it did."""
        position = self.positions.get(queue_id, 0)
        if not self._store.has_queue(self._topic, queue_id):
            return False
        lowest = max(self._store.min_offset(self._topic, queue_id), 0)
        corrected = min(max(position, lowest), self.max_offset(queue_id))
        if corrected == position:
            return False
        logger.error(
            "position is outside its queue topic=%s queue_id=%d from=%d to=%d",
            self._topic, queue_id, position, corrected,
        )  # fmt: skip
        self.positions[queue_id] = corrected
        return True

    # The loop.

    async def turn(self, queue_id: int) -> float | None:
        """Consume a batch and return after how many seconds to come again; None when nothing waits."""
        units = self._store.read_units(self._topic, queue_id, self.positions.get(queue_id, 0), UNITS_PER_TURN)
        if not units:
            return self.pace.retry if self.correct(queue_id) else None
        for unit in units:
            pause = await self._consume(queue_id, unit)
            if pause > DONE:
                return pause
            self.positions[queue_id] = unit.queue_offset + 1
        return 0.0

    async def _run(self, queue_id: int) -> None:
        await asyncio.sleep(self.pace.first_turn)
        while True:
            try:
                pause = await self.turn(queue_id)
            except Exception:  # the top loop of this task: one bad queue must not stop the others
                logger.exception("consuming failed, trying again later topic=%s queue_id=%d", self._topic, queue_id)
                pause = self.pace.error_pause
            if pause is None:
                await self._idle(queue_id)
            else:
                await self._pause(queue_id, pause)

    async def _idle(self, queue_id: int) -> None:
        """Wait for a put into the queue, and then for the dispatcher to come to it; not for ever."""
        filled = self._filled[queue_id]
        try:
            # Not wait_for: before Python 3.12 it drops a cancellation that meets the event, and stop() waits for ever.
            async with asyncio.timeout(self.pace.idle_poll):
                await filled.wait()
        except TimeoutError:
            return
        await asyncio.sleep(self.pace.retry)
        filled.clear()

    async def _pause(self, queue_id: int, pause_s: float) -> None:
        """Let *pause_s* pass, or less when there is reason to look again."""
        hurried = self._hurried[queue_id]
        try:
            async with asyncio.timeout(pause_s):
                await hurried.wait()
        except TimeoutError:
            return
        hurried.clear()
