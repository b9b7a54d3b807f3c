"""Copying the commit log, each record checked on its way: magic, lengths, place and CRC.

What is no whole record, and has whole ones behind it, is damage: it is copied as it is, and named.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mqcore.errors import CorruptFileError
from mqcore.files import sync_directory
from mqcore.layout import BLANK_RECORD
from mqcore.store.backup.directory import BackupDirectory
from mqcore.store.backup.manifest import CELL_SIZE, LogFile, Manifest
from mqcore.store.backup.source import GoneError, StoreSource
from mqcore.store.backup.streams import Pace, Reading, Writing
from mqcore.store.codec import scan_records
from mqcore.store.log.commit_log import read_store_timestamp
from mqcore.store.log.record import DecodeStatus
from mqcore.store.log.walk import next_record, record_at

COMMIT_STEP: Final = 1 << 30
"""After so many bytes the manifest is written, so that a run that is broken off is gone on with from there."""

logger = logging.getLogger(__name__)

OnProgress = Callable[[int, int], object]
"""Is told how many bytes are done, and how many there are."""


@dataclass(slots=True)
class Copied:
    """What a copy came to."""

    byte_count: int = 0
    record_count: int = 0
    file_count: int = 0


class LogCopier:
    """Brings the log in *directory*, which *manifest* tells of, up to that of *source*."""

    def __init__(
        self,
        source: StoreSource,
        directory: BackupDirectory,
        manifest: Manifest,
        *,
        pace: Pace,
        on_progress: OnProgress = lambda done, total: None,
        commit_step: int = COMMIT_STEP,
    ) -> None:
        self.copied = Copied()
        self.damaged: list[tuple[int, int]] = []
        self._source = source
        self._directory = directory
        self._manifest = manifest
        self._pace = pace
        self._on_progress = on_progress
        self._commit_step = commit_step
        self._since_commit = 0
        self._total = 0

    def copy(self, end: int) -> None:
        """Copy everything before *end*, where a record ends; durable on return, and in the manifest.

        Raises GoneError if the store deletes what is still to be copied, CorruptFileError, OSError.
        """
        self._total = max(0, end - self._next())
        while (position := self._next()) < end:
            files = self._source.files
            try:
                reading = Reading(files.path_of(files.start_of(position)))
            except FileNotFoundError:
                self._begin_later(position, end)
                continue
            with reading:
                self._copy_file(reading, files.start_of(position), end)
        self._commit()

    def _next(self) -> int:
        """Return where the next byte comes from."""
        return self._manifest.next_offset if self._manifest.files else self._source.files.min_offset

    def _begin_later(self, position: int, end: int) -> None:
        """The store has deleted the file at *position*: a backup that was never complete begins behind it."""
        self._source.look()
        if self._manifest.runs or self._source.files.min_offset <= position:
            raise GoneError(
                f"the store has deleted its file at {position} before it was copied; begin a new backup in another "
                "directory, or have the store keep its files for longer (fileReservedTime)"
            )
        logger.warning("oldest file deleted meanwhile, the backup begins at %d", self._source.files.min_offset)
        self._manifest.files.clear()
        self._manifest.damaged.clear()
        self._total = end - self._next() + self.copied.byte_count

    def _copy_file(self, reading: Reading, start: int, end: int) -> None:
        """Copy what is still to be copied of the file at *start*, up to *end*."""
        if not self._manifest.files or self._manifest.files[-1].start != start:
            self._manifest.files.append(LogFile(start))
        file = self._manifest.files[-1]
        file.modified_ms = reading.modified_ms
        with Writing(self._directory.log_file(start), file.size) as writing:
            _FileCopy(self, reading, writing, file).run(min(end, start + self._manifest.file_size))
            # As long as the store's, so that the backup can be read in its place.
            writing.finish(self._manifest.file_size if file.is_closed else None, file.modified_ms)
        self.copied.file_count += 1
        if self._since_commit >= self._commit_step:
            self._commit()

    def _commit(self) -> None:
        """Say that what is copied is there. Its files are durable already."""
        sync_directory(self._directory.commit_log)
        if self._manifest.files:
            self._manifest.end = self._manifest.files[-1].end
        self._manifest.write(self._directory.manifest)
        self._since_commit = 0

    def next_whole(self, file: LogFile, limit: int) -> tuple[int, bool]:
        """Return where the next whole record starts behind the end of *file*, and whether that is in another file."""
        files = self._source.files
        found = next_record(files, file.end + 1)
        if found is not None and found.physical_offset < limit:
            return found.physical_offset, False
        file_end = file.start + self._manifest.file_size
        if file_end in files.starts and record_at(files, file_end) is not None:
            return file_end, True
        raise CorruptFileError(f"no record at {file.end}, where there was one", str(files.path_of(file.start)))

    def note_damage(self, start: int, end: int, status: DecodeStatus) -> None:
        """Remember a damaged range of the source, and say so."""
        file_start = self._source.files.start_of(start)
        logger.error("damaged in the store path=%s position=%d size=%d reason=%s",
                     self._source.files.path_of(file_start), start - file_start, end - start, status.name)  # fmt: skip
        self.damaged.append((start, end))
        self._manifest.damaged.append((start, end))

    def path_of(self, file: LogFile) -> Path:
        """Return where the store has *file*."""
        return self._source.files.path_of(file.start)

    def note_done(self, size: int) -> None:
        """Count *size* bytes that were written."""
        self.copied.byte_count += size
        self._since_commit += size
        self._on_progress(self.copied.byte_count, self._total)
        self._pace.spend(size)

    def chunk_size(self) -> int:
        return self._pace.chunk_size()


class _FileCopy:
    """One file on its way."""

    def __init__(self, copier: LogCopier, reading: Reading, writing: Writing, file: LogFile) -> None:
        self._copier = copier
        self._reading = reading
        self._writing = writing
        self._file = file
        self._buffer = memoryview(bytearray(copier.chunk_size()))

    def run(self, limit: int) -> None:
        file = self._file
        while file.end < limit and not file.is_closed:
            size = self._read(min(len(self._buffer), limit - file.end))
            if size == 0:
                raise CorruptFileError(
                    f"file ends at {file.size}, with records behind it", str(self._copier.path_of(file))
                )
            outcome = scan_records(self._buffer[:size], file.end, True)
            if outcome.valid_size and file.first_timestamp == 0:
                file.first_timestamp = read_store_timestamp(self._buffer[:size], file.end)
            self._take(outcome.valid_size)
            self._copier.copied.record_count += outcome.record_count
            file.last_timestamp = max(file.last_timestamp, outcome.store_timestamp_max)
            if outcome.status == DecodeStatus.BLANK:
                self._take_filler()
            elif outcome.status != DecodeStatus.OK and not self._is_cut(
                outcome.status, size, outcome.valid_size, limit
            ):
                self._take_damage(limit, outcome.status)

    def _read(self, size: int) -> int:
        """Fill the buffer; less than *size* only if the file has been cut short."""
        return self._reading.read(self._buffer[:size], self._file.size)

    def _is_cut(self, status: DecodeStatus, size: int, valid_size: int, limit: int) -> bool:
        """Whether a record was not read to its end, of which there is more in the file; makes room for a large one."""
        if status != DecodeStatus.SHORT or self._file.end + size - valid_size >= limit:
            return False
        if valid_size:
            return True
        wanted = BLANK_RECORD.struct.unpack_from(self._buffer)[0] if size >= BLANK_RECORD.size else 0
        if size < len(self._buffer) or not size < wanted <= limit - self._file.end:
            return False
        self._buffer = memoryview(bytearray(wanted))
        return True

    def _take(self, size: int, at: int = 0) -> None:
        """Write *size* bytes of the buffer, and count them into the checksums."""
        data = self._buffer[at : at + size]
        self._writing.write(data)
        add_to_cells(self._file, data)
        self._copier.note_done(size)

    def _take_filler(self) -> None:
        self._read(BLANK_RECORD.size)
        self._take(BLANK_RECORD.size)
        self._file.is_closed = True

    def _take_damage(self, limit: int, status: DecodeStatus) -> None:
        """Copy what is no record up to the next one, as it is."""
        start = self._file.end
        end, is_next_file = self._copier.next_whole(self._file, limit)
        self._copier.note_damage(start, end, status)
        while self._file.end < end:
            size = self._read(min(len(self._buffer), end - self._file.end))
            if size == 0:
                raise CorruptFileError(f"file ends at {self._file.size}", str(self._copier.path_of(self._file)))
            self._take(size)
        self._file.is_closed = is_next_file


def add_to_cells(file: LogFile, data: memoryview) -> None:
    """Let *file* grow by *data*: its size, and the checksums."""
    while len(data):
        room = CELL_SIZE - file.size % CELL_SIZE
        part, data = data[:room], data[room:]
        if file.size % CELL_SIZE == 0:
            file.cells.append(0)
        file.cells[-1] = zlib.crc32(part, file.cells[-1])
        file.size += len(part)
