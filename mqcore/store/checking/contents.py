"""What a store holds, by segments, queues and topics: how many messages, how many bytes, from when to when.

The consume queues say it, and their units have the sizes of the records, so that of the log only some heads are read.
Of a store without consume queues the log is walked.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mqcore.errors import CorruptRecordError
from mqcore.layout import CONSUME_QUEUE_UNIT, PRE_FILL_SIZE, RECORD_SIZE_MIN
from mqcore.store.checking.damage import DamageList
from mqcore.store.checking.kernels import LogTally
from mqcore.store.checking.log_check import LogCheck, OnProgress, Progress, put_together
from mqcore.store.checking.queue_files import QueueFiles, list_queue_files, read_chunks
from mqcore.store.checking.state import StoreState, look_at
from mqcore.store.log.commit_log import read_store_timestamp
from mqcore.store.reader import StoreReader
from mqcore.store.reader_segments import Segment


@dataclass(slots=True)
class Amount:
    """Messages, their bytes in the log, and the store times of the first and the last, ms (0: not known)."""

    message_count: int = 0
    byte_count: int = 0
    first_timestamp: int = 0
    last_timestamp: int = 0

    def add(self, other: Amount) -> None:
        self.message_count += other.message_count
        self.byte_count += other.byte_count
        known = [time for time in (self.first_timestamp, other.first_timestamp) if time]
        self.first_timestamp = min(known, default=0)
        self.last_timestamp = max(self.last_timestamp, other.last_timestamp)


@dataclass(slots=True)
class QueueContents:
    """One queue: the queue offsets of the messages that the log has, [min_offset, max_offset)."""

    topic: str
    queue_id: int
    min_offset: int = 0
    max_offset: int = 0
    amount: Amount = field(default_factory=Amount)


@dataclass(slots=True)
class SegmentContents:
    """One file of the commit log."""

    start: int
    path: Path
    amount: Amount = field(default_factory=Amount)
    last_physical: int = -1


@dataclass(slots=True)
class StoreContents:
    """All of a store; *start* and *end* bound the messages that were found, bytes of the log."""

    state: StoreState
    start: int
    end: int
    segments: list[SegmentContents]
    queues: list[QueueContents]

    def topics(self) -> dict[str, Amount]:
        """Return what each topic has, the largest first."""
        found: dict[str, Amount] = {}
        for queue in self.queues:
            found.setdefault(queue.topic, Amount()).add(queue.amount)
        return dict(sorted(found.items(), key=lambda item: (-item[1].byte_count, item[0])))


def find_contents(reader: StoreReader, on_progress: OnProgress = lambda done, total: None) -> StoreContents:
    """Return what the store of *reader* holds; *on_progress* hears of a log that is walked. Raises OSError."""
    state = look_at(reader.paths, reader.files)
    segments = {start: SegmentContents(start, reader.files.path_of(start)) for start in reader.files.starts}
    contents = StoreContents(state, reader.files.min_offset, reader.files.min_offset, list(segments.values()), [])
    if reader.paths.consume_queue.is_dir():
        _Survey(reader, contents, segments).run()
    else:
        _walk(reader, contents, segments, on_progress)
    return contents


class _Survey:
    """Goes by the consume queues."""

    def __init__(self, reader: StoreReader, contents: StoreContents, segments: dict[int, SegmentContents]) -> None:
        self._files = reader.files
        self._births = reader.births
        self._contents = contents
        self._segments = segments
        self._queues = list_queue_files(reader.paths)

    def run(self) -> None:
        for queue in self._queues.values():
            self._contents.queues.append(self._look_at(queue))
        for segment in self._segments.values():
            segment.amount.first_timestamp = self._time_at(segment.start)
            segment.amount.last_timestamp = self._time_at(segment.last_physical)

    def _look_at(self, queue: QueueFiles) -> QueueContents:
        topic, queue_id = queue.key
        found = QueueContents(topic, queue_id)
        low = max(self._files.min_offset, self._births.get(topic, {}).get(queue_id, 0))
        first_physical = last_physical = -1
        files = queue.found_files()
        for start in files.starts:
            try:
                for first, chunk in read_chunks(files, start):
                    units = np.frombuffer(chunk, dtype=CONSUME_QUEUE_UNIT.dtype)
                    places = units["physical_offset"].astype(np.int64)
                    sizes = units["record_size"].astype(np.int64)
                    is_message = (sizes > 0) & (sizes != PRE_FILL_SIZE) & (places >= low)
                    index = np.flatnonzero(is_message & (places < self._files.end_offset))
                    written = np.flatnonzero(sizes > 0)
                    if len(written):
                        found.max_offset = first + int(written[-1]) + 1
                    if not len(index):
                        continue
                    if first_physical < 0:
                        first_physical, found.min_offset = int(places[index[0]]), first + int(index[0])
                    last_physical = int(places[index[-1]])
                    self._contents.end = max(self._contents.end, last_physical + int(sizes[index[-1]]))
                    self._count(found.amount, places[index], sizes[index])
            except FileNotFoundError:
                continue  # expired since it was listed
        if first_physical < 0:
            found.min_offset = found.max_offset
        found.amount.first_timestamp = self._time_at(first_physical)
        found.amount.last_timestamp = self._time_at(last_physical)
        return found

    def _count(self, amount: Amount, places: Any, sizes: Any) -> None:
        amount.message_count += len(places)
        amount.byte_count += int(sizes.sum())
        first = self._files.min_offset
        numbers = (places - first) // self._files.file_size
        for number in np.unique(numbers).tolist():
            segment = self._segments.get(first + number * self._files.file_size)
            if segment is not None:
                own = numbers == number
                segment.amount.message_count += int(np.count_nonzero(own))
                segment.amount.byte_count += int(sizes[own].sum())
                segment.last_physical = max(segment.last_physical, int(places[own].max()))

    def _time_at(self, physical_offset: int) -> int:
        """Return the store time of the record there, ms; 0 if there is none."""
        start = self._files.start_of(physical_offset)
        if physical_offset < 0 or start not in self._segments:
            return 0
        try:
            descriptor = os.open(self._segments[start].path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return 0
        try:
            data = os.pread(descriptor, RECORD_SIZE_MIN, physical_offset - start)
        finally:
            os.close(descriptor)
        try:
            return read_store_timestamp(memoryview(data.ljust(RECORD_SIZE_MIN, b"\0")), physical_offset)
        except CorruptRecordError:
            return 0


def _walk(
    reader: StoreReader, contents: StoreContents, segments: dict[int, SegmentContents], on_progress: OnProgress
) -> None:
    files = reader.files
    parts = [Segment(start, start + files.file_size) for start in files.starts]
    progress = Progress(sum(part.size for part in parts), 0, on_progress)
    log_check = LogCheck(files, parts, contents.state, lambda: LogTally(check_crc=False), progress)
    parts_read = log_check.read(len(os.sched_getaffinity(0)))
    found = put_together(parts_read, files, contents.state, DamageList(), log_check.gone_before)
    contents.end = found.end
    for stretch in found.stretches:
        size = stretch.end - stretch.start
        own = Amount(stretch.record_count, size, stretch.first_timestamp, stretch.newest_timestamp)
        segments[files.start_of(stretch.start)].amount.add(own)
    for (topic, queue_id), queue in sorted(found.queues.items()):
        own = Amount(queue.record_count, queue.byte_count, queue.first_timestamp, queue.last_timestamp)
        low = max(0, queue.next_offset - sum(count for count, _ in queue.sums.values()))
        contents.queues.append(QueueContents(topic, queue_id, low, max(0, queue.next_offset), own))
