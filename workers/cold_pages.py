"""Lets go of commit log pages that nobody will read soon, so that new ones come out of the same memory.

A log that only grows takes fresh memory for every page until the machine has none left; from then on the kernel must
find an old page for each new one, in the middle of an append. On a virtual machine fresh memory is dear besides: the
host has to find it first. So the newest bytes stay in the page cache, and what is older leaves as soon as it is on
disk, in the consume queues, and behind every group that is reading.

Nothing can be lost by it: the kernel drops only pages whose bytes are on disk, and reads them again for who asks.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mqcore import layout
from mqcore._fast.segment.boards import SharedSegment
from mqcore.config import SettingValues
from mqcore.machine import memory_bytes
from mqcore.store.paths import StorePaths

STORE_FLAG: Final = layout.constants("StoreFlag")
STEP: Final = 4 * 2**20
"""Bytes let go of at once at least."""

GRACE_S: Final = 1.5
"""After this the kernel is asked once more: it keeps pages that somebody has mapped, and the broker process, for which
nobody waits, looks at the end of the cold pages once a second."""

CATCHING_UP_MS: Final = 10_000
"""A slave catches up for as long as what comes was stored by its master longer ago than that, wall clock."""

CATCHING_UP_HOT: Final = 256 * 2**20
"""Bytes that stay in the page cache then; those that are warmed for what comes next are among them."""

READERS_LOOK_S: Final = 1.0
READERS_KEPT_MS: Final = 10_000
"""A group that was given no message for so long does not hold pages any more."""


class ColdPages:
    """One thread drives it, in the flush worker. Times are those of the monotonic clock unless they say wall clock."""

    def __init__(self, settings: SettingValues, segment: SharedSegment, rows: Sequence[int]) -> None:
        """*rows* are those of the workers that map the commit log and say how far they have let go of it."""
        store = settings.store
        self._segment = segment
        self._rows = rows
        self._places = StorePaths.of(store).log
        self._file_size = store.mapped_file_size_commit_log
        self._hot = settings.mqcore.commit_log_hot_bytes
        self.use(settings)
        # What was written before this start is left to the kernel.
        start = max(segment.get("cold_end"), self._end_of_log() - self._hot, 0)
        self._dropped = start - start % STEP
        self._wrote = segment.get("wrote_offset")
        self._again: deque[tuple[float, int, int]] = deque()
        self._readers_behind = 0
        self._look_at = 0.0

    def use(self, settings: SettingValues) -> None:
        """Go by *settings*, as far as they may change."""
        # Farther back a message counts as one on disk for pulls, too.
        share = settings.store.access_message_in_memory_max_ratio_percent
        self._hot_for_readers = max(self._hot, memory_bytes() * share // 100)

    def let_go(self, now: float, wall_clock_ms: int) -> int:
        """Move the end of the cold pages, drop what the workers have let go of, and return that end."""
        get = self._segment.get
        cold = get("cold_end")
        if self._hot == 0:
            return cold
        self._look_at_readers(now, wall_clock_ms)
        hot = min(self._hot, CATCHING_UP_HOT) if self._catches_up(wall_clock_ms) else self._hot
        kept = min(max(hot, 2 * self._readers_behind), self._hot_for_readers)
        end = min(self._end_of_log() - kept, get("flushed_offset"), get("dispatched_offset"))
        if end - max(cold, self._dropped) >= STEP:
            cold = end - end % STEP
            self._segment.set("cold_end", cold)
        released = min([cold, *(self._segment.worker_word(row, "released") for row in self._rows)])
        if released > self._dropped:
            self._drop(self._dropped, released)
            self._again.append((now + GRACE_S, self._dropped, released))
            self._dropped = released
        while self._again and self._again[0][0] <= now:
            self._drop(*self._again.popleft()[1:])
        return cold

    def _end_of_log(self) -> int:
        return max(self._segment.get("wrote_offset"), self._segment.get("warmed_end"))

    def _catches_up(self, wall_clock_ms: int) -> bool:
        """Whether this is a slave, and what has come since it was last asked is old."""
        wrote = self._segment.get("wrote_offset")
        has_grown = wrote > self._wrote
        self._wrote = wrote
        is_slave = bool(self._segment.get("store_flags") & STORE_FLAG["SLAVE"])
        return is_slave and has_grown and wall_clock_ms - self._segment.get("wrote_timestamp") > CATCHING_UP_MS

    def _look_at_readers(self, now: float, wall_clock_ms: int) -> None:
        if now >= self._look_at:
            self._look_at = now + READERS_LOOK_S
            self._readers_behind = self._segment.behind_bytes_max(wall_clock_ms - READERS_KEPT_MS)

    def _drop(self, start: int, end: int) -> None:
        while start < end:
            at = start % self._file_size
            size = min(end - start, self._file_size - at)
            drop_pages(self._places.path_of(start - at), at, size)
            start += size


def drop_pages(path: Path, offset: int, size: int) -> None:
    """Ask the kernel to drop the pages of *path* whose bytes are on disk and which nobody has mapped. Never fails."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return  # retention was faster
    try:
        os.posix_fadvise(descriptor, offset, size, os.POSIX_FADV_DONTNEED)
    except OSError:
        return  # a file system without a page cache
    finally:
        os.close(descriptor)
