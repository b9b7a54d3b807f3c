"""Walking the commit log from a place on: which records are whole, and where the log ends.

Used by recovery and by the public reader. It reads; it changes nothing.
"""

from __future__ import annotations

import logging
import mmap
import struct
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from mqcore.errors import CorruptFileError, CorruptRecordError
from mqcore.layout import BLANK_MAGIC, BLANK_RECORD, MESSAGE_MAGIC_V1, RECORD_HEAD, RECORD_SIZE_MIN
from mqcore.store.codec import decode_record, scan_records
from mqcore.store.log.mapped_file_queue import MappedFileQueue
from mqcore.store.log.record import DecodeStatus, Record

MAGIC_BYTES = struct.pack(">i", MESSAGE_MAGIC_V1)
MAGIC_AT = BLANK_RECORD.offsets["magic"]
FLAG = struct.Struct(">i")
FLAG_AT = RECORD_HEAD.offsets["flag"]
OFFSET_MAX = (1 << 63) - 1

logger = logging.getLogger(__name__)

OnRecords = Callable[[memoryview, int], object]


@dataclass(slots=True)
class LogWalk:
    """What a walk found: the end of the last whole record, and ranges of it that are damaged, [start, end) in bytes."""

    end: int
    record_count: int = 0
    store_timestamp_max: int = 0
    damaged: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWalker:
    """Walks the records of *files* and tells where the log ends.

    A filler leads to the next file; the first invalid record ends the log, and so does the end of the files.

    One invalid record does not end the log: one behind which whole records follow that were known to be on disk, their
    store times lying between those of the records before and *flushed_timestamp* (the checkpoint's). A power cut does
    not do that, a failing disk does; ending there would throw away what was acknowledged. Such a range is reported as
    damaged.
    """

    files: MappedFileQueue
    flushed_timestamp: int
    check_crc: bool = True
    on_records: OnRecords | None = None  # gets each run of whole records and its physical offset

    def walk(self, start: int, stop: int = OFFSET_MAX, newest: int = 0) -> LogWalk:
        """Walk from *start*, where a record or file starts, to *stop* at most, where a record ends.

        *newest*: a store time that was met before *start*, ms.
        """
        walk = LogWalk(end=start, store_timestamp_max=newest)
        for file_start in [other for other in self.files.starts if other >= self.files.start_of(start)]:
            walk.end = max(walk.end, file_start)
            if not self._walk_file(file_start, walk, stop):
                break
        return walk

    def _walk_file(self, file_start: int, walk: LogWalk, stop: int) -> bool:
        """Walk one file from the end of *walk* on, and move that; whether the log goes on in the next file."""
        view = self.files.file_view(file_start)[1]
        file_end = file_start + self.files.file_size
        has_next = file_end in self.files.starts
        while walk.end < min(stop, file_end):
            status = self._walk_run(view[walk.end - file_start : stop - file_start], walk)
            if status == DecodeStatus.BLANK:
                return has_next
            if status != DecodeStatus.OK:
                found = self._find_flushed(walk, file_end if has_next else None)
                if found is None:
                    return False
                logger.error("commit log damaged, the records there are lost path=%s from=%d to=%d reason=%s",
                             self.files.path_of(file_start), walk.end, found, status.name)  # fmt: skip
                walk.damaged.append((walk.end, found))
                walk.end = found
        return has_next and walk.end < stop

    def _walk_run(self, view: memoryview, walk: LogWalk) -> DecodeStatus:
        """Walk the whole records at the start of *view*, which is the log from the end of *walk* on."""
        outcome = scan_records(view, walk.end, self.check_crc)
        if outcome.valid_size and self.on_records is not None:
            self.on_records(view[: outcome.valid_size], walk.end)
        walk.end += outcome.valid_size
        walk.record_count += outcome.record_count
        walk.store_timestamp_max = max(walk.store_timestamp_max, outcome.store_timestamp_max)
        return outcome.status

    def _find_flushed(self, walk: LogWalk, next_file: int | None) -> int | None:
        """Return where the next whole record starts that was known to be on disk, in this file or first in the next."""
        if walk.store_timestamp_max >= self.flushed_timestamp:
            return None  # all that was known to be on disk has been seen
        found = next_record(self.files, walk.end + 1)
        if found is None and next_file is not None:
            found = record_at(self.files, next_file)
        if found is None or not walk.store_timestamp_max <= found.store_timestamp <= self.flushed_timestamp:
            return None
        return found.physical_offset


def check_nothing_missing(files: MappedFileQueue, walk: LogWalk, flushed_timestamp: int, known_end: int = 0) -> None:
    """Raise CorruptFileError if the end of the log is missing, and with it all files of one of several directories.

    Missing is what was on disk by *flushed_timestamp* (the checkpoint's), and what lies before *known_end*, the end of
    the records that consume queues know of, in a file that is nowhere. Files missing in the middle leave a gap, of
    which MappedFileQueue.load tells.
    """
    empty = files.empty_directories()
    if empty and (known_end > files.end_offset or walk.store_timestamp_max < flushed_timestamp):
        raise CorruptFileError(
            f"the commit log went on behind {walk.end}, and one of its directories has no files: is its disk mounted? "
            "If it never had any, take it off the list for one start",
            str(empty[0]),
        )


def find_flagged(
    files: MappedFileQueue, start: int, end: int, flags: Collection[int], count_max: int
) -> tuple[list[int], int]:
    """Look through *count_max* records at most, from *start*, where one begins, to *end*, where one ends.

    Returns where those start whose flag is one of *flags*, and where to go on. Only sizes and flags are looked at.
    Raises CorruptRecordError.
    """
    found = []
    at = start
    while at < end and count_max > 0:
        file_start, view = files.file_view(at)
        stop = min(end, file_start + files.file_size)
        while at < stop and count_max > 0:
            total_size, magic = BLANK_RECORD.struct.unpack_from(view, at - file_start)
            if magic == BLANK_MAGIC:
                at = file_start + files.file_size
                break
            if magic != MESSAGE_MAGIC_V1 or not RECORD_SIZE_MIN <= total_size <= stop - at:
                raise CorruptRecordError(f"no record starts here: size {total_size}, magic {magic & 0xFFFFFFFF:#x}", at)
            if FLAG.unpack_from(view, at - file_start + FLAG_AT)[0] in flags:
                found.append(at)
            at += total_size
            count_max -= 1
    return found, at


def next_record(files: MappedFileQueue, offset: int) -> Record | None:
    """Return the first whole record at *offset* or later in the same file that says that it belongs there."""
    file_start, view = files.file_view(offset)
    mapping = view.obj
    if not isinstance(mapping, mmap.mmap):
        raise TypeError(f"view of {type(mapping)}, wanted a mapping")
    at = mapping.find(MAGIC_BYTES, offset - file_start + MAGIC_AT)
    while at >= 0:
        record = record_at(files, file_start + at - MAGIC_AT)
        if record is not None:
            return record
        at = mapping.find(MAGIC_BYTES, at + 1)
    return None


def record_at(files: MappedFileQueue, physical_offset: int) -> Record | None:
    """Return the whole record, CRC included, that starts at *physical_offset* and says so; None if there is none."""
    start, view = files.file_view(physical_offset)
    try:
        record = decode_record(view[physical_offset - start :], physical_offset)
    except CorruptRecordError:
        return None
    return record if record.physical_offset == physical_offset else None
