"""Checking a whole store: log, consume queues, ext units, index, checkpoint, tables. Nothing is written or locked."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mqcore.delay_levels import DELAY_LEVELS_MS
from mqcore.errors import CorruptFileError
from mqcore.files import read_if_there
from mqcore.layout import CHECKPOINT_FILE_SIZE
from mqcore.store.checking.comparing import Comparing
from mqcore.store.checking.damage import Damage, DamageKind, DamageList
from mqcore.store.checking.index_files import IndexFileCheck, list_index_files, sum_index
from mqcore.store.checking.kernels import LogTally
from mqcore.store.checking.log_check import LogCheck, LogResult, OnProgress, Progress, put_together
from mqcore.store.checking.log_part import next_start
from mqcore.store.checking.queue_files import (
    LogBounds,
    QueueFiles,
    QueueKey,
    file_damage,
    list_queue_files,
    newest_record_end,
    sum_queue,
)
from mqcore.store.checking.state import StoreState, StoreUse, known_topics, look_at
from mqcore.store.failover_files import FailoverFiles
from mqcore.store.incarnations import Incarnations
from mqcore.store.log.places import is_file_name
from mqcore.store.queues.tally import OFFSET_MAX, Coverage
from mqcore.store.reader import StoreReader
from mqcore.store.reader_segments import Segment

PART_SIZE: Final = 64 << 20
PARTS_PER_THREAD: Final = 64
TRIES: Final = 10
PAUSE_S: Final = 0.3
"""A running broker may be behind with a unit or with the files of a new queue: they are waited for."""

PASSING_SUFFIXES: Final = (".making", ".tmp")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """How to check: threads, bytes a second (0: as fast as it goes), and the broker's delay levels."""

    jobs: int = 0
    max_rate: int = 0
    delay_levels_ms: tuple[int, ...] = DELAY_LEVELS_MS

    @property
    def threads(self) -> int:
        return self.jobs or len(os.sched_getaffinity(0))


@dataclass(slots=True)
class CheckReport:
    """What a check looked at and found. *notes* are what somebody should know and that is no damage."""

    state: StoreState
    log: LogResult
    damage: DamageList
    seconds: float = 0.0
    queue_count: int = 0
    unit_count: int = 0
    index_file_count: int = 0
    entry_count: int = 0
    read_bytes: int = 0
    notes: list[str] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        """Return what is printed; these names do not change."""
        return {
            "state": self.state.use.value,
            "startOffset": self.log.start,
            "endOffset": self.log.end,
            "messages": self.log.record_count,
            "consumeQueues": self.queue_count,
            "units": self.unit_count,
            "indexFiles": self.index_file_count,
            "indexEntries": self.entry_count,
            "readBytes": self.read_bytes,
            "seconds": round(self.seconds, 3),
            "damaged": self.damage.count,
            "damage": [one.record() for one in self.damage.kept],
            "notes": self.notes,
        }


def check_store(
    reader: StoreReader, options: CheckOptions, on_progress: OnProgress = lambda done, total: None
) -> CheckReport:
    """Look at everything that the files of a store say. Raises OSError if they cannot be read at all."""
    return StoreCheck(reader, options, on_progress).run()


class StoreCheck:
    """One check of the store that *reader* has found."""

    def __init__(self, reader: StoreReader, options: CheckOptions, on_progress: OnProgress) -> None:
        self.paths = reader.paths
        self.files = reader.files
        self._options = options
        self._on_progress = on_progress
        self._damage = DamageList()
        self._notes: list[str] = []
        self._births: dict[QueueKey, int] = {}
        self._queues: dict[QueueKey, QueueFiles] = {}
        self._indexes: list[IndexFileCheck] = []
        self._coverage: list[Coverage] = []
        self._unit_end = OFFSET_MAX

    def run(self) -> CheckReport:
        began = time.monotonic()
        self._read_births()
        self._state = look_at(self.paths, self.files)
        self._queues = list_queue_files(self.paths)
        self._open_indexes()
        self._find_unit_end()
        segments = self._plan()
        progress = Progress(sum(segment.size for segment in segments), self._options.max_rate, self._on_progress)
        self._check_listings()
        log_check = LogCheck(self.files, segments, self._state, self._make_tally, progress)
        parts = log_check.read(self._options.threads)
        self._log = put_together(parts, self.files, self._state, self._damage, log_check.gone_before)
        if self._log.behind:
            self._notes.append(
                f"{self._log.behind} bytes of records lie behind the end of the log, as a crash leaves them"
            )
        self._comparing = Comparing(self.files, self._log, self._make_quick_tally, self._damage)
        self._check_queues()
        self._check_index()
        self._check_checkpoint()
        return CheckReport(
            state=self._state, log=self._log, damage=self._damage, seconds=time.monotonic() - began,
            queue_count=len(self._queues), unit_count=sum(queue.unit_count for queue in self._queues.values()),
            index_file_count=len(self._indexes),
            entry_count=sum(max(0, index.entry_end - 1) for index in self._indexes),
            read_bytes=progress.done, notes=self._notes,
        )  # fmt: skip

    # What is there

    def _read_births(self) -> None:
        try:
            self._births = dict(Incarnations.read(self.paths.incarnations).view(self.files))
        except CorruptFileError as error:
            self._damage.add(Damage(DamageKind.TABLE, self.paths.incarnations, -1, str(error.args[0]), "whole entries"))

    def _open_indexes(self) -> None:
        damage: list[Damage] = []
        self._indexes = list_index_files(self.paths.index, damage)
        for one in damage:
            self._damage.add(one)
        if self._state.use is StoreUse.CRASHED:
            limit = self._state.checkpoint.index_timestamp
            young = [index for index in self._indexes if index.header.end_timestamp > limit]
            self._indexes = [index for index in self._indexes if index.header.end_timestamp <= limit]
            if young:
                self._notes.append(f"{len(young)} index files are not looked at: the next start builds them anew")
        self._coverage = [index.coverage for index in self._indexes]

    def _find_unit_end(self) -> None:
        """After a crash the units from some place on are built anew; in a store in use the newest may be missing."""
        if self._state.use is StoreUse.CRASHED:
            self._unit_end = self._state.recovered_from
        elif self._state.use is StoreUse.IN_USE:
            self._unit_end = max(map(newest_record_end, self._queues.values()), default=0)
        else:
            # In a failover group what is not confirmed has no units yet.
            confirmed = FailoverFiles(self.paths).read_confirmed()
            self._unit_end = OFFSET_MAX if confirmed is None else confirmed

    def _plan(self) -> list[Segment]:
        """Cut the log into parts that begin with a record, so that all threads have something to do."""
        size = self.files.file_size
        files = [Segment(start, start + size) for start in self.files.starts]
        if self._options.threads == 1:
            return files
        # Of each part a row of each of its queues is kept: of a large store few parts.
        part_size = max(PART_SIZE, size * len(files) // (self._options.threads * PARTS_PER_THREAD))
        return [part for file in files for part in self._split(file, part_size)]

    def _split(self, file: Segment, part_size: int) -> Iterator[Segment]:
        path = self.files.path_of(file.start)
        start = file.start
        while file.end - start > part_size:
            place = next_start(path, file, start + part_size)
            if place is None:
                break
            yield Segment(start, place)
            start = place
        yield Segment(start, file.end)

    def _check_listings(self) -> None:
        for damage in file_damage(self.files):
            self._damage.add(damage)
        for directory in self.files.directories:
            for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
                if entry.name.endswith(PASSING_SUFFIXES):
                    continue
                if not is_file_name(entry.name) or not entry.is_file():
                    found, wanted = entry.name, "files of the log alone"
                    self._damage.add(Damage(DamageKind.FOREIGN_FILE, Path(entry.path), -1, found, wanted))

    # Tallies

    def _make_tally(self) -> LogTally:
        return self._teach(LogTally(self._options.delay_levels_ms, self._unit_end, self._coverage, True))

    def _make_quick_tally(self) -> LogTally:
        return self._teach(LogTally(self._options.delay_levels_ms, self._unit_end, self._coverage, False))

    def _teach(self, tally: LogTally) -> LogTally:
        for (topic, queue_id), born in self._births.items():
            tally.bear(topic.encode(), queue_id, born)
        for topic, queue_id in self._listed_queues:
            tally.know(topic.encode(), queue_id)
        return tally

    @property
    def _listed_queues(self) -> Iterable[QueueKey]:
        """Queues that messages may list besides their own; light queues alone are looked for."""
        return [key for key in self._queues if key[0].startswith("%LMQ%")]

    # Consume queues

    def _check_queues(self) -> None:
        if not self.paths.consume_queue.is_dir():
            if self._log.record_count:
                self._notes.append("no consume queues: the next start of a broker builds them")
            return
        self._end = min(self._unit_end, self._log.end)
        bounds = LogBounds(self._log.start, self.files.file_size, self._log.start, max(self._log.start, self._end))
        with ThreadPoolExecutor(self._options.threads, thread_name_prefix="check") as pool:
            # List to raise what a thread has raised.
            list(pool.map(lambda queue: sum_queue(queue, bounds, self._damage.add), self._queues.values()))
        for _ in range(TRIES):
            if self._state.use is not StoreUse.IN_USE or not self._differing(quietly=True):
                break
            time.sleep(PAUSE_S)
            self._queues = list_queue_files(self.paths)
            for queue in self._queues.values():
                sum_queue(queue, bounds, self._damage.add)
        for file, queues in sorted(self._differing().items()):
            if self._is_there(file):
                self._comparing.compare_units(file, queues, self._end)
        if self._state.use is StoreUse.STOPPED:
            self._check_ends()

    def _is_there(self, file: int) -> bool:
        """Whether a file of the log has not expired since it was read."""
        return self._state.use is not StoreUse.IN_USE or self.files.path_of(file).exists()

    def _differing(self, *, quietly: bool = False) -> dict[int, list[QueueFiles]]:
        """Return the queues whose sums differ from the log's, by log file; says what has no directory."""
        found: dict[int, list[QueueFiles]] = {}
        topics = known_topics(self.paths.config)
        for key, records in self._log.queues.items():
            if records.sums and key not in self._queues:
                count = sum(count for count, _ in records.sums.values())
                if topics is not None and key[0] not in topics:
                    if not quietly:
                        self._notes.append(f"{count} messages of {key[0]}/{key[1]} are of a topic that was deleted")
                    continue
                found.setdefault(-1, [])
                if not quietly:
                    path, wanted = self.paths.queue(*key), f"the units of {count} messages"
                    self._damage.add(Damage(DamageKind.FILE_MISSING, path, -1, "no directory", wanted))
        for key, queue in self._queues.items():
            wanted_sums = self._log.queues[key].sums if key in self._log.queues else {}
            for file in {*wanted_sums, *queue.sums}:
                if queue.has_ext or wanted_sums.get(file) != queue.sums.get(file):
                    found.setdefault(file, []).append(queue)
        if not quietly:
            found.pop(-1, None)
        return found

    def _check_ends(self) -> None:
        """No unit of a store at rest leads behind the log."""
        for queue in self._queues.values():
            if queue.record_end > self._log.end and not self._log.is_damaged(self._log.end):
                self._comparing.name_behind(queue, self._log.end)

    # Index

    def _check_index(self) -> None:
        end = self._log.end
        bounds = LogBounds(self._log.start, self.files.file_size, self._log.start, end)
        is_still = self._state.use is not StoreUse.IN_USE
        with ThreadPoolExecutor(self._options.threads, thread_name_prefix="check") as pool:
            for damage in pool.map(lambda index: sum_index(index, bounds, is_still=is_still), self._indexes):
                for one in damage:
                    self._damage.add(one)
        totals: dict[int, tuple[int, int]] = {}
        for index in self._indexes:
            for file, (count, total) in index.sums.items():
                before = totals.get(file, (0, 0))
                totals[file] = (before[0] + count, (before[1] + total) & ((1 << 64) - 1))
        missing = stale = 0
        odd = self._comparing.bounds_differ(self._indexes, is_still=is_still)
        for file in sorted({*totals, *self._log.key_sums, *odd}):
            if (file in odd or totals.get(file) != self._log.key_sums.get(file)) and self._is_there(file):
                found = self._comparing.compare_keys(file, self._indexes, self._coverage, end)
                missing, stale = missing + found[0], stale + found[1]
        if missing:
            self._notes.append(f"{missing} keys have no entry in the index")
        if stale:
            self._notes.append(
                f"{stale} index entries are of records that a crash or a cut took off the end of the log"
            )

    # Checkpoint

    def _check_checkpoint(self) -> None:
        path = self.paths.checkpoint
        size = len(read_if_there(path))
        if not self._state.has_checkpoint:
            if self._log.record_count and self.paths.consume_queue.is_dir():
                self._notes.append("no checkpoint: after a crash all is built anew")
            return
        if size != CHECKPOINT_FILE_SIZE:
            self._damage.add(Damage(DamageKind.CHECKPOINT, path, -1, f"{size} bytes", f"{CHECKPOINT_FILE_SIZE}"))
            return
        checkpoint = self._state.checkpoint
        newest = self._log.newest_timestamp
        for position, (name, value) in enumerate(
            (("physic", checkpoint.physic_timestamp), ("logics", checkpoint.logics_timestamp))
        ):
            if value > newest:
                found = f"{name} timestamp {value}"
                wanted = f"at most {newest}, the time of the log's newest record"
                self._damage.add(Damage(DamageKind.CHECKPOINT, path, 8 * position, found, wanted))
