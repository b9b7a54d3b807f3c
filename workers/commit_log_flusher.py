"""Makes the commit log durable and publishes how far it is."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import time
from dataclasses import dataclass

from mqcore import layout
from mqcore._fast.segment.boards import SharedSegment
from mqcore.config import SettingValues
from mqcore.files import sync_content, sync_directory
from mqcore.store.paths import StorePaths
from mqcore.workers.handover import Handover, Peer

logger = logging.getLogger(__name__)

KIND = layout.constants("WorkerKind")
STORE_FLAG = layout.constants("StoreFlag")
PAGE_SIZE = 4096
SLEEP_MS = 500


@dataclass(frozen=True, slots=True)
class FlushRules:
    """When the timed flush has something to do; replaced as a whole when the settings change."""

    interval_ms: int
    least_pages: int
    thorough_ms: int
    is_timed: bool

    @classmethod
    def of(cls, settings: SettingValues) -> FlushRules:
        store = settings.store
        return cls(
            store.flush_interval_commit_log_ms,
            store.flush_commit_log_least_pages,
            store.flush_commit_log_thorough_interval_ms,
            store.flush_commit_log_timed,
        )


class CommitLogFlusher:
    """One thread drives it. Files are synced by descriptor, whoever wrote into their mappings."""

    def __init__(self, settings: SettingValues, segment: SharedSegment, handover: Handover) -> None:
        store = settings.store
        self._segment = segment
        self._row = handover.row
        self._wake = handover.wake
        self._senders = handover.senders
        self._others = [handover.reput, handover.broker]
        self._copier = handover.ha if settings.failover.is_group and settings.failover.ha_ack_flushed else None
        self._places = StorePaths.of(store).log
        self._file_size = store.mapped_file_size_commit_log
        self._rules = FlushRules.of(settings)
        self._thorough_at = time.monotonic()
        self._seen = 0
        self._descriptor = -1
        self._file_start = -1
        self._poll = select.poll()
        self._poll.register(self._wake, select.POLLIN)

    def use(self, settings: SettingValues) -> None:
        """Go by *settings*, as far as they may change."""
        self._rules = FlushRules.of(settings)

    @property
    def has_failed(self) -> bool:
        return bool(self._segment.get("store_flags") & STORE_FLAG["SYNC_FAILED"])

    def follow_groups(self) -> None:
        """One turn of group commit: flush what has accumulated and wake who waits for it; sleep if there is nothing."""
        segment = self._segment
        if segment.get("wrote_offset") > segment.get("flushed_offset") and not self.has_failed:
            self._flush()
            self._wake_waiters()
            return
        self._sleep(segment.get("flushed_offset"), SLEEP_MS)
        self._beat()

    def follow_time(self) -> None:
        """One turn of the timed rules: least pages, or everything once in the thorough interval."""
        rules = self._rules
        segment = self._segment
        if rules.is_timed:
            self._rest(rules.interval_ms)
        else:
            # As upstream: every put wakes it, and least pages keep it from a sync for each.
            self._sleep(self._seen, rules.interval_ms)
            self._seen = segment.get("wrote_offset")
        self._beat()
        now = time.monotonic()
        is_thorough = (now - self._thorough_at) * 1000 >= rules.thorough_ms
        wrote, flushed = segment.get("wrote_offset"), segment.get("flushed_offset")
        pages = wrote // PAGE_SIZE - flushed // PAGE_SIZE
        if is_thorough:
            self._thorough_at = now
        if wrote > flushed and (is_thorough or pages >= rules.least_pages) and not self.has_failed:
            self._flush()
            self._wake_copier()

    def flush_all(self) -> None:
        """Flush everything that is written, unless a sync has failed before."""
        if not self.has_failed:
            self._flush()

    def _sleep(self, seen: int, timeout_ms: int) -> None:
        """Rest until something is written behind *seen*, which the writers tell."""
        segment = self._segment
        segment.set_worker_word(self._row, "sleeping", 1)
        if segment.get("wrote_offset") <= seen or self.has_failed:
            self._rest(timeout_ms)
        segment.set_worker_word(self._row, "sleeping", 0)

    def _rest(self, timeout_ms: int) -> None:
        if self._poll.poll(timeout_ms):
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake)

    def _beat(self) -> None:
        self._segment.set_worker_word(self._row, "heartbeat", time.time_ns() // 1_000_000)
        self._segment.set_worker_word(
            self._row, "backlog", self._segment.get("wrote_offset") - self._segment.get("flushed_offset")
        )

    def _flush(self) -> None:
        # The time before the end: it belongs to a record that the end covers.
        timestamp = self._segment.get("wrote_timestamp")
        end = self._segment.get("wrote_offset")
        at = self._segment.get("flushed_offset")
        try:
            while at < end:
                self._open(at)
                sync_content(self._descriptor)
                at = min(end, self._file_start + self._file_size)
                self._segment.set_flushed(at)
        except OSError as error:
            # Final: the kernel may have dropped the pages, and a sync that works later proves nothing.
            self._segment.fail(
                STORE_FLAG["SYNC_FAILED"] | STORE_FLAG["NOT_WRITABLE"], error.errno or 0, KIND["FLUSH"], at
            )
            logger.error("sync of the commit log failed, the store is read-only offset=%d error=%s", at, error)
            return
        self._segment.set("flushed_timestamp", timestamp)
        self._segment.set_worker_word(self._row, "units", self._segment.worker_word(self._row, "units") + 1)

    def _open(self, offset: int) -> None:
        start = offset - offset % self._file_size
        if start == self._file_start:
            return
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        path = self._places.path_of(start)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        # The name of a new file is not durable before its directory is.
        sync_directory(path.parent)
        self._file_start = start

    def _wake_waiters(self) -> None:
        for peer in self._senders:
            if self._segment.worker_word(peer.row, "parked"):
                self._wake_if_sleeping(peer)
        for peer in self._others:
            self._wake_if_sleeping(peer)
        self._wake_copier()

    def _wake_copier(self) -> None:
        """In a failover group the ha worker may wait for what is on disk."""
        if self._copier is not None:
            self._wake_if_sleeping(self._copier)

    def _wake_if_sleeping(self, peer: Peer) -> None:
        if peer.wake >= 0 and self._segment.worker_word(peer.row, "sleeping"):
            os.eventfd_write(peer.wake, 1)
