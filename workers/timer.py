"""The timer worker: keeps messages until they are due, and delivers them. Its loop is _fast/timer/loop.pyx.

It is started with the first message that has a timer, or with a store that has had one. Two threads: the loop, and one
that makes durable how far it has come, since the loop may not wait for a disk.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from typing import Any

from mqcore import layout
from mqcore._fast.segment.boards import SharedSegment
from mqcore._fast.timer.loop import TimerLoop, TimerNews
from mqcore.config import FlushDiskType, SettingValues
from mqcore.readiness import wait_ready
from mqcore.store.paths import StorePaths
from mqcore.workers.handover import Handover
from mqcore.workers.settings_sheet import SettingsFollower
from mqcore.workers.time_sheet import TimeSheet
from mqcore.workers.timer_files import TimerFiles
from mqcore.workers.timer_keeper import Snapshot, TimerKeeper

logger = logging.getLogger(__name__)

COMMAND = layout.constants("WorkerCommand")
STATE = layout.constants("WorkerState")
STOP_POLL_S = 1.0
WINDOW_SLOTS_MAX = layout.TIMER_SLOT_COUNT // 2 - 60
RETRY_PAUSE_S = 1.0


def live_options(settings: SettingValues) -> dict[str, Any]:
    """The options of the loop that may change while it runs."""
    store = settings.store
    return {
        "stops_enqueue": store.timer_stop_enqueue,
        "stops_dequeue": store.timer_stop_dequeue,
        "wakes_flush": store.flush_disk_type is FlushDiskType.SYNC_FLUSH or not store.flush_commit_log_timed,
        "max_message_size": store.max_message_size,
        "lock_timeout_ms": store.os_page_cache_busy_time_out_ms,
    }


def roll_window_slots(settings: SettingValues) -> int:
    """After so many slots a message that still waits is stored anew: before retention would take its record."""
    asked = settings.store.timer_roll_window_slot
    return asked if 2 <= asked <= WINDOW_SLOTS_MAX else WINDOW_SLOTS_MAX


class Timer:
    """Drives the loop and does what it comes back for."""

    def __init__(self, settings: SettingValues, segment: SharedSegment, handover: Handover) -> None:
        store = settings.store
        self._segment = segment
        self._handover = handover
        self._paths = StorePaths.of(store)
        self._link = os.fdopen(handover.link, "r+b", buffering=0)
        self._files = TimerFiles(settings)
        self._keeper = TimerKeeper(settings, segment)
        self.loop = TimerLoop(
            segment,
            self._files.wheel,
            {
                "row": handover.row,
                "wake": handover.wake,
                "link": handover.link,
                "reput_row": handover.reput.row,
                "reput_wake": handover.reput.wake,
                "flush_row": handover.flush.row,
                "flush_wake": handover.flush.wake,
                "commit_log": self._paths.log,
                "commit_log_file_size": store.mapped_file_size_commit_log,
                "timer_log": str(self._paths.timer_log),
                "timer_log_file_size": store.mapped_file_size_timer_log,
                "consume_queue": str(self._paths.consume_queue),
                "consume_queue_file_size": store.mapped_file_size_consume_queue,
                "consume_queue_ext": str(self._paths.consume_queue_ext),
                "ext_file_size": store.mapped_file_size_consume_queue_ext,
                "time_sheet": memoryview(TimeSheet(handover.time_sheet).map()).cast("q"),
                "precision_ms": store.timer_precision_ms,
                "window_slots": roll_window_slots(settings),
                **live_options(settings),
            },
        )
        self._follower = SettingsFollower(segment, handover, lambda changed: self.loop.use(live_options(changed)))

    def run(self) -> None:
        """Deliver until the broker process says stop; then make durable how far everything is."""
        # What is to be read may be long; who sends need not wait for it.
        self._segment.set_worker_word(self._handover.row, "state", STATE["RUNNING"])
        self._recover()
        stop = threading.Event()
        thread = threading.Thread(target=self._keeper.run, args=(stop,), name="keeper", daemon=True)
        thread.start()
        while (news := self.loop.run(self._follower.version)) != TimerNews.TIMER_STOP:
            if news == TimerNews.TIMER_SETTINGS:
                self._follower.follow()
            elif news == TimerNews.TIMER_FAILED:
                self._pause()
            elif news == TimerNews.TIMER_LINK:
                if not self._link.read(4096):
                    return  # the broker process is gone
            else:
                self._keeper.offer(self._snapshot())
        stop.set()
        self._keeper.offer(self._snapshot())
        thread.join()
        self._wait_for_stop()
        self._keeper.finish()
        self._segment.set_worker_word(self._handover.row, "state", STATE["STOPPED"])

    def _wait_for_stop(self) -> None:
        """Do nothing until the last of the log is on disk: before, what was delivered cannot be called so."""
        self._segment.set_worker_word(self._handover.row, "state", STATE["DRAINED"])
        while self._segment.worker_word(self._handover.row, "command") == COMMAND["DRAIN"]:
            found = wait_ready([self._handover.wake, self._handover.link], STOP_POLL_S)
            if self._handover.wake in found:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._handover.wake)
            if self._handover.link in found and not self._link.read(4096):
                return

    def _recover(self) -> None:
        """Take over what is there: all of it files, of ours or of RocketMQ's."""
        began = time.monotonic()
        delivered = self._files.take_over(self.loop)
        self._keeper.begin(self._files.state)
        read_time, end, queue_offset, _, _ = self.loop.snapshot()
        logger.info(
            "timers taken over read_time=%d log_end=%d queue_offset=%d pending=%d delivered_before=%d took_ms=%d",
            read_time, end, queue_offset, self._segment.get("timer_pending"), delivered,
            (time.monotonic() - began) * 1000,
        )  # fmt: skip

    def _snapshot(self) -> Snapshot:
        return Snapshot(*self.loop.snapshot(), self.loop.pending_by_topic())

    def _pause(self) -> None:
        logger.error("a message cannot be put into the timer wheel, trying again: %s", self.loop.failure())
        wait_ready([self._handover.link], RETRY_PAUSE_S)  # an end of the broker process is seen by the loop


def run(settings: SettingValues, segment: SharedSegment, handover: Handover) -> None:
    """Deliver until the broker process says stop."""
    Timer(settings, segment, handover).run()
