"""What a pull consumer has cached of a queue, counted by the pull and not by the message.

Messages of one pull come together and mostly leave together, so a queue needs four numbers for each pull. The queue
does not refer to the messages: they refer to it, and nothing that must be collected comes of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from mqcore import clock
from mqcore.client.model.messages import ReceivedMessage
from mqcore.client.model.process_queue import NOTHING_TO_COMMIT, ProcessQueue
from mqcore.protocol.codec import body_sizes
from mqcore.protocol.message import MessageQueue


class PulledRun:
    """What is left of one pull: how many messages, their bodies' bytes, and the offsets of the first and the last."""

    __slots__ = ("count", "first_offset", "last_offset", "size")

    def __init__(self, messages: Sequence[ReceivedMessage]) -> None:
        self.count = len(messages)
        self.size = body_sizes(messages)
        self.first_offset = messages[0].queue_offset
        self.last_offset = messages[-1].queue_offset


class PolledQueue(ProcessQueue[ReceivedMessage]):
    """The messages of *queue* that the application has not got. It takes runs; single messages lie in the batches."""

    def __init__(self, queue: MessageQueue) -> None:
        super().__init__(queue)
        self._runs: deque[PulledRun] = deque()  # in order; those with nothing left go when they reach an end
        self._count = 0

    @property
    def count(self) -> int:
        return self._count

    @property
    def first_offset(self) -> int:
        """Offset of the first message that the application has not got, or -1."""
        runs = self._runs
        while runs and not runs[0].count:
            runs.popleft()
        return runs[0].first_offset if runs else -1

    @property
    def last_offset(self) -> int:
        runs = self._runs
        while runs and not runs[-1].count:
            runs.pop()
        return runs[-1].last_offset if runs else -1

    @property
    def first_message(self) -> None:
        """Nobody's: what an application that polls has in hand does not expire."""
        return

    def put(self, messages: Sequence[ReceivedMessage]) -> bool:
        """Note a run of *messages*; nobody has to begin consuming."""
        self.add(messages)
        return False

    def add(self, messages: Sequence[ReceivedMessage]) -> PulledRun:
        """Note pulled *messages*, at least one, and return their run."""
        run = PulledRun(messages)
        is_behind = self.last_offset < run.first_offset
        self._runs.append(run)
        if not is_behind:  # the broker has set the queue back: what is committed must not be beyond what is cached
            self._runs = deque(sorted(self._runs, key=lambda one: one.first_offset))
        self._count += run.count
        self._size += run.size
        return run

    def take_from(self, run: PulledRun, count: int, size: int, next_offset: int) -> None:
        """The application has got the first *count* messages of *run*, *size* bytes; the next has *next_offset*."""
        self.last_consume_s = clock.now_s()
        run.count -= count
        run.size -= size
        run.first_offset = next_offset
        self._count -= count
        self._size -= size
        self._notify()

    def remove(self, messages: Sequence[ReceivedMessage]) -> int:
        """Nothing is committed from here: where the application is, its batches say."""
        return NOTHING_TO_COMMIT

    def clear(self) -> None:
        self._runs.clear()
        self._count = 0
        super().clear()


class AssignedQueue:
    """One queue that a pull consumer reads. *next_offset* is where the next pull begins."""

    __slots__ = ("held", "next_offset", "resumed", "turn")

    def __init__(self, held: PolledQueue, next_offset: int) -> None:
        self.held = held
        self.next_offset = next_offset
        self.turn = 0
        self.resumed = asyncio.Event()
        self.resumed.set()

    @property
    def paused(self) -> bool:
        return not self.resumed.is_set()

    @property
    def position(self) -> int:
        """The offset of the first message that the application has not got: what to commit when it is done."""
        first = self.held.first_offset
        return first if first >= 0 else self.next_offset

    def turn_to(self, offset: int) -> None:
        """Go on at *offset*, whatever is cached or on its way."""
        self.turn += 1
        self.next_offset = offset
        self.held.clear()
