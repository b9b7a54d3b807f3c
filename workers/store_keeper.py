"""Housekeeping of the store: consume queues and checkpoint onto the disk, disk space, what has expired deleted."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mqcore import layout
from mqcore._fast.segment.boards import SharedSegment
from mqcore.config import SettingValues
from mqcore.files import (
    SYNCED_ONE_BY_ONE_MAX,
    can_sync_file_systems,
    sync_content,
    sync_directory,
    sync_file_system,
)
from mqcore.store.checkpoint import Checkpoint
from mqcore.store.codec import survey_topic
from mqcore.store.disk import DiskVerdict, disk_used_ratio, judge_disk
from mqcore.store.failover_files import FailoverFiles
from mqcore.store.geometry import StoreGeometry
from mqcore.store.log.mapped_file_queue import MappedFileQueue
from mqcore.store.paths import StorePaths, file_name
from mqcore.store.queue_survey import topic_directories
from mqcore.store.queues.consume_queue import ConsumeQueue
from mqcore.store.queues.index_service import IndexService
from mqcore.store.reader_files import list_files
from mqcore.store.retention import (
    FileAge,
    RetentionPolicy,
    clean_consume_queues,
    clean_index,
    delete_commit_log_files,
    file_ages,
    files_to_delete,
)

logger = logging.getLogger(__name__)

KIND = layout.constants("WorkerKind")
STORE_FLAG = layout.constants("StoreFlag")
UNIT_SIZE = layout.CONSUME_QUEUE_UNIT.size
TICK_S = 0.5
DISK_CHECK_S = 10.0
FIRST_CLEANING_S = 60.0
HOUR_MS = 3_600_000
MANUAL_ROUNDS = 20
FIRST_FILE_DEADLINE_S = 1.0
FIRST_FILE_LOOK_S = 0.002
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class KeepingRules:
    """When the keeper does what, and what may go; replaced as a whole when the settings change."""

    policy: RetentionPolicy
    used_ratio_max: float
    least_pages: int
    flush_s: float
    thorough_s: float
    clean_s: float
    delete_pause_s: float

    @classmethod
    def of(cls, settings: SettingValues) -> KeepingRules:
        store = settings.store
        return cls(
            policy=RetentionPolicy(
                reserved_ms=store.file_reserved_time_hours * HOUR_MS,
                delete_hours=store.delete_hours,
                clean_forcibly=store.clean_file_forcibly_enable,
            ),
            used_ratio_max=store.disk_max_used_space_ratio_percent / 100,
            least_pages=store.flush_consume_queue_least_pages,
            flush_s=store.flush_interval_consume_queue_ms / 1000,
            thorough_s=store.flush_consume_queue_thorough_interval_ms / 1000,
            clean_s=store.clean_resource_interval_ms / 1000,
            delete_pause_s=store.delete_commit_log_files_interval_ms / 1000,
        )


class StoreKeeper:
    """One thread drives it; another may call ``use``."""

    def __init__(self, settings: SettingValues, segment: SharedSegment) -> None:
        store = settings.store
        self._segment = segment
        self._paths = StorePaths.of(settings.store)
        self._geometry = StoreGeometry.of(settings.store)
        self._commit_log = MappedFileQueue(self._paths.log, self._geometry.commit_log_file_size)
        self._rules = KeepingRules.of(settings)
        now = time.monotonic()
        # What was done when, not what is due when: an interval that is changed counts from the last time.
        self._flushed_at = now
        self._thorough_at = now
        self._disk_at = now
        self._cleaned_at = now + FIRST_CLEANING_S - self._rules.clean_s
        self._group_files = FailoverFiles(self._paths) if settings.failover.is_group else None
        self._stop = threading.Event()
        self._delete_orders = segment.get("delete_orders")
        self._manual_rounds = 0
        self._has_ext = store.enable_consume_queue_ext
        self._ext_flushed: dict[int, int] = {}  # by queue row: the newest ext file that was synced

    def run(self, stop: threading.Event) -> None:
        """Keep house until *stop* is set."""
        self._stop = stop
        while not stop.wait(TICK_S):
            self.tick(time.monotonic())

    def use(self, settings: SettingValues) -> None:
        """Go by *settings*, as far as they may change."""
        self._rules = KeepingRules.of(settings)

    def tick(self, now: float) -> None:
        """Do what is due at *now* (monotonic seconds)."""
        rules = self._rules
        if now >= self._flushed_at + rules.flush_s:
            is_thorough = now >= self._thorough_at + rules.thorough_s
            self._flushed_at = now
            if is_thorough:
                self._thorough_at = now
            self._flush_queues(0 if is_thorough else rules.least_pages, is_thorough)
        if now >= self._disk_at:
            self._disk_at = now + DISK_CHECK_S
            self._watch_disk()
        orders = self._segment.get("delete_orders")
        if orders != self._delete_orders:
            self._delete_orders = orders
            self._manual_rounds = MANUAL_ROUNDS
            self._cleaned_at = now - rules.clean_s
        if now >= self._cleaned_at + rules.clean_s:
            self._cleaned_at = now
            self._clean()

    def flush_all(self) -> None:
        """Everything that is dispatched onto the disk, and the checkpoint that says so."""
        self._flush_queues(0, True)

    # Consume queues and checkpoint ------------------------------------------------------------------------------

    def _flush_queues(self, least_pages: int, is_thorough: bool) -> None:
        # The time before the flush: it never claims more than was flushed.
        logics_timestamp = self._segment.get("dispatched_timestamp")
        try:
            are_all_filed = self._flush_rows(self._segment.unflushed_queues(least_pages))
            if is_thorough and are_all_filed:
                self._write_checkpoint(logics_timestamp)
        except OSError as error:
            self._segment.fail(
                STORE_FLAG["SYNC_FAILED"] | STORE_FLAG["NOT_WRITABLE"], error.errno or 0, KIND["FLUSH"],
                self._segment.get("dispatched_offset"),
            )  # fmt: skip
            logger.error("sync of a consume queue or the checkpoint failed, the store is read-only error=%s", error)

    def _wait_for_files(self, rows: Sequence[int]) -> None:
        """Wait a while until new queues have their first files; until then their units are in memory alone."""
        deadline = time.monotonic() + FIRST_FILE_DEADLINE_S
        while any(map(self._is_young, rows)) and time.monotonic() < deadline:
            if self._stop.wait(FIRST_FILE_LOOK_S):
                return

    def _is_young(self, row: int) -> bool:
        return self._segment.queue_word(row, "cradle") != 0

    def _flush_rows(self, rows: Sequence[int]) -> bool:
        """Make the units of queues durable, with the names of their files, and say how far.

        False if new queues were left out, since their first files cannot be made in time.
        """
        self._wait_for_files(rows)
        # The birth first: should the queue be dropped meanwhile, what is synced is of the old one. The cradle last:
        # without one, what the bounds have said is in files.
        known = [(row, self._segment.queue_births(row)[0], self._segment.queue_bounds(row)[1]) for row in rows]
        found = [row for row in known if not self._is_young(row[0])]
        rows = [row for row, _, _ in found]
        if len(found) <= SYNCED_ONE_BY_ONE_MAX or not self._sync_at_once(rows):
            directories: dict[Path, None] = {}
            for row, _, end in found:
                directories.update(dict.fromkeys(self._flush_queue(row, end)))
            for directory in directories:
                sync_existing_directory(directory)
        for row, born, end in found:
            self._segment.flush_queue(row, born, end)
        if len(found) < len(known):
            logger.warning("new queues have no files yet, the checkpoint stays queues=%d", len(known) - len(found))
        return len(found) == len(known)

    def _sync_at_once(self, rows: Sequence[int]) -> bool:
        """Sync the file systems of the queues' files as a whole; False if that cannot be done."""
        if not can_sync_file_systems():
            return False
        size = self._geometry.consume_queue_file_size
        for row in rows:
            topic, queue_id = self._segment.queue_key(row)
            end = self._segment.queue_bounds(row)[1] * UNIT_SIZE
            newest = self._paths.queue(topic.decode(), queue_id) / file_name(max(0, end - 1) // size * size)
            with contextlib.suppress(FileNotFoundError):
                witness = os.open(newest, os.O_RDWR | os.O_CLOEXEC)
                try:
                    if self._has_ext and self._paths.consume_queue_ext.exists():
                        sync_file_system(self._paths.consume_queue_ext, witness)
                    sync_file_system(self._paths.consume_queue, witness)
                finally:
                    os.close(witness)
                return True
        return False

    def _flush_queue(self, row: int, end: int) -> list[Path]:
        """Sync the files of one queue up to queue offset *end*; the directories that are to follow, lowest first."""
        topic, queue_id = self._segment.queue_key(row)
        at = self._segment.flushed_units(row)
        directory = self._paths.queue(topic.decode(), queue_id)
        size = self._geometry.consume_queue_file_size
        unnamed = self._flush_ext(row, topic.decode(), queue_id) if self._has_ext else []
        start = at * UNIT_SIZE - at * UNIT_SIZE % size
        while start < end * UNIT_SIZE:
            if sync_existing(directory / file_name(start)) and start >= at * UNIT_SIZE:
                unnamed += names_above(directory, at == 0)
            start += size
        return unnamed

    def _flush_ext(self, row: int, topic: str, queue_id: int) -> list[Path]:
        """Sync the ext files that may have grown, before the units that name their content; directories as above."""
        directory = self._paths.queue_ext(topic, queue_id)
        starts = sorted(start for start, _, _ in list_files(directory))
        flushed = self._ext_flushed.get(row, -1)
        if not starts or starts[-1] < flushed:  # the topic was dropped and made again
            flushed = -1
        for start in starts[bisect_left(starts, flushed) :]:
            sync_existing(directory / file_name(start))
        newest = self._ext_flushed[row] = starts[-1] if starts else -1
        return names_above(directory, flushed < 0) if newest > flushed else []

    def _write_checkpoint(self, logics_timestamp: int) -> None:
        times = Checkpoint.read(self._paths.checkpoint)
        # A board that has seen no message since the start knows less than the file.
        times.physic_timestamp = max(times.physic_timestamp, self._segment.get("flushed_timestamp"))
        times.logics_timestamp = max(times.logics_timestamp, logics_timestamp)
        times.index_timestamp = max(times.index_timestamp, self._segment.get("index_timestamp"))
        try:
            times.write(self._paths.checkpoint)
            if self._group_files is not None:
                self._group_files.write_confirmed(self._segment.get("confirmed_offset"))
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            # Only a new file needs room, and none is as true as an old one: the next start has more to check.
            logger.warning("checkpoint not written, the disk is full error=%s", error)

    # Disk and retention -----------------------------------------------------------------------------------------

    def _judge_disk(self) -> DiskVerdict:
        # Of several directories the emptiest counts, as upstream has it: the full ones get no new files.
        commit_log = min(self._paths.log.used_ratios())
        return judge_disk(commit_log, disk_used_ratio(self._paths.consume_queue), self._rules.used_ratio_max)

    def _watch_disk(self) -> None:
        is_full = self._judge_disk().full
        was_full = bool(self._segment.get("store_flags") & STORE_FLAG["DISK_FULL"])
        if is_full and not was_full:
            self._segment.set_flags(STORE_FLAG["DISK_FULL"])
            logger.error("disk full, messages are refused paths=%s", ",".join(map(str, self._paths.log.writable)))
        elif was_full and not is_full:
            self._segment.clear_flags(STORE_FLAG["DISK_FULL"])
            logger.info("disk has room again, messages are accepted")

    def _clean(self) -> None:
        manual = self._manual_rounds > 0
        self._manual_rounds = max(0, self._manual_rounds - 1)
        found = file_ages(self._commit_log, self._segment.get("min_offset"))
        ages = self._unless_waited_for([age for age in found if self._is_left_behind(age.start)])
        disk = self._judge_disk()
        starts = files_to_delete(
            ages, now_ms=time.time_ns() // 1_000_000, policy=self._rules.policy, disk=disk, manual=manual
        )
        if not (disk.clean_at_once and self._rules.policy.clean_forcibly):
            starts = self._not_wanted_by_slaves(starts)
        if not starts:
            return
        # The bound first: readers must not be sent to a file that is about to go.
        kept = max(starts[-1] + self._geometry.commit_log_file_size, self._segment.get("min_offset"))
        self._segment.set("min_offset", kept)
        delete_commit_log_files(self._commit_log, starts, self._pause_between_deletions)
        # The births first, as above.
        rows = {self._segment.queue_key(row): row for row in range(self._segment.queue_count())}
        births = {row: self._segment.queue_births(row)[0] for row in rows.values()}
        for (topic, queue_id), minimum in clean_consume_queues(self._expiring_queues(kept), kept).items():
            row = rows[(topic.encode(), queue_id)]
            self._segment.keep_queue(row, births[row], minimum)
        index = IndexService(self._paths.index, self._geometry.index)
        try:
            clean_index(index, kept)
        finally:
            index.close()

    def _not_wanted_by_slaves(self, starts: Sequence[int]) -> list[int]:
        """Leave out the files that a slave has not got yet; a disk that is nearly full does not wait for it."""
        wanted = self._segment.get("ha_wanted")
        size = self._geometry.commit_log_file_size
        return [start for start in starts if wanted == 0 or start + size <= wanted]

    def _pause_between_deletions(self) -> None:
        self._stop.wait(self._rules.delete_pause_s)

    def _is_left_behind(self, start: int) -> bool:
        # Neither what is not on disk yet, which is to be synced by name, nor files made ahead count as old. RocketMQ
        # deletes the former, too; here a sync that finds no file would end all writing.
        return start <= self._segment.get("flushed_offset")

    def _unless_waited_for(self, ages: list[FileAge]) -> list[FileAge]:
        """Leave out the files that hold messages which are to be delivered later, and those behind them.

        Whatever the disk asks for: they were accepted. The next to last may still go, as the last never does.
        """
        keeps = self._segment.get("timer_keeps")
        if keeps == 0:
            return ages
        size = self._geometry.commit_log_file_size
        free = [age for age in ages if age.start + size <= keeps]
        return [*free, *ages[len(free) : len(free) + 1]]

    def _expiring_queues(self, kept: int) -> Iterator[ConsumeQueue]:
        """Give the queues, one at a time, whose first unit by a glance is another than the board says."""
        sizes = self._geometry.consume_queue_file_size, self._geometry.ext_file_size
        for topic in topic_directories(self._paths):
            for queue_id, is_odd, minimum, _, _ in survey_topic(os.fsencode(topic), sizes[0], kept):
                row = self._segment.queue_row(topic.name.encode(), queue_id)
                if row < 0:
                    continue
                low, high = self._segment.queue_bounds(row)
                if high > 0 and (is_odd or minimum != low):
                    queue = ConsumeQueue(self._paths, topic.name, queue_id, *sizes)
                    yield queue
                    queue.close()


def names_above(directory: Path, is_new: bool) -> list[Path]:
    """Return the directories whose names a new file in that of a queue needs: a queue's first file needs them all."""
    return [directory, directory.parent, directory.parent.parent] if is_new else [directory]


def sync_existing_directory(path: Path) -> None:
    """Make the names in *path* durable, unless it was deleted meanwhile with its topic."""
    with contextlib.suppress(FileNotFoundError):
        sync_directory(path)


def sync_existing(path: Path) -> bool:
    """Make the content of *path* durable; False if it was deleted meanwhile, by retention or with its topic."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        sync_content(descriptor)
    finally:
        os.close(descriptor)
    return True
