"""What one consumer holds of one queue: messages pulled and not yet finished, in offset order.

The offset to commit is always that of the first unfinished message, so nothing is skipped when the process dies:
delivery is at least once. Used from one event loop, if nothing else is said; no method waits unless it is ``async``.
Source: RocketMQ client/impl/consumer/ProcessQueue.java.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from operator import lt
from typing import Generic, Protocol, TypeVar

from mqcore import clock
from mqcore.protocol.message import MessageQueue

LOCK_LIVE_MAX_S = 30.0
"""A broker lock that was not renewed for this long is not relied upon. The broker itself keeps it for 60 s."""

PULL_IDLE_MAX_S = 120.0
"""A queue without a pull for this long has lost its pull loop and is taken anew."""

NOTHING_TO_COMMIT = -1


class Queued(Protocol):
    """What a process queue needs to know of a message."""

    @property
    def queue_offset(self) -> int: ...

    @property
    def body_size(self) -> int: ...


class InLine(Protocol):
    """Messages of a process queue that stand in a line of handlers."""

    count: int
    back: int

    @property
    def in_hand(self) -> int: ...


M = TypeVar("M", bound=Queued)


class ProcessQueue(Generic[M]):
    """The unfinished messages of *queue*."""

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.dropped = False
        self.leaving = False  # dropped, but what its handler has in hand still counts
        self.locked = False
        self.consuming = False
        self.try_unlock_times = 0
        self.pulled_to = -1  # everything before this offset was pulled; what is not here was filtered out or is done
        self.behind = 0  # messages behind those pulled, at the broker's last answer
        self.last_lock_s = self.last_pull_s = self.last_consume_s = clock.now_s()
        self.consume_lock = asyncio.Lock()
        self._messages: dict[int, M] = {}
        self._order: deque[int] = deque()  # offsets in order; finished ones go when they reach an end
        self.in_line: list[InLine] = []  # what handlers in threads take from
        self._handed_out = self._handed_back = 0  # by others
        self._taken: dict[int, M] = {}  # orderly: handed out and not yet committed
        self._size = 0
        self._offset_max = -1
        self._changed: asyncio.Event = asyncio.Event()

    # What is held.

    @property
    def count(self) -> int:
        return len(self._messages) + len(self._taken)

    @property
    def size(self) -> int:
        """Bytes of the bodies held."""
        return self._size

    @property
    def first_offset(self) -> int:
        """Offset of the first message not handed out orderly, or -1."""
        order, held = self._order, self._messages
        while order and order[0] not in held:
            order.popleft()
        return order[0] if order else -1

    @property
    def last_offset(self) -> int:
        while self._order and self._order[-1] not in self._messages:
            self._order.pop()
        return self._order[-1] if self._order else -1

    @property
    def span(self) -> int:
        """How far the last unfinished message is from the first, in offsets: one stuck message makes it grow."""
        return self.last_offset - self.first_offset

    @property
    def taken_count(self) -> int:
        """How many messages are handed out orderly and not committed."""
        return len(self._taken)

    @property
    def taken_offsets(self) -> list[int]:
        return list(self._taken)

    @property
    def first_message(self) -> M | None:
        first = self.first_offset
        return self._messages[first] if first >= 0 else None

    def lock_expired(self, now_s: float | None = None) -> bool:
        return (clock.now_s() if now_s is None else now_s) - self.last_lock_s > LOCK_LIVE_MAX_S

    def pull_expired(self, now_s: float | None = None) -> bool:
        return (clock.now_s() if now_s is None else now_s) - self.last_pull_s > PULL_IDLE_MAX_S

    # Coming and going.

    def put(self, messages: Sequence[M]) -> bool:
        """Add pulled *messages*; return whether somebody has to begin consuming (nobody was)."""
        offsets = [message.queue_offset for message in messages]
        if offsets and offsets[0] > self._offset_max and all(map(lt, offsets, offsets[1:])):
            # As pulls bring them, and four times as fast as one by one.
            self._messages.update(zip(offsets, messages, strict=True))
            self._size += sum([message.body_size for message in messages])
            self._order.extend(offsets)
            self._offset_max = offsets[-1]
        else:
            for message in messages:
                self._put_one(message)
        if self._messages and not self.consuming:
            self.consuming = True
            return True
        return False

    def _put_one(self, message: M) -> None:
        offset = message.queue_offset
        if offset in self._messages or offset in self._taken:
            return
        self._messages[offset] = message
        self._size += message.body_size
        if self._order and offset < self._order[-1]:
            self._order = deque(sorted((*self._order, offset)))
        else:
            self._order.append(offset)
        self._offset_max = max(self._offset_max, offset)

    def replace(self, message: M) -> bool:
        """Let *message* stand for the one that is held with its offset; False if none is."""
        if message.queue_offset not in self._messages:
            return False
        self._messages[message.queue_offset] = message
        return True

    def remove(self, messages: Sequence[M]) -> int:
        """Take finished *messages* out and return the offset to commit: the first unfinished, or that of the next pull.

        NOTHING_TO_COMMIT when the queue held nothing before.
        """
        self.last_consume_s = clock.now_s()
        if not self._messages:
            return NOTHING_TO_COMMIT
        pop = self._messages.pop
        self._size -= sum([message.body_size for message in messages if pop(message.queue_offset, None) is not None])
        self._notify()
        first = self.first_offset
        return first if first >= 0 else max(self._offset_max + 1, self.pulled_to)

    def clear(self) -> None:
        self._messages.clear()
        self._taken.clear()
        self._order.clear()
        self._size = 0
        self._notify()

    # Orderly: take some, then commit them or put them back.

    def take(self, count_max: int) -> list[M]:
        """Hand out the first messages, at most *count_max*; an empty list ends the consuming."""
        self.last_consume_s = clock.now_s()
        taken: list[M] = []
        while len(taken) < count_max and self.first_offset >= 0:
            offset = self._order.popleft()
            message = self._messages.pop(offset)
            self._taken[offset] = message
            taken.append(message)
        if not taken:
            self.consuming = False
        return taken

    def commit(self) -> int:
        """Finish everything handed out and return the offset to commit, or NOTHING_TO_COMMIT."""
        if not self._taken:
            return NOTHING_TO_COMMIT
        last = max(self._taken)
        self._size -= sum(message.body_size for message in self._taken.values())
        self._taken.clear()
        self._notify()
        return last + 1

    def put_back(self, messages: Sequence[M]) -> None:
        """Return messages handed out, to be handed out again, in order."""
        for message in sorted(messages, key=lambda held: held.queue_offset, reverse=True):
            if self._taken.pop(message.queue_offset, None) is not None:
                self._messages[message.queue_offset] = message
                self._order.appendleft(message.queue_offset)

    def put_back_all(self) -> None:
        """Return everything handed out."""
        self.put_back(list(self._taken.values()))

    # Waiting.

    async def wait_change(self, timeout_s: float) -> None:
        """Return when messages have been finished, or after *timeout_s*."""
        self._changed.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def wait_idle(self, timeout_s: float) -> None:
        """Return when no handler has a message of this queue in hand, or after *timeout_s*."""
        deadline = clock.monotonic_s() + timeout_s
        while self.in_hand and (left_s := deadline - clock.monotonic_s()) > 0:
            await self.wait_change(left_s)

    @property
    def in_hand(self) -> int:
        """How many messages of this queue handlers work on."""
        return self._handed_out - self._handed_back + sum([one.in_hand for one in self.in_line])

    def hand_out(self, count: int) -> None:
        """Note that a handler works on *count* messages of this queue."""
        self._handed_out += count

    def hand_back(self, count: int) -> None:
        """Note that handlers are done with *count* messages."""
        self._handed_back += count
        if not self.in_hand:
            self._notify()

    def hand_back_in_line(self, stretch: InLine, count: int) -> None:
        """Note that handlers are done with *count* messages of *stretch*."""
        stretch.back += count
        if stretch.back == stretch.count:
            self.in_line.remove(stretch)
        if not self.in_hand:
            self._notify()

    def _notify(self) -> None:
        self._changed.set()
