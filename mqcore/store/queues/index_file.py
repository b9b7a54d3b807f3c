"""One hash index file: put a key, find the records of a key: the plain twin of mqcore/_fast/queues/index_file.pyx.

A file is a header, slots of the newest entry each, and entries chained backwards. All functions work on a buffer that
holds the whole file. Source: RocketMQ store/index/IndexFile.java, IndexHeader.java.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mqcore.layout import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT
from mqcore.store.log.record import string_hash

if TYPE_CHECKING:
    from typing_extensions import Buffer

INT32_MAX = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class IndexGeometry:
    """maxHashSlotNum and maxIndexNum; they must be those that the files were made with. Entry 0 is never used."""

    slot_count: int = 5_000_000
    entry_count: int = 20_000_000

    def __post_init__(self) -> None:
        if self.slot_count < 1 or self.entry_count < 2:
            raise ValueError(f"index geometry: got {self}, wanted at least one slot and two entries")

    @property
    def file_size(self) -> int:
        return self.entry_position(self.entry_count)

    def slot_position(self, key_hash: int) -> int:
        return INDEX_HEADER.size + INDEX_SLOT.size * (key_hash % self.slot_count)

    def entry_position(self, entry: int) -> int:
        return INDEX_HEADER.size + INDEX_SLOT.size * self.slot_count + INDEX_ENTRY.size * entry


@dataclass(slots=True)
class IndexHeader:
    """The first bytes of an index file; times in ms, offsets in bytes."""

    begin_timestamp: int
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int
    used_slot_count: int
    index_count: int

    @classmethod
    def read(cls, buffer: Buffer) -> IndexHeader:
        header = cls(*INDEX_HEADER.struct.unpack_from(buffer))
        header.index_count = max(1, header.index_count)
        return header

    def write(self, buffer: Buffer) -> None:
        INDEX_HEADER.struct.pack_into(
            buffer,
            0,
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_physical_offset,
            self.end_physical_offset,
            self.used_slot_count,
            self.index_count,
        )


def key_hash(topic: bytes, key: bytes) -> int:
    """Return the hash of topic#key as the index keeps it, 0..2**31-1."""
    value = abs(string_hash(topic + b"#" + key))
    return 0 if value > INT32_MAX else value


def put(buffer: Buffer, geometry: IndexGeometry, key_hash: int, physical_offset: int, store_timestamp: int) -> bool:
    """Append one entry to the file in *buffer*; False when it is full."""
    _check(buffer, geometry, key_hash)
    header = IndexHeader.read(buffer)
    entry = min(header.index_count, geometry.entry_count)
    if entry >= geometry.entry_count:
        return False
    slot_at = geometry.slot_position(key_hash)
    (previous,) = INDEX_SLOT.struct.unpack_from(buffer, slot_at)
    if previous <= 0 or previous > entry:
        previous = 0
    seconds = _seconds_between(header.begin_timestamp, store_timestamp)
    INDEX_ENTRY.struct.pack_into(buffer, geometry.entry_position(entry), key_hash, physical_offset, seconds, previous)
    if entry <= 1:
        header.begin_physical_offset, header.begin_timestamp = physical_offset, store_timestamp
    header.used_slot_count += previous == 0
    header.end_physical_offset, header.end_timestamp = physical_offset, store_timestamp
    header.index_count = entry + 1
    # The count before the slot: a writer killed in between leaves an entry that no chain leads to.
    header.write(buffer)
    INDEX_SLOT.struct.pack_into(buffer, slot_at, entry)
    return True


def query(
    buffer: Buffer, geometry: IndexGeometry, key_hash: int, begin_timestamp: int, end_timestamp: int, count_max: int
) -> list[int]:
    """Return physical offsets of *key_hash* in the file in *buffer*, newest first, at most *count_max*.

    Store times count in whole seconds from the file's begin. Whether the file's time range fits is covers()' question.
    """
    _check(buffer, geometry, key_hash)
    header = IndexHeader.read(buffer)
    count = min(header.index_count, geometry.entry_count)
    (entry,) = INDEX_SLOT.struct.unpack_from(buffer, geometry.slot_position(key_hash))
    found: list[int] = []
    # Entry numbers fall along a chain, so the walk ends; a chain that does not fall is damaged and ends it too.
    while len(found) < count_max and 0 < entry <= count and entry < geometry.entry_count and count > 1:
        entry_hash, physical_offset, seconds, previous = INDEX_ENTRY.struct.unpack_from(
            buffer, geometry.entry_position(entry)
        )
        if seconds < 0:
            break
        timestamp = header.begin_timestamp + seconds * 1000
        if entry_hash == key_hash and begin_timestamp <= timestamp <= end_timestamp:
            found.append(physical_offset)
        if previous >= entry or timestamp < begin_timestamp:
            break
        entry = previous
    return found


def covers(buffer: Buffer, begin_timestamp: int, end_timestamp: int) -> bool:
    """Return whether the time range of the file in *buffer* meets [begin, end], as upstream tests it."""
    if memoryview(buffer).nbytes < INDEX_HEADER.size:
        raise ValueError(f"index file: got {memoryview(buffer).nbytes} bytes, wanted at least {INDEX_HEADER.size}")
    header = IndexHeader.read(buffer)
    return (
        (begin_timestamp < header.begin_timestamp and end_timestamp > header.end_timestamp)
        or header.begin_timestamp <= begin_timestamp <= header.end_timestamp
        or header.begin_timestamp <= end_timestamp <= header.end_timestamp
    )


def _seconds_between(begin_timestamp: int, store_timestamp: int) -> int:
    if begin_timestamp <= 0 or store_timestamp <= begin_timestamp:
        return 0
    return min((store_timestamp - begin_timestamp) // 1000, INT32_MAX)


def _check(buffer: Buffer, geometry: IndexGeometry, key_hash: int) -> None:
    if memoryview(buffer).nbytes < geometry.file_size:
        raise ValueError(f"index file: got {memoryview(buffer).nbytes} bytes, wanted {geometry.file_size}")
    if key_hash < 0:
        raise ValueError(f"key hash: got {key_hash}, wanted 0..2**31-1")
