"""Keeps commit log files ready ahead of the appends: made with all blocks reserved, pages in memory.

Pages touched for the first time cost an append several times its price, so those just ahead are touched here and not
under the put lock.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Sequence

from mqcore import layout
from mqcore._fast.log.mapped_file import MappedFiles
from mqcore._fast.segment.boards import SharedSegment
from mqcore.config import SettingValues
from mqcore.store.paths import StorePaths
from mqcore.workers.cold_pages import ColdPages

logger = logging.getLogger(__name__)

STORE_FLAG = layout.constants("StoreFlag")
WARM_STEP = 4 * 2**20
WARM_MIN = 4 * 2**20
WARM_MAX = 256 * 2**20
WARM_AHEAD_S = 0.5
BUSY_PAUSE_S = 0.01
IDLE_PAUSE_S = 0.5
BUSY_FOR_S = 1.0
RETRY_S = 1.0


class FileKeeper:
    """One thread drives it. It never touches what is written: reserving and populating change no byte."""

    def __init__(self, settings: SettingValues, segment: SharedSegment, log_rows: Sequence[int] = ()) -> None:
        """*log_rows* are the rows of the workers that map the commit log."""
        store = settings.store
        self._segment = segment
        self._file_size = store.mapped_file_size_commit_log
        places = StorePaths.of(store).log
        self._files = MappedFiles(places, self._file_size, lock_fd=segment.fd)
        self._retry_at = 0.0
        self._rate = 0.0
        self._seen = (time.monotonic(), segment.get("wrote_offset"))
        self._busy_until = 0.0
        self._cold_pages = ColdPages(settings, segment, log_rows)

    def use(self, settings: SettingValues) -> None:
        """Go by *settings*, as far as they may change."""
        self._cold_pages.use(settings)

    def run(self, stop: threading.Event) -> None:
        """Keep ahead until *stop* is set."""
        while not stop.is_set():
            self.keep_ahead()
            stop.wait(BUSY_PAUSE_S if time.monotonic() < self._busy_until else IDLE_PAUSE_S)

    def keep_ahead(self) -> None:
        """Make the file that is written and the next one; warm what will be written in the next half second."""
        now = time.monotonic()
        wrote = self._segment.get("wrote_offset")
        self._measure(now, wrote)
        if now < self._retry_at:
            return
        try:
            self._make_files(wrote)
            self._let_go()
            self._warm(wrote)
        except OSError as error:
            # EFAULT of a populate means the same as ENOSPC of a reservation.
            self._retry_at = now + RETRY_S
            is_full = error.errno in (errno.ENOSPC, errno.EFAULT, errno.EDQUOT)
            logger.warning("next commit log file is not ready full=%s error=%s", is_full, error)

    def _measure(self, now: float, wrote: int) -> None:
        then, before = self._seen
        if now - then >= 0.1:
            self._rate = (wrote - before) / (now - then)
            self._seen = (now, wrote)
        if wrote != before:
            self._busy_until = now + BUSY_FOR_S

    def _make_files(self, wrote: int) -> None:
        if wrote == 0 and self._segment.get("store_flags") & STORE_FLAG["SLAVE"]:
            return  # where the log of an empty slave begins, its master says
        wanted = wrote - wrote % self._file_size + 2 * self._file_size
        while self._segment.get("prepared_end") < wanted:
            start = max(self._segment.get("prepared_end"), wrote - wrote % self._file_size)
            # A file that has been written to is there, or lost; an empty one must not take its place.
            if start >= wrote:
                self._files.make(start)
            self._segment.set("prepared_end", start + self._file_size)
            self._segment.clear_flags(STORE_FLAG["NO_NEXT_FILE"])

    def _warm(self, wrote: int) -> None:
        ahead = int(min(max(self._rate * WARM_AHEAD_S, WARM_MIN), WARM_MAX))
        target = min(wrote + ahead, self._segment.get("prepared_end"))
        at = max(self._segment.get("warmed_end"), wrote)
        while at < target:
            step = min(WARM_STEP, target - at, self._file_size - at % self._file_size)
            self._files.warm(at, step)
            at += step
            self._segment.set("warmed_end", at)
            # New pages are to come out of the memory of old ones, so the two go on together.
            self._let_go()
        self._files.trim(wrote - wrote % self._file_size)

    def _let_go(self) -> None:
        self._files.release(self._cold_pages.let_go(time.monotonic(), time.time_ns() // 1_000_000))
