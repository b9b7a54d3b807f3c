"""The newest of the files that hold one queue's units, being written: the twin of _fast/queues/newest_file.pyx."""

from __future__ import annotations

import mmap
from pathlib import Path

from mqcore.files import make_sized_file, reserve_blocks, sync_directory, sync_file
from mqcore.store.mapping import digit_names, map_for_writing
from mqcore.store.paths import file_name

# Blocks are reserved ahead: as many as the file has, so that a hundred thousand small queues do not hold the disk.
RESERVE_SIZE_MIN = 4096
RESERVE_SIZE_MAX = 128 * 1024


class NewestFile:
    """The newest file in *directory*, if there is any; what it holds the caller finds out, and says by ``resume``.

    *file_start* is where it begins in the queue's stream, bytes, -1 if there is none; *wrote* a position in the file.
    Methods raise OSError; EUCLEAN is a file of another length.
    """

    def __init__(self, directory: Path, file_size: int) -> None:
        self.directory = directory
        self.file_size = file_size
        self.file_start = max(map(int, digit_names(directory)), default=-1)
        self.wrote = 0
        self._map: mmap.mmap | None = None
        self._reserved = 0
        self._flushed = 0
        self._is_named = False

    @property
    def end(self) -> int:
        """Bytes in the queue's stream, up to the last unit."""
        return self.file_start + self.wrote if self.file_start >= 0 else 0

    @property
    def is_mapped(self) -> bool:
        return self._map is not None

    def path(self, file_start: int) -> Path:
        return self.directory / file_name(file_start)

    def resume(self, wrote: int) -> None:
        """Go on behind *wrote*, in a file that somebody else may have made."""
        # Who made the file, and whether the one before it was synced, is not known: both are done anew.
        self.wrote = self._reserved = wrote
        self._flushed = max(0, self.file_start - self.file_size)
        self._is_named = False

    def mapping(self) -> mmap.mmap:
        if self._map is None:
            self._map = map_for_writing(self.path(self.file_start), self.file_size)
            # Else the first unit of a queue brings in all that the device reads ahead, be it all zeros.
            self._map.madvise(mmap.MADV_RANDOM)
        return self._map

    def unmap(self) -> None:
        """Let the mapping go; it is made again when it is needed."""
        if self._map is not None:
            self._map.close()
            self._map = None

    def make(self, file_start: int) -> None:
        """Make the file that begins at *file_start*, after which it is the newest one.

        It is not durable, for nobody is to wait for the disk here: who claims that its units are syncs its name too.
        """
        assert file_start % self.file_size == 0
        assert file_start > self.file_start, "files follow one another"
        self.directory.mkdir(parents=True, exist_ok=True)
        reserve = min(RESERVE_SIZE_MIN, self.file_size)
        make_sized_file(self.path(file_start), self.file_size, reserve, is_durable=False)
        self.unmap()
        self._is_named = False
        if self.file_start < 0:
            self._flushed = file_start
        self.file_start, self.wrote, self._reserved = file_start, 0, reserve

    def reserve(self, size: int) -> None:
        """See that *size* more bytes have their disk blocks."""
        assert self.wrote + size <= self.file_size, "what is written lies within its file"
        if self.wrote + size > self._reserved:
            ahead = min(max(self.wrote, RESERVE_SIZE_MIN), RESERVE_SIZE_MAX)
            end = min(self.wrote + ahead, self.file_size)
            reserve_blocks(self.path(self.file_start), self.wrote, end - self.wrote)
            self._reserved = end

    def sync(self) -> int:
        """Sync what was appended since the last time, and names that are new; returns how many files."""
        synced = 0
        start = self._flushed - self._flushed % self.file_size
        while self.file_start >= 0 and self._flushed < self.end:
            if start == self.file_start or self.path(start).exists():  # an older file may have expired
                sync_file(self.path(start))
                synced += 1
            start += self.file_size
            self._flushed = min(start, self.end)
        if self.file_start >= 0 and not self._is_named:
            topic = self.directory.parent
            for directory in (self.directory, topic, topic.parent):
                sync_directory(directory)
            self._is_named = True
        return synced
