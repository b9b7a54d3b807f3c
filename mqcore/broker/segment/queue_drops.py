"""Dropping queues: of a deleted topic, or whose messages have all expired.

A drop happens at a place in the log. From there on no message is taken for the queues until their births stand in the
file ``incarnations``; then they begin at offset 0, and whatever of theirs lies before the place is dead. The reput
worker removes their files before it dispatches anything behind the place.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from mqcore._fast.log.append import CommitLogWriter
from mqcore._fast.segment.boards import SharedSegment
from mqcore.config import Settings
from mqcore.errors import StoreError
from mqcore.store.incarnations import Birth, Incarnations, anchors_at
from mqcore.store.log.mapped_file_queue import MappedFileQueue
from mqcore.store.paths import StorePaths

logger = logging.getLogger(__name__)

CLEARED_DEADLINE_S = 3.0
CHECK_S = 0.002
LOCK_TIMEOUT_MS = 1000


class QueueDrops:
    """Drops queues one after the other. *incarnations* is what recovery has read; *wake_reput* wakes the worker."""

    def __init__(
        self, settings: Settings, segment: SharedSegment, incarnations: Incarnations, wake_reput: Callable[[], None]
    ) -> None:
        store = settings.store
        self._segment = segment
        self._incarnations = incarnations
        self._wake_reput = wake_reput
        paths = StorePaths.of(settings.store)
        self._log = MappedFileQueue(paths.log, store.mapped_file_size_commit_log)
        # One of its own: a drop waits for the lock in a thread. It appends no message.
        self._writer = CommitLogWriter(segment, paths.log, store.mapped_file_size_commit_log, 0, LOCK_TIMEOUT_MS)
        self._turn = asyncio.Lock()

    async def drop(self, rows: Sequence[int], dead_before: int | None = None) -> None:
        """Drop the queues *rows*; those of topics that exist only with *dead_before*, and then only queues without a
        message behind that physical offset.

        Returns when their files are gone and everything before the drop is dispatched. Raises StoreError if that takes
        longer than CLEARED_DEADLINE_S, which changes nothing about the drop, or if a birth cannot be written, and then
        nothing is dropped.
        """
        async with self._turn:
            place, taken = await asyncio.to_thread(
                self._writer.begin_drop, list(rows), -1 if dead_before is None else dead_before
            )
            if not taken:
                return
            try:
                await asyncio.to_thread(self._note_births, place, taken)
            except OSError as error:
                await asyncio.to_thread(self._writer.end_drop, taken, -1)
                raise StoreError(f"queues not dropped, {self._incarnations.path} cannot be written: {error}") from error
            except BaseException:
                # Cancelled while the thread writes: the births may be on disk, and then they must count.
                await asyncio.shield(asyncio.to_thread(self._writer.end_drop, taken, place))
                raise
            await asyncio.to_thread(self._writer.end_drop, taken, place)
            self._wake_reput()
        logger.info("queues dropped count=%d born=%d", len(taken), place)
        await self._wait_until_cleared(place, taken)

    def _note_births(self, place: int, rows: Sequence[int]) -> None:
        self._log.refresh()
        anchors = anchors_at(self._log, place)
        # A file that stays mapped keeps its blocks when retention has deleted it.
        self._log.close()
        keys = [self._segment.queue_key(row) for row in rows]
        self._incarnations.add(Birth(topic.decode(), queue_id, place, anchors) for topic, queue_id in keys)

    async def _wait_until_cleared(self, place: int, rows: Sequence[int]) -> None:
        deadline = time.monotonic() + CLEARED_DEADLINE_S
        while self._segment.get("dispatched_offset") < place or any(map(self._is_old, rows)):
            if time.monotonic() >= deadline:
                dispatched = self._segment.get("dispatched_offset")
                raise StoreError(
                    f"dropped, but the reput worker has not removed the queues' files within {CLEARED_DEADLINE_S:g} s: "
                    f"it stands at {dispatched} in the log, the drop at {place}; it will when it goes on"
                )
            await asyncio.sleep(CHECK_S)

    def _is_old(self, row: int) -> bool:
        born, files_of = self._segment.queue_births(row)
        return born != files_of
