"""Cutting the end off a store that follows another history than its group, and emptying one that has nothing in common.

Both are steps between two lives of a broker: nobody has the store open. What is to be done is marked in ``ha_identity``
first; whoever finds the mark does it once more, and every step can be done again. The tail of the log becomes zeros: an
old record that stayed there could meet the end of a later, shorter one, and recovery would take it for a new one.
Consume queues go before the log that they are made from, the newest file of the log before those in front of it.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from mqcore.errors import StoreError
from mqcore.files import delete_file, sync_files, zero_from
from mqcore.protocol.names import TIMER_TOPIC
from mqcore.store.checkpoint import Checkpoint
from mqcore.store.epochs import held_by
from mqcore.store.failover_files import FailoverFiles
from mqcore.store.geometry import StoreGeometry
from mqcore.store.log.commit_log import timestamp_before
from mqcore.store.log.mapped_file_queue import MappedFileQueue
from mqcore.store.paths import StorePaths
from mqcore.store.queue_survey import cut
from mqcore.store.queues.consume_queue import ConsumeQueue
from mqcore.store.queues.index_service import IndexService

logger = logging.getLogger(__name__)

EMPTYING: Final = -1
"""``Identity.cutting_to`` of a store that is being emptied."""


def cut_log(paths: StorePaths, geometry: StoreGeometry, to: int) -> None:
    """Let the store end at *to*, where a record or a filler ends, durably. Raises StoreError, OSError."""
    if to < 0:
        raise StoreError(f"the log cannot be cut to {to}")
    _mark(paths, to)
    finish_cut(paths, geometry)


def empty_store(paths: StorePaths, geometry: StoreGeometry) -> None:
    """Remove the log and all that is made from it, durably. Who it is in its group stays, and so does ``config``."""
    _mark(paths, EMPTYING)
    finish_cut(paths, geometry)


def finish_cut(paths: StorePaths, geometry: StoreGeometry) -> None:
    """Do what is marked in the store, if anything is: to be called before a store is recovered."""
    files = FailoverFiles(paths)
    identity = files.read_identity()
    if identity is None or identity.cutting_to is None:
        return
    if identity.cutting_to == EMPTYING:
        logger.warning("store emptied: its log has nothing in common with its group's path=%s", paths.root)
        _empty(paths, files)
    else:
        logger.warning("commit log cut: its group's goes on otherwise path=%s end=%d", paths.root, identity.cutting_to)
        _cut(paths, geometry, files, identity.cutting_to)
    files.write_identity(replace(identity, cutting_to=None))


def _mark(paths: StorePaths, to: int) -> None:
    files = FailoverFiles(paths)
    identity = files.read_identity()
    if identity is None:
        raise StoreError(f"a store that is in no group is not cut: {paths.root}")
    files.write_identity(replace(identity, cutting_to=to))


def _cut(paths: StorePaths, geometry: StoreGeometry, files: FailoverFiles, to: int) -> None:
    log = MappedFileQueue(paths.log, geometry.commit_log_file_size)
    log.refresh()
    confirmed = files.read_confirmed()
    if confirmed is not None and confirmed > to:
        logger.error("what was confirmed is cut off end=%d confirmed=%d", to, confirmed)
        files.write_confirmed(to)
    _lower_checkpoint(paths, log, to)
    if _timers_reach(paths, geometry, to):
        # They are made anew from the timer topic, and the log says what was delivered.
        _forget_timers(paths)
    # It tells of a log and queues that end where they end no more.
    delete_file(paths.dispatched)
    sync_files(cut(paths, geometry, to))
    index = IndexService(paths.index, geometry.index)
    index.clamp(to)
    index.close()
    files.write_epochs(held_by(files.read_epochs(), to))
    for start in log.starts:
        if start <= to < start + log.file_size:
            zero_from(log.path_of(start), to - start)
    for start in reversed(log.starts):
        if start > to:
            log.delete(start)
    log.close()


def _lower_checkpoint(paths: StorePaths, log: MappedFileQueue, to: int) -> None:
    """Let a start after a crash begin before *to*: what comes there may have been stored earlier than what was."""
    checkpoint = Checkpoint.read(paths.checkpoint)
    newest = timestamp_before(log, to)
    checkpoint.physic_timestamp = min(checkpoint.physic_timestamp, newest)
    checkpoint.logics_timestamp = min(checkpoint.logics_timestamp, newest)
    checkpoint.write(paths.checkpoint)


def _timers_reach(paths: StorePaths, geometry: StoreGeometry, to: int) -> bool:
    """Whether the timers may have taken a message that is cut off: what their queue had they may have."""
    queue = ConsumeQueue(paths, TIMER_TOPIC, 0, geometry.consume_queue_file_size, geometry.ext_file_size)
    end = queue.recover(0).max_physical
    queue.close()
    return end > to


def _forget_timers(paths: StorePaths) -> None:
    _empty_directory(paths.timer_log)
    _delete((paths.timers, paths.timer_wheel, paths.timer_check, paths.timer_metrics))


def _delete(files: Iterable[Path]) -> None:
    for path in files:
        if path.parent.is_dir():
            delete_file(path)


def _empty(paths: StorePaths, files: FailoverFiles) -> None:
    files.write_confirmed(0)
    for directory in (paths.consume_queue, paths.consume_queue_ext, paths.index):
        _empty_directory(directory)
    _delete((paths.checkpoint, paths.dispatched, paths.incarnations, paths.metadata))
    _forget_timers(paths)
    files.write_epochs(())
    for directory in paths.log.directories:
        for path in sorted(directory.iterdir() if directory.is_dir() else (), reverse=True):
            delete_file(path)


def _empty_directory(directory: Path) -> None:
    for path in directory.iterdir() if directory.is_dir() else ():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
