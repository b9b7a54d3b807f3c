"""The store's life around the workers': lock, recovery, boards filled, abort file; and the way back."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time

from mqcore import layout
from mqcore._fast.segment.boards import SharedSegment
from mqcore.broker.ports import wall_clock_ms
from mqcore.config import BrokerRole, FlushDiskType, Settings
from mqcore.files import GRAVE_PREFIX
from mqcore.store.abort_file import AbortFile
from mqcore.store.dispatched import Dispatched
from mqcore.store.failover_files import FailoverFiles
from mqcore.store.geometry import StoreGeometry
from mqcore.store.lock_file import LockFile
from mqcore.store.log.mapped_file_queue import MappedFileQueue
from mqcore.store.log_cut import finish_cut
from mqcore.store.metadata_place import MetadataPlace
from mqcore.store.paths import StorePaths
from mqcore.store.recovery import Recovery, RecoveryResult

logger = logging.getLogger(__name__)

STORE_FLAG = layout.constants("StoreFlag")
READ_GATE = layout.constants("ReadGate")
BROKEN = STORE_FLAG["SYNC_FAILED"] | STORE_FLAG["CONSUME_QUEUE_ERROR"] | STORE_FLAG["DISK_FULL"]
DISPATCH_DEADLINE_S = 5.0
CHECK_S = 0.01


class StoreBoot:
    """Makes a store ready for the workers and puts it to rest after them. The lock is held from open() to release()."""

    def __init__(self, settings: Settings, segment: SharedSegment, held: LockFile | None = None) -> None:
        """*held* is the lock of who keeps the store over the lives of several brokers; it stays locked."""
        self._settings = settings
        self._segment = segment
        self._paths = StorePaths.of(settings.store)
        self._lock = LockFile(self._paths.lock) if held is None else None
        self._abort = AbortFile(self._paths.abort)
        self._group_files = FailoverFiles(self._paths)

    def open(self) -> RecoveryResult:
        """Lock, recover, fill the boards. Raises StoreLockedError, StoreNotWritableError, CorruptFileError, OSError."""
        self._paths.make_directories()
        if self._lock is not None:
            self._lock.acquire()
        self._remove_leftovers()
        store = self._settings.store
        finish_cut(self._paths, StoreGeometry.of(store))
        self._paths.log.check_room(store.mapped_file_size_commit_log)
        result = Recovery(
            self._paths,
            StoreGeometry.of(self._settings.store),
            check_crc=store.check_crc_on_recover,
            index_safe=store.message_index_safe,
            confirmed=self._dispatch_end(),
        ).run()
        self._fill_boards(result)
        return result

    @property
    def _is_in_group(self) -> bool:
        """What is read then is what all members of its group have; an asynchronous master gives more when it leads."""
        return self._settings.failover.is_group

    def _dispatch_end(self) -> int | None:
        """Return up to where of a group's log all may be in consume queues; None = as far as it goes.

        What is not confirmed may not, nor what lies behind metadata that is not applied: queues may be dropped there.
        """
        confirmed = self._group_files.read_confirmed()
        if not self._is_in_group or confirmed is None:
            return None
        return min(confirmed, MetadataPlace.read(self._paths.metadata).applied_to)

    def _remove_leftovers(self) -> None:
        """Finish what a crash has interrupted: queues being dropped, and files being made that have no name yet."""
        for grave in self._paths.root.glob(f"{GRAVE_PREFIX}*"):
            shutil.rmtree(grave)
        for directory in self._paths.log.writable:
            for unfinished in directory.parent.glob(f"{directory.name}.making.*"):
                unfinished.unlink()

    def begin(self) -> None:
        """From now on a start counts as one after a crash, until close()."""
        self._abort.create()

    def _fill_boards(self, result: RecoveryResult) -> None:
        segment = self._segment
        end = result.commit_log_end
        segment.set("boot_timestamp", wall_clock_ms())
        segment.set("commit_log_file_size", self._settings.store.mapped_file_size_commit_log)
        segment.set("min_offset", max(0, result.commit_log_min))
        for name in ("wrote_offset", "flushed_offset"):
            segment.set(name, end)
        segment.set("readable_offset", end)
        segment.set("dispatched_offset", result.readable_end)
        gates = 0
        if self._settings.store.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            # Nobody reads what a power cut may take back.
            gates |= READ_GATE["FLUSHED"]
        if self._is_in_group:
            # Nor what a member may lack that is master one day.
            gates |= READ_GATE["CONFIRMED"]
        segment.set("read_gates", gates)
        if self._is_in_group:
            self._join_group(result)
        if self._settings.store.broker_role is BrokerRole.SLAVE or self._is_in_group:
            # Only what its master has may get into its log.
            segment.set_flags(STORE_FLAG["SLAVE"])
        segment.set("prepared_end", end - end % self._settings.store.mapped_file_size_commit_log)
        segment.set("warmed_end", end)
        segment.set("index_timestamp", result.checkpoint.index_timestamp)
        for queue in result.queues:
            row = segment.queue_row(queue.topic.encode(), queue.queue_id, True)
            born = result.incarnations.born(queue.topic, queue.queue_id)
            segment.fill_queue(row, born, queue.min_offset, queue.max_offset, queue.max_physical)

    def _join_group(self, result: RecoveryResult) -> None:
        """Begin as a slave without a master. A store that was in no group yet has nothing that others must have."""
        confirmed = self._group_files.read_confirmed()
        if confirmed is None:
            confirmed = result.commit_log_end
            MetadataPlace(0, confirmed).write(self._paths.metadata)
            self._group_files.write_confirmed(confirmed)
        for name in ("confirmed_offset", "replicated_offset"):
            self._segment.set(name, min(confirmed, result.commit_log_end))
        self._segment.set("readable_offset", min(confirmed, result.commit_log_end))

    async def wait_for_dispatch(self) -> bool:
        """Wait until everything written is in the consume queues; False if that does not happen in time.

        What a group has not confirmed does not get there.
        """
        follows_flush = self._settings.store.flush_disk_type is FlushDiskType.SYNC_FLUSH
        deadline = time.monotonic() + DISPATCH_DEADLINE_S
        bound = "readable_offset" if self._is_in_group else "wrote_offset"
        while self._segment.get("dispatched_offset") < self._segment.get(bound):
            if follows_flush and self._segment.get("store_flags") & STORE_FLAG["SYNC_FAILED"]:
                return False
            if time.monotonic() >= deadline:
                logger.error("dispatch did not catch up, the next start will recover as after a crash")
                return False
            await asyncio.sleep(CHECK_S)
        return True

    def close(self, is_caught_up: bool) -> None:
        """After the workers have flushed and ended: a clean stop, unless something was broken or left behind."""
        if is_caught_up and not self._segment.get("store_flags") & BROKEN and self._is_flushed():
            self._delete_unused_files()
            if self._is_in_group:
                self._group_files.write_confirmed(self._segment.get("confirmed_offset"))
            self._note_dispatched()
            self._abort.remove()

    def _note_dispatched(self) -> None:
        """Spare the next start a walk over the tail of the log, if it has no units."""
        note = Dispatched(self._segment.get("dispatched_offset"), self._segment.queues_end())
        try:
            note.write(self._paths.dispatched)
        except OSError as error:
            logger.warning("not written, the next start may walk the log's tail path=%s error=%s",
                           self._paths.dispatched, error)  # fmt: skip

    def _delete_unused_files(self) -> None:
        """Delete the commit log files that were made ahead of need, as RocketMQ does at a clean stop."""
        files = MappedFileQueue(self._paths.log, self._settings.store.mapped_file_size_commit_log)
        files.refresh()
        for start in reversed(files.starts):
            if start > self._segment.get("wrote_offset"):
                files.delete(start)
        files.close()

    def _is_flushed(self) -> bool:
        is_log_flushed = self._segment.get("flushed_offset") >= self._segment.get("wrote_offset")
        return is_log_flushed and not self._segment.unflushed_queues(0)

    def release(self) -> None:
        """Give the lock up."""
        if self._lock is not None:
            self._lock.release()
