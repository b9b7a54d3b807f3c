"""The store that is backed up, as its files show it: of a broker that runs, of a slave, at rest, or Apache's.

Nothing is written, locked or created there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from mqcore.errors import BackupError, CorruptFileError, OffsetOutOfRangeError
from mqcore.store.abort_file import AbortFile
from mqcore.store.backup.directory import BackupDirectory
from mqcore.store.backup.manifest import LogFile, Manifest
from mqcore.store.log.mapped_file_queue import starts_blank
from mqcore.store.log.places import LogPlaces
from mqcore.store.paths import StorePaths
from mqcore.store.reader_extent import find_extent
from mqcore.store.reader_files import FoundFiles

COMPARED_SIZE: Final = 64 << 10
"""So many bytes at the beginning and before the end of the newest file tell whether two logs are one."""

TRIES: Final = 5


class LogEnd(NamedTuple):
    """A place in the log where a record ends, and the newest store time before it, ms."""

    end: int
    store_timestamp: int


class StoreSource:
    """The store under *root*, its commit log in *commit_log* if not in ``commitlog``; look() looks at it anew."""

    def __init__(self, root: Path, commit_log: Sequence[Path] = ()) -> None:
        """Raises BackupError if there is no store."""
        self.paths = StorePaths.at(root, LogPlaces(tuple(commit_log)) if commit_log else None)
        for directory in self.paths.log.directories:
            if not directory.is_dir():
                raise BackupError(f"{root} is no store: there is no directory {directory}")
        self.files = FoundFiles(self.paths.log.directories)

    def look(self) -> None:
        """List the files. Raises CorruptFileError if one is missing between others."""
        for _ in range(TRIES):
            self.files.close()
            self.files.refresh()
            gaps = self.files.gaps()
            # A listing is no snapshot: of two files that are made meanwhile it may have the later one alone.
            if not gaps:
                return
        raise CorruptFileError("file is missing between others", str(self.files.path_of(gaps[0][0])))

    def find_end(self, known: LogEnd) -> LogEnd:
        """Return where the log ends now, as recovery would have it; before *known* nothing is read."""
        for left in reversed(range(TRIES)):
            self.look()
            try:
                start = max(known.end, self._newest_start())
                extent = find_extent(self.paths, self.files, start, known.store_timestamp)
                return LogEnd(max(known.end, extent.end), extent.store_timestamp)
            except OffsetOutOfRangeError:
                if not left:  # a broker deletes its oldest files meanwhile, and not for ever
                    raise
        raise AssertionError("unreachable")

    def _newest_start(self) -> int:
        """Return where the newest file starts that has records, if the store was stopped cleanly: there the log ends.

        What lies in files before it is looked at when it is copied. After a crash the end may lie in any of them; 0.
        """
        if AbortFile(self.paths.abort).exists():
            return 0
        return next((start for start in reversed(self.files.starts) if not starts_blank(self.files.path_of(start))), 0)

    def check_fits(self, manifest: Manifest, directory: BackupDirectory) -> None:
        """Raise BackupError if *manifest* is of another log, or of one that this log cannot go on from."""
        if not manifest.files:
            return
        last = manifest.files[-1]
        if not self.files.starts:
            raise BackupError(f"the store has no commit log, the backup goes up to {manifest.end}: another store")
        if self.files.file_size != manifest.file_size:
            raise BackupError(
                f"mappedFileSizeCommitLog: the store has {self.files.file_size}, the backup {manifest.file_size}: "
                "another store"
            )
        if last.start not in self.files.starts:
            if last.start < self.files.min_offset:
                raise GoneError(
                    f"the store begins at {self.files.min_offset}, the backup ends at {manifest.end}: what lay "
                    "between has expired; begin a new backup in another directory, and keep this one beside it"
                )
            raise BackupError(
                f"the store ends before {last.start}, the backup at {manifest.end}: the store has lost its end, or is "
                "another one; restore the backup, or begin a new one in another directory"
            )
        self.compare(last, directory)

    def compare(self, file: LogFile, directory: BackupDirectory) -> None:
        """Raise BackupError unless the store has what *file* has, at its beginning and at its end."""
        for position in sorted({0, max(0, file.size - COMPARED_SIZE)}):
            size = min(COMPARED_SIZE, file.size - position)
            ours = read_at(directory.log_file(file.start), position, size)
            theirs = read_at(self.files.path_of(file.start), position, size)
            if ours == theirs:
                continue
            at = position + next(
                (at for at, (one, other) in enumerate(zip(ours, theirs, strict=False)) if one != other),
                min(len(ours), len(theirs)),
            )
            path = self.files.path_of(file.start)
            raise BackupError(
                f"the store is another one than the backup is of, or has gone its own way since: it differs in {path} "
                f"from position {at} on (physical offset {file.start + at}); begin a new backup in another directory"
            )


class GoneError(BackupError):
    """The store has deleted what the backup lacks."""


def read_at(path: Path, position: int, size: int) -> bytes:
    """Return *size* bytes of *path*, fewer at its end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, size, position)
    finally:
        os.close(descriptor)
