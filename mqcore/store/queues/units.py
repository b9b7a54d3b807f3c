"""Units of a consume queue, and the choice of the units that answer one pull: the twin of _fast/queues/units.pyx.

The commit log is not touched here: whether a record is really there is for the caller to see.
Source: RocketMQ store/ConsumeQueue.java, store/DefaultMessageStore.java (getMessage).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import IntFlag
from typing import TYPE_CHECKING, NamedTuple

from mqcore.layout import CONSUME_QUEUE_UNIT, PRE_FILL_SIZE
from mqcore.store.queues.ext import ExtUnit, decode_ext_unit, ext_offset, is_ext_address

if TYPE_CHECKING:
    from typing_extensions import Buffer

SCAN_UNITS_MIN = 800
OFFSET_MAX = 1 << 62


class Unit(NamedTuple):
    """One entry of a consume queue."""

    physical_offset: int
    record_size: int
    tags_code: int

    @property
    def is_pre_fill(self) -> bool:
        """Whether the unit only holds the place of messages that were gone when the queue was made."""
        return self.record_size == PRE_FILL_SIZE

    @property
    def record_end(self) -> int:
        return self.physical_offset + self.record_size


@dataclass(frozen=True, slots=True)
class QueueUnit:
    """One entry of a consume queue. *tags_code* as stored: with ext files an address, and *ext* what is there."""

    queue_offset: int
    physical_offset: int
    record_size: int
    tags_code: int
    ext: ExtUnit | None = None

    @property
    def real_tags_code(self) -> int | None:
        """The tags code; None if it was in an ext unit that cannot be read."""
        if not is_ext_address(self.tags_code):
            return self.tags_code
        return None if self.ext is None else self.ext.tags_code


class ScanFlag(IntFlag):
    """What a scan met; the numbers are those of consume_queue.pxd."""

    FOUND = 1
    REMOVING = 2
    FULL = 4
    SUGGEST_SLAVE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanLimits:
    """The bounds of one pull: counts, bytes, and what the commit log holds."""

    count_max: int
    commit_log_min: int
    commit_log_max: int
    commit_log_file_size: int
    in_memory_bytes_max: int
    bytes_in_memory_max: int = 256 * 1024
    count_in_memory_max: int = 32
    bytes_on_disk_max: int = 64 * 1024
    count_on_disk_max: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Where the chosen records lie, (physical_offset, size) each, and how far the scan came."""

    ranges: tuple[tuple[int, int], ...]
    units_examined: int
    bytes_total: int
    physical_offset_last: int
    flags: ScanFlag


NOTHING = Choice(ranges=(), units_examined=0, bytes_total=0, physical_offset_last=-1, flags=ScanFlag(0))


def encode_unit(physical_offset: int, record_size: int, tags_code: int) -> bytes:
    """Return the 20 bytes of one unit."""
    return CONSUME_QUEUE_UNIT.struct.pack(physical_offset, record_size, tags_code)


def decode_unit(buffer: Buffer, index: int = 0) -> Unit:
    """Return unit number *index* of *buffer*."""
    count = memoryview(buffer).nbytes // CONSUME_QUEUE_UNIT.size
    if not 0 <= index < count:
        raise IndexError(f"unit {index} of {count}")
    return Unit(*CONSUME_QUEUE_UNIT.struct.unpack_from(buffer, index * CONSUME_QUEUE_UNIT.size))


def valid_units(buffer: Buffer) -> int:
    """Return how many whole units at the start of *buffer* are written: offset >= 0 and size > 0."""
    count = memoryview(buffer).nbytes // CONSUME_QUEUE_UNIT.size
    for index in range(count):
        unit = decode_unit(buffer, index)
        if unit.physical_offset < 0 or unit.record_size <= 0:
            return index
    return count


def choose(
    units: Buffer, limits: ScanLimits, tag_codes: Collection[int] = (), ext: Buffer = b"", ext_start: int = 0
) -> Choice:
    """Choose from *units*, a run of one consume queue, what answers one pull.

    *tag_codes*: the wanted tag hashes, none for all messages. *ext* is one file of the queue's ext units, which starts
    at *ext_start* of their stream; a unit whose ext unit cannot be read there is wanted by everybody.

    At most max(800, count_max) units are examined. A record
    that is gone makes the scan skip every unit of its commit log file. The next queue offset is the first one plus
    units_examined.
    """
    wanted = frozenset(tag_codes)
    ranges: list[tuple[int, int]] = []
    total = examined = skip_below = 0
    last = -1
    flags = ScanFlag(0)
    count = memoryview(units).nbytes // CONSUME_QUEUE_UNIT.size
    for index in range(min(count, max(SCAN_UNITS_MIN, limits.count_max))):
        unit = decode_unit(units, index)
        last = unit.physical_offset
        if last >= skip_below:
            if _is_full(limits, len(ranges), total, unit):
                flags |= ScanFlag.FULL
                break
            if _is_wanted(_real_code(unit.tags_code, ext, ext_start), wanted):
                if _is_readable(unit, limits):
                    ranges.append((last, unit.record_size))
                    total += unit.record_size
                    skip_below = 0
                else:
                    flags |= ScanFlag.REMOVING
                    skip_below = next_file_start(last, limits.commit_log_file_size)
        examined += 1
    if ranges:
        flags = (flags | ScanFlag.FOUND) & ~ScanFlag.REMOVING
    if last >= 0 and last < limits.commit_log_max - limits.in_memory_bytes_max:
        flags |= ScanFlag.SUGGEST_SLAVE
    return Choice(
        ranges=tuple(ranges), units_examined=examined, bytes_total=total, physical_offset_last=last, flags=flags
    )


def _real_code(tags_code: int, ext: Buffer, ext_start: int) -> int | None:
    """Return the tags code that a unit's code stands for; None if it is an address where nothing can be read."""
    if not is_ext_address(tags_code):
        return tags_code
    unit = decode_ext_unit(ext, ext_offset(tags_code) - ext_start)
    return None if unit is None else unit.tags_code


def _is_wanted(tags_code: int | None, wanted: frozenset[int]) -> bool:
    """An unknown code matches: the consumer compares the tags themselves anyway."""
    return not wanted or tags_code is None or (tags_code + (1 << 31)) % (1 << 32) - (1 << 31) in wanted


def _is_full(limits: ScanLimits, count: int, total: int, unit: Unit) -> bool:
    if count == 0:  # one message always passes, whatever its size
        return False
    if count >= limits.count_max:
        return True
    if unit.physical_offset < limits.commit_log_max - limits.in_memory_bytes_max:
        return total + unit.record_size > limits.bytes_on_disk_max or count >= limits.count_on_disk_max
    return total + unit.record_size > limits.bytes_in_memory_max or count >= limits.count_in_memory_max


def _is_readable(unit: Unit, limits: ScanLimits) -> bool:
    return (
        unit.record_size > 0
        and unit.physical_offset >= limits.commit_log_min
        and unit.record_end <= limits.commit_log_max
    )


def next_file_start(physical_offset: int, file_size: int) -> int:
    """Return where the commit log file behind the one of *physical_offset* starts; 0 for an offset that cannot be."""
    if physical_offset < 0 or file_size <= 0 or physical_offset > OFFSET_MAX:
        return 0
    return physical_offset - physical_offset % file_size + file_size
