"""Bringing a store back: where the commit log ends, and consume queues and index to match it.

A store that was stopped cleanly is checked from its third-last file on. After a crash (the file ``abort`` is there) the
checkpoint says up to which store time everything was on disk; from the file that holds that time on, the log is checked
and consume queues and index are built anew.

Every step is durable before the next one destroys what it was made from: consume queues are cut before they are built,
and the log's tail is cut last, so that a crash in the middle leaves a store from which recovery comes to the same
result. Source: RocketMQ store/DefaultMessageStore.java (load, recover), CommitLog.java (recoverNormally,
recoverAbnormally).
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from mqcore.errors import CorruptRecordError, OffsetOutOfRangeError
from mqcore.files import bury_directory, sync_directory, sync_file, sync_files, zero_from
from mqcore.store.abort_file import AbortFile
from mqcore.store.checkpoint import Checkpoint
from mqcore.store.codec import Dispatcher
from mqcore.store.dispatched import Dispatched
from mqcore.store.geometry import StoreGeometry
from mqcore.store.incarnations import Incarnations, QueueKey
from mqcore.store.log.commit_log import read_store_timestamp, timestamp_before
from mqcore.store.log.mapped_file_queue import MappedFileQueue, starts_blank
from mqcore.store.log.walk import OFFSET_MAX, LogWalk, LogWalker, check_nothing_missing, record_at
from mqcore.store.paths import StorePaths
from mqcore.store.queue_survey import cut, survey
from mqcore.store.queues.consume_queue import RECOVERED_FILES, ConsumeQueue, QueueState, list_queues
from mqcore.store.queues.dispatch import DispatchOutcome
from mqcore.store.queues.index_service import IndexService
from mqcore.store.queues.units import Unit
from mqcore.store.watermarks import FixedWatermarks

logger = logging.getLogger(__name__)


class RecordDispatcher(Protocol):
    """What recovery needs of a dispatcher."""

    fill_gaps: bool

    def bear(self, topic: bytes, queue_id: int, physical_offset: int) -> None: ...
    def dispatch(self, buffer: memoryview, physical_offset: int) -> DispatchOutcome: ...
    def flush(self) -> int: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryResult:
    """A store at rest: everything before *commit_log_end* is whole and on disk."""

    after_crash: bool
    commit_log_min: int
    commit_log_end: int
    store_timestamp: int
    queues: tuple[QueueState, ...]
    checkpoint: Checkpoint
    incarnations: Incarnations
    readable_end: int
    """Up to here the log is in consume queues and index: all of it, unless its group has not confirmed the rest."""
    walked_from: int = 0
    record_count: int = 0
    damaged: tuple[tuple[int, int], ...] = field(default=())

    def watermarks(self) -> FixedWatermarks:
        """Return the bounds for a reader, as long as nobody writes."""
        bounds = {(queue.topic, queue.queue_id): (queue.min_offset, queue.max_offset) for queue in self.queues}
        births = {birth.key: birth.born for birth in self.incarnations}
        return FixedWatermarks(self.commit_log_min, self.readable_end, bounds, births)


class Recovery:
    """One recovery of the store in *paths*; the caller holds its lock file and nothing else has it open."""

    def __init__(
        self,
        paths: StorePaths,
        geometry: StoreGeometry,
        *,
        check_crc: bool = True,
        index_safe: bool = False,
        make_dispatcher: Callable[[StorePaths, StoreGeometry], RecordDispatcher] = Dispatcher,
        confirmed: int | None = None,
    ) -> None:
        """*check_crc* is checkCRCOnRecover, *index_safe* messageIndexSafe.

        In a failover group what lies behind *confirmed* is not put into consume queues, and is taken out of them.
        """
        self.paths = paths
        self.geometry = geometry
        self.check_crc = check_crc
        self.index_safe = index_safe
        self._make_dispatcher = make_dispatcher
        self._confirmed = OFFSET_MAX if confirmed is None else confirmed
        self._log = MappedFileQueue(paths.log, geometry.commit_log_file_size)
        self._index = IndexService(paths.index, geometry.index)
        self._checkpoint = Checkpoint()
        self._incarnations = Incarnations(paths.incarnations)
        self._births: Mapping[QueueKey, int] = {}
        self._states: tuple[QueueState, ...] | None = None

    def run(self) -> RecoveryResult:
        """Recover, and return what the store now holds.

        Raises CorruptFileError for a directory that no broker may start on, OSError and StoreError when the disk fails.
        After either the store may be recovered again.
        """
        self.paths.make_directories()
        after_crash = AbortFile(self.paths.abort).exists()
        self._log.load()
        # Before anything changes: a directory that no broker may start on ends it here.
        self._survey()
        if self.geometry.ext_enabled:
            for queue in self._queues_with_ext():
                queue.ext.files.load()
        self._incarnations = Incarnations.read(self.paths.incarnations)
        self._know_births()
        self._finish_drops()
        self._checkpoint = Checkpoint.read(self.paths.checkpoint)
        self._index.load(after_crash, self._checkpoint.index_timestamp)
        start = self._start_after_crash() if after_crash else self._start_after_stop()
        logger.info("recovery begins after_crash=%s from=%d", after_crash, start)
        if not self._log.starts:
            walk = self._recover_without_log()
        else:
            walk = self._recover_after_crash(start) if after_crash else self._recover_after_stop(start)
        self._incarnations.settle(self._log, walk.end)
        self._know_births()
        result = RecoveryResult(
            after_crash=after_crash,
            commit_log_min=self._log.min_offset,
            commit_log_end=walk.end,
            store_timestamp=walk.store_timestamp_max,
            queues=self._survey(),
            checkpoint=self._checkpoint,
            incarnations=self._incarnations,
            readable_end=min(walk.end, self._confirmed),
            walked_from=start,
            record_count=walk.record_count,
            damaged=tuple(walk.damaged),
        )
        logger.info("recovery done end=%d queues=%d records=%d", walk.end, len(result.queues), walk.record_count)
        self._log.close()
        self._index.close()
        return result

    def _know_births(self) -> None:
        before, self._births = self._births, self._incarnations.view(self._log)
        if before or self._births:
            self._states = None

    def _finish_drops(self) -> None:
        """Remove the files of queues that were being dropped when the broker ended: all their records are older.

        Files that have newer records too were built by a broker that knows no births. They stay, and the queue begins
        behind the older ones.
        """
        for (topic, queue_id), born in self._births.items():
            queue = ConsumeQueue(
                self.paths, topic, queue_id, self.geometry.consume_queue_file_size, self.geometry.ext_file_size
            )
            max_physical = queue.recover(0).max_physical
            queue.close()
            if 0 <= max_physical <= born:
                logger.warning("files of a dropped queue removed queue=%s/%d born=%d", topic, queue_id, born)
                for directory in (self.paths.queue(topic, queue_id), self.paths.queue_ext(topic, queue_id)):
                    grave = bury_directory(directory, self.paths.root)
                    if grave is not None:
                        shutil.rmtree(grave)

    # Where to begin

    def _start_after_stop(self) -> int:
        return self._log.starts[-RECOVERED_FILES:][0] if self._log.starts else 0

    def _start_after_crash(self) -> int:
        """Return the start of the newest file whose first record is older than what is known to be on disk."""
        checkpoint = self._checkpoint
        index_counts = self.geometry.index_enabled and self.index_safe
        limit = checkpoint.min_timestamp_with_index if index_counts else checkpoint.min_timestamp
        for start in reversed(self._log.starts):
            try:
                timestamp = read_store_timestamp(self._log.file_view(start)[1], start)
            except CorruptRecordError:
                continue  # made ahead of need, or damaged
            if 0 < timestamp <= limit:
                return start
        return self._log.min_offset

    # The three ways

    def _recover_without_log(self) -> LogWalk:
        self._states = None
        for queue in self._queues():
            logger.warning("no commit log: consume queue deleted queue=%s/%d", queue.topic, queue.queue_id)
            queue.delete_all()
        self._index.clamp(0)
        return LogWalk(end=0)

    def _recover_after_stop(self, start: int) -> LogWalk:
        walk = self._walk(start)
        known_end = max((queue.max_physical for queue in self._survey()), default=-1)
        check_nothing_missing(self._log, walk, self._checkpoint.physic_timestamp, known_end)
        end = min(walk.end, self._confirmed)
        if known_end > end:
            logger.warning("consume queues go on behind the commit log end=%d known_end=%d", end, known_end)
            self._lower_checkpoint(end)
            self._truncate_queues(end)
        for queue in self._queues_with_ext():
            queue.cut_ext()
        self._cut_log(walk.end)
        self._index.clamp(end)
        dispatched = max(known_end, self._log.min_offset)
        was_dispatched = Dispatched.read(self.paths.dispatched) == Dispatched(end, max(0, known_end))
        if dispatched < end and not was_dispatched:
            self._catch_up(dispatched, end)
        return walk

    def _recover_after_crash(self, start: int) -> LogWalk:
        # Whatever the units from here on say, they may be torn, or from before an earlier crash: they are made anew.
        self._truncate_queues(min(start, self._confirmed), self._is_record)
        for queue in self._queues_with_ext():
            queue.cut_ext()
        dispatcher = self._open_dispatcher()
        try:
            walk = self._walk(start, dispatcher)
            dispatcher.flush()
        finally:
            dispatcher.close()
        check_nothing_missing(self._log, walk, self._checkpoint.physic_timestamp)
        self._cut_log(walk.end)
        self._index.clamp(min(walk.end, self._confirmed))
        if walk.record_count:
            self._checkpoint.physic_timestamp = walk.store_timestamp_max
            self._checkpoint.logics_timestamp = walk.store_timestamp_max
        if self._confirmed < walk.end:
            self._checkpoint.logics_timestamp = timestamp_before(self._log, self._confirmed)
        self._checkpoint.write(self.paths.checkpoint)
        return walk

    def _lower_checkpoint(self, end: int) -> None:
        """Let a start after a crash build the units of records from *end* on, should they not be there by then."""
        if self._confirmed == end:
            self._checkpoint.logics_timestamp = timestamp_before(self._log, end)
            self._checkpoint.write(self.paths.checkpoint)

    def _catch_up(self, start: int, end: int) -> None:
        """Dispatch what the consume queues lack although the broker was stopped cleanly (a directory was removed, say).

        Until that is on disk the store counts as crashed, and the checkpoint goes back to where it begins.
        """
        logger.warning("consume queues are behind the commit log from=%d to=%d", start, end)
        known = replace(self._checkpoint)
        first = record_at(self._log, start)
        self._checkpoint.logics_timestamp = first.store_timestamp if first is not None else 0
        self._checkpoint.write(self.paths.checkpoint)
        AbortFile(self.paths.abort).create()
        self._states = None
        dispatcher = self._open_dispatcher()
        try:
            self._walk(start, dispatcher, end)
            dispatcher.flush()
        finally:
            dispatcher.close()
        self._checkpoint = known
        self._checkpoint.write(self.paths.checkpoint)

    # Their parts

    def _open_dispatcher(self) -> RecordDispatcher:
        dispatcher = self._make_dispatcher(self.paths, self.geometry)
        dispatcher.fill_gaps = True
        for (topic, queue_id), born in self._births.items():
            dispatcher.bear(topic.encode(), queue_id, born)
        return dispatcher

    def _walk(self, start: int, dispatcher: RecordDispatcher | None = None, known_end: int | None = None) -> LogWalk:
        """Walk the log; up to *known_end*, if given, everything counts as known to be on disk."""

        def dispatch(records: memoryview, physical_offset: int) -> None:
            readable = records[: max(0, self._confirmed - physical_offset)]
            if dispatcher is not None and readable:
                outcome = dispatcher.dispatch(readable, physical_offset)
                if outcome.consumed != len(readable):
                    at = physical_offset + outcome.consumed
                    raise CorruptRecordError(f"record changed while it was recovered: {outcome.status.name}", at)

        walker = LogWalker(
            files=self._log,
            flushed_timestamp=self._checkpoint.physic_timestamp if known_end is None else OFFSET_MAX,
            check_crc=self.check_crc,
            on_records=dispatch,
        )
        walk = walker.walk(start, OFFSET_MAX if known_end is None else known_end)
        # After a crash of the broker alone the log may be in memory only; what is recovered is promised from here on.
        for file_start in self._log.starts:
            if self._log.start_of(start) <= file_start < walk.end:
                sync_file(self._log.path_of(file_start))
        for directory in self.paths.log.directories:
            if directory.is_dir():
                sync_directory(directory)
        return walk

    def _cut_log(self, end: int) -> None:
        """Let the log end at *end*, durably: zeros behind it in its file, and no later files.

        Zeros to the very end of the file: an old record behind *end* could meet the end of a later, shorter one, and
        the next recovery would take it for a new one.
        """
        for start in self._log.starts:
            if start <= end < start + self._log.file_size:
                cleared = zero_from(self._log.path_of(start), end - start)
                if cleared:
                    logger.warning("commit log cut path=%s end=%d cleared=%d", self._log.path_of(start), end, cleared)
        for start in reversed(self._log.starts):
            if start > end:
                if starts_blank(self._log.path_of(start)):
                    logger.info("commit log file removed that was only made ahead path=%s", self._log.path_of(start))
                else:
                    logger.warning("commit log file deleted path=%s end=%d", self._log.path_of(start), end)
                self._log.delete(start)

    def _is_record(self, unit: Unit) -> bool:
        """Whether *unit* points at a whole record, or at one that has expired."""
        if unit.physical_offset < self._log.min_offset:
            return True
        try:
            record = record_at(self._log, unit.physical_offset)
        except OffsetOutOfRangeError:
            return False
        return record is not None and record.total_size == unit.record_size

    # Consume queues: there may be hundreds of thousands

    def _survey(self) -> tuple[QueueState, ...]:
        """Return the bounds of all queues as they are now."""
        if self._states is None:
            self._states = tuple(survey(self.paths, self.geometry, self._log.min_offset, self._births))
        return self._states

    def _truncate_queues(self, end: int, is_record: Callable[[Unit], bool] | None = None) -> None:
        """Drop the units of records at *end* or behind it, durably; with *is_record* torn units before it, too."""
        self._states = None
        sync_files(cut(self.paths, self.geometry, end, is_record))

    def _queues(self) -> Iterator[ConsumeQueue]:
        return list_queues(self.paths, self.geometry.consume_queue_file_size, self.geometry.ext_file_size)

    def _queues_with_ext(self) -> Iterator[ConsumeQueue]:
        if not self.paths.consume_queue_ext.is_dir():
            return
        for queue in self._queues():
            if queue.ext.files.directories[0].is_dir():
                yield queue
