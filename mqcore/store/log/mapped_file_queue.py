"""Equally sized files, each named by the offset of its first byte, read through mappings made on demand.

They lie in one directory, or, as those of a commit log may, in several.

Other processes make files at the end and delete them at the front while this one reads: a listing may be stale, and is
taken anew when an offset is not found. A deleted file's mapping stays valid until its last view is gone.
Source: RocketMQ store/MappedFileQueue.java.
"""

from __future__ import annotations

import logging
import mmap
import os
import stat
from collections import OrderedDict
from itertools import pairwise
from pathlib import Path

from mqcore.errors import CorruptFileError, OffsetOutOfRangeError
from mqcore.files import delete_file, is_zero
from mqcore.layout import BLANK_RECORD
from mqcore.store.log.places import LogPlaces, file_name, is_file_name

MAPPED_FILES_MAX = 64

logger = logging.getLogger(__name__)


class MappedFileQueue:
    """Files of *file_size* bytes in *places*. Not for use by several threads at once."""

    def __init__(self, places: Path | LogPlaces, file_size: int, mapped_files_max: int = MAPPED_FILES_MAX) -> None:
        self.directories = places.directories if isinstance(places, LogPlaces) else (places,)
        self.file_size = file_size
        self.starts: tuple[int, ...] = ()
        self._mapped_files_max = mapped_files_max
        self._paths: dict[int, Path] = {}
        self._views: OrderedDict[int, memoryview] = OrderedDict()

    def load(self) -> None:
        """List the files, and check that the directories are such that a broker may start on them.

        A last file of length zero, which a crash of another broker can leave, is removed, and so is an empty one of
        which another directory has one with records. Raises CorruptFileError, naming the file, for anything else of a
        wrong name, kind or length, and for a gap between files.
        """
        entries = sorted(self._entries(), key=lambda entry: entry[0].name)
        if entries and entries[-1][1].st_size == 0 and stat.S_ISREG(entries[-1][1].st_mode):
            path = entries.pop()[0]
            logger.warning("removing file of length zero path=%s", path)
            delete_file(path)
        for path, status in entries:
            self._check(path, status)
        self._take([path for path, _ in entries])
        for start, path in ((int(path.name), path) for path, _ in entries):
            if path != self._paths[start]:
                self._remove_second(path, self._paths[start])
        for before, after in pairwise(self.starts):
            if after - before != self.file_size:
                raise CorruptFileError(
                    f"file is missing: the next one is {file_name(after)}{self._without_files()}",
                    str(self.path_of(before + self.file_size)),
                )

    def refresh(self) -> None:
        """List the files again. Files that come or go meanwhile are seen or not; foreign ones are left out."""
        self._take([path for path, status in self._entries() if self._is_file(path.name, status)])
        for start in [start for start in self._views if start not in self.starts]:
            del self._views[start]

    def path_of(self, start: int) -> Path:
        """Return the path of the file that starts at *start*, as it was listed; of another one, where it might be."""
        return self._paths.get(start) or self.directories[0] / file_name(start)

    def empty_directories(self) -> list[Path]:
        """Return the directories without a file among several, when others have some: their disks may be missing."""
        used = {path.parent for path in self._paths.values()}
        return [directory for directory in self.directories if used and directory not in used]

    def start_of(self, offset: int) -> int:
        """Return where the file that holds *offset* starts, be it there or not."""
        first = self.starts[0] if self.starts else 0
        return first + (offset - first) // self.file_size * self.file_size

    @property
    def min_offset(self) -> int:
        """Offset of the first byte of the first file; 0 without files."""
        return self.starts[0] if self.starts else 0

    @property
    def end_offset(self) -> int:
        """Offset behind the last byte of the last file, written or not; 0 without files."""
        return self.starts[-1] + self.file_size if self.starts else 0

    def file_view(self, offset: int) -> tuple[int, memoryview]:
        """Return the start of the file that holds *offset*, and a read-only view of the whole file.

        Raises OffsetOutOfRangeError if there is no such file.
        """
        start = self.start_of(offset)
        if start not in self._views:
            if start not in self.starts:
                self.refresh()
                start = self.start_of(offset)
            try:
                self._map(start)
            except FileNotFoundError:
                self.refresh()
                raise OffsetOutOfRangeError(
                    f"offset in {self.directories[0]}", offset, self.min_offset, self.end_offset
                ) from None
        self._views.move_to_end(start)
        return start, self._views[start]

    def view(self, offset: int, size: int) -> memoryview:
        """Return a read-only view of *size* bytes from *offset*, which one file must hold.

        Raises OffsetOutOfRangeError if it does not. The view keeps its mapping open: copy what must be kept for long.
        """
        start, whole = self.file_view(offset)
        position = offset - start
        if size < 0 or size > self.file_size - position:
            raise OffsetOutOfRangeError(f"end in file {file_name(start)}", position + size, 0, self.file_size)
        return whole[position : position + size]

    def delete(self, start: int) -> None:
        """Remove the file that starts at *start*, durably; readers that have it mapped are not disturbed."""
        delete_file(self.path_of(start))
        self._views.pop(start, None)
        self._paths.pop(start, None)
        self.starts = tuple(other for other in self.starts if other != start)

    def close(self) -> None:
        """Forget all mappings; each is undone with its last view."""
        self._views.clear()

    def _map(self, start: int) -> None:
        path = self.path_of(start)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._check(path, os.fstat(descriptor))
            mapping = mmap.mmap(descriptor, self.file_size, mmap.MAP_SHARED, mmap.PROT_READ)
        finally:
            os.close(descriptor)
        while len(self._views) >= self._mapped_files_max:
            self._views.popitem(last=False)
        self._views[start] = memoryview(mapping)

    def _take(self, paths: list[Path]) -> None:
        """Know *paths* from now on. Of two of the same start the one with a record at its start counts."""
        self._paths = {}
        for path in paths:
            start = int(path.name)
            if start not in self._paths or (starts_blank(self._paths[start]) and not starts_blank(path)):
                self._paths[start] = path
        self.starts = tuple(sorted(self._paths))

    def _remove_second(self, path: Path, kept: Path) -> None:
        """Remove *path*, a file that was made ahead of need while another place was chosen when the need was there."""
        if not is_zero(path):
            raise CorruptFileError(f"file has bytes, and so has another one of its name: {kept}", str(path))
        logger.warning("removing empty file, another directory has one of its name path=%s kept=%s", path, kept)
        delete_file(path)

    def _without_files(self) -> str:
        empty = self.empty_directories()
        return f"; no files in {empty[0]}: is its disk mounted?" if empty else ""

    def _entries(self) -> list[tuple[Path, os.stat_result]]:
        found = []
        for directory in self.directories:
            try:
                with os.scandir(directory) as listing:
                    for entry in listing:
                        try:
                            found.append((Path(entry.path), entry.stat(follow_symlinks=False)))
                        except FileNotFoundError:
                            continue  # deleted since it was listed
            except FileNotFoundError:
                continue
        return found

    def _is_file(self, name: str, status: os.stat_result) -> bool:
        return is_file_name(name) and stat.S_ISREG(status.st_mode) and status.st_size == self.file_size

    def _check(self, path: Path, status: os.stat_result) -> None:
        if not is_file_name(path.name) or not stat.S_ISREG(status.st_mode):
            raise CorruptFileError("not a file of the store: its broker would not start", str(path))
        if status.st_size != self.file_size:
            raise CorruptFileError(
                f"file has {status.st_size} bytes, wanted {self.file_size}: was it made with another setting?",
                str(path),
            )


def starts_blank(path: Path) -> bool:
    """Whether nothing is at the start of *path*, or it is gone."""
    try:
        with path.open("rb") as file:
            return not any(file.read(BLANK_RECORD.size))
    except FileNotFoundError:
        return True
