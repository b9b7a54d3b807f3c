"""Where the files of a commit log lie, in one directory or in several, and where the next one is made.

The one place that knows; everybody else asks. A file's name is its start offset wherever it lies, and no two
directories hold the same one. Existing files are looked for, never computed: the rule says where a new file goes, and
by the time it is read the rule may give another answer. The processes' own way is ``_fast/log/places``, which keeps to
the same order. Source: RocketMQ store/MultiPathMappedFileQueue.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mqcore.errors import CorruptFileError, StoreNotWritableError
from mqcore.files import make_directory
from mqcore.store.disk import CLEAN_FORCIBLY_RATIO, DiskSpace, disk_used_ratio

FILE_NAME_DIGITS = 20
FULL_RATIO = CLEAN_FORCIBLY_RATIO
"""Above this use of its disk a directory gets no new file while another one is below."""


@dataclass(frozen=True, slots=True)
class LogPlaces:
    """The directories of one commit log. New files are made in *writable* ones; all of them are read and deleted from.

    *writable* is sorted and not empty, no directory is in both.
    """

    writable: tuple[Path, ...]
    read_only: tuple[Path, ...] = ()

    @classmethod
    def of(cls, writable: Iterable[str | Path], read_only: Iterable[str | Path] = ()) -> LogPlaces:
        """Return the places of storePathCommitLog and readOnlyCommitLogStorePaths; what is in both is read-only."""
        closed = {Path(path) for path in read_only}
        return cls(tuple(sorted({Path(path) for path in writable} - closed)), tuple(sorted(closed)))

    @property
    def directories(self) -> tuple[Path, ...]:
        """All of them, the writable ones first."""
        return self.writable + self.read_only

    def path_of(self, start: int) -> Path:
        """Return the path of the file that starts at *start*; without such a file, one that leads nowhere."""
        name = file_name(start)
        for directory in self.directories:
            if (directory / name).exists():
                return directory / name
        return self.directories[0] / name

    def make_directories(self) -> None:
        """Make the directories of a new log, durably; those of one that has files must all be there.

        Raises CorruptFileError for one that is missing: its disk is probably not mounted, and starting without it
        would put new files beside it and let messages seem to be lost. RocketMQ makes it and starts.
        """
        missing = [directory for directory in self.directories if not directory.is_dir()]
        if missing and any(has_files(directory) for directory in self.directories):
            raise CorruptFileError(
                "directory of the commit log is missing: mount its disk, or make it if it is new", str(missing[0])
            )
        for directory in self.writable:
            make_directory(directory)

    def __str__(self) -> str:
        return ", ".join(map(str, self.directories))

    def check_room(self, file_size: int) -> None:
        """Raise StoreNotWritableError if there is no file yet, and no disk on which the first one has its blocks.

        A log that has files may be read, and makes room by dropping the oldest.
        """
        if any(has_files(directory) for directory in self.directories):
            return
        spaces = [DiskSpace.of(directory) for directory in self.writable]
        if all(space.free < file_size for space in spaces):
            rooms = ", ".join(f"{space.path} ({space.free >> 20} of {space.total >> 20} MiB free)" for space in spaces)
            raise StoreNotWritableError(
                f"no room for the first commit log file of {file_size >> 20} MiB in {rooms}: make room there, name "
                "another directory (storePathCommitLog), or have smaller files (mappedFileSizeCommitLog, in bytes)"
            )

    def used_ratios(self) -> list[float]:
        """Return how full the disk of each writable directory is, 0..1; -1.0 for one that cannot be asked."""
        return [disk_used_ratio(directory) for directory in self.writable]


def place_order(number: int, full: Sequence[bool]) -> list[int]:
    """Return the writable places in the order in which file *number* (start offset / file size) is to be made in them.

    Of the n that are not *full* the first is number mod n, as upstream has it; the others follow in turn, then the full
    ones in the same way, for a file is better made there than not at all. If all are full it is as if none were.
    """
    rooms = [place for place, is_full in enumerate(full) if not is_full]
    rest = [place for place, is_full in enumerate(full) if is_full]
    return [group[(number + step) % len(group)] for group in (rooms, rest) for step in range(len(group))]


def file_name(offset: int) -> str:
    """Return the name of the file that starts at *offset*."""
    return f"{offset:0{FILE_NAME_DIGITS}d}"


def is_file_name(name: str) -> bool:
    """Whether *name* is an offset in 20 digits."""
    return len(name) == FILE_NAME_DIGITS and name.isascii() and name.isdigit()


def has_files(directory: Path) -> bool:
    """Whether a file with the name of one of a store is in *directory*."""
    return directory.is_dir() and any(is_file_name(path.name) for path in directory.iterdir())
