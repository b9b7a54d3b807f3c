"""Where the parts of a backup lie, and that one process at a time changes them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mqcore.errors import BackupError, CorruptFileError, StoreLockedError
from mqcore.files import TEMPORARY_SUFFIX, make_directory, sync_directory
from mqcore.store.backup.manifest import LogFile, Manifest, Run, Table
from mqcore.store.codec import crc32
from mqcore.store.paths import file_name

MANIFEST_NAME: Final = "manifest.json"
BROKEN_OFF_NAMES: Final = frozenset({"lock", "commitlog", "tables", MANIFEST_NAME + TEMPORARY_SUFFIX})
"""What a first run may leave that ended before it wrote the manifest."""


@dataclass(frozen=True, slots=True)
class BackupDirectory:
    """One backup. ``commitlog`` has the names of the store's files, so that a StoreReader can read it in place."""

    root: Path

    @property
    def manifest(self) -> Path:
        return self.root / MANIFEST_NAME

    @property
    def commit_log(self) -> Path:
        return self.root / "commitlog"

    def log_file(self, start: int) -> Path:
        return self.commit_log / file_name(start)

    def tables(self, number: int) -> Path:
        return self.root / "tables" / f"{number:08d}"

    def load(self) -> Manifest:
        """Return the manifest. Raises BackupError if there is none, CorruptFileError for a damaged one."""
        try:
            return Manifest.read(self.manifest)
        except (FileNotFoundError, NotADirectoryError):
            raise BackupError(f"{self.root} is no backup: it has no manifest.json") from None

    def prepare(self) -> None:
        """Make the directory, if it is not there. Raises BackupError for one with files of somebody else."""
        if self.root.exists() and not self.root.is_dir():
            raise BackupError(f"{self.root} is no directory")
        make_directory(self.root)
        if not self.manifest.exists():
            foreign = sorted(path.name for path in self.root.iterdir() if path.name not in BROKEN_OFF_NAMES)
            if foreign:
                raise BackupError(f"{self.root} is neither empty nor a backup: it has {foreign[0]}")
        make_directory(self.commit_log)
        make_directory(self.root / "tables")

    @contextlib.contextmanager
    def locked(self, *, exclusive: bool) -> Iterator[None]:
        """Keep others from changing the backup, or *exclusive* from using it. Raises StoreLockedError."""
        try:
            descriptor = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError:
            if exclusive:
                raise
            yield  # on a disk that cannot be written nobody changes it
            return
        try:
            kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreLockedError(f"another process works on the backup {self.root}") from None
            yield
        finally:
            os.close(descriptor)

    def read_table(self, run: Run, name: str, table: Table) -> bytes:
        """Return a table of *run*. Raises CorruptFileError if it is not what was copied."""
        path = self.tables(run.number) / name
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise CorruptFileError("file is missing", str(path)) from None
        if len(data) != table.size or crc32(data) != table.crc:
            raise CorruptFileError(f"{len(data)} bytes that are not the {table.size} that were copied", str(path))
        return data

    def write_tables(self, number: int, tables: dict[str, bytes]) -> dict[str, Table]:
        """Write the tables of a run that is not in the manifest yet, durably."""
        directory = self.tables(number)
        if directory.exists():
            shutil.rmtree(directory)  # of a run that was broken off
        directory.mkdir()
        for name, data in tables.items():
            with (directory / name).open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        sync_directory(directory)
        sync_directory(directory.parent)
        return {name: Table(len(data), crc32(data)) for name, data in tables.items()}

    def remove_unknown(self, manifest: Manifest) -> None:
        """Remove log files and tables that *manifest* does not know."""
        files = {file_name(file.start) for file in manifest.files}
        numbers = {self.tables(run.number).name for run in manifest.runs}
        for path in self.commit_log.iterdir():
            if path.name not in files:
                path.unlink()
        for path in (self.root / "tables").iterdir():
            if path.name not in numbers:
                shutil.rmtree(path)

    def check_size(self, file: LogFile) -> None:
        """Raise CorruptFileError if a log file is shorter than what the manifest claims."""
        path = self.log_file(file.start)
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            raise CorruptFileError("file is missing", str(path)) from None
        if size < file.size:
            raise CorruptFileError(f"file has {size} bytes, wanted {file.size}", str(path))
