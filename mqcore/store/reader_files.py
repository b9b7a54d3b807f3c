"""The files of a store as a reader finds them: of a live store, a backup, a copy that was cut short, in several places.

Nothing is written, locked or removed here, and no file size has to be known beforehand.
"""

from __future__ import annotations

import logging
import mmap
import os
import stat
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from mqcore.store.log.mapped_file_queue import MAPPED_FILES_MAX, MappedFileQueue, starts_blank
from mqcore.store.log.places import is_file_name

logger = logging.getLogger(__name__)


class FoundFiles(MappedFileQueue):
    """Files named by their offset, in one or several directories; their size is what their names and lengths say.

    A file that is shorter than the others, as an interrupted copy leaves it, reads as if zeros followed. Of two files
    of the same name the one in the earlier directory counts, unless only the other one begins with a record. Not for
    use by several threads at once.
    """

    def __init__(self, directories: Sequence[Path], mapped_files_max: int = MAPPED_FILES_MAX) -> None:
        super().__init__(directories[0], 1, mapped_files_max)
        self.directories = tuple(directories)
        self.refresh()

    def refresh(self) -> None:
        """List the files again."""
        found: dict[int, tuple[Path, int]] = {}
        for directory in self.directories:
            for start, path, size in list_files(directory):
                other = found.get(start)
                if other is not None:
                    passed = other[0] if starts_blank(other[0]) and not starts_blank(path) else path
                    logger.warning("file passed over, another one has its name path=%s", passed)
                    if passed == path:
                        continue
                found[start] = (path, size)
        self.starts = tuple(sorted(found))
        self._paths = {start: path for start, (path, _) in found.items()}
        # A file may be cut short, and one between two others may be missing.
        sizes = [size for _, size in found.values()]
        distances = [after - before for before, after in pairwise(self.starts)]
        self.file_size = min([max(sizes, default=1), *distances])
        for start in [start for start in self._views if start not in self._paths]:
            del self._views[start]

    def gaps(self) -> list[tuple[int, int]]:
        """Return the ranges, [start, end) in bytes, for which files are missing between others."""
        ends = [(before + self.file_size, after) for before, after in pairwise(self.starts)]
        return [(end, start) for end, start in ends if end != start]

    def _map(self, start: int) -> None:
        descriptor = os.open(self.path_of(start), os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            if size >= self.file_size:
                mapping = mmap.mmap(descriptor, self.file_size, mmap.MAP_SHARED, mmap.PROT_READ)
            else:
                # Reading a mapping behind the end of its file would kill the process.
                mapping = mmap.mmap(-1, self.file_size)
                os.preadv(descriptor, [memoryview(mapping)[:size]], 0)
        finally:
            os.close(descriptor)
        while len(self._views) >= self._mapped_files_max:
            self._views.popitem(last=False)
        self._views[start] = memoryview(mapping).toreadonly()


def list_files(directory: Path) -> list[tuple[int, Path, int]]:
    """Return offset, path and length of the files of a store in *directory*; others, and empty ones, are left out."""
    found = []
    try:
        with os.scandir(directory) as listing:
            for entry in listing:
                try:
                    status = entry.stat()
                except FileNotFoundError:
                    continue  # deleted since it was listed
                if is_file_name(entry.name) and stat.S_ISREG(status.st_mode) and status.st_size > 0:
                    found.append((int(entry.name), Path(entry.path), status.st_size))
    except FileNotFoundError:
        return []
    return found
