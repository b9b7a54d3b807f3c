"""The file ``timerwheel``: for each slot of time the first and the last unit of the timer log that waits there.

Here is its layout in plain words, and the making of the file; the timer worker's own way is _fast/timer/wheel.pyx.
Source: RocketMQ store/timer/TimerWheel.java.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from pathlib import Path
from typing import Final, NamedTuple

from mqcore.errors import CorruptFileError
from mqcore.files import reserve_blocks, sync_directory
from mqcore.layout import TIMER_SLOT, TIMER_SLOT_COUNT, TIMER_WHEEL_FILE_SIZE

NO_UNIT: Final = -1


class Slot(NamedTuple):
    """First and last position in the timer log, -1 = none, and how many messages wait."""

    first_position: int
    last_position: int
    message_count: int


EMPTY: Final = Slot(NO_UNIT, NO_UNIT, 0)


class TimerWheel:
    """A wheel over *memory*, TIMER_WHEEL_FILE_SIZE bytes. Times are multiples of *precision_ms*."""

    def __init__(self, memory: bytearray | mmap.mmap | memoryview, precision_ms: int) -> None:
        if len(memory) != TIMER_WHEEL_FILE_SIZE or precision_ms <= 0:
            raise ValueError(f"wheel of {len(memory)} bytes, wanted {TIMER_WHEEL_FILE_SIZE}")
        self._memory = memory
        self._precision_ms = precision_ms

    def slot(self, time: int) -> Slot:
        """What waits in the slot of *time*, ms; EMPTY if another time has its place."""
        stored, first, last, count, _ = TIMER_SLOT.struct.unpack_from(self._memory, self._at(time))
        return Slot(first, last, count) if stored == time // self._precision_ms else EMPTY

    def add(self, time: int, position: int, count: int) -> None:
        """The unit at *position* is the last of the slot of *time* now; *count* is -1 for a deletion."""
        slot = self.slot(time)
        first = position if slot == EMPTY else slot.first_position
        TIMER_SLOT.struct.pack_into(
            self._memory, self._at(time), time // self._precision_ms, first, position, slot.message_count + count, 0
        )

    def _at(self, time: int) -> int:
        return time // self._precision_ms % TIMER_SLOT_COUNT * TIMER_SLOT.size


def map_wheel(path: Path, *, make: bool = False) -> mmap.mmap:
    """Map the whole file, writable if it may be made.

    Its blocks are reserved, so that a full disk is an OSError here. Raises CorruptFileError for one of another length,
    which RocketMQ refuses too.
    """
    if make and not path.exists():
        _make_wheel(path)
    descriptor = os.open(path, (os.O_RDWR if make else os.O_RDONLY) | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        if size != TIMER_WHEEL_FILE_SIZE:
            raise CorruptFileError(f"file has {size} bytes, wanted {TIMER_WHEEL_FILE_SIZE}", str(path))
        if make:
            reserve_blocks(path, 0, size)
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if make else 0)
        return mmap.mmap(descriptor, size, mmap.MAP_SHARED, protection)
    finally:
        os.close(descriptor)


def _make_wheel(path: Path) -> None:
    making = path.with_name(path.name + ".making")
    with contextlib.suppress(FileNotFoundError):
        making.unlink()
    with making.open("xb") as file:
        os.posix_fallocate(file.fileno(), 0, TIMER_WHEEL_FILE_SIZE)
        os.fsync(file.fileno())
    making.rename(path)
    sync_directory(path.parent)
