"""The reput worker: the only writer of consume queues and index files. Its loop is _fast/reput/loop.pyx."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import struct
import threading
from pathlib import Path

from mqcore import layout
from mqcore._fast.base.process import ask_for_short_slices
from mqcore._fast.reput.loop import ReputLoop, ReputNews
from mqcore._fast.segment.boards import SharedSegment
from mqcore.config import SettingValues
from mqcore.errors import StoreError
from mqcore.files import bury_directory
from mqcore.protocol.names import METADATA_TOPIC
from mqcore.readiness import wait_ready
from mqcore.store.geometry import StoreGeometry
from mqcore.store.paths import StorePaths
from mqcore.workers.handover import Handover
from mqcore.workers.link_frames import LinkFrames, link_message

logger = logging.getLogger(__name__)

STATE = layout.constants("WorkerState")
KIND = layout.constants("WorkerKind")
STORE_FLAG = layout.constants("StoreFlag")
LINK_KIND = layout.constants("LinkKind")
LINK_READ_SIZE = 65_536
RETRIES_MAX = 30
RETRY_PAUSE_S = 1.0
MAKER_NICENESS = 5
"""What the maker of first files does can wait while others have work: its queues are readable without."""


class Reput:
    """Drives the loop and does what it comes back for."""

    def __init__(self, settings: SettingValues, segment: SharedSegment, handover: Handover) -> None:
        store = settings.store
        self._segment = segment
        self._handover = handover
        self._paths = StorePaths.of(settings.store)
        self._link = os.fdopen(handover.link, "r+b", buffering=0)
        self._births: dict[int, int] = {}  # of queue rows, as far as the loop knows them
        self._graves: list[Path] = []
        self._failures = 0
        self._ext_failed = 0
        self._frames = LinkFrames(LINK_READ_SIZE)
        self._has_resumed = False
        self.loop = ReputLoop(self._paths, StoreGeometry.of(settings.store))
        self.loop.attach(
            segment,
            {
                "row": handover.row,
                "wake": handover.wake,
                "link": handover.link,
                "commit_log": self._paths.log,
                "commit_log_file_size": store.mapped_file_size_commit_log,
                "pullers": [(peer.row, peer.wake) for peer in handover.pullers],
                "metadata_topic": METADATA_TOPIC.encode(),
                "timer": (handover.timer.row, handover.timer.wake),
            },
        )

    def run(self) -> None:
        """Follow the commit log until the broker process says stop; then make the index durable.

        The consume queues are left to the flush worker, which stops later and knows what it has not synced yet.
        """
        maker = threading.Thread(target=self._make_first_files, name="first files", daemon=True)
        maker.start()
        # Not for the maker: what was acknowledged is seen when this thread has dispatched it.
        ask_for_short_slices()
        self._segment.set_worker_word(self._handover.row, "state", STATE["RUNNING"])
        # A predecessor may have died between a unit and the word of it.
        self.loop.rescan()
        # What bitmaps are made by is there by now, most often.
        self._read_waiting()
        while True:
            news = self.loop.run()
            if news == ReputNews.REPUT_STOP:
                break
            if news == ReputNews.REPUT_FAILED:
                self._retry_later()
            elif news == ReputNews.REPUT_CORRUPT:
                at, target = self.loop.skip_damage()
                logger.error("damaged record in the commit log, skipped from=%d to=%d", at, target)
            elif news == ReputNews.REPUT_DROPS:
                self._clear_dropped()
            elif news == ReputNews.REPUT_LINK:
                if not self._read_link():
                    return  # the broker process is gone
            elif self._failures:
                self._recovered()
            else:
                # While there is work the loop does not look at the link.
                self._read_waiting()
                self.loop.flush_index(full_only=True)
                self._watch_ext()
        try:
            self.loop.leave_cradles()
        except StoreError as error:
            # The flush worker leaves such queues out, and the next start counts as one after a crash.
            logger.error("new queues have no files error=%s", error)
        self.loop.stop_maker()
        maker.join()
        self.loop.flush_index()
        self.loop.close()
        self._segment.set_worker_word(self._handover.row, "state", STATE["STOPPED"])

    def _read_link(self) -> bool:
        """Read once and do what has come whole; False at the end of the broker process."""
        count = self._link.readinto(self._frames.room()) or 0
        for kind, _, payload in self._frames.take(count):
            if kind == LINK_KIND["TOPIC_FILTERS"]:
                self._take_filters(payload)
        return count > 0

    def _read_waiting(self) -> None:
        while wait_ready([self._handover.link], 0) and self._read_link():
            pass

    def _take_filters(self, payload: bytes) -> None:
        request_id, topic, bitmap_bits, filters = read_filters(payload)
        try:
            taken_from = self.loop.set_filters(topic, bitmap_bits, filters)
        except (ValueError, MemoryError) as error:
            logger.error("no bitmaps, its filters could not be taken topic=%s error=%s", topic.decode(), error)
            taken_from = -1
        answer = layout.FILTERS_TAKEN.struct.pack(request_id, taken_from)
        self._link.write(link_message(LINK_KIND["FILTERS_TAKEN"], 0, answer))

    def _make_first_files(self) -> None:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), os.nice(0) + MAKER_NICENESS)
        self.loop.make_first_files()

    def _retry_later(self, error: Exception | None = None) -> None:
        # As upstream: thirty tries a second apart, then puts are refused. Unlike it, we go on trying, and a disk that
        # has room again lets them in again.
        self._failures += 1
        logger.warning("consume queue or index cannot be written tries=%d error=%s", self._failures,
                       self._error() if error is None else error)  # fmt: skip
        if self._failures == RETRIES_MAX:
            self._segment.set_flags(STORE_FLAG["CONSUME_QUEUE_ERROR"])
            logger.error("the store refuses messages until consume queues can be written")
        self._read_waiting()
        wait_ready([self._handover.link], RETRY_PAUSE_S)  # an end of the broker process is seen by the loop

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

    def _clear_dropped(self) -> None:
        """Remove the files of queues that were dropped; their records stay in the log until they expire, and are dead.

        Nothing is dispatched until they are gone: what comes next may be of the queues that were born in their place.
        """
        count = self.loop.note_drops()
        try:
            for row, born, is_cleared in self._segment.born_queues():
                if self._births.get(row) != born:
                    self._bear(row, born, is_cleared)
            if not self._has_resumed:
                # Now those of queues that were dropped are gone, and the others are not forgotten any more.
                self.loop.resume_cradles()
                self._has_resumed = True
        except OSError as error:
            self._retry_later(error)
            return
        self.loop.drops_done(count)
        # Who waits for a message of an old queue waits for one of the new.
        self.loop.rescan()
        while self._graves:
            shutil.rmtree(self._graves.pop())

    def _bear(self, row: int, born: int, is_cleared: bool) -> None:
        name, queue_id = self._segment.queue_key(row)
        self.loop.bear(name, queue_id, born)
        if not is_cleared:
            topic = name.decode()
            for directory in (self._paths.queue(topic, queue_id), self._paths.queue_ext(topic, queue_id)):
                grave = bury_directory(directory, self._paths.root)
                if grave is not None:
                    self._graves.append(grave)
                with contextlib.suppress(OSError):  # other queues of the topic are there, or there was none
                    directory.parent.rmdir()
            self.loop.clear_queue(row, born)
            logger.info("consume queue dropped queue=%s/%d born=%d", topic, queue_id, born)
        self._births[row] = born


def read_filters(payload: bytes) -> tuple[int, bytes, int, list[tuple[tuple[int, ...], bytes]]]:
    """Read TOPIC_FILTERS: request id, topic, bits of a bitmap, and (bits, program) of each filter."""
    head = layout.TOPIC_FILTERS
    request_id, topic_size, count, bitmap_bits, bit_count = head.struct.unpack_from(payload)
    at = head.size + topic_size
    topic = payload[head.size : at]
    entry = struct.Struct(f"={1 + bit_count}i")
    filters = []
    for _ in range(count):
        size, *bits = entry.unpack_from(payload, at)
        at += entry.size
        filters.append((tuple(bits), payload[at : at + size]))
        at += size
    return request_id, topic, bitmap_bits, filters


def run(settings: SettingValues, segment: SharedSegment, handover: Handover) -> None:
    """Dispatch until the broker process says stop."""
    Reput(settings, segment, handover).run()
