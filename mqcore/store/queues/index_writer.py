"""The newest index file and the roll from one to the next: the plain twin of mqcore/_fast/queues/index_writer.pyx."""

from __future__ import annotations

import errno
import mmap
import time
from dataclasses import dataclass
from pathlib import Path

from mqcore.files import make_sized_file, reserve_blocks
from mqcore.layout import INDEX_HEADER
from mqcore.store.mapping import digit_names, map_for_writing
from mqcore.store.paths import INDEX_NAME_DIGITS
from mqcore.store.queues.index_file import IndexGeometry, IndexHeader, put

RESERVE_SIZE = 1024 * 1024


@dataclass(slots=True)
class _Retired:
    """A full file that is not yet synced."""

    map: mmap.mmap
    end_timestamp: int


class IndexWriter:
    """Goes on where the files in *directory* end. Raises OSError."""

    def __init__(self, directory: Path, geometry: IndexGeometry) -> None:
        self.synced_timestamp = 0
        self._directory = directory
        self._geometry = geometry
        self._name = max(map(int, digit_names(directory)), default=-1)
        self._map: mmap.mmap | None = None
        self._reserved = 0
        self._retired: list[_Retired] = []
        if self._name >= 0:
            try:
                self._map = map_for_writing(self._path(self._name), geometry.file_size)
            except OSError as error:
                if error.errno != errno.EUCLEAN:  # one of another geometry is left alone, and a new one begun
                    raise

    def _path(self, name: int) -> Path:
        return self._directory / f"{name:0{INDEX_NAME_DIGITS}d}"

    @property
    def end_physical_offset(self) -> int:
        """Where the newest indexed record starts; 0 without files."""
        return IndexHeader.read(self._map).end_physical_offset if self._map is not None else 0

    def append(self, key_hash: int, physical_offset: int, store_timestamp: int) -> None:
        """Append one entry to the newest file, which is made or rolled as needed."""
        data = self._map if self._map is not None else self._make_file()
        self._reserve_entry(data)
        if not put(data, self._geometry, key_hash, physical_offset, store_timestamp):
            data = self._make_file()
            self._reserve_entry(data)
            is_put = put(data, self._geometry, key_hash, physical_offset, store_timestamp)
            assert is_put, "a new index file has room for an entry"

    def _make_file(self) -> mmap.mmap:
        """Begin a new file, which inherits where the one before it ended."""
        header = IndexHeader(0, 0, 0, 0, 0, 1)
        if self._map is not None:
            before = IndexHeader.read(self._map)
            header.begin_timestamp = header.end_timestamp = before.end_timestamp
            header.begin_physical_offset = header.end_physical_offset = before.end_physical_offset
        head = bytearray(INDEX_HEADER.size)
        header.write(head)
        name = max(index_name_now(), self._name + 1)  # the clock may have gone back
        slots_end = self._geometry.entry_position(0)
        make_sized_file(self._path(name), self._geometry.file_size, slots_end, bytes(head))
        new = map_for_writing(self._path(name), self._geometry.file_size)
        if self._map is not None:
            self._retired.append(_Retired(self._map, header.end_timestamp))
        self._name, self._map, self._reserved = name, new, slots_end
        return new

    def _reserve_entry(self, data: mmap.mmap) -> None:
        end = self._geometry.entry_position(IndexHeader.read(data).index_count + 1)
        if self._reserved < end <= self._geometry.file_size:
            end = min(self._geometry.file_size, end + RESERVE_SIZE)
            reserve_blocks(self._path(self._name), self._reserved, end - self._reserved)
            self._reserved = end

    def sync(self, newest: bool) -> None:
        """Sync full files, let them go and move synced_timestamp; with *newest* the one in use too."""
        while self._retired:
            full = self._retired[0]
            full.map.flush()
            self.synced_timestamp = full.end_timestamp
            full.map.close()
            self._retired.pop(0)
        if newest and self._map is not None:
            self._map.flush()

    def close(self) -> None:
        """Unmap everything, synced or not."""
        for full in self._retired:
            full.map.close()
        self._retired.clear()
        if self._map is not None:
            self._map.close()
            self._map = None


def index_name_now() -> int:
    """Return local time as the number yyyyMMddHHmmssSSS, which names an index file."""
    now_ms = time.time_ns() // 1_000_000
    return int(time.strftime("%Y%m%d%H%M%S", time.localtime(now_ms // 1000))) * 1000 + now_ms % 1000
