"""Where a log is cut that is not restored whole: always behind a whole record."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from mqcore.errors import BackupError
from mqcore.store.backup.directory import BackupDirectory
from mqcore.store.backup.manifest import LogFile, Manifest
from mqcore.store.codec import decode_record, scan_records
from mqcore.store.log.record import DecodeStatus

STEP_SIZE: Final = 1 << 20


class Cut(NamedTuple):
    """The log ends before *end*; its newest record was stored at *last_timestamp*, ms."""

    end: int
    last_timestamp: int


def find_cut(directory: BackupDirectory, manifest: Manifest, until: int | None, until_offset: int | None) -> Cut:
    """Return where to cut for messages stored before *until*, ms, and records that end at *until_offset* or before.

    None: as far as the last backup goes that was completed. Raises BackupError if nothing is left, or if the backup
    does not go as far.
    """
    if not manifest.runs:
        raise BackupError(f"{directory.root} was never completed: its first run was broken off, go on with it")
    last = manifest.runs[-1]
    cut = Cut(last.end, last.last_timestamp)
    if until_offset is not None:
        if until_offset > last.end:
            raise BackupError(f"offset {until_offset} lies behind the end of the backup, {last.end}")
        cut = _cut_at_offset(directory, manifest, until_offset)
    if until is not None:
        cut = min(cut, _cut_at_time(directory, manifest, until, cut))
    if manifest.files and cut.end <= manifest.start:
        first = manifest.files[0]
        raise BackupError(
            f"nothing is left before that: the backup begins at offset {first.start}, stored at {first.first_timestamp}"
        )
    return cut


def _cut_at_offset(directory: BackupDirectory, manifest: Manifest, offset: int) -> Cut:
    newest = 0
    for file in manifest.files:
        if file.end > offset:
            if file.start >= offset:
                break
            end = file.start
            with _whole_runs(directory, file, manifest.damaged) as runs:
                for start, run in runs:
                    if start >= offset:
                        break
                    found = scan_records(run[: offset - start], start, False)
                    newest = max(newest, found.store_timestamp_max)
                    end = start + found.valid_size
            return Cut(end, newest)
        newest = max(newest, file.last_timestamp)
    return Cut(offset, newest)


def _cut_at_time(directory: BackupDirectory, manifest: Manifest, until: int, whole: Cut) -> Cut:
    newest = 0
    for file in manifest.files:
        if file.last_timestamp >= until:
            with _whole_runs(directory, file, manifest.damaged) as runs:
                for start, run in runs:
                    at, newest = _first_at(run, start, until, newest)
                    if at < len(run):
                        return Cut(start + at, newest)
        newest = max(newest, file.last_timestamp)
    return whole


def _first_at(run: memoryview, start: int, until: int, newest: int) -> tuple[int, int]:
    """Return where in *run* the first record lies that was stored at *until* or later, and the newest time before."""
    at, size = 0, STEP_SIZE
    while at < len(run):
        found = scan_records(run[at : at + size], start + at, False)
        if found.valid_size == 0:
            size *= 2  # a large record
            continue
        if found.store_timestamp_max < until:
            newest = max(newest, found.store_timestamp_max)
            at, size = at + found.valid_size, STEP_SIZE
            continue
        record = decode_record(run[at:], start + at, check_crc=False)
        while record.store_timestamp < until:
            newest = max(newest, record.store_timestamp)
            at += record.total_size
            record = decode_record(run[at:], start + at, check_crc=False)
        break
    return at, newest


@contextmanager
def _whole_runs(
    directory: BackupDirectory, file: LogFile, damaged: list[tuple[int, int]]
) -> Iterator[Iterator[tuple[int, memoryview]]]:
    """Give the runs of whole records of a file, between what is damaged: physical offset and bytes."""
    directory.check_size(file)
    descriptor = os.open(directory.log_file(file.start), os.O_RDONLY | os.O_CLOEXEC)
    try:
        mapping = mmap.mmap(descriptor, file.size, mmap.MAP_SHARED, mmap.PROT_READ)
    finally:
        os.close(descriptor)
    # Closed with the last view of it.
    yield _runs(memoryview(mapping), file, dict(damaged))


def _runs(view: memoryview, file: LogFile, damaged: dict[int, int]) -> Iterator[tuple[int, memoryview]]:
    at = 0
    while at < len(view):
        found = scan_records(view[at:], file.start + at, False)
        if found.valid_size:
            yield file.start + at, view[at : at + found.valid_size]
        at += found.valid_size
        if found.status in (DecodeStatus.OK, DecodeStatus.BLANK):
            return
        after = damaged.get(file.start + at)
        if after is None:
            raise BackupError(f"{file.start + at}: no record in the backup, which was whole; check it with --verify")
        at = after - file.start
