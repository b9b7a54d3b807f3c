"""What may be deleted, and the deleting: commit log files by age or need, consume queues and index by what is left.

The decision is a pure function of file ages, the clock and the disk. Source: RocketMQ store/DefaultMessageStore.java
(CleanCommitLogService, CleanConsumeQueueService).
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mqcore.store.disk import DiskVerdict
from mqcore.store.log.mapped_file_queue import MappedFileQueue
from mqcore.store.queues.consume_queue import ConsumeQueue
from mqcore.store.queues.index_service import IndexService

DELETED_PER_ROUND_MAX = 10
NOT_ALLOWED = (errno.EROFS, errno.EACCES, errno.EPERM)
HOUR_MS = 3_600_000

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """fileReservedTime in ms, deleteWhen as hours, and cleanFileForciblyEnable."""

    reserved_ms: int = 72 * HOUR_MS
    delete_hours: frozenset[int] = frozenset({4})
    clean_forcibly: bool = True


@dataclass(frozen=True, slots=True)
class FileAge:
    """A commit log file: its start, and when it was last modified, ms."""

    start: int
    modified_ms: int


def files_to_delete(
    ages: Sequence[FileAge], *, now_ms: int, policy: RetentionPolicy, disk: DiskVerdict, manual: bool
) -> list[int]:
    """Return the starts of the commit log files to delete now, oldest first, at most ten and never the last.

    Files go when it is the hour, when the disk asks for it, or on a manual request: expired ones, and with a disk
    nearly full any. The first file that stays ends the round.
    """
    hour = time.localtime(now_ms / 1000).tm_hour
    if not (hour in policy.delete_hours or disk.clean or manual):
        return []
    at_once = disk.clean_at_once and policy.clean_forcibly
    chosen = []
    for age in ages[:-1][:DELETED_PER_ROUND_MAX]:
        if not at_once and now_ms < age.modified_ms + policy.reserved_ms:
            break
        chosen.append(age.start)
    return chosen


def file_ages(files: MappedFileQueue, commit_log_min: int | None = None) -> list[FileAge]:
    """Return the age of each file of a commit log, oldest first, up to the first that is missing.

    *commit_log_min*, if known, is in the first file or behind it, unless that one is missing. If the directory of a
    file is out of reach, the files behind it must stay: deleting them would leave a gap when it comes back.
    """
    files.refresh()
    ages: list[FileAge] = []
    expected = files.min_offset
    if commit_log_min is not None:
        expected = min(expected, commit_log_min - commit_log_min % files.file_size)
    for start in files.starts:
        if start != expected:
            break
        try:
            ages.append(FileAge(start, files.path_of(start).stat().st_mtime_ns // 1_000_000))
        except FileNotFoundError:
            break
        expected = start + files.file_size
    return ages


def delete_commit_log_files(
    files: MappedFileQueue, starts: Iterable[int], pause: Callable[[], object] = lambda: None
) -> int:
    """Delete the files that start at *starts*, in that order, durably; returns the new min offset of the log.

    *pause* is called between two deletions: giving back the blocks of a large file keeps a disk busy.

    One that cannot be deleted, in a directory that is mounted read-only, say, ends it with a warning: a log has no gap.
    """
    for index, start in enumerate(starts):
        if index > 0:
            pause()
        assert files.starts[0] == start < files.starts[-1], "a log loses its oldest file, and keeps one"
        path = files.path_of(start)
        try:
            files.delete(start)
        except OSError as error:
            if error.errno not in NOT_ALLOWED:
                raise
            logger.warning("commit log file cannot be deleted path=%s error=%s", path, error)
            break
        logger.info("commit log file deleted path=%s", path)
    return files.min_offset


def clean_consume_queues(queues: Iterable[ConsumeQueue], commit_log_min: int) -> dict[tuple[str, int], int]:
    """Delete consume queue files whose records are gone; returns the new min queue offset of each queue."""
    bounds = {}
    for queue in queues:
        queue.files.refresh()
        deleted = queue.delete_expired(commit_log_min)
        if deleted:
            logger.info("consume queue files deleted queue=%s/%d count=%d", queue.topic, queue.queue_id, deleted)
        minimum = queue.find_min_offset(commit_log_min)
        bounds[(queue.topic, queue.queue_id)] = minimum
        deleted = queue.delete_expired_ext(minimum)
        if deleted:
            logger.info("ext files deleted queue=%s/%d count=%d", queue.topic, queue.queue_id, deleted)
    return bounds


def clean_index(index: IndexService, commit_log_min: int) -> int:
    """Delete index files whose records are gone, never the newest; returns how many."""
    deleted = index.delete_expired(commit_log_min)
    if deleted:
        logger.info("index files deleted count=%d", deleted)
    return deleted
