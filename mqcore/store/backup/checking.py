"""Reading a backup again, and comparing it with its checksums."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from mqcore.errors import CorruptFileError
from mqcore.store.backup.directory import BackupDirectory
from mqcore.store.backup.log_copy import OnProgress
from mqcore.store.backup.manifest import CELL_SIZE, LogFile, Manifest
from mqcore.store.backup.streams import Pace, Reading


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a check found: bytes that were read, and what is not as it was copied, a sentence for each."""

    byte_count: int
    problems: list[str] = field(default_factory=list)


def check_backup(
    directory: BackupDirectory, max_rate: int = 0, on_progress: OnProgress = lambda done, total: None
) -> CheckResult:
    """Read everything that the manifest claims. Raises BackupError, CorruptFileError without a sound manifest."""
    with directory.locked(exclusive=False):
        manifest = directory.load()
        problems = list(_table_problems(directory, manifest))
        total = sum(file.size for file in manifest.files)
        pace = Pace(max_rate)
        done = 0
        for file in manifest.files:
            try:
                for _, data in read_cells(directory, file, problems):
                    done += len(data)
                    on_progress(done, total)
                    pace.spend(len(data))
            except CorruptFileError as error:
                problems.append(str(error))
        return CheckResult(done, problems)


def _table_problems(directory: BackupDirectory, manifest: Manifest) -> Iterator[str]:
    for run in manifest.runs:
        for name, table in run.tables.items():
            try:
                directory.read_table(run, name, table)
            except CorruptFileError as error:
                yield str(error)


def read_cells(
    directory: BackupDirectory, file: LogFile, problems: list[str], size: int | None = None
) -> Iterator[tuple[int, memoryview]]:
    """Give the position and content of each part of a log file that has a checksum, up to *size* bytes.

    The memory is used again for the next. What differs is noted in *problems*, and given all the same. Raises
    CorruptFileError if the file is missing or too short.
    """
    directory.check_size(file)
    path = directory.log_file(file.start)
    buffer = memoryview(bytearray(min(CELL_SIZE, max(1, file.size))))
    end = file.size if size is None else size
    with Reading(path) as reading:
        for number, wanted in enumerate(file.cells):
            position = number * CELL_SIZE
            if position >= end:
                return
            part = buffer[: min(CELL_SIZE, file.size - position)]
            got = zlib.crc32(part[: reading.read(part, position)])
            if got != wanted:
                where = f"{path}: checksum of {len(part)} bytes from position {position}"
                problems.append(f"{where} is {got:#010x}, wanted {wanted:#010x}")
            yield position, part[: end - position]
