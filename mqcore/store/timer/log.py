"""The directory ``timerlog``: a unit for each message that waits, in the order in which they came, chained by slot.

Here is its layout in plain words; the timer worker's own way is _fast/timer/units.pyx. Source: RocketMQ
store/timer/TimerLog.java.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from mqcore.errors import CorruptFileError
from mqcore.files import delete_file
from mqcore.layout import BLANK_MAGIC, TIMER_FILLER_SIZE, TIMER_UNIT, constants
from mqcore.store.reader_files import list_files

MAGIC: Final = constants("TimerMagic")
_MAGIC_BITS: Final = 0xF


class TimerUnit(NamedTuple):
    """One message that waits. Times in ms; *slot_time* is stored as the difference to *write_time*."""

    previous_position: int
    magic: int
    slot_time: int
    write_time: int
    physical_offset: int
    record_size: int
    topic_hash: int
    deliver_time: int


def encode(unit: TimerUnit) -> bytes:
    """The bytes of *unit*."""
    return TIMER_UNIT.struct.pack(
        TIMER_UNIT.size, unit.previous_position, unit.magic, unit.write_time, unit.slot_time - unit.write_time,
        unit.physical_offset, unit.record_size, unit.topic_hash, unit.deliver_time,
    )  # fmt: skip


def decode(data: bytes | memoryview, position: int = 0) -> TimerUnit | None:
    """The unit at data[position:], None if there is none."""
    if position < 0 or len(data) - position < TIMER_UNIT.size:
        return None
    size, previous, magic, write_time, delay, offset, record_size, topic_hash, deliver_time = (
        TIMER_UNIT.struct.unpack_from(data, position)
    )
    if size != TIMER_UNIT.size or magic & ~_MAGIC_BITS or offset < 0 or record_size <= 0:
        return None
    return TimerUnit(previous, magic, write_time + delay, write_time, offset, record_size, topic_hash, deliver_time)


def unit_positions(file_size: int) -> range:
    """Where in a file units begin: behind each there is room for a filler."""
    return range(0, file_size - TIMER_UNIT.size - TIMER_FILLER_SIZE + 1, TIMER_UNIT.size)


def file_starts(directory: Path, file_size: int) -> list[int]:
    """Where the files of the timer log start, oldest first. Raises CorruptFileError for one of another length."""
    starts = []
    for start, path, size in list_files(directory):
        if size != file_size:
            raise CorruptFileError(f"file has {size} bytes, wanted {file_size}", str(path))
        starts.append(start)
    return sorted(starts)


def read_units(directory: Path, file_size: int) -> Iterator[tuple[int, TimerUnit]]:
    """Every unit of the log with its position, up to the first place that has none; for tests and tools."""
    for start, path, _ in sorted(list_files(directory)):
        data = path.read_bytes()
        for at in unit_positions(file_size):
            unit = decode(data, at)
            if unit is None:
                if int.from_bytes(data[at + 12 : at + 16], "big", signed=True) == BLANK_MAGIC:
                    break
                return
            yield start + at, unit


def delete_expired(directory: Path, file_size: int, commit_log_min: int) -> int:
    """Delete the files, but for the newest, whose last unit's record is gone; returns how many."""
    deleted = 0
    last_at = unit_positions(file_size)[-1]
    for start, path, _ in sorted(list_files(directory))[:-1]:
        with path.open("rb") as file:
            file.seek(last_at)
            unit = decode(file.read(TIMER_UNIT.size))
        if unit is None or unit.physical_offset >= commit_log_min or start < 0:
            break
        delete_file(path)
        deleted += 1
    return deleted
