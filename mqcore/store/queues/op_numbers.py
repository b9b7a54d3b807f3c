"""What the body of an op message says; the fast way over many of them is _fast/queues/op_numbers.pyx."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

# A broker whose producers use no transactions does not pay for the import; see mqcore/store/queues/consume_queue.py.
if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_NUMBER: Final = re.compile(rb"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class DoneHalves:
    """What a run of op messages says: halves that are done with, at queue offsets of the half queue.

    ``ended`` and ``moved`` have shape (n,), dtype int64; *moved* are those that lie elsewhere now.
    """

    next_offset: int
    """Behind the last op message of the run; where it was to begin if there was none."""
    ended: NDArray[np.int64]
    moved: NDArray[np.int64]
    size: int = 0
    """Bytes of the op messages that say of an end."""

    @classmethod
    def of(cls, next_offset: int, numbers: NDArray[np.int64], size: int = 0) -> DoneHalves:
        """Sort what ``numbers_of`` gives."""
        return cls(next_offset, numbers[numbers >= 0], ~numbers[numbers < 0], size)


def numbers_of(body: bytes) -> list[int]:
    """Return the queue offsets that *body* says, in their order; one with a 0 in front as its complement (``~``).

    What is no number, or has more than 18 digits, is passed over.
    """
    found = []
    for text in body.split(b","):
        if _NUMBER.fullmatch(text):
            value = int(text)
            found.append(~value if text.startswith(b"0") and len(text) > 1 else value)
    return found
