"""The consume queues of a store as a check reads them: in chunks, each file as far as it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mqcore.layout import CONSUME_QUEUE_EXT_UNIT, CONSUME_QUEUE_UNIT, PRE_FILL_SIZE
from mqcore.store.backup.streams import Reading
from mqcore.store.checking.damage import Damage, DamageKind
from mqcore.store.checking.kernels import sum_units
from mqcore.store.paths import StorePaths, is_topic
from mqcore.store.queue_directories import is_queue_id
from mqcore.store.queues.ext import EXT_ADDRESS_BASE, EXT_ADDRESS_MAX
from mqcore.store.queues.tally import OFFSET_MAX, WORD_MASK
from mqcore.store.reader_files import FoundFiles

UNIT_SIZE: Final = CONSUME_QUEUE_UNIT.size
CHUNK_UNITS_FIRST: Final = 200
CHUNK_UNITS: Final = (1 << 20) // UNIT_SIZE

QueueKey = tuple[str, int]
Sums = dict[int, tuple[int, int]]
"""Log file to how many units lead there, and their sum."""


@dataclass(frozen=True, slots=True)
class LogBounds:
    """Where the log's files lie, and which records count: those that start in [start, end)."""

    first: int
    file_size: int
    start: int
    end: int


@dataclass(slots=True)
class QueueFiles:
    """One queue: its directory, and what its files were found to hold."""

    key: QueueKey
    directory: Path
    ext_directory: Path
    unit_count: int = 0
    record_end: int = -1
    has_ext: bool = False
    sums: Sums = field(default_factory=dict)

    def found_files(self) -> FoundFiles:
        return FoundFiles([self.directory])


def list_queue_files(paths: StorePaths) -> dict[QueueKey, QueueFiles]:
    """Return the queues that have a directory, in order of topic and number."""
    found: dict[QueueKey, QueueFiles] = {}
    if not paths.consume_queue.is_dir():
        return found
    for topic in sorted(paths.consume_queue.iterdir()):
        if topic.is_dir() and is_topic(topic.name):
            for number in sorted(int(entry.name) for entry in topic.iterdir() if is_queue_id(entry.name)):
                key = (topic.name, number)
                found[key] = QueueFiles(key, topic / str(number), paths.queue_ext(*key))
    return found


def read_chunks(files: FoundFiles, start: int) -> Iterator[tuple[int, memoryview]]:
    """Give the units of one file in chunks, with the queue offset of each one's first; a chunk without any ends it."""
    count = CHUNK_UNITS_FIRST
    with Reading(files.path_of(start)) as reading:
        position = 0
        while position < files.file_size:
            buffer = memoryview(bytearray(min(count * UNIT_SIZE, files.file_size - position)))
            size = reading.read(buffer, position) // UNIT_SIZE * UNIT_SIZE
            if not size:
                return
            yield (start + position) // UNIT_SIZE, buffer[:size]
            if not np.frombuffer(buffer, dtype=np.uint8).any():
                return
            position += size
            count = CHUNK_UNITS


def sum_queue(queue: QueueFiles, log: LogBounds, on_damage: Callable[[Damage], None]) -> None:
    """Read all units of a queue and add them up. Raises OSError."""
    files = queue.found_files()
    queue.unit_count, queue.record_end, queue.has_ext = 0, -1, False
    queue.sums.clear()
    for damage in file_damage(files):
        on_damage(damage)
    for start in files.starts:
        try:
            for first, chunk in read_chunks(files, start):
                found = sum_units(chunk, first, log.first, log.file_size, log.start, log.end)
                queue.unit_count += found.written
                queue.record_end = max(queue.record_end, found.record_end)
                queue.has_ext = queue.has_ext or found.has_ext
                for file, count, total in found.runs:
                    before = queue.sums.get(file, (0, 0))
                    queue.sums[file] = (before[0] + count, (before[1] + total) & WORD_MASK)
        except FileNotFoundError:
            continue  # expired since it was listed


def newest_record_end(queue: QueueFiles) -> int:
    """Return the end of the newest record that has a unit, bytes; -1 without one. Only the last files are read."""
    files = queue.found_files()
    for start in reversed(files.starts):
        found = -1
        try:
            for first, chunk in read_chunks(files, start):
                found = max(found, sum_units(chunk, first, 0, 1 << 62, 0, OFFSET_MAX).record_end)
        except FileNotFoundError:
            continue
        if found >= 0:
            return found
    return -1


def file_damage(files: FoundFiles, *, has_fixed_names: bool = True) -> Iterator[Damage]:
    """Give what is wrong with the listing of files of one size: gaps, lengths, and what is no file of the store."""
    for start, end in files.gaps():
        found = f"{(end - start) // files.file_size} files missing"
        yield Damage(DamageKind.FILE_MISSING, files.path_of(start), -1, found, "a file between others")
    for start in files.starts:
        path = files.path_of(start)
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            continue
        if size != files.file_size:
            yield Damage(DamageKind.FILE_SIZE, path, -1, f"{size} bytes", f"{files.file_size}")


def units_of(queue: QueueFiles, low: int, high: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return the units that lead to records in [low, high): their queue offsets, and the units themselves, a copy."""
    files = queue.found_files()
    offsets, units = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=CONSUME_QUEUE_UNIT.dtype)]
    for start in files.starts:
        try:
            for first, chunk in read_chunks(files, start):
                found = np.frombuffer(chunk, dtype=CONSUME_QUEUE_UNIT.dtype)
                places, sizes = found["physical_offset"], found["record_size"]
                index = np.flatnonzero((places >= low) & (places < high) & (sizes > 0) & (sizes != PRE_FILL_SIZE))
                offsets.append(first + index.astype(np.int64))
                units.append(found[index])
        except FileNotFoundError:
            continue
    return np.concatenate(offsets), np.concatenate(units)


def unit_place(files: FoundFiles, queue_offset: int) -> tuple[Path, int]:
    """Return the file of a unit, be it there or not, and its position there, bytes."""
    start = files.start_of(queue_offset * UNIT_SIZE)
    return files.path_of(start), queue_offset * UNIT_SIZE - start


def read_unit(files: FoundFiles, queue_offset: int) -> tuple[int, int, int] | None:
    """Return one unit as stored: physical offset, size, tags code; None if its file is missing or too short."""
    path, position = unit_place(files, queue_offset)
    buffer = memoryview(bytearray(UNIT_SIZE))
    try:
        with Reading(path) as reading:
            if reading.read(buffer, position) < UNIT_SIZE:
                return None
    except FileNotFoundError:
        return None
    place, size, code = CONSUME_QUEUE_UNIT.struct.unpack(buffer)
    return int(place), int(size), int(code)


def read_ext_units(queue: QueueFiles, codes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return tags codes and store times, ms, of the ext units that *codes* are the addresses of.

    Where *codes* has a tags code it is given again, with the time -1; -2 is the time of an ext unit that is not there.
    """
    real = codes.copy()
    times = np.full(len(codes), -1, dtype=np.int64)
    is_address = codes <= EXT_ADDRESS_MAX
    if not is_address.any():
        return real, times
    times[is_address] = -2
    files = FoundFiles([queue.ext_directory])
    offsets = codes - EXT_ADDRESS_BASE
    head = CONSUME_QUEUE_EXT_UNIT.size
    for start in files.starts:
        buffer = memoryview(bytearray(files.file_size))
        with Reading(files.path_of(start)) as reading:
            reading.read(buffer, 0)
        data = np.frombuffer(buffer, dtype=np.uint8)
        index = np.flatnonzero(is_address & (offsets >= start) & (offsets <= start + files.file_size - head))
        if not len(index):
            continue
        places = offsets[index] - start
        units = data[places[:, None] + np.arange(head)].view(CONSUME_QUEUE_EXT_UNIT.dtype)[:, 0]
        bitmaps = units["bitmap_size"].astype(np.int64)
        is_whole = (
            (bitmaps >= 0) & (units["unit_size"] == head + bitmaps) & (places + head + bitmaps <= files.file_size)
        )
        whole = index[is_whole]
        real[whole] = units["tags_code"][is_whole]
        times[whole] = units["store_timestamp"][is_whole]
    return real, times
