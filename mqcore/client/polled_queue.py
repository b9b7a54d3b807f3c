"""What a pull consumer has cached of a queue, counted by the pull and not by the message.

Messages of one pull come together and mostly leave together, so a queue needs four numbers for each pull. The queue
does not refer to the messages: they refer to it, and nothing that must be collected comes of it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence

from mqcore.client.messages import ReceivedMessage
from mqcore.client.process_queue import NOTHING_TO_COMMIT, ProcessQueue
from mqcore.protocol.codec import body_sizes
from mqcore.protocol.message import MessageQueue


class Run:
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
        self._runs: deque[Run] = deque()  # in order; those with nothing left go when they reach an end
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

    def add(self, messages: Sequence[ReceivedMessage]) -> Run:
        """Note pulled *messages*, at least one, and return their run."""
        run = Run(messages)
        is_behind = self.last_offset < run.first_offset
        self._runs.append(run)
        if not is_behind:  # the broker has set the queue back: what is committed must not be beyond what is cached
            self._runs = deque(sorted(self._runs, key=lambda one: one.first_offset))
        self._count += run.count
        self._size += run.size
        return run

    def take_from(self, run: Run, count: int, size: int, next_offset: int) -> None:
        """The application has got the first *count* messages of *run*, *size* bytes; the next has *next_offset*."""
        self.last_consume_s = time.time()
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


class Batch:
    """The messages of one pull.

    ``take``, ``take_one`` and ``is_current`` are for whoever has claimed it, in any thread; ``catch_up`` is the event
    loop's. *in_hand_offset* is the first offset of what was taken last.
    """

    __slots__ = ("_count", "_got", "_messages", "_run", "_taken", "_turn", "assigned", "in_hand_offset", "is_noted")

    def __init__(self, assigned: AssignedQueue, messages: list[ReceivedMessage]) -> None:
        self.assigned = assigned
        self._messages = messages  # not looked at when all of it has been taken: it is the application's then
        self._count = len(messages)
        self._run = assigned.held.add(messages)
        self._turn = assigned.turn
        self._taken = 0  # those before have been taken from here
        self._got = 0  # and those before, the event loop knows of
        self.in_hand_offset = -1
        self.is_noted = False  # the event loop is going to catch up

    def __bool__(self) -> bool:
        """Whether there is something left to take."""
        return self._taken < self._count

    @property
    def is_current(self) -> bool:
        """Whether it may be handed out: its queue is still held, and was not sent elsewhere since the pull."""
        return self._turn == self.assigned.turn and not self.assigned.held.dropped

    def take(self, count_max: int | None = None) -> list[ReceivedMessage]:
        """Return the next messages, all that are left or at most *count_max*."""
        begin, size = self._taken, self._count
        count = size - begin if count_max is None else min(count_max, size - begin)
        if count > 0:
            self.in_hand_offset = self._messages[begin].queue_offset
            self._taken += count
        return self._messages if count == size else self._messages[begin : begin + count]

    def take_one(self) -> ReceivedMessage | None:
        """Return the next message; None when there is none left, or none that may be handed out."""
        taken, assigned = self._taken, self.assigned
        if taken == self._count or self._turn != assigned.turn or assigned.held.dropped:
            return None
        message = self._messages[taken]
        self.in_hand_offset = message.queue_offset
        self._taken = taken + 1
        return message

    def catch_up(self) -> bool:
        """Note in the queue what has been taken from a current batch; return whether there was anything new."""
        got, taken = self._got, self._taken
        if taken == got:
            return False
        self._got = taken
        size = self._run.size if taken - got == self._count else body_sizes(self._messages[got:taken])
        next_offset = self._messages[taken].queue_offset if taken < self._count else self._run.last_offset + 1
        self.assigned.held.take_from(self._run, taken - got, size, next_offset)
        return True
