"""How far the commit log of a store can be read: what recovery would keep, found without changing anything.

Recovery after a clean stop looks at the last three files, after a crash (the file ``abort`` is there, as it is while a
broker runs) at everything from the file that the checkpoint vouches for; see ``recovery``. The same holds here, so that
a reader sees neither a record that a power cut has torn nor one behind it that recovery would drop.
"""

from __future__ import annotations

from dataclasses import dataclass

from mqcore.errors import CorruptRecordError
from mqcore.store.abort_file import AbortFile
from mqcore.store.checkpoint import Checkpoint
from mqcore.store.log.commit_log import read_store_timestamp
from mqcore.store.log.walk import OFFSET_MAX, LogWalker, check_nothing_missing
from mqcore.store.paths import StorePaths
from mqcore.store.queues.consume_queue import RECOVERED_FILES
from mqcore.store.reader_files import FoundFiles


@dataclass(frozen=True, slots=True)
class LogExtent:
    """The readable commit log, [start, end) in bytes; consume queues are known to be whole before *settled*.

    *store_timestamp*: the newest that was met, ms.
    """

    start: int
    end: int
    settled: int
    store_timestamp: int = 0


def find_extent(paths: StorePaths, files: FoundFiles, known: int = 0, newest: int = 0) -> LogExtent:
    """Return what can be read of *files*. Reads the last files whole; after a crash from the checkpoint's on.

    Before *known*, where a record ends, everything is known to be whole, and is not read; *newest* is a store time from
    there, ms. Without one, zeros behind the end are searched for records that were known to be on disk.

    Raises CorruptFileError if the end of the log is missing with all the files of one of its directories.
    """
    if not files.starts:
        return LogExtent(0, 0, 0)
    after_crash = AbortFile(paths.abort).exists()
    checkpoint = Checkpoint.read(paths.checkpoint)
    start = vouched_file(files, checkpoint.min_timestamp) if after_crash else files.starts[-RECOVERED_FILES:][0]
    # Recovery refuses a log with a gap; a reader takes what lies on both sides.
    start = max([start, *(end for _, end in files.gaps())])
    if start < known <= files.end_offset:
        start = known
    flushed = checkpoint.physic_timestamp
    if not after_crash and not paths.checkpoint.exists():
        # A copy of the commit log alone: whole records behind others that are not tell of damage, not of the log's end.
        flushed = OFFSET_MAX
    walk = LogWalker(files=files, flushed_timestamp=flushed).walk(start, newest=newest if start == known else 0)
    check_nothing_missing(files, walk, checkpoint.physic_timestamp)
    return LogExtent(files.min_offset, walk.end, start if after_crash else walk.end, walk.store_timestamp_max)


def first_store_timestamp(files: FoundFiles, start: int) -> int | None:
    """Return the store time of the first record of the file at *start*, ms; None if no record is there."""
    try:
        return read_store_timestamp(files.file_view(start)[1], start)
    except CorruptRecordError:
        return None


def vouched_file(files: FoundFiles, limit: int) -> int:
    """Return the start of the newest file that begins with a record stored at *limit* or before."""
    for start in reversed(files.starts):
        timestamp = first_store_timestamp(files, start)
        if timestamp is not None and 0 < timestamp <= limit:
            return start
    return files.min_offset
