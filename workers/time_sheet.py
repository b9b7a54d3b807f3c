"""The time that tests have skipped (``mqcore.clock.skip``), for a worker that waits for times: none but in tests.

It lies on a *sheet*, an unnamed memory file that the worker is handed and looks at in each turn: native int64s, how
many skips there are, and then of each when it was and how long, both ms, in the order of time. The broker process
writes them, and the count last.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Sequence
from typing import Final

from mqcore.errors import WorkerError

SHEET_SIZE: Final = 1 << 16
_WORD: Final = struct.Struct("=q")
SKIPS_MAX: Final = (SHEET_SIZE // _WORD.size - 1) // 2


class TimeSheet:
    """One memory file."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def create(cls) -> TimeSheet:
        """Make an empty sheet; the caller closes its descriptor."""
        fd = os.memfd_create("mqcore-time", os.MFD_CLOEXEC)
        os.ftruncate(fd, SHEET_SIZE)
        return cls(fd)

    def write(self, skips: Sequence[tuple[int, int]]) -> None:
        """Put (when, how long) of each skip on the sheet, ms. Raises WorkerError if they are too many."""
        if len(skips) > SKIPS_MAX:
            raise WorkerError(f"time was skipped {len(skips)} times, wanted at most {SKIPS_MAX}")
        words = [word for skip in sorted(skips) for word in skip]
        os.pwrite(self.fd, struct.pack(f"={len(words)}q", *words), _WORD.size)
        os.pwrite(self.fd, _WORD.pack(len(skips)), 0)

    def map(self) -> mmap.mmap:
        """Return the sheet as a worker looks at it."""
        return mmap.mmap(self.fd, SHEET_SIZE, mmap.MAP_SHARED, mmap.PROT_READ)
