"""The newest file of one consume queue, being written: the plain twin of mqcore/_fast/queue_writer.pyx."""

from __future__ import annotations

import mmap
from pathlib import Path

from mqcore.files import make_directory, make_sized_file, reserve_blocks, sync_file
from mqcore.layout import CONSUME_QUEUE_UNIT, PRE_FILL_SIZE
from mqcore.store.consume_queue_units import decode_unit, encode_unit, valid_units
from mqcore.store.ext_writer import ExtWriter
from mqcore.store.mapping import digit_names, map_for_writing
from mqcore.store.paths import file_name

UNIT_SIZE = CONSUME_QUEUE_UNIT.size
SIZE_AT, SIZE_END = CONSUME_QUEUE_UNIT.offsets["record_size"], CONSUME_QUEUE_UNIT.offsets["tags_code"]
RESERVE_SIZE = 128 * 1024
FILL_UNITS_MAX = 1_000_000


class QueueWriter:
    """Goes on where the files in *directory* end. Raises OSError; EUCLEAN is a file of another length.

    *ext_directory* is where its ext files lie.
    """

    def __init__(self, directory: Path, file_size: int, ext_directory: Path, ext_file_size: int) -> None:
        self.directory = directory
        self._ext_directory = ext_directory
        self._ext_file_size = ext_file_size
        self.ext: ExtWriter | None = None
        self._known = 0
        self.file_size = file_size
        self.file_start = -1
        self.wrote = 0
        self.max_physical = -1
        self.bare = False
        self.map: mmap.mmap | None = None
        self._reserved = 0
        self._flushed = 0
        names = digit_names(directory)
        if names:
            self.file_start = max(map(int, names))
            self._load()

    @property
    def end(self) -> int:
        """Bytes in the queue's stream, up to the last unit."""
        return self.file_start + self.wrote if self.file_start >= 0 else 0

    def _path(self, file_start: int) -> Path:
        return self.directory / file_name(file_start)

    def _load(self) -> None:
        data = self._mapping()
        self.wrote = UNIT_SIZE * valid_units(data)
        # Who made the file, and whether the one before it was synced, is not known: both are done anew.
        self._reserved = self.wrote
        self._flushed = max(0, self.file_start - self.file_size)
        unit = decode_unit(data[self.wrote - UNIT_SIZE : self.wrote] if self.wrote else self._end_of_file_before())
        self.bare = unit.record_size <= 0 or unit.is_pre_fill
        self._known = unit.tags_code
        if not self.bare and unit.physical_offset >= 0:
            self.max_physical = unit.record_end

    def _end_of_file_before(self) -> bytes:
        if self.file_start < self.file_size or not self._path(self.file_start - self.file_size).exists():
            return bytes(UNIT_SIZE)
        return self._path(self.file_start - self.file_size).read_bytes()[-UNIT_SIZE:]

    def _mapping(self) -> mmap.mmap:
        if self.map is None:
            self.map = map_for_writing(self._path(self.file_start), self.file_size)
        return self.map

    def unmap(self) -> None:
        """Let the mapping go; it is made again when it is needed."""
        if self.map is not None:
            self.map.close()
            self.map = None
        if self.ext is not None:
            self.ext.unmap()

    def _make_file(self, file_start: int) -> None:
        make_directory(self.directory)
        reserve = min(RESERVE_SIZE, self.file_size)
        make_sized_file(self._path(file_start), self.file_size, reserve)
        self.unmap()
        self.file_start, self.wrote, self._reserved = file_start, 0, reserve

    def make_room(self, target: int, fill: bool) -> None:
        """See that the newest file has room for a unit; a first file starts, pre-filled, so that *target* is its end.

        With *fill* any gap before *target* is filled, up to FILL_UNITS_MAX units.
        """
        if self.file_start < 0:
            self._make_file(target - target % self.file_size)
            self.bare, self._flushed = True, self.file_start
        self._open_end()
        # Also when a writer died while it pre-filled: the file is bare until it holds a message.
        if (self.bare and target < self.file_start + self.file_size) or (
            fill and target - self.end <= FILL_UNITS_MAX * UNIT_SIZE
        ):
            while self.end < target:
                self.append(0, PRE_FILL_SIZE, 0)
                self._open_end()

    def _open_end(self) -> None:
        if self.wrote >= self.file_size:
            self.bare = False
            self._make_file(self.file_start + self.file_size)

    def append(self, physical_offset: int, record_size: int, tags_code: int) -> None:
        """Append one unit after make_room."""
        if self.wrote + UNIT_SIZE > self._reserved:
            end = min(self.wrote + RESERVE_SIZE, self.file_size)
            reserve_blocks(self._path(self.file_start), self.wrote, end - self.wrote)
            self._reserved = end
        data, at = self._mapping(), self.wrote
        unit = encode_unit(physical_offset, record_size, tags_code)
        # The size last: a unit whose size is 0 is not there, should the process be killed in between.
        data[at : at + SIZE_AT] = unit[:SIZE_AT]
        data[at + SIZE_END : at + UNIT_SIZE] = unit[SIZE_END:]
        data[at + SIZE_AT : at + SIZE_END] = unit[SIZE_AT:SIZE_END]
        self.wrote += UNIT_SIZE

    def append_ext(self, tags_code: int, store_timestamp: int) -> int:
        """Append a unit to the ext files and return its address, which takes the place of *tags_code*."""
        if self.ext is None:
            self.ext = ExtWriter(self._ext_directory, self._ext_file_size, self._known)
        return self.ext.append(tags_code, store_timestamp)

    def sync(self) -> int:
        """Sync what was appended since the last time; returns how many files. Ext files go first: units name them."""
        synced = 0 if self.ext is None else self.ext.sync()
        start = self._flushed - self._flushed % self.file_size
        while self.file_start >= 0 and self._flushed < self.end:
            if start == self.file_start or self._path(start).exists():  # an older file may have expired
                sync_file(self._path(start))
                synced += 1
            start += self.file_size
            self._flushed = min(start, self.end)
        return synced
