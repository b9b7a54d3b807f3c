"""The messages of one pull, while an application takes them: readable twin of mqcore._fast.client.polled."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from mqcore.protocol.codec import body_sizes

if TYPE_CHECKING:
    from mqcore.client.consume.polled.queue import AssignedQueue
    from mqcore.client.model.messages import ReceivedMessage


class Batch:
    """The messages of one pull.

    ``take``, ``take_one`` and ``is_current`` are for any thread, ``catch_up`` is the event loop's. *in_hand_offset* is
    the first offset of what was taken last.
    """

    __slots__ = (
        "_count", "_got", "_messages", "_run", "_taken", "_taking", "_turn", "assigned", "in_hand_offset", "is_noted",
    )  # fmt: skip

    def __init__(self, assigned: AssignedQueue, messages: list[ReceivedMessage]) -> None:
        self.assigned = assigned
        self._messages = messages  # not looked at when all of it has been taken: it is the application's then
        self._count = len(messages)
        self._run = assigned.held.add(messages)
        self._turn = assigned.turn
        self._taking = threading.Lock()
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
        with self._taking:
            begin, size = self._taken, self._count
            count = size - begin if count_max is None else min(count_max, size - begin)
            if count > 0:
                self.in_hand_offset = self._messages[begin].queue_offset
                self._taken += count
            return self._messages if count == size else self._messages[begin : begin + count]

    def take_one(self) -> ReceivedMessage | None:
        """Return the next message; None when there is none left, or none that may be handed out."""
        with self._taking:
            taken = self._taken
            if taken == self._count or not self.is_current:
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


class Iteration:
    """Gives message by message out of the batch that is *claimed*, to any number of threads.

    *claim* claims another one when there is nothing left in it, and returns whether there is any; *note* is told of a
    batch of which the event loop does not know yet that something was taken.
    """

    __slots__ = ("_claim", "_note", "claimed")

    def __init__(self, claim: Callable[[], bool], note: Callable[[Batch], object]) -> None:
        self._claim = claim
        self._note = note
        self.claimed: Batch | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage:
        while True:
            batch = self.claimed
            if batch is not None and (message := batch.take_one()) is not None:
                if not batch.is_noted:
                    self._note(batch)
                return message
            if not self._claim():
                raise StopIteration
