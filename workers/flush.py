"""The flush worker: what is written becomes durable, and the next files are there before they are needed.

Three threads, since none may wait for another's disk: the commit log (group commit, or RocketMQ's timed rules), the
files ahead (reserve and warm), and the housekeeping (consume queues, checkpoint, disk space, retention). The flushed
watermark moves only after a sync that succeeded. A sync that failed is final: the store turns read-only and says why.
Each thread goes by a frozen set of rules, which the first one replaces when other settings are published.
"""

from __future__ import annotations

import logging
import os
import threading

from mqcore import layout
from mqcore._fast.segment.boards import SharedSegment
from mqcore.config import FlushDiskType, SettingValues
from mqcore.workers.commit_log_flusher import CommitLogFlusher
from mqcore.workers.file_keeper import FileKeeper
from mqcore.workers.handover import Handover
from mqcore.workers.settings_sheet import SettingsFollower
from mqcore.workers.store_keeper import StoreKeeper

logger = logging.getLogger(__name__)

COMMAND = layout.constants("WorkerCommand")
STATE = layout.constants("WorkerState")
KIND = layout.constants("WorkerKind")
STORE_FLAG = layout.constants("StoreFlag")


def run(settings: SettingValues, segment: SharedSegment, handover: Handover) -> None:
    """Flush until the broker process says stop, then flush everything once more."""
    flusher = CommitLogFlusher(settings, segment, handover)
    files = FileKeeper(
        settings, segment, [*(peer.row for peer in handover.senders), handover.reput.row, handover.ha.row]
    )
    store = StoreKeeper(settings, segment)

    def use(changed: SettingValues) -> None:
        for keeper in (flusher, files, store):
            keeper.use(changed)

    follower = SettingsFollower(segment, handover, use)
    stop = threading.Event()
    threads = [
        threading.Thread(target=guarded, args=(keeper.run, stop), name=name, daemon=True)
        for name, keeper in (("files", files), ("store", store))
    ]
    for thread in threads:
        thread.start()
    segment.set_worker_word(handover.row, "state", STATE["RUNNING"])
    follow = (
        flusher.follow_groups if settings.store.flush_disk_type is FlushDiskType.SYNC_FLUSH else flusher.follow_time
    )
    while segment.worker_word(handover.row, "command") != COMMAND["STOP"]:
        if follower.has_news:
            follower.follow()
        follow()
        if not all(thread.is_alive() for thread in threads):
            raise SystemExit("a thread of the flush worker ended; see the log")
    stop.set()
    for thread in threads:
        thread.join()
    flusher.flush_all()
    store.flush_all()
    segment.set_worker_word(handover.row, "state", STATE["STOPPED"])


def guarded(loop: object, stop: threading.Event) -> None:
    """Run a keeper's loop; an error that it does not know ends the worker, and the supervisor starts it anew."""
    try:
        loop(stop)  # type: ignore[operator]
    except Exception:
        logger.exception("thread failed name=%s", threading.current_thread().name)
        os._exit(1)
