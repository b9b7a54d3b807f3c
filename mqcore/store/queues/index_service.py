"""The index files of a store as a reader sees them: records of a key over all files. The reput worker alone appends.

Source: RocketMQ store/index/IndexService.java.
"""

from __future__ import annotations

import logging
import mmap
import os
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from mqcore.files import delete_file
from mqcore.layout import INDEX_HEADER
from mqcore.store.codec import index_covers, index_key_hash, index_query
from mqcore.store.queues.index_file import IndexGeometry, IndexHeader

MAPPED_FILES_MAX = 4
NAME_DIGITS_MAX = 19

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IndexAnswer:
    """Physical offsets, newest first, and where the newest file ended when it was asked (0 without files)."""

    offsets: tuple[int, ...]
    last_update_timestamp: int
    last_update_offset: int


class IndexService:
    """Index files in *directory*, named by the local time they were made at. A file of another size is passed over."""

    def __init__(self, directory: Path, geometry: IndexGeometry) -> None:
        self.directory = directory
        self.geometry = geometry
        self._maps: OrderedDict[str, mmap.mmap] = OrderedDict()

    def names(self) -> list[str]:
        """Return the names of the files, oldest first."""
        if not self.directory.is_dir():
            return []
        found = []
        for entry in self.directory.iterdir():
            if not is_index_name(entry.name):
                logger.warning("not an index file path=%s", entry)
            elif self._size(entry) != self.geometry.file_size:
                logger.warning("index file of another geometry path=%s wanted=%d", entry, self.geometry.file_size)
            else:
                found.append(entry.name)
        return sorted(found, key=int)

    def header(self, name: str) -> IndexHeader:
        """Return the header of one file as it is now."""
        with (self.directory / name).open("rb") as file:
            return IndexHeader.read(file.read(INDEX_HEADER.size))

    def load(self, after_crash: bool, index_timestamp: int) -> None:
        """Drop what a crash may have damaged: files that end after the checkpoint's *index_timestamp*, ms."""
        if not after_crash:
            return
        for name in self.names():
            header = self.header(name)
            if header.end_timestamp > index_timestamp:
                logger.warning("index file dropped after a crash name=%s end_timestamp=%d", name, header.end_timestamp)
                self._delete(name)

    def clamp(self, commit_log_end: int) -> None:
        """Let no file claim records behind *commit_log_end*: new ones at their offsets would be taken for indexed."""
        for name in self.names()[-1:]:
            header = self.header(name)
            if header.end_physical_offset > commit_log_end:
                header.end_physical_offset = commit_log_end
                header.begin_physical_offset = min(header.begin_physical_offset, commit_log_end)
                self._write_header(name, header)

    def query(self, topic: str, key: str, count_max: int, begin_timestamp: int, end_timestamp: int) -> IndexAnswer:
        """Return where records of topic#key stored in [begin, end] may be, at most *count_max*.

        Hashes may collide and offsets may point at what is gone: the reader compares the real key.
        """
        key_hash = index_key_hash(topic.encode(), key.encode())
        offsets: list[int] = []
        last_timestamp = last_offset = 0
        for number, name in enumerate(reversed(self.names())):
            data = self._map(name)
            if data is None:
                continue
            header = IndexHeader.read(data)
            if number == 0:
                last_timestamp, last_offset = header.end_timestamp, header.end_physical_offset
            if index_covers(data, begin_timestamp, end_timestamp):
                wanted = count_max - len(offsets)
                offsets += index_query(data, self.geometry, key_hash, begin_timestamp, end_timestamp, wanted)
            if header.begin_timestamp < begin_timestamp or len(offsets) >= count_max:
                break
        return IndexAnswer(tuple(offsets), last_timestamp, last_offset)

    def delete_expired(self, commit_log_min: int) -> int:
        """Delete files, oldest first and never the newest, whose records are all gone; returns how many."""
        deleted = 0
        for name in self.names()[:-1]:
            if self.header(name).end_physical_offset >= commit_log_min:
                break
            self._delete(name)
            deleted += 1
        return deleted

    def delete_all(self) -> None:
        """Delete every file."""
        for name in self.names():
            self._delete(name)

    def total_size(self) -> int:
        """Return the bytes of all files by their lengths."""
        return len(self.names()) * self.geometry.file_size

    def close(self) -> None:
        """Forget all mappings."""
        self._maps.clear()

    def _map(self, name: str) -> mmap.mmap | None:
        if name not in self._maps:
            try:
                descriptor = os.open(self.directory / name, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return None  # cleaned since it was listed
            try:
                self._maps[name] = mmap.mmap(descriptor, self.geometry.file_size, mmap.MAP_SHARED, mmap.PROT_READ)
            finally:
                os.close(descriptor)
            while len(self._maps) > MAPPED_FILES_MAX:
                self._maps.popitem(last=False)
        self._maps.move_to_end(name)
        return self._maps[name]

    def _delete(self, name: str) -> None:
        self._maps.pop(name, None)
        delete_file(self.directory / name)

    def _write_header(self, name: str, header: IndexHeader) -> None:
        raw = bytearray(INDEX_HEADER.size)
        header.write(raw)
        descriptor = os.open(self.directory / name, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, raw, 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @staticmethod
    def _size(path: Path) -> int:
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return -1


def is_index_name(name: str) -> bool:
    """Whether *name* is a number, as those of index files are."""
    return name.isascii() and name.isdigit() and len(name) <= NAME_DIGITS_MAX
