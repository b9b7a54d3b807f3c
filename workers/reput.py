"""The reput worker: the only writer of consume queues and index files. Its loop is _fast/reput/loop.pyx."""

from __future__ import annotations

import logging
import os
import select
import shutil
import time
from pathlib import Path

from mqcore import layout
from mqcore._fast.reput.loop import ReputLoop, ReputNews
from mqcore._fast.segment.boards import SharedSegment
from mqcore.config import FlushDiskType, Settings
from mqcore.errors import StoreError
from mqcore.files import sync_directory
from mqcore.store.geometry import StoreGeometry
from mqcore.store.index_file import IndexGeometry
from mqcore.store.log_places import LogPlaces
from mqcore.store.paths import StorePaths
from mqcore.workers.handover import Handover

logger = logging.getLogger(__name__)

STATE = layout.constants("WorkerState")
KIND = layout.constants("WorkerKind")
STORE_FLAG = layout.constants("StoreFlag")
LINK_KIND = layout.constants("LinkKind")
RETRIES_MAX = 30
RETRY_PAUSE_MS = 1000


def store_paths(settings: Settings) -> StorePaths:
    """Where the store of *settings* lies."""
    store = settings.store
    return StorePaths.at(store.root_dir, LogPlaces.of(store.commit_log_dirs, store.read_only_commit_log_dirs))


def store_geometry(settings: Settings) -> StoreGeometry:
    """The sizes that the store of *settings* is made with."""
    store = settings.store
    return StoreGeometry(
        commit_log_file_size=store.mapped_file_size_commit_log,
        consume_queue_file_size=store.mapped_file_size_consume_queue,
        index=IndexGeometry(store.max_hash_slot_num, store.max_index_num),
        index_enabled=store.message_index_enable,
        delay_levels_ms=store.delay_levels_ms,
        ext_enabled=store.enable_consume_queue_ext,
        ext_file_size=store.mapped_file_size_consume_queue_ext,
        multi_dispatch_enabled=store.enable_multi_dispatch,
        lmq_enabled=store.enable_lmq,
    )


class Reput:
    """Drives the loop and does what it comes back for."""

    def __init__(self, settings: Settings, segment: SharedSegment, handover: Handover) -> None:
        store = settings.store
        self._segment = segment
        self._handover = handover
        self._paths = store_paths(settings)
        self._link = os.fdopen(handover.link, "r+b", buffering=0)
        self._received = b""
        self._failures = 0
        self._ext_failed = 0
        self.loop = ReputLoop(self._paths, store_geometry(settings))
        self.loop.attach(
            segment,
            {
                "row": handover.row,
                "wake": handover.wake,
                "link": handover.link,
                "waits_for_flush": store.flush_disk_type is FlushDiskType.SYNC_FLUSH,
                "commit_log": self._paths.log,
                "commit_log_file_size": store.mapped_file_size_commit_log,
                "pullers": [(peer.row, peer.wake) for peer in handover.pullers],
            },
        )

    def run(self) -> None:
        """Follow the commit log until the broker process says stop; then make the index durable.

        The consume queues are left to the flush worker, which stops later and knows what it has not synced yet.
        """
        self._segment.set_worker_word(self._handover.row, "state", STATE["RUNNING"])
        # A predecessor may have died between a unit and the word of it.
        self.loop.rescan()
        while True:
            news = self.loop.run()
            if news == ReputNews.REPUT_STOP:
                break
            if news == ReputNews.REPUT_FAILED:
                self._retry_later()
            elif news == ReputNews.REPUT_CORRUPT:
                at, target = self.loop.skip_damage()
                logger.error("damaged record in the commit log, skipped from=%d to=%d", at, target)
            elif news == ReputNews.REPUT_LINK:
                if not self._read_link():
                    return
            elif self._failures:
                self._recovered()
            else:
                self.loop.flush_index(full_only=True)
                self._watch_ext()
        self.loop.flush_index()
        self.loop.close()
        self._segment.set_worker_word(self._handover.row, "state", STATE["STOPPED"])

    def _retry_later(self) -> None:
        # As upstream: thirty tries a second apart, then puts are refused. Unlike it, we go on trying, and a disk that
        # has room again lets them in again.
        self._failures += 1
        logger.warning("consume queue or index cannot be written tries=%d error=%s", self._failures, self._error())
        if self._failures == RETRIES_MAX:
            self._segment.set_flags(STORE_FLAG["CONSUME_QUEUE_ERROR"])
            logger.error("the store refuses messages until consume queues can be written")
        poll = select.poll()
        poll.register(self._handover.link, select.POLLIN)
        if poll.poll(RETRY_PAUSE_MS):
            self._read_link()

    def _error(self) -> StoreError:
        error: StoreError = self.loop.failure_error()
        return error

    def _recovered(self) -> None:
        if self._segment.worker_word(self._handover.row, "backlog") == 0:
            self._failures = 0
            self._segment.clear_flags(STORE_FLAG["CONSUME_QUEUE_ERROR"])
            logger.info("consume queues are written again")

    def _watch_ext(self) -> None:
        failed = self.loop.ext_failed_count
        if failed > self._ext_failed:
            logger.warning("ext units not written count=%d error=%s", failed - self._ext_failed, self._error())
            self._ext_failed = failed

    def _read_link(self) -> bool:
        """Take the broker process's orders; False when it is gone."""
        data = self._link.read(65536)
        if not data:
            return False
        self._received += data
        head = layout.LINK_HEAD
        while len(self._received) >= head.size:
            size, kind, _ = head.struct.unpack_from(self._received)
            if len(self._received) < head.size + size:
                break
            payload = self._received[head.size : head.size + size]
            self._received = self._received[head.size + size :]
            if kind == LINK_KIND["DROP_QUEUES"]:
                topic, _, queue_id = payload.decode().partition(" ")
                self._drop_queues(topic, int(queue_id) if queue_id else None)
        return True

    def _drop_queues(self, topic: str, queue_id: int | None) -> None:
        """Remove a dead queue, or with None all of a deleted topic; its messages stay in the log until they expire."""
        self.loop.forget(topic.encode())
        for queue in (self._paths.queue(topic, queue_id or 0), self._paths.queue_ext(topic, queue_id or 0)):
            self._remove(queue.parent if queue_id is None else queue)
        self.loop.reset_queues(topic.encode(), -1 if queue_id is None else queue_id)
        logger.info("dropped consume queues topic=%s queue_id=%s", topic, "all" if queue_id is None else queue_id)

    def _remove(self, directory: Path) -> None:
        # Renamed first: a directory that is half removed must not be loaded by a start in between.
        if directory.exists():
            grave = self._paths.root / f".dropped-{time.time_ns()}"
            directory.rename(grave)
            sync_directory(directory.parent)
            shutil.rmtree(grave)


def run(settings: Settings, segment: SharedSegment, handover: Handover) -> None:
    """Dispatch until the broker process says stop."""
    Reput(settings, segment, handover).run()
