"""Which half messages are done with, from what op messages say; a byte for each half message that is looked after.

Source of what it stands for: RocketMQ broker/transaction/queue/TransactionalMessageServiceImpl.java, fillOpRemoveMap.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from mqcore.store.queues.op_numbers import DoneHalves

# Not before there are half messages: it takes longer to import than the rest of a start.
if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LATE_MAX = 1_000_000
"""How many ends of transactions are remembered that came after their half message had been put elsewhere."""

MOVED, ENDED, DEALT_WITH = 1, 2, 4
"""What the byte of a half message has; 0 while it is open."""


class DoneHalvesMap:
    """The half messages from *half_position* on, by what the op messages from *op_position* on say of them.

    Both positions are safe to begin at again: op messages before ``op_position`` speak of half messages before
    ``half_position`` only.
    """

    def __init__(self, half_position: int, op_position: int) -> None:
        self.half_position = half_position
        self.op_position = op_position
        self.op_next = op_position
        """The first op message that has not been read."""
        self.late: dict[int, None] = {}
        """Half messages whose transaction was ended after they had been passed or put elsewhere, the oldest first."""
        self._is_done = bytearray()
        # Of each run of op messages that was read: its end, and the last half message that it speaks of.
        self._runs: deque[tuple[int, int]] = deque()

    def add(self, run: DoneHalves, end: int) -> list[int]:
        """Take a run of op messages, the one behind the last; what they say of half messages from *end* on is void.

        Returns the half messages that are elsewhere, or have been passed, and whose transaction has ended.
        """
        import numpy as np

        ended, moved = run.ended[run.ended < end], run.moved[run.moved < end]
        late: list[int] = ended[ended < self.half_position].tolist()
        self._mark(moved, MOVED)
        self._mark(ended, ENDED)
        for numbers in (ended, moved):
            ahead = numbers[numbers >= self.half_position]
            if len(ahead):
                both = self._view()[ahead - self.half_position] == MOVED | ENDED
                late += np.unique(ahead[both]).tolist()
        self.late.update(dict.fromkeys(late))
        while len(self.late) > LATE_MAX:
            del self.late[next(iter(self.late))]
        last = max((int(numbers.max()) for numbers in (ended, moved) if len(numbers)), default=-1)
        self._runs.append((run.next_offset, last))
        self.op_next = run.next_offset
        return late

    def _view(self) -> NDArray[np.uint8]:
        import numpy as np

        return np.frombuffer(self._is_done, dtype=np.uint8)

    def _mark(self, numbers: NDArray[np.int64], mark: int) -> None:
        ahead = numbers[numbers >= self.half_position] - self.half_position
        if not len(ahead):
            return
        self._reach(int(ahead.max()))
        self._view()[ahead] |= mark

    def _reach(self, last: int) -> None:
        missing = last + 1 - len(self._is_done)
        if missing > 0:
            self._is_done.extend(bytes(missing))

    def mark(self, half_offset: int) -> None:
        """The half message at *half_offset* is dealt with; what op messages say of it may not have been read yet."""
        at = half_offset - self.half_position
        if at >= 0:
            self._reach(at)
            self._is_done[at] |= DEALT_WITH

    def next_open(self, half_offset: int, end: int) -> int:
        """Return the first half message from *half_offset* on that is not done with; *end* if all before it are."""
        at = half_offset - self.half_position
        if at >= len(self._is_done):
            return min(half_offset, end)
        found = self._is_done.find(0, at)
        return min(self.half_position + (len(self._is_done) if found < 0 else found), end)

    def pass_to(self, half_position: int) -> None:
        """All half messages before *half_position* are done with."""
        del self._is_done[: half_position - self.half_position]
        self.half_position = half_position
        while self._runs and self._runs[0][1] < half_position:
            self.op_position, _ = self._runs.popleft()
