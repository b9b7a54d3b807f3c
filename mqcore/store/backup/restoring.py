"""Making a store from a backup: the log, its tables, and what a broker needs to build the rest when it starts.

Consume queues and index are made from the log by the broker's own recovery, with its own settings: the store looks like
one after a crash with an empty checkpoint. Everything lies under other names until it is whole.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mqcore.delay_levels import DELAY_LEVELS_MS
from mqcore.errors import BackupError, CorruptFileError
from mqcore.files import make_directory, reserve_blocks, sync_directory, sync_file, write_atomically
from mqcore.protocol.names import SCHEDULE_TOPIC
from mqcore.store.abort_file import AbortFile
from mqcore.store.backup.checking import read_cells
from mqcore.store.backup.counting import LogCounter
from mqcore.store.backup.cut import Cut, find_cut
from mqcore.store.backup.directory import BackupDirectory
from mqcore.store.backup.log_copy import OnProgress
from mqcore.store.backup.making import check_apart
from mqcore.store.backup.manifest import LogFile, Manifest, OldQueue, Run
from mqcore.store.backup.old_queues import write_old_queue
from mqcore.store.backup.positions import Places, Positions, fit
from mqcore.store.backup.streams import Pace, Writing
from mqcore.store.checkpoint import Checkpoint
from mqcore.store.codec import QueueEnds
from mqcore.store.incarnations import Birth, QueueKey
from mqcore.store.log.queue_ends import QueueEnd
from mqcore.store.paths import StorePaths, file_name

WORK_NAME: Final = ".restoring"
DELAYS_LATE_MS: Final = 600_000
"""Delayed messages that were due so long before the end of a cut log, or later, are delivered again."""

PARTS: Final = ("consumequeue", "mqcore", "config", "checkpoint", "abort")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOptions:
    """*until*: messages stored before, ms. *take_damaged*: what differs from its checksum is taken as it is.

    *delay_levels_ms* are the broker's, *delays_late_ms* is how far it was behind with them at most; both matter where
    the log is cut before the first backup.
    """

    until: int | None = None
    until_offset: int | None = None
    take_damaged: bool = False
    max_rate: int = 0
    delay_levels_ms: tuple[int, ...] = DELAY_LEVELS_MS
    delays_late_ms: int = DELAYS_LATE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreResult:
    """What was restored. *behind*: by group and topic, how many messages wait that the group had not consumed.

    *tables_at*: of when the tables are, ms; *is_earlier*: the log ends before that. *problems*: what is damaged.
    """

    start: int
    end: int
    last_timestamp: int
    copied_bytes: int
    record_count: int
    queue_count: int
    tables_at: int
    is_earlier: bool
    moved: int
    dropped: int
    damaged: list[tuple[int, int]]
    problems: list[str]
    behind: dict[str, dict[str, int]] = field(default_factory=dict)


def restore(
    backup: Path,
    target: Path,
    commit_log: Path | None = None,
    options: RestoreOptions = RestoreOptions(),
    on_progress: OnProgress = lambda done, total: None,
) -> RestoreResult:
    """Make a store in *target*, which is empty or not there; its log in *commit_log*, if not in ``commitlog``.

    Raises BackupError if that cannot be, CorruptFileError for a damaged backup, OSError; *target* is then no store yet,
    and may be restored to again.
    """
    check_apart(backup, [target, *([commit_log] if commit_log else [])])
    directory = BackupDirectory(backup)
    with directory.locked(exclusive=False):
        manifest = directory.load()
        cut = find_cut(directory, manifest, options.until, options.until_offset)
        return _Restoring(directory, manifest, cut, StorePaths.at(target, commit_log), options, on_progress).run()


class _Restoring:
    def __init__(
        self,
        directory: BackupDirectory,
        manifest: Manifest,
        cut: Cut,
        paths: StorePaths,
        options: RestoreOptions,
        on_progress: OnProgress,
    ) -> None:
        self._directory = directory
        self._manifest = manifest
        self._cut = cut
        self._paths = paths
        self._options = options
        self._on_progress = on_progress
        self._pace = Pace(options.max_rate)
        self._run = choose_run(manifest.runs, cut.end)
        self._births = births_at(manifest.births, cut.end, self._run)
        self._problems: list[str] = []
        self._done = 0
        # Beside the final name, on the same disk.
        self._work = StorePaths.at(
            paths.root / WORK_NAME, paths.commit_log.with_name(paths.commit_log.name + WORK_NAME)
        )

    @property
    def is_earlier(self) -> bool:
        return self._cut.end < self._run.end

    def run(self) -> RestoreResult:
        self._prepare()
        ends = self._copy_log()
        found = {(topic.decode(), queue_id): end for (topic, queue_id), end in ends.ends().items()}
        old = self._old_queues(found)
        tables = {name: self._directory.read_table(self._run, name, table) for name, table in self._run.tables.items()}
        positions = fit(tables, self._places(found, old))
        self._write_rest(positions, old)
        self._finish()
        return RestoreResult(
            start=self._manifest.start,
            end=self._cut.end,
            last_timestamp=self._cut.last_timestamp,
            copied_bytes=self._done,
            record_count=sum(end.record_count for end in found.values()),
            queue_count=len(found) + len(old),
            tables_at=self._run.taken_at,
            is_earlier=self.is_earlier,
            moved=positions.moved,
            dropped=positions.dropped,
            damaged=[found for found in self._manifest.damaged if found[0] < self._cut.end],
            problems=self._problems,
            behind=positions.behind,
        )

    # Where to

    def _prepare(self) -> None:
        """Make the directories to work in. Raises BackupError if something is there already."""
        root, log = self._paths.root, self._paths.commit_log
        is_broken_off = self._work.root.is_dir()
        for directory, known in ((root, {WORK_NAME, self._work.commit_log.name, *PARTS}), (log, set())):
            if directory.exists() and not directory.is_dir():
                raise BackupError(f"{directory} is no directory")
            there = sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []
            foreign = [name for name in there if not is_broken_off or name not in known]
            if foreign:
                raise BackupError(f"{directory} is not empty, it has {foreign[0]}: a store is restored to an empty one")
        for path in (self._work.root, self._work.commit_log, *(root / name for name in PARTS)):
            remove(path)
        make_directory(self._work.root)
        make_directory(self._work.commit_log)

    # The log

    def _copy_log(self) -> QueueEnds:
        ends = QueueEnds()
        for (topic, queue_id), birth in self._births.items():
            ends.bear(topic.encode(), queue_id, birth.born)
        if self.is_earlier:
            for level, delay_ms in enumerate(self._options.delay_levels_ms):
                since = self._cut.last_timestamp - self._options.delays_late_ms - delay_ms
                ends.ask_since(SCHEDULE_TOPIC.encode(), level, since)
        counter = LogCounter(ends, self._manifest.file_size)
        files = [file for file in self._manifest.files if file.start < self._cut.end]
        sizes = {file.start: min(file.size, self._cut.end - file.start) for file in files}
        total = sum(sizes.values())
        for file in files:
            self._copy_file(file, sizes[file.start], counter, total)
        sync_directory(self._work.commit_log)
        return ends

    def _copy_file(self, file: LogFile, size: int, counter: LogCounter, total: int) -> None:
        path = self._work.commit_log / file_name(file.start)
        counter.begin(file.start)
        known = len(self._problems)
        with Writing(path, 0) as writing:
            for _, data in read_cells(self._directory, file, self._problems, size):
                if len(self._problems) > known and not self._options.take_damaged:
                    raise CorruptFileError(f"the backup is damaged: {self._problems[-1]}", str(path))
                writing.write(data)
                counter.take(data)
                self._done += len(data)
                self._on_progress(self._done, total)
                self._pace.spend(len(data))
            # A file that is written on has all its blocks: a full disk must not end a broker over a page of it.
            writing.finish(self._manifest.file_size, 0 if size < file.size else file.modified_ms)
        if size < file.size or not file.is_closed:
            reserve_blocks(path, 0, self._manifest.file_size)
            sync_file(path)

    # The tables

    def _old_queues(self, found: Mapping[QueueKey, object]) -> list[OldQueue]:
        """Return the queues that begin where they ended, without a message."""
        chosen = []
        for queue in self._manifest.old_queues:
            key = queue.topic, queue.queue_id
            birth = self._births.get(key)
            is_dropped = birth is not None and queue.physical_offset < birth.born
            is_gone = queue.physical_offset + queue.record_size <= self._manifest.start
            if key not in found and is_gone and not is_dropped:
                chosen.append(queue)
        return chosen

    def _places(self, found: Mapping[QueueKey, QueueEnd], old: list[OldQueue]) -> Places:
        ends = {key: end.end for key, end in found.items()}
        ends |= {(queue.topic, queue.queue_id): queue.max_offset for queue in old}
        # One born where the log ended then had no message, and so no offset of its own.
        reborn = {key for key, birth in self._births.items() if birth.born >= self._run.offsets_at}
        delayed = {}
        if self.is_earlier:
            delayed = {
                queue_id: end.since if end.since >= 0 else end.end
                for (topic, queue_id), end in found.items()
                if topic == SCHEDULE_TOPIC
            }
        return Places(ends, reborn, self.is_earlier, delayed)

    def _write_rest(self, positions: Positions, old: list[OldQueue]) -> None:
        make_directory(self._work.config)
        for name, data in positions.tables.items():
            write_atomically(self._work.config / name, data, keep_backup=False)
        make_directory(self._work.consume_queue)
        for queue in old:
            write_old_queue(self._work, self._manifest.queue_file_size, queue)
        if self._births:
            make_directory(self._work.incarnations.parent)
            births = b"".join(birth.encode() for birth in self._births.values())
            write_atomically(self._work.incarnations, births, keep_backup=False)
        if self._manifest.files:
            # All of the log was on disk, nothing is in consume queues: any broker builds them, and passes over damage.
            Checkpoint(physic_timestamp=self._cut.last_timestamp).write(self._work.checkpoint)
            AbortFile(self._work.abort).create()

    def _finish(self) -> None:
        """Give everything its name, the log last: without it there is nothing that could be taken for a store."""
        for name in PARTS:
            part = self._work.root / name
            if part.exists():
                part.rename(self._paths.root / name)
        sync_directory(self._paths.root)
        self._work.commit_log.rename(self._paths.commit_log)
        sync_directory(self._paths.commit_log.parent)
        self._work.root.rmdir()
        sync_directory(self._paths.root)


def choose_run(runs: list[Run], end: int) -> Run:
    """Return the run whose tables go with a log up to *end*: the newest that is not ahead of it, or the first."""
    return next((run for run in reversed(runs) if run.end <= end), runs[0])


def births_at(births: list[Birth], end: int, run: Run) -> dict[QueueKey, Birth]:
    """Return the births that count for a log that ends at *end*: the newest of each queue that had happened by then.

    One at the end itself had happened if *run*, which ended there, knew of it.
    """
    found: dict[QueueKey, Birth] = {}
    for number, birth in enumerate(births):
        known = found.get(birth.key)
        is_known = birth.born == end == run.end and number < run.birth_count
        if (birth.born < end or is_known) and (known is None or known.born < birth.born):
            found[birth.key] = birth
    return found


def remove(path: Path) -> None:
    """Remove what a broken-off restore has left."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
