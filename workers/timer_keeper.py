"""Makes durable how far the timers have come: timer log, wheel, checkpoint and the figures of topics, in that order."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from mqcore._fast.segment.boards import SharedSegment
from mqcore.config import SettingValues
from mqcore.files import sync_content, sync_directory, write_atomically
from mqcore.store.paths import StorePaths, file_name
from mqcore.store.timer.checkpoint import ResumePoint, write_checkpoint
from mqcore.store.timer.log import delete_expired

logger = logging.getLogger(__name__)

LOG_CLEAN_S = 30.0
FINISH_DEADLINE_S = 1.0
CHECK_S = 0.01
WAIT_S = 1.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Where the loop was at one moment; see TimerLoop.snapshot. *pending*: messages that wait, by topic."""

    read_time: int
    log_end: int
    queue_offset: int
    scan_offset: int
    commit_log_end: int
    pending: dict[bytes, int]

    @property
    def state(self) -> ResumePoint:
        return ResumePoint(self.read_time, self.log_end, self.queue_offset, self.scan_offset)


class TimerKeeper:
    """One thread drives it; the loop's offers snapshots."""

    def __init__(self, settings: SettingValues, segment: SharedSegment) -> None:
        store = settings.store
        self._segment = segment
        self._paths = StorePaths.of(store)
        self._file_size = store.mapped_file_size_timer_log
        self._interval_s = store.timer_flush_interval_ms / 1000
        self._offered: Snapshot | None = None
        self._held: Snapshot | None = None
        self._has_offer = threading.Event()
        self._synced = 0  # bytes of the timer log
        self._written = ResumePoint()
        self._pending: dict[bytes, int] | None = None
        self._metrics_counter = 0
        self._is_broken = False
        self._cleaned_at = time.monotonic()

    def begin(self, state: ResumePoint) -> None:
        """The files say *state*."""
        self._written = state
        self._synced = state.log_position

    def offer(self, snapshot: Snapshot) -> None:
        """Let *snapshot* be written soon, unless it says nothing new."""
        if snapshot.state != self._written or snapshot.pending != self._pending:
            self._offered = snapshot
            self._has_offer.set()

    def run(self, stop: threading.Event) -> None:
        """Write what is offered until *stop* is set."""
        while not stop.is_set():
            if self._has_offer.wait(WAIT_S):
                self._has_offer.clear()
                self.keep()
                stop.wait(self._interval_s)

    def finish(self) -> None:
        """Write the last snapshot, once the commit log is on disk as far as it says; not for ever."""
        deadline = time.monotonic() + FINISH_DEADLINE_S
        while not self.keep() and not self._is_broken and time.monotonic() < deadline:
            time.sleep(CHECK_S)

    def keep(self) -> bool:
        """Write what is there to be written; False if some of it has to wait for the flush of the commit log."""
        newest = self._offered
        try:
            if newest is not None and not self._is_broken:
                self._write_metrics(newest)
            while not self._is_broken and (self._held is not None or self._offered is not None):
                if self._held is None:
                    # Not the newest each time: the log is never flushed as far as its end while traffic lasts.
                    self._held, self._offered = self._offered, None
                    assert self._held is not None
                    self._sync(self._held)
                if self._segment.get("flushed_offset") < self._held.commit_log_end:
                    # A power cut could still take back what it says is delivered.
                    self._has_offer.set()
                    return False
                self._write_state(self._held.state)
                self._held = None
        except OSError as error:
            # What is on disk stays true, and a start goes on from there.
            self._is_broken = True
            logger.error("sync of the timer files failed, nothing more is written there error=%s", error)
        return True

    def _sync(self, snapshot: Snapshot) -> None:
        start = self._synced - self._synced % self._file_size
        while start < snapshot.log_end:
            sync_path(self._paths.timer_log / file_name(start))
            start += self._file_size
        if snapshot.log_end // self._file_size != self._synced // self._file_size or self._synced == 0:
            sync_directory(self._paths.timer_log)
        sync_path(self._paths.timer_wheel)
        self._synced = snapshot.log_end

    def _write_state(self, state: ResumePoint) -> None:
        if state != self._written:
            write_checkpoint(self._paths.timers, self._paths.timer_check, self._written, state)
            self._written = state

    def _write_metrics(self, snapshot: Snapshot) -> None:
        if snapshot.pending != self._pending:
            self._metrics_counter += 1
            text = metrics_text(snapshot.pending, self._metrics_counter, wall_clock_ms())
            write_atomically(self._paths.timer_metrics, text)
            self._pending = snapshot.pending
        if time.monotonic() >= self._cleaned_at + LOG_CLEAN_S:
            self._cleaned_at = time.monotonic()
            deleted = delete_expired(self._paths.timer_log, self._file_size, self._segment.get("min_offset"))
            if deleted:
                logger.info("timer log files deleted count=%d", deleted)


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def metrics_text(pending: dict[bytes, int], counter: int, now: int) -> bytes:
    """The text of ``timermetrics``."""
    return json.dumps(
        {
            "dataVersion": {"counter": counter, "stateVersion": 0, "timestamp": now},
            "timingCount": {
                topic.decode(): {"count": count, "timeStamp": now} for topic, count in sorted(pending.items())
            },
        },
        separators=(",", ":"),
    ).encode()


def sync_path(path: Path) -> None:
    """Make the content of *path* durable; one that was deleted meanwhile needs nothing."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        sync_content(descriptor)
    finally:
        os.close(descriptor)
