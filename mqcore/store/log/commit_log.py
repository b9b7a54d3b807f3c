"""The commit log as a reader sees it: records by physical offset, between the published bounds.

Source: RocketMQ store/CommitLog.java.
"""

from __future__ import annotations

from mqcore.codes import SysFlag
from mqcore.errors import CorruptRecordError, OffsetOutOfRangeError
from mqcore.layout import BLANK_RECORD, MESSAGE_MAGIC_V1, RECORD_HEAD, RECORD_SIZE_MIN, RECORD_STORE_TIME
from mqcore.store.codec import decode_record
from mqcore.store.log.mapped_file_queue import MappedFileQueue
from mqcore.store.log.places import LogPlaces
from mqcore.store.log.record import DecodeStatus, Record, decode_error, host_size
from mqcore.store.watermarks import Watermarks


class CommitLog:
    """Read-only access; views are of the mapped files and must be copied if they are to be kept for long."""

    def __init__(self, places: LogPlaces, file_size: int, watermarks: Watermarks) -> None:
        self.files = MappedFileQueue(places, file_size)
        self.files.refresh()
        self._watermarks = watermarks

    @property
    def min_offset(self) -> int:
        return self._watermarks.commit_log_min()

    @property
    def max_offset(self) -> int:
        return self._watermarks.commit_log_max()

    def slice(self, offset: int, size: int, end: int | None = None) -> memoryview:
        """Return *size* bytes from *offset*. Raises OffsetOutOfRangeError outside the readable log or across files.

        *end*: where the log ends for who may look at more than is readable.
        """
        low, high = self.min_offset, self.max_offset if end is None else end
        if not low <= offset <= high:
            raise OffsetOutOfRangeError("physical offset", offset, low, high)
        if size > high - offset:
            raise OffsetOutOfRangeError("physical end", offset + size, low, high)
        return self.files.view(offset, size)

    def record_bytes(self, offset: int, end: int | None = None) -> memoryview:
        """Return the record that starts at *offset*, as stored; *end* as for ``slice``.

        Raises OffsetOutOfRangeError, or CorruptRecordError if no record starts there.
        """
        total_size, magic = BLANK_RECORD.struct.unpack(self.slice(offset, BLANK_RECORD.size, end))
        if magic != MESSAGE_MAGIC_V1 or total_size < RECORD_SIZE_MIN:
            raise CorruptRecordError(f"no record starts here: size {total_size}, magic {magic & 0xFFFFFFFF:#x}", offset)
        data = self.slice(offset, total_size, end)
        decode_record(data, offset, check_crc=False)
        return data

    def record_at(self, offset: int) -> Record:
        """Return the record that starts at *offset*, decoded; the CRC is not looked at. Raises as record_bytes."""
        return decode_record(self.record_bytes(offset), offset, check_crc=False)

    def store_timestamp_at(self, offset: int) -> int:
        """Return the store time of the record that starts at *offset*, ms, without reading the rest of it.

        Raises OffsetOutOfRangeError, or CorruptRecordError if no record starts there.
        """
        return read_store_timestamp(self.slice(offset, RECORD_SIZE_MIN), offset)

    def earliest_store_timestamp(self) -> int:
        """Return the store time of the oldest record that is kept, ms; -1 if there is none."""
        try:
            return self.store_timestamp_at(self.min_offset)
        except (OffsetOutOfRangeError, CorruptRecordError):
            return -1


def timestamp_before(files: MappedFileQueue, end: int) -> int:
    """Return a store time that the log had reached before *end*, ms, or 0: that of its last file's first record."""
    for start in reversed(files.starts):
        if start < end:
            try:
                return read_store_timestamp(files.file_view(start)[1], start)
            except CorruptRecordError:
                continue
    return 0


def read_store_timestamp(data: memoryview, physical_offset: int) -> int:
    """Return the store time of the record at the start of *data*, at least RECORD_SIZE_MIN bytes of it, ms.

    Raises CorruptRecordError if no record starts there.
    """
    head = dict(zip(RECORD_HEAD.offsets, RECORD_HEAD.struct.unpack_from(data), strict=True))
    if head["magic"] != MESSAGE_MAGIC_V1:
        raise decode_error(DecodeStatus.BAD_MAGIC, head["magic"], head["total_size"], physical_offset)
    at = RECORD_HEAD.size + host_size(head["sys_flag"], SysFlag.BORNHOST_V6)
    return int(RECORD_STORE_TIME.struct.unpack_from(data, at)[0])
