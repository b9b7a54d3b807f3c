"""From the commit log to consume queues and index: the plain twin of mqcore/_fast/queues/dispatch.pyx.

This is where the rules of appending are stated. The dispatcher is the only writer of both kinds of file, driven by one
thread; what it finds on disk it goes on with, and what is already there it recognises, so that a range may be
dispatched again after any failure. Bodies are not read and the CRC is not looked at.
Source: RocketMQ store/DefaultMessageStore.java (ReputMessageService), ConsumeQueue.java, index/IndexService.java.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from mqcore.codes import TRANSACTION_MASK, SysFlag
from mqcore.errors import CorruptRecordError, StoreError
from mqcore.files import make_directory
from mqcore.protocol import names
from mqcore.store.geometry import MAPPED_QUEUES_MAX
from mqcore.store.log.record import DecodeStatus, Record, peek_status, property_value, string_hash
from mqcore.store.log.record import decode as decode_record
from mqcore.store.paths import StorePaths, is_topic
from mqcore.store.queues.index_file import key_hash
from mqcore.store.queues.index_writer import IndexWriter
from mqcore.store.queues.writer import UNIT_SIZE, QueueWriter

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from mqcore.store.geometry import StoreGeometry

SCHEDULE_TOPIC = names.SCHEDULE_TOPIC.encode()
MULTI_DISPATCH = b"INNER_MULTI_DISPATCH"
MULTI_OFFSET = b"INNER_MULTI_QUEUE_OFFSET"
LMQ_PREFIX = names.LMQ_PREFIX.encode()
OFFSET_DIGITS_MAX = 18
QUEUE_OFFSET_MAX = (1 << 62) // UNIT_SIZE
# Both as a place in bytes and as so many digits an offset fits a Java long.
assert QUEUE_OFFSET_MAX * UNIT_SIZE < 1 << 63
assert 10**OFFSET_DIGITS_MAX < 1 << 63
LEVEL_MAX = 0x7FFFFFFF


class DispatchStatus(IntEnum):
    """Why a range was left; the numbers are those of dispatch.pxd."""

    ALL = 0
    SHORT = 1
    BLANK = 2
    INVALID = 3
    FAILED = 4


class DispatchOutcome(NamedTuple):
    """How many bytes were consumed, why it stopped there, and what the bytes there are (OK: of another offset)."""

    consumed: int
    status: DispatchStatus
    decode_status: DecodeStatus


def dispatch_error(error_number: int, path: str) -> StoreError:
    """Return the error for a file that could not be made, grown or synced; both twins raise it."""
    error = StoreError(f"cannot write {path}: {os.strerror(error_number)}")
    error.__cause__ = OSError(error_number, os.strerror(error_number), path)
    return error


class Dispatcher:
    """Writes consume queue units and index entries for commit log records."""

    def __init__(self, paths: StorePaths, geometry: StoreGeometry, mapped_count_max: int = MAPPED_QUEUES_MAX) -> None:
        self.fill_gaps = False
        self.record_end = 0
        self.store_timestamp = 0
        self.logics_timestamp = 0
        self.record_count = 0
        self.unit_count = 0
        self.order_error_count = 0
        self.skipped_count = 0
        self.dead_count = 0
        self.ext_failed_count = 0
        self._paths = paths
        self._geometry = geometry
        self._mapped_count_max = max(1, mapped_count_max)
        self._queues: dict[tuple[bytes, int], QueueWriter] = {}
        self._births: dict[tuple[bytes, int], int] = {}
        self._index: IndexWriter | None = None
        self._closed = False
        if geometry.ext_enabled:
            make_directory(paths.consume_queue_ext)

    @property
    def index_timestamp(self) -> int:
        """End timestamp of the last full index file that was synced, ms; 0 when none was."""
        return self._index.synced_timestamp if self._index is not None else 0

    @property
    def mapped_count(self) -> int:
        """How many consume queue files are mapped."""
        return sum(queue.is_mapped for queue in self._queues.values())

    def dispatch(self, buffer: Buffer, physical_offset: int) -> DispatchOutcome:
        """Dispatch the records of *buffer*, the commit log from *physical_offset* on.

        It stops before what is no valid record of that place. Raises StoreError if a file could not be made or grown (a
        full disk); the same range may then be dispatched again.
        """
        data = memoryview(buffer)
        at = 0
        while at < len(data):
            try:
                record = decode_record(data[at:], physical_offset + at, check_crc=False)
            except CorruptRecordError:
                status = peek_status(data[at:])
                return DispatchOutcome(at, _STOPS.get(status, DispatchStatus.INVALID), status)
            if record.physical_offset != physical_offset + at:
                return DispatchOutcome(at, DispatchStatus.INVALID, DecodeStatus.OK)
            try:
                self._dispatch_record(record)
            except OSError as error:
                raise dispatch_error(error.errno or errno.EIO, str(error.filename)) from error
            at += record.total_size
        return DispatchOutcome(at, DispatchStatus.ALL, DecodeStatus.OK)

    def on_unit(self, topic: bytes, queue_id: int, queue_offset: int, tags_code: int, store_timestamp: int) -> None:
        """Called once per record that belongs in a consume queue, after its unit is in place, also if it was before.

        *queue_offset* is the unit's real index.
        """

    def _dispatch_record(self, record: Record) -> None:
        """Plain and committed messages get a unit; all but rolled-back ones are indexed."""
        if self._closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(self._paths.consume_queue))
        transaction = record.sys_flag & TRANSACTION_MASK
        if transaction in (0, SysFlag.TRANSACTION_COMMIT):
            self._put_unit(record)
            if self._geometry.multi_dispatch_enabled:
                self._put_more_units(record)
        if self._geometry.index_enabled and transaction != SysFlag.TRANSACTION_ROLLBACK:
            self._put_keys(record)
        self.record_count += 1
        self.store_timestamp = record.store_timestamp

    def _put_unit(self, record: Record) -> None:
        self._put_unit_in(record, record.topic, record.queue_id, record.queue_offset, self._geometry.ext_enabled)

    def _put_unit_in(self, record: Record, topic: bytes, queue_id: int, queue_offset: int, with_ext: bool) -> None:
        """Append the unit, unless the queue has it: by the record's end, or by the place that the record claims.

        A record from before the queue's birth is of one that was dropped, and is only counted.

        A record that claims a place behind the end is appended at the end all the same, and counted; with fill_gaps the
        places before it are filled first, as recovery does behind a damaged range.
        """
        queue = self._queue(topic, queue_id)
        if queue is None or not 0 <= queue_offset <= QUEUE_OFFSET_MAX:
            self.skipped_count += 1
            return
        if record.physical_offset < self._births.get((topic, queue_id), 0):
            self.dead_count += 1
            return
        tags_code = tags_code_of(record, self._geometry.delay_levels_ms)
        self.record_end = record.physical_offset + record.total_size
        target = queue_offset * UNIT_SIZE
        if self.record_end > queue.max_physical:
            queue.make_room(target, self.fill_gaps)
            current = queue.end
            if target >= current or target == 0:
                code = self._unit_code(queue, record, tags_code) if with_ext else tags_code
                queue.append(record.physical_offset, record.total_size, code)
                queue.bare = False
                queue.max_physical = self.record_end
                self.unit_count += 1
                self.order_error_count += target != current
                target = current
        self.logics_timestamp = max(self.logics_timestamp, record.store_timestamp)
        self.on_unit(topic, queue_id, target // UNIT_SIZE, tags_code, record.store_timestamp)

    def _put_more_units(self, record: Record) -> None:
        """Append a unit to every queue that INNER_MULTI_DISPATCH lists, at the offsets that were given there.

        Lists of different lengths are counted and passed over, as a name or an offset that cannot be. These units
        never have an ext unit, in RocketMQ neither.
        """
        names = property_value(record.properties, MULTI_DISPATCH)
        offsets = property_value(record.properties, MULTI_OFFSET)
        if names is None or offsets is None:
            return
        queues, places = java_split(names), java_split(offsets)
        if len(queues) != len(places):
            self.skipped_count += 1
            return
        for name, place in zip(queues, places, strict=True):
            is_lmq = self._geometry.lmq_enabled and name.startswith(LMQ_PREFIX)
            self._put_unit_in(record, name, 0 if is_lmq else record.queue_id, parse_offset(place), False)

    def bitmap_of(self, record: Record) -> bytes:
        """Return the filter bitmap of a record; the reput worker's kernel makes them, this class makes none."""
        return b""

    def _unit_code(self, queue: QueueWriter, record: Record, tags_code: int) -> int:
        """Return the address of a new ext unit; the tags code itself, which is counted, if none can be written."""
        try:
            return queue.append_ext(tags_code, record.store_timestamp, self.bitmap_of(record))
        except OSError:
            self.ext_failed_count += 1
            return tags_code

    def _queue(self, topic: bytes, queue_id: int) -> QueueWriter | None:
        """Return the writer of a queue; None if topic and number cannot be a directory."""
        name = topic.decode("ascii", "replace")
        if queue_id < 0 or not is_topic(name):
            return None
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            queue = self._queues[(topic, queue_id)] = QueueWriter(
                self._paths.queue(name, queue_id),
                self._geometry.consume_queue_file_size,
                self._paths.queue_ext(name, queue_id),
                self._geometry.ext_file_size,
            )
        if not queue.is_mapped and self.mapped_count >= self._mapped_count_max:
            next(other for other in self._queues.values() if other.is_mapped).unmap()
        return queue

    def _put_keys(self, record: Record) -> None:
        """Index the unique key and every part of KEYS, unless a later record is indexed already.

        The newest indexed record is not passed over: the writer may have died before its last key.
        """
        unique = property_value(record.properties, b"UNIQ_KEY")
        parts = (property_value(record.properties, b"KEYS") or b"").split(b" ")
        keys = [key for key in (unique, *parts) if key]
        if not keys and not unique:
            return
        if self._index is None:
            self._index = IndexWriter(self._paths.index, self._geometry.index)
        if record.physical_offset < self._index.end_physical_offset:
            return
        for key in keys:
            self._index.append(key_hash(record.topic, key), record.physical_offset, record.store_timestamp)

    def queue_end(self, topic: bytes, queue_id: int) -> tuple[int, int]:
        """Return (max queue offset, end of its newest record in the commit log or -1) of a queue."""
        queue = None if self._closed else self._queue(topic, queue_id)
        if queue is None:
            raise ValueError(f"queue: got {topic!r}/{queue_id}, wanted a topic, a number, and an open dispatcher")
        return queue.end // UNIT_SIZE, queue.max_physical

    def flush(self) -> int:
        """Make every unit and index entry durable; returns how many consume queue files were synced.

        A failed sync raises StoreError and is final: the caller must not take a later success for the lost bytes.
        """
        try:
            synced = sum(queue.sync() for queue in self._queues.values())
        except OSError as error:
            raise dispatch_error(error.errno or errno.EIO, str(error.filename)) from error
        self.flush_index()
        return synced

    def flush_index(self, full_only: bool = False) -> None:
        """Make full index files durable, which moves index_timestamp, and the newest too unless *full_only*."""
        try:
            if self._index is not None:
                self._index.sync(newest=not full_only)
        except OSError as error:
            raise dispatch_error(error.errno or errno.EIO, str(self._paths.index)) from error

    def bear(self, topic: bytes, queue_id: int, physical_offset: int) -> None:
        """The queue was dropped and is born anew: records of it that start before *physical_offset* are passed over.

        What is known of its files is forgotten; they are about to be removed, or were.
        """
        self._births[(topic, queue_id)] = physical_offset
        writer = self._queues.pop((topic, queue_id), None)
        if writer is not None:
            writer.unmap()

    def close(self) -> None:
        """Unmap everything, synced or not. The dispatcher cannot be used any more."""
        for queue in self._queues.values():
            queue.unmap()
        self._queues.clear()
        if self._index is not None:
            self._index.close()
        self._closed = True


_STOPS = {DecodeStatus.SHORT: DispatchStatus.SHORT, DecodeStatus.BLANK: DispatchStatus.BLANK}


def tags_code_of(record: Record, delay_levels_ms: Sequence[int]) -> int:
    """Return what the unit of *record* says of its tag: for a delayed message its delivery time, else a hash."""
    if record.topic == SCHEDULE_TOPIC and delay_levels_ms:
        level = parse_level(property_value(record.properties, b"DELAY") or b"")
        if level > 0:
            return record.store_timestamp + delay_levels_ms[min(level, len(delay_levels_ms)) - 1]
    tags = property_value(record.properties, b"TAGS")
    return string_hash(tags) if tags else 0


def java_split(text: bytes) -> list[bytes]:
    """Return the parts of a comma list as String.split makes them: empty ones at the end do not count."""
    stripped = text.rstrip(b",")
    return stripped.split(b",") if stripped else []


def parse_offset(text: bytes) -> int:
    """Return the queue offset that *text* says; -1 for what is none."""
    return int(text) if text.isdigit() and len(text) <= OFFSET_DIGITS_MAX else -1


def parse_level(text: bytes) -> int:
    """Return the delay level that *text* says, as Integer.parseInt reads it; 0 for what is no positive number."""
    digits = text.removeprefix(b"+")
    if not digits.isdigit() or int(digits) > LEVEL_MAX:
        return 0
    return int(digits)
