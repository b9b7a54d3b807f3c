"""One backup of a store: what is new since the last one, in an order that makes it one state.

1. how far the log is; 2. the offsets of consumers and delay levels; 3. how far the log is now, and the log up to
there; 4. topics, groups and filters; births of queues that were dropped; queues that have expired. So nothing counts
as consumed that is not there, and nothing is there whose topic or birth is not known. The manifest is written last.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mqcore import clock
from mqcore.errors import BackupError
from mqcore.files import read_if_there
from mqcore.store.backup import tables
from mqcore.store.backup.directory import BackupDirectory
from mqcore.store.backup.log_copy import COMMIT_STEP, LogCopier, OnProgress
from mqcore.store.backup.manifest import Manifest, Run
from mqcore.store.backup.old_queues import find_old_queues, queue_file_size
from mqcore.store.backup.source import GoneError, LogEnd, StoreSource
from mqcore.store.backup.streams import Pace
from mqcore.store.incarnations import decode

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """*max_rate*: bytes a second, 0 without a limit; *keep_ms*: how long the backup keeps messages, 0 for ever."""

    max_rate: int = 0
    keep_ms: int = 0
    commit_step: int = COMMIT_STEP


@dataclass(frozen=True, slots=True)
class BackupResult:
    """What one backup did. Offsets are physical; *damaged* are ranges of the source, found in this run."""

    number: int
    start: int
    end: int
    copied_bytes: int
    record_count: int
    removed_files: int
    damaged: list[tuple[int, int]] = field(default_factory=list)


def make_backup(
    store: Path,
    target: Path,
    commit_log: Sequence[Path] = (),
    options: Options = Options(),
    on_progress: OnProgress = lambda done, total: None,
) -> BackupResult:
    """Bring the backup in *target* up to the store in *store*, or begin it.

    Raises BackupError if *target* is something else, or a backup of another store or history; CorruptFileError for a
    store that no broker would start on, or a damaged backup; StoreLockedError if another process works on it; OSError.
    What was there before counts on after each of them.
    """
    check_apart(target, [store, *commit_log])
    source = StoreSource(store, commit_log)
    directory = BackupDirectory(target)
    directory.prepare()
    with directory.locked(exclusive=True):
        return _Making(source, directory, options, on_progress).run()


def check_apart(target: Path, others: Sequence[Path]) -> None:
    """Raise BackupError if *target* lies in one of *others*, or the other way round."""
    own = target.resolve()
    for other in (path.resolve() for path in others):
        if own.is_relative_to(other) or other.is_relative_to(own):
            raise BackupError(f"{target} and {other} lie within each other: a broker would not start on such a store")


class _Making:
    def __init__(
        self, source: StoreSource, directory: BackupDirectory, options: Options, on_progress: OnProgress
    ) -> None:
        self._source = source
        self._directory = directory
        self._options = options
        self._on_progress = on_progress

    def run(self) -> BackupResult:
        source, directory = self._source, self._directory
        source.look()
        manifest = self._go_on()
        known = source.find_end(LogEnd(manifest.next_offset, manifest.last_timestamp()))
        offsets = tables.copy_offsets(source.paths.config)
        end = source.find_end(known).end
        copier = LogCopier(
            source, directory, manifest, pace=Pace(self._options.max_rate), on_progress=self._on_progress,
            commit_step=self._options.commit_step,
        )  # fmt: skip
        copier.copy(end)
        others = tables.copy_others(source.paths.config)
        manifest.add_births(decode(read_if_there(source.paths.incarnations), source.paths.incarnations))
        if manifest.files:
            # A record that a dying worker had written, and nobody was promised, may have been wiped since.
            source.compare(manifest.files[-1], directory)
        removed = self._prune(manifest)
        manifest.queue_file_size = queue_file_size(source.paths) or manifest.queue_file_size
        if manifest.queue_file_size:
            manifest.old_queues = find_old_queues(source.paths, manifest.queue_file_size, manifest.start)
        number = manifest.next_number
        copies = directory.write_tables(number, offsets | others)
        last_timestamp = manifest.last_timestamp()
        manifest.runs.append(
            Run(
                number,
                clock.now_ms(),
                min(known.end, manifest.end),
                manifest.end,
                last_timestamp,
                len(manifest.births),
                copies,
            )
        )
        manifest.write(directory.manifest)
        directory.remove_unknown(manifest)
        return BackupResult(
            number, manifest.start, manifest.end, copier.copied.byte_count, copier.copied.record_count, removed,
            copier.damaged,
        )  # fmt: skip

    def _go_on(self) -> Manifest:
        """Return what is there to be added to; a new manifest if nothing is, or nothing that was ever complete."""
        fresh = Manifest(self._source.files.file_size)
        if not self._directory.manifest.exists():
            return fresh
        manifest = self._directory.load()
        for file in manifest.files:
            self._directory.check_size(file)
        try:
            self._source.check_fits(manifest, self._directory)
        except GoneError as error:
            if manifest.runs:
                raise
            logger.warning("a backup that was never complete begins anew: %s", error)
            return fresh
        if not manifest.files:
            manifest.file_size = self._source.files.file_size
        return manifest

    def _prune(self, manifest: Manifest) -> int:
        """Let go of files whose messages are all older than what is to be kept, and of tables of such times."""
        if not self._options.keep_ms:
            return 0
        limit = clock.now_ms() - self._options.keep_ms
        count = 0
        while len(manifest.files) > 1 and manifest.files[0].last_timestamp < limit:
            manifest.files.pop(0)
            count += 1
        manifest.damaged = [(start, end) for start, end in manifest.damaged if start >= manifest.start]
        manifest.runs = [run for run in manifest.runs if run.taken_at >= limit and run.end >= manifest.start]
        return count
