"""The newest consume queue ext file of one queue, being written: the plain twin of mqcore/_fast/ext_writer.pyx."""

from __future__ import annotations

import mmap
from pathlib import Path

from mqcore.files import make_directory, make_sized_file, reserve_blocks, sync_file
from mqcore.layout import CONSUME_QUEUE_EXT_UNIT, EXT_FILE_END_MIN_BLANK_SIZE, EXT_FILE_FULL
from mqcore.store.consume_queue_ext_units import (
    decode_ext_unit,
    encode_ext_unit,
    ext_address,
    ext_end,
    ext_offset,
    is_ext_address,
)
from mqcore.store.mapping import digit_names, map_for_writing
from mqcore.store.paths import file_name

UNIT_SIZE = CONSUME_QUEUE_EXT_UNIT.size
SIZE_END = CONSUME_QUEUE_EXT_UNIT.offsets["tags_code"]
RESERVE_SIZE = 128 * 1024


class ExtWriter:
    """Goes on where the files in *directory* end. Raises OSError; EUCLEAN is a file of another length.

    *known* is the code of the queue's newest unit: if it is an address, the stream goes on behind it, whatever the
    file looks like.
    """

    def __init__(self, directory: Path, file_size: int, known: int) -> None:
        self.directory = directory
        self.file_size = file_size
        self.file_start = -1
        self.wrote = 0
        self.map: mmap.mmap | None = None
        self._reserved = 0
        self._flushed = 0
        names = digit_names(directory)
        if names:
            self.file_start = max(map(int, names))
            self.wrote = max(ext_end(self._mapping()), self._end_of_known(known))
            # Who made the file, and whether the one before it was synced, is not known: both are done anew.
            self._reserved = self.wrote
            self._flushed = max(0, self.file_start - file_size)

    def _end_of_known(self, known: int) -> int:
        """Return where the ext unit that *known* names ends, if it lies in the newest file; else 0."""
        position = ext_offset(known) - self.file_start
        if not is_ext_address(known) or not 0 <= position <= self.file_size - UNIT_SIZE:
            return 0
        unit = decode_ext_unit(self._mapping(), position)
        return position + (UNIT_SIZE if unit is None else unit.size)

    def _path(self, file_start: int) -> Path:
        return self.directory / file_name(file_start)

    def _mapping(self) -> mmap.mmap:
        if self.map is None:
            self.map = map_for_writing(self._path(self.file_start), self.file_size)
        return self.map

    def unmap(self) -> None:
        """Let the mapping go; it is made again when it is needed."""
        if self.map is not None:
            self.map.close()
            self.map = None

    def _make_file(self, file_start: int) -> None:
        make_directory(self.directory)
        reserve = min(RESERVE_SIZE, self.file_size)
        make_sized_file(self._path(file_start), self.file_size, reserve)
        self.unmap()
        if self.file_start < 0:
            self._flushed = file_start
        self.file_start, self.wrote, self._reserved = file_start, 0, reserve

    def _open_end(self) -> None:
        """See that the newest file has room for a unit and the rest that must stay behind it."""
        if self.file_start < 0:
            self._make_file(0)
        elif self.file_size - self.wrote - EXT_FILE_END_MIN_BLANK_SIZE < UNIT_SIZE:
            if self.file_size - self.wrote >= EXT_FILE_END_MIN_BLANK_SIZE:
                self._mapping()[self.wrote : self.wrote + SIZE_END] = EXT_FILE_FULL.to_bytes(2, "big", signed=True)
            self._make_file(self.file_start + self.file_size)

    def append(self, tags_code: int, store_timestamp: int) -> int:
        """Append a unit without a bitmap and return its address."""
        self._open_end()
        if self.wrote + UNIT_SIZE > self._reserved:
            end = min(self.wrote + RESERVE_SIZE, self.file_size)
            reserve_blocks(self._path(self.file_start), self.wrote, end - self.wrote)
            self._reserved = end
        data, at = self._mapping(), self.wrote
        unit = encode_ext_unit(tags_code, store_timestamp)
        # The size last: a unit whose size is 0 is not there, should the process be killed in between.
        data[at + SIZE_END : at + UNIT_SIZE] = unit[SIZE_END:]
        data[at : at + SIZE_END] = unit[:SIZE_END]
        self.wrote += UNIT_SIZE
        return ext_address(self.file_start + at)

    def sync(self) -> int:
        """Sync what was appended since the last time; returns how many files."""
        synced = 0
        start = self._flushed - self._flushed % self.file_size
        while self.file_start >= 0 and self._flushed < self.file_start + self.wrote:
            if start == self.file_start or self._path(start).exists():  # an older file may have expired
                sync_file(self._path(start))
                synced += 1
            start += self.file_size
            self._flushed = min(start, self.file_start + self.wrote)
        return synced
