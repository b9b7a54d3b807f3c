"""What the records of a run of the log make of consume queues and index, as counts and sums: the twin of
_fast/queues/tally.pyx.

A log and its consume queues are compared without joining them: each unit is mixed to 64 bits, and the sums of those
that the records make and of those that the files hold are equal if they are the same units, in whatever order they
came. Only where two sums differ, rows of both sides are looked at. Nothing here opens a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mqcore.codes import TRANSACTION_MASK, SysFlag
from mqcore.delay_levels import DELAY_LEVELS_MS
from mqcore.errors import CorruptRecordError
from mqcore.layout import CONSUME_QUEUE_UNIT, PRE_FILL_SIZE
from mqcore.store.log.record import (
    DecodeStatus,
    Record,
    ScanOutcome,
    decode,
    is_cut_off,
    is_torn,
    peek_status,
    property_value,
)
from mqcore.store.paths import is_topic
from mqcore.store.queues.dispatch import (
    LMQ_PREFIX,
    MULTI_DISPATCH,
    MULTI_OFFSET,
    QUEUE_OFFSET_MAX,
    java_split,
    parse_offset,
    tags_code_of,
)
from mqcore.store.queues.ext import is_ext_address
from mqcore.store.queues.index_file import key_hash
from mqcore.store.queues.units import decode_unit

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Buffer

UNIT_ROW = np.dtype(
    [
        ("queue", "=i4"),
        ("record_size", "=i4"),
        ("queue_offset", "=i8"),
        ("physical_offset", "=i8"),
        ("tags_code", "=i8"),
        ("store_timestamp", "=i8"),
    ]
)
"""A unit that a record makes. *queue*: its number in the order of ``want``."""

KEY_ROW = np.dtype([("physical_offset", "=i8"), ("store_timestamp", "=i8"), ("key_hash", "=i4"), ("unused", "=i4")])
"""An index entry that a record makes."""

BREAKS_MAX = 64
"""So many breaks of an order are named; more are counted."""

OFFSET_MAX = (1 << 63) - 1
WORD_MASK = (1 << 64) - 1


class QueueTally(NamedTuple):
    """The records of one queue in a run: all, and those since its queue offsets last began anew with a unit.

    *restarted_at*: where the record lies with which they did, -1 if they did not. Times in ms, *byte_count* in bytes.
    """

    topic: bytes
    queue_id: int
    record_count: int
    byte_count: int
    first_timestamp: int
    last_timestamp: int
    unit_count: int
    unit_sum: int
    first_offset: int
    next_offset: int
    first_physical: int
    restarted_at: int


class SequenceBreak(NamedTuple):
    """A record whose queue offset does not follow that of the record before it in its queue."""

    topic: bytes
    queue_id: int
    physical_offset: int
    wanted: int
    got: int


class Coverage(NamedTuple):
    """What one index file says of itself: records between the two offsets are in it; seconds count from the time."""

    begin_physical_offset: int
    end_physical_offset: int
    begin_timestamp: int


class UnitSums(NamedTuple):
    """Units of one consume queue file: how many are written, the end of the last one, whether any names an ext unit.

    *runs*: log file, count and sum of those that follow one another into the same log file. *record_end* is that of the
    newest record, -1 without one.
    """

    written: int
    end: int
    has_ext: bool
    record_end: int
    runs: list[tuple[int, int, int]]


@dataclass(slots=True)
class _Queue:
    record_count: int = 0
    byte_count: int = 0
    first_timestamp: int = 0
    last_timestamp: int = 0
    unit_count: int = 0
    unit_sum: int = 0
    first_offset: int = -1
    next_offset: int = -1
    first_physical: int = -1
    restarted_at: int = -1
    resumes_at: int = -1


def hash_mix(value: int) -> int:
    """Spread a word over all its bits, as _fast/base/hashing.pxd."""
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & WORD_MASK
    value ^= value >> 33
    value = value * 0xC4CEB9FE1A85EC53 & WORD_MASK
    return value ^ (value >> 33)


def hash_words(*words: int) -> int:
    """Return 64 bits of some signed numbers."""
    value = words[0] & WORD_MASK
    for word in words[1:]:
        value = (value ^ (word & WORD_MASK)) * 0x9E3779B97F4A7C15 & WORD_MASK
        value ^= value >> 32
    return hash_mix(value)


def seconds_between(begin_timestamp: int, store_timestamp: int) -> int:
    """Return what an index entry says of its time."""
    if begin_timestamp <= 0 or store_timestamp <= begin_timestamp:
        return 0
    return min((store_timestamp - begin_timestamp) // 1000, 0x7FFFFFFF)


class LogTally:
    """Takes the log in order, and adds up what its records make.

    Units of records from *unit_end* on are not counted. *coverage* is what the index files say of themselves, in order:
    a key counts if its record lies between the bounds of one, and on none of them, for there a file may have a part.
    """

    def __init__(
        self,
        delay_levels_ms: Sequence[int] = DELAY_LEVELS_MS,
        unit_end: int = OFFSET_MAX,
        coverage: Sequence[Coverage] = (),
        check_crc: bool = True,
    ) -> None:
        self.record_count = 0
        self.first_timestamp = 0
        self.key_count = 0
        self.key_sum = 0
        self.break_count = 0
        self._levels = tuple(delay_levels_ms)
        self._unit_end = unit_end
        self._coverage = tuple(coverage)
        self._check_crc = check_crc
        self._queues: dict[tuple[bytes, int], _Queue] = {}
        self._births: dict[tuple[bytes, int], int] = {}
        self._known: set[tuple[bytes, int]] = set()
        self._wanted: dict[tuple[bytes, int], int] = {}
        self._wants_keys = False
        self._unit_rows: list[tuple[int, ...]] = []
        self._key_rows: list[tuple[int, ...]] = []
        self._breaks: list[SequenceBreak] = []

    def bear(self, topic: bytes, queue_id: int, physical_offset: int) -> None:
        """Records of the queue that start before *physical_offset* are of one that was dropped, and make no unit."""
        self._births[(topic, queue_id)] = physical_offset

    def know(self, topic: bytes, queue_id: int) -> None:
        """The queue has files: messages that list it (INNER_MULTI_DISPATCH) make a unit in it."""
        self._known.add((topic, queue_id))

    def want(self, topic: bytes, queue_id: int) -> None:
        """Keep the units of this queue as rows."""
        self._wanted.setdefault((topic, queue_id), len(self._wanted))

    def want_keys(self) -> None:
        """Keep the index entries of all records as rows."""
        self._wants_keys = True

    def feed(self, buffer: Buffer, physical_offset: int) -> ScanOutcome:
        """Take the whole records at the start of *buffer*, the log from *physical_offset* on, as ``scan_records``."""
        data = memoryview(buffer)
        at = count = newest = 0
        status = DecodeStatus.OK
        while at < len(data):
            try:
                record = decode(data[at:], physical_offset + at, self._check_crc)
            except CorruptRecordError:
                status = peek_status(data[at:], self._check_crc)
                break
            if record.physical_offset != physical_offset + at:
                status = DecodeStatus.MISPLACED
                break
            if is_torn(record, physical_offset + at) or is_cut_off(record, data[at + record.total_size :]):
                status = DecodeStatus.TORN
                break
            self._take(record)
            at += record.total_size
            count += 1
            newest = max(newest, record.store_timestamp)
        return ScanOutcome(valid_size=at, status=status, record_count=count, store_timestamp_max=newest)

    def _take(self, record: Record) -> None:
        if self.record_count == 0:
            self.first_timestamp = record.store_timestamp
        self.record_count += 1
        transaction = record.sys_flag & TRANSACTION_MASK
        if record.topic:
            queue = self._queues.setdefault((record.topic, record.queue_id), _Queue())
            if queue.record_count == 0:
                queue.first_timestamp = record.store_timestamp
            queue.record_count += 1
            queue.byte_count += record.total_size
            queue.last_timestamp = record.store_timestamp
        if transaction in (0, SysFlag.TRANSACTION_COMMIT) and record.physical_offset < self._unit_end:
            tags_code = tags_code_of(record, self._levels)
            self._put(record, record.topic, record.queue_id, record.queue_offset, tags_code)
            self._put_more(record, tags_code)
        if transaction != SysFlag.TRANSACTION_ROLLBACK:
            self._put_keys(record)

    def _put(self, record: Record, topic: bytes, queue_id: int, queue_offset: int, tags_code: int) -> None:
        if queue_id < 0 or not is_topic(topic.decode("ascii", "replace")) or not 0 <= queue_offset <= QUEUE_OFFSET_MAX:
            return
        if record.physical_offset < self._births.get((topic, queue_id), 0):
            return
        queue = self._queues.setdefault((topic, queue_id), _Queue())
        if queue.unit_count and queue.next_offset != queue_offset:
            if queue_offset == 0:
                queue.unit_count = queue.unit_sum = 0
                queue.restarted_at = record.physical_offset
            elif queue_offset != queue.resumes_at:
                self.break_count += 1
                if len(self._breaks) < BREAKS_MAX:
                    broken = (topic, queue_id, record.physical_offset, queue.next_offset, queue_offset)
                    self._breaks.append(SequenceBreak(*broken))
                # One wrong number is one break: the next record may go on as if it were right.
                queue.resumes_at = queue.next_offset + 1
        if queue.unit_count == 0:
            queue.first_offset = queue_offset
            queue.first_physical = record.physical_offset
        unit = hash_words(record.physical_offset, queue_offset, record.total_size, tags_code)
        queue.next_offset = queue_offset + 1
        queue.unit_count += 1
        queue.unit_sum = (queue.unit_sum + unit) & WORD_MASK
        number = self._wanted.get((topic, queue_id))
        if number is not None:
            row = (number, record.total_size, queue_offset, record.physical_offset, tags_code, record.store_timestamp)
            self._unit_rows.append(row)

    def _put_more(self, record: Record, tags_code: int) -> None:
        names = property_value(record.properties, MULTI_DISPATCH)
        offsets = property_value(record.properties, MULTI_OFFSET)
        if names is None or offsets is None:
            return
        queues, places = java_split(names), java_split(offsets)
        if len(queues) != len(places):
            return
        for name, place in zip(queues, places, strict=True):
            for queue_id in (0, record.queue_id) if name.startswith(LMQ_PREFIX) else (record.queue_id,):
                if (name, queue_id) in self._known:
                    self._put(record, name, queue_id, parse_offset(place), tags_code)
                    break

    def _put_keys(self, record: Record) -> None:
        place = record.physical_offset
        covering = [one for one in self._coverage if one.begin_physical_offset < place < one.end_physical_offset]
        is_bound = any(place in one[:2] for one in self._coverage)
        if not self._wants_keys and (is_bound or not covering):
            return
        unique = property_value(record.properties, b"UNIQ_KEY")
        parts = (property_value(record.properties, b"KEYS") or b"").split(b" ")
        for key in [key for key in (unique, *parts) if key]:
            hashed = key_hash(record.topic, key)
            if covering and not is_bound:
                seconds = seconds_between(covering[0].begin_timestamp, record.store_timestamp)
                self.key_count += 1
                self.key_sum = (self.key_sum + hash_words(place, hashed, seconds)) & WORD_MASK
            if self._wants_keys:
                self._key_rows.append((place, record.store_timestamp, hashed, 0))

    def queues(self) -> list[QueueTally]:
        """Return what was added up, a row for each queue that was met."""
        return [
            QueueTally(
                topic, queue_id, queue.record_count, queue.byte_count, queue.first_timestamp, queue.last_timestamp,
                queue.unit_count, queue.unit_sum, queue.first_offset, queue.next_offset, queue.first_physical,
                queue.restarted_at,
            )
            for (topic, queue_id), queue in self._queues.items()
        ]  # fmt: skip

    def breaks(self) -> list[SequenceBreak]:
        """Return the first breaks of a queue's order, BREAKS_MAX at most."""
        return list(self._breaks)

    def unit_rows(self) -> NDArray[Any]:
        """Return the units of the wanted queues, in the order of the log: shape (n,), dtype UNIT_ROW."""
        return np.array(self._unit_rows, dtype=UNIT_ROW)

    def key_rows(self) -> NDArray[Any]:
        """Return the index entries, in the order of the log: shape (n,), dtype KEY_ROW."""
        return np.array(self._key_rows, dtype=KEY_ROW)


def sum_units(
    buffer: Buffer, first_offset: int, log_first: int, log_file_size: int, log_start: int, log_end: int
) -> UnitSums:
    """Return what *buffer*, a run of a consume queue from queue offset *first_offset* on, says of records in
    [log_start, log_end); the log's first file starts at *log_first*. Units that only hold a place do not count."""
    written = end = 0
    record_end = -1
    has_ext = False
    runs: list[tuple[int, int, int]] = []
    for index in range(memoryview(buffer).nbytes // CONSUME_QUEUE_UNIT.size):
        unit = decode_unit(buffer, index)
        if unit.physical_offset < 0 or unit.record_size <= 0:
            continue
        written += 1
        end = index + 1
        if unit.record_size == PRE_FILL_SIZE:
            continue
        record_end = max(record_end, min(unit.record_end, OFFSET_MAX))
        if not log_start <= unit.physical_offset < log_end:
            continue
        has_ext = has_ext or is_ext_address(unit.tags_code)
        file = log_first + (unit.physical_offset - log_first) // log_file_size * log_file_size
        value = hash_words(unit.physical_offset, first_offset + index, unit.record_size, unit.tags_code)
        if runs and runs[-1][0] == file:
            runs[-1] = (file, runs[-1][1] + 1, (runs[-1][2] + value) & WORD_MASK)
        else:
            runs.append((file, 1, value))
    return UnitSums(written, end, has_ext, record_end, runs)
