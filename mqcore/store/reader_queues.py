"""Consume queues as a reader sees them: their units as structured NumPy arrays, without a copy."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mqcore.errors import OffsetOutOfRangeError
from mqcore.layout import CONSUME_QUEUE_UNIT, PRE_FILL_SIZE
from mqcore.store.codec import decode_ext_unit
from mqcore.store.paths import StorePaths, is_topic
from mqcore.store.queue_directories import is_queue_id
from mqcore.store.queues.consume_queue import Units, as_units, count_below, to_unit
from mqcore.store.queues.ext import EXT_ADDRESS_MAX, ext_offset
from mqcore.store.queues.units import Unit
from mqcore.store.reader_files import FoundFiles

UNIT_SIZE = CONSUME_QUEUE_UNIT.size
MAPPED_QUEUE_FILES_MAX = 2


class QueueUnits:
    """One consume queue. *log_start* and *log_end* bound the commit log: units that lead out of it are not given."""

    def __init__(
        self, directory: Path, topic: str, queue_id: int, log_start: int, log_end: int, ext_directory: Path
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.log_start = log_start
        self.log_end = log_end
        self.files = FoundFiles([directory], MAPPED_QUEUE_FILES_MAX)
        self.ext_files = FoundFiles([ext_directory], MAPPED_QUEUE_FILES_MAX)

    def __repr__(self) -> str:
        return f"QueueUnits({self.topic}/{self.queue_id})"

    @property
    def is_whole(self) -> bool:
        """Whether no file is missing in the middle, and all have a length that can be."""
        return not self.files.gaps() and self.files.file_size % UNIT_SIZE == 0

    def runs(self, first: int = 0, end: int | None = None) -> Iterator[tuple[int, Units]]:
        """Give the units with queue offsets in [first, end), file by file: the queue offset of the first, and an array.

        Shape (n,), n > 0, dtype CONSUME_QUEUE_UNIT.dtype (big-endian): a read-only view of the mapped file, which stays
        mapped as long as the array lives. Units whose record has expired, and such as only hold a place, are left out
        at the beginning; the first unit that is not written, or whose record lies behind the log's end, ends the queue.
        """
        has_begun = False
        for start in self.files.starts:
            base = start // UNIT_SIZE
            if end is not None and base >= end:
                return
            units = self._file_units(start)
            count = self._count(units)
            skipped = 0 if has_begun else self._count_gone(units[:count])
            has_begun = has_begun or skipped < count
            low = max(skipped, first - base)
            high = count if end is None else min(count, end - base)
            if low < high:
                yield base + low, units[low:high]
            if count < len(units):
                return

    def units(self, first: int = 0, end: int | None = None) -> Units:
        """Return the units of ``runs`` as one array: a view if one file holds them all, else a copy."""
        arrays = [units for _, units in self.runs(first, end)]
        if not arrays:
            return np.empty(0, dtype=CONSUME_QUEUE_UNIT.dtype)
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)

    def tags_codes(self, units: Units) -> NDArray[np.int64]:
        """Return the tags codes of *units*, which are of this queue: a new array, shape (n,).

        Where a unit holds the address of an ext unit, the code comes from there; an address that leads to nothing, as
        in a copy without ``consumequeue_ext``, is given as it is (it is less than -2^31, and so the code of no tag).
        """
        codes = units["tags_code"].astype(np.int64)
        for index in np.flatnonzero(codes <= EXT_ADDRESS_MAX):
            codes[index] = self._real_code(int(codes[index]))
        return codes

    def _real_code(self, address: int) -> int:
        try:
            start, view = self.ext_files.file_view(ext_offset(address))
        except OffsetOutOfRangeError:
            return address
        unit = decode_ext_unit(view, ext_offset(address) - start)
        return address if unit is None else unit.tags_code

    def close(self) -> None:
        """Forget the mappings; each is undone with its last view."""
        self.files.close()
        self.ext_files.close()

    def bounds(self) -> tuple[int, int]:
        """Return the queue offsets that can be read, [min, max); equal if there are none."""
        first = last = None
        for base, units in self.runs():
            first = base if first is None else first
            last = base + len(units)
        if first is not None and last is not None:
            return first, last
        start = self.files.min_offset // UNIT_SIZE
        return start, start

    def record_end(self) -> int:
        """Return the end of the newest record that has a unit, bytes; 0 without one."""
        for start in reversed(self.files.starts):
            units = self._file_units(start)
            count = self._count(units)
            if count > 0 and int(units[count - 1]["record_size"]) != PRE_FILL_SIZE:
                return to_unit(units[count - 1]).record_end
        return 0

    def unit_near(self, physical_offset: int) -> Unit | None:
        """Return the first unit whose record lies at *physical_offset* or behind; None if there is none."""
        files = self.files.starts
        index = bisect_left(range(len(files)), physical_offset, key=lambda index: self._last_place(files[index]))
        if index == len(files):
            return None
        units = self._file_units(files[index])
        column = units["physical_offset"]
        at = bisect_left(range(self._count(units)), physical_offset, key=lambda index: int(column[index]))
        return to_unit(units[at]) if at < self._count(units) else None

    def _file_units(self, start: int) -> Units:
        return as_units(self.files.file_view(start)[1][: self.files.file_size // UNIT_SIZE * UNIT_SIZE])

    def _last_place(self, start: int) -> int:
        """Return where the last record lies that the file at *start* knows; beyond everything for none."""
        units = self._file_units(start)
        count = self._count(units)
        return int(units[count - 1]["physical_offset"]) if count else self.log_end

    def _count(self, units: Units) -> int:
        """Return how many of *units* are written. A file is full when its last unit is."""
        last = to_unit(units[-1]) if len(units) else None
        if last is not None and last.record_size > 0 and 0 <= last.physical_offset < self.log_end:
            return len(units)
        return count_below(units, self.log_end)

    def _count_gone(self, units: Units) -> int:
        """Return how many of *units*, at their beginning, lead to nothing that is still there."""
        gone = (units["record_size"] == PRE_FILL_SIZE) | (units["physical_offset"] < self.log_start)
        return len(units) if gone.all() else int(np.argmin(gone))


def find_queues(
    paths: StorePaths, log_start: int, log_end: int, births: Mapping[str, Mapping[int, int]]
) -> dict[str, dict[int, QueueUnits]]:
    """Return the queues in *paths* by topic and queue id, sorted.

    Units that lead before the birth of their queue, of *births* by topic and queue id, are of one that was dropped.
    """
    directory = paths.consume_queue
    found: dict[str, dict[int, QueueUnits]] = {}
    if not directory.is_dir():
        return found
    for topic in sorted(directory.iterdir()):
        if topic.is_dir() and is_topic(topic.name):
            born = births.get(topic.name, {})
            numbers = sorted(int(entry.name) for entry in topic.iterdir() if is_queue_id(entry.name))
            found[topic.name] = {
                number: QueueUnits(
                    topic / str(number),
                    topic.name,
                    number,
                    max(log_start, born.get(number, 0)),
                    log_end,
                    paths.queue_ext(topic.name, number),
                )
                for number in numbers
            }
    return found
