"""One consume queue: the units of a topic's queue, read, searched by time, recovered and cut back.

The reput worker alone appends. Recovery and cleaning run while it does not, or touch only files that it has left.
Source: RocketMQ store/ConsumeQueue.java.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mqcore.errors import CorruptFileError, CorruptRecordError, OffsetOutOfRangeError
from mqcore.files import zero_from
from mqcore.layout import CONSUME_QUEUE_UNIT, EXT_FILE_SIZE, PRE_FILL_SIZE
from mqcore.store.codec import valid_units
from mqcore.store.log.mapped_file_queue import MappedFileQueue
from mqcore.store.paths import StorePaths, is_topic
from mqcore.store.queue_directories import is_queue_id
from mqcore.store.queues.consume_queue_ext import ConsumeQueueExt
from mqcore.store.queues.ext import EXT_ADDRESS_MAX
from mqcore.store.queues.units import Unit

# NumPy takes longer to import than all the rest of a start, and an empty store does not need it.
if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Buffer

    Units = NDArray[np.void]
else:
    Units = Any

UNIT_SIZE = CONSUME_QUEUE_UNIT.size
NOTHING = memoryview(b"")
RECOVERED_FILES = 3
UNITS_PER_PAGE = 4096 // UNIT_SIZE + 1
UNITS_PER_CHUNK = (1 << 20) // UNIT_SIZE

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """What recovery found: queue offsets, and the end of the newest record that has a unit (-1 without one)."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    max_physical: int


class ConsumeQueue:
    """The files of one queue in *paths*. Bounds are the caller's: what is behind them may be written at any moment."""

    def __init__(
        self, paths: StorePaths, topic: str, queue_id: int, file_size: int, ext_file_size: int = EXT_FILE_SIZE
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.files = MappedFileQueue(paths.queue(topic, queue_id), file_size)
        self.files.refresh()
        self.ext = ConsumeQueueExt(paths, topic, queue_id, ext_file_size)

    def __repr__(self) -> str:
        return f"ConsumeQueue({self.topic}/{self.queue_id})"

    @property
    def units_per_file(self) -> int:
        return self.files.file_size // UNIT_SIZE

    # Reading

    def units(self, first: int, count_max: int, bounds: tuple[int, int]) -> Units:
        """Return consecutive units from queue offset *first* on, as far as one file holds them.

        Shape (n,), 0 <= n <= count_max, dtype CONSUME_QUEUE_UNIT.dtype (big-endian): a read-only view of the mapped
        file, to be copied if it must be kept for long. *bounds* are min and max queue offset; *first* = max gives none.
        Raises OffsetOutOfRangeError if *first* is outside them.
        """
        return as_units(self.packed_units(first, count_max, bounds))

    def packed_units(self, first: int, count_max: int, bounds: tuple[int, int]) -> memoryview:
        """Return the bytes of what ``units`` gives: for few units, without NumPy."""
        low, high = bounds
        if not low <= first <= high:
            raise OffsetOutOfRangeError("queue offset", first, low, high)
        count = min(count_max, high - first, self.units_per_file - first % self.units_per_file)
        if count <= 0:
            return NOTHING
        return self._view(first * UNIT_SIZE, count * UNIT_SIZE)

    def _view(self, position: int, size: int) -> memoryview:
        return self.files.view(position, size)

    def unit_at(self, queue_offset: int, bounds: tuple[int, int]) -> Unit:
        """Return one unit. Raises OffsetOutOfRangeError if *queue_offset* is outside [min, max) of *bounds*."""
        units = unpacked(self.packed_units(queue_offset, 1, bounds))
        if not units:
            raise OffsetOutOfRangeError("queue offset", queue_offset, *bounds)
        return units[0]

    def offset_by_time(
        self, timestamp: int, bounds: tuple[int, int], store_timestamp: Callable[[int], int], commit_log_min: int
    ) -> int:
        """Return the queue offset of the unit whose store time is nearest to *timestamp*, ms; the earlier one of two.

        A time after everything gives the last message. Only the first file modified at *timestamp* or later is
        searched. *store_timestamp* reads the time of the record at a physical offset; a record that it cannot read
        gives 0.
        """
        low, high = bounds
        start = self._file_by_time(timestamp)
        first = max(low, start // UNIT_SIZE)
        end = min(high, start // UNIT_SIZE + self.units_per_file)
        if first >= end:
            return first if self._has_units else 0
        units = self.units(first, end - first, (first, end))
        before: tuple[int, int] | None = None
        after: tuple[int, int] | None = None
        left, right = 0, len(units) - 1
        while left <= right:
            middle = (left + right) // 2
            physical_offset = int(units[middle]["physical_offset"])
            if physical_offset < commit_log_min:
                left = middle + 1
                continue
            try:
                time = store_timestamp(physical_offset)
            except (OffsetOutOfRangeError, CorruptRecordError):
                return 0
            if time == timestamp:
                return first + middle
            if time > timestamp:
                right, after = middle - 1, (time - timestamp, middle)
            else:
                left, before = middle + 1, (timestamp - time, middle)
        candidates = [found for found in (before, after) if found is not None]
        nearest = min(candidates, key=lambda found: found[0], default=(0, 0))
        return first + nearest[1]

    @property
    def _has_units(self) -> bool:
        return bool(self.files.starts)

    def _file_by_time(self, timestamp: int) -> int:
        """Return the start of the first file modified at *timestamp* or later, else of the last one."""
        for start in self.files.starts:
            try:
                modified_ms = self.files.path_of(start).stat().st_mtime_ns // 1_000_000
            except FileNotFoundError:
                continue
            if modified_ms >= timestamp:
                return start
        return self.files.starts[-1] if self.files.starts else 0

    # Recovery and cleaning

    def recover(self, commit_log_min: int) -> QueueState:
        """Return how far the queue is written, as the last three files tell.

        A unit is written if its offset is not negative and its size positive; the first that is not ends the queue.
        """
        max_physical = -1
        end = self.files.min_offset
        for start in self.files.starts[-RECOVERED_FILES:]:
            units = self._written_units(start)
            end = start + len(units) * UNIT_SIZE
            max_physical = max(max_physical, newest_record_end(units))
            if len(units) < self.units_per_file:
                break
        return QueueState(
            topic=self.topic,
            queue_id=self.queue_id,
            min_offset=min(self.find_min_offset(commit_log_min), end // UNIT_SIZE),
            max_offset=end // UNIT_SIZE,
            max_physical=max_physical,
        )

    def find_min_offset(self, commit_log_min: int) -> int:
        """Return the queue offset of the first unit whose record is still there; the queue's end if there is none.

        Units that only hold a place do not count.
        """
        end = 0
        for start in self.files.starts:
            units = self._written_units(start)
            end = start // UNIT_SIZE + len(units)
            kept = (units["record_size"] != PRE_FILL_SIZE) & (units["physical_offset"] >= commit_log_min)
            if kept.any():
                return start // UNIT_SIZE + int(kept.argmax())
        return end

    def truncate(self, physical_offset: int, is_record: Callable[[Unit], bool] | None = None) -> list[Path]:
        """Drop every unit whose record starts at *physical_offset* or later; what is dropped becomes zero.

        Returns the files that have to be synced, for a sync of many costs the disk as much as a sync of one. With
        *is_record* the last unit that stays must also point at a record: a power cut can tear the unit that lies across
        two pages, and what is left of it may look like one. The first file is kept, if empty, so that the queue goes on
        counting where it was.
        """
        for start in reversed(self.files.starts):
            units = self._written_units(start)
            count = count_below(units, physical_offset)
            if is_record is not None:
                count = _drop_torn(units, count, is_record)
            if count > 0 or start == self.files.starts[0]:
                return self._cut_file(start, count)
            self.files.delete(start)
        return []

    def _cut_file(self, start: int, count: int) -> list[Path]:
        path = self.files.path_of(start)
        if count == self.units_per_file or not zero_from(path, count * UNIT_SIZE, is_durable=False):
            return []
        logger.debug("units dropped queue=%s/%d from=%d", self.topic, self.queue_id, start // UNIT_SIZE + count)
        return [path]

    def delete_expired(self, commit_log_min: int) -> int:
        """Delete files, never the last, whose last unit's record is gone; returns how many."""
        deleted = 0
        for start in self.files.starts[:-1]:
            (last,) = unpacked(self._read(start, self.units_per_file - 1, 1))
            if last.physical_offset >= commit_log_min and not last.is_pre_fill:
                break
            self.files.delete(start)
            deleted += 1
        return deleted

    def cut_ext(self) -> None:
        """Let the ext files end with the newest unit that names one of theirs, durably."""
        if self.ext.files.starts:
            self.ext.cut(next(self._ext_addresses(), None))

    def _ext_addresses(self) -> Iterator[int]:
        """Give the largest ext address of each file that has one, the newest file first."""
        for start in reversed(self.files.starts):
            codes = self._written_units(start)["tags_code"]
            addresses = codes[codes <= EXT_ADDRESS_MAX]
            if len(addresses):
                yield int(addresses.max())

    def delete_expired_ext(self, min_offset: int) -> int:
        """Delete the ext files that only units before queue offset *min_offset* name; returns how many."""
        if len(self.ext.files.starts) < 2 or not self.files.starts:
            return 0
        start = self.files.start_of(min_offset * UNIT_SIZE)
        if start not in self.files.starts:
            return 0
        codes = self._written_units(start)["tags_code"][min_offset - start // UNIT_SIZE :]
        addresses = codes[codes <= EXT_ADDRESS_MAX]
        return self.ext.delete_before(int(addresses[0])) if len(addresses) else 0

    def delete_all(self) -> None:
        """Delete every file, the newest first, so that what a crash leaves has no gap."""
        for start in reversed(self.files.starts):
            self.files.delete(start)
        self.ext.delete_all()

    def last_record_end(self) -> int:
        """Return the end of the newest record that has a unit, bytes; -1 without one."""
        for start in reversed(self.files.starts):
            end = newest_record_end(self._written_units(start))
            if end >= 0:
                return end
        return -1

    def close(self) -> None:
        self.files.close()
        self.ext.close()

    def _written_units(self, start: int) -> Units:
        """Return the units of a file up to the first that is not written; a copy.

        Read and not mapped: all queues of a store are looked at in turn, and a mapping brings in all that the device
        reads ahead, for a queue of ten messages too.
        """
        found = bytearray()
        count = UNITS_PER_PAGE - 1
        while len(found) < self.files.file_size:
            chunk = self._read(start, len(found) // UNIT_SIZE, count)
            written = valid_units(chunk) * UNIT_SIZE
            found += chunk[:written]
            if written < len(chunk) or not chunk:
                break
            count = UNITS_PER_CHUNK
        return as_units(memoryview(found))

    def _read(self, start: int, first: int, count: int) -> bytes:
        """Return the bytes of up to *count* units from the unit *first* of the file at *start* on."""
        path = self.files.path_of(start)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            if size != self.files.file_size:
                raise CorruptFileError(f"file has {size} bytes, wanted {self.files.file_size}", str(path))
            return os.pread(descriptor, min(count, self.units_per_file - first) * UNIT_SIZE, first * UNIT_SIZE)
        finally:
            os.close(descriptor)


class YoungQueue(ConsumeQueue):
    """A new queue whose first file is still being made: all of its *units* are at hand. To be read, and no more."""

    def __init__(self, paths: StorePaths, topic: str, queue_id: int, file_size: int, units: bytes) -> None:
        super().__init__(paths, topic, queue_id, file_size)
        self._young = memoryview(units)

    def _view(self, position: int, size: int) -> memoryview:
        return self._young[position : position + size]

    @property
    def _has_units(self) -> bool:
        return len(self._young) > 0

    def _file_by_time(self, timestamp: int) -> int:
        return 0


def as_units(view: memoryview) -> Units:
    """Return a view of *view* as an array of units."""
    import numpy as np

    return np.frombuffer(view, dtype=CONSUME_QUEUE_UNIT.dtype)


def no_units() -> Units:
    """Return an empty array of units."""
    return as_units(NOTHING)


def unpacked(units: Buffer) -> list[Unit]:
    """Return the units that *units* has the bytes of."""
    return [Unit(*values) for values in CONSUME_QUEUE_UNIT.struct.iter_unpack(units)]


def to_unit(row: Any) -> Unit:
    """Return one element of an array of units as a Unit."""
    return Unit(int(row["physical_offset"]), int(row["record_size"]), int(row["tags_code"]))


def count_written(units: Units) -> int:
    """Return how many units stand before the first that is not written."""
    return _first_true((units["physical_offset"] < 0) | (units["record_size"] <= 0))


def count_below(units: Units, physical_offset: int) -> int:
    """Return how many units stand before the first that is not written or whose record starts at *physical_offset*."""
    reached = (units["physical_offset"] >= physical_offset) & (units["record_size"] != PRE_FILL_SIZE)
    return min(count_written(units), _first_true(reached))


def newest_record_end(units: Units) -> int:
    """Return the largest end of a record that *units* name, bytes; -1 if they name none."""
    real = units[units["record_size"] != PRE_FILL_SIZE]
    if not len(real):
        return -1
    return int((real["physical_offset"].astype("i8") + real["record_size"].astype("i8")).max())


def _first_true(mask: NDArray[np.bool_]) -> int:
    return int(mask.argmax()) if mask.any() else len(mask)


def _drop_torn(units: Units, count: int, is_record: Callable[[Unit], bool]) -> int:
    """Return *count* less the units at its end that point at no record, of which a power cut leaves a page at most."""
    for kept in range(count, max(0, count - UNITS_PER_PAGE), -1):
        unit = to_unit(units[kept - 1])
        if unit.is_pre_fill or is_record(unit):
            return kept
    if count <= UNITS_PER_PAGE:
        return 0
    logger.error("units kept although they point at no record: the commit log before them is damaged count=%d", count)
    return count


def list_queues(paths: StorePaths, file_size: int, ext_file_size: int = EXT_FILE_SIZE) -> Iterator[ConsumeQueue]:
    """Give every consume queue that has a directory, in order of topic and number. Other entries are passed over.

    One at a time: there may be more of them than a process can map. Whoever asks for the next is done with the last.
    """
    if not paths.consume_queue.is_dir():
        return
    for topic in sorted(paths.consume_queue.iterdir()):
        if not topic.is_dir() or not is_topic(topic.name):
            logger.warning("not the directory of a topic path=%s", topic)
            continue
        numbers = [int(entry.name) for entry in topic.iterdir() if is_queue_id(entry.name)]
        for number in sorted(numbers):
            queue = ConsumeQueue(paths, topic.name, number, file_size, ext_file_size)
            yield queue
            queue.close()
