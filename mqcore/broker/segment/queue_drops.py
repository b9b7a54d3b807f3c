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
from mqcore.broker.ports.queue_dropper import Announce
from mqcore.config import Settings
from mqcore.errors import MetadataNotStoredError, StoreError
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
        self._writing = asyncio.Lock()
        self.announce: Announce | None = None
        """Of a failover group: drops are told before they are made."""

    async def drop(self, rows: Sequence[int], dead_before: int | None = None) -> None:
        """Drop the queues *rows*; those of topics that exist only with *dead_before*, and then only queues without a
        message behind that physical offset.

        Returns when their files are gone and everything before the drop is dispatched. Raises StoreError if that takes
        longer than CLEARED_DEADLINE_S, which changes nothing about the drop, or if a birth cannot be written, and then
        nothing is dropped.
        """
        async with self._turn:
            async with self._writing:
                place, taken = await asyncio.to_thread(
                    self._writer.begin_drop, list(rows), -1 if dead_before is None else dead_before
                )
            if not taken:
                return
            if self.announce is None:
                await self._drop_alone(place, taken)
            else:
                await self._announce(self.announce, place, taken)
        await self._wait_until_cleared(place, taken)

    async def _announce(self, announce: Announce, place: int, taken: Sequence[int]) -> None:
        keys = [self._segment.queue_key(row) for row in taken]
        try:
            await announce(place, [(topic.decode(), queue_id) for topic, queue_id in keys])
        except MetadataNotStoredError:
            await self._end(taken, -1)
            raise

    async def _drop_alone(self, place: int, taken: Sequence[int]) -> None:
        try:
            await self._bear(place, taken)
        except OSError as error:
            await self._end(taken, -1)
            raise StoreError(f"queues not dropped, {self._incarnations.path} cannot be written: {error}") from error

    async def carry_out(self, born: int, queues: Sequence[tuple[str, int]]) -> None:
        """See ports.QueueDropper. The queues need not have been kept from messages: who copies the log has none."""
        found = [self._segment.queue_row(topic.encode(), queue_id) for topic, queue_id in queues]
        rows = [row for row in found if row >= 0 and self._segment.queue_births(row)[0] < born]
        if rows:
            await self._bear(born, rows)

    def applied(self, end: int) -> None:
        """See ports.QueueDropper."""
        if end > self._segment.get("drops_applied"):
            self._segment.set("drops_applied", end)
            self._wake_reput()

    async def _bear(self, place: int, taken: Sequence[int]) -> None:
        """Have the queues begin anew at *place*. Raises OSError, and then nothing is changed."""
        try:
            await asyncio.to_thread(self._note_births, place, taken)
        except OSError:
            raise
        except BaseException:
            # Cancelled while the thread writes: the births may be on disk, and then they must count.
            await asyncio.shield(self._end(taken, place))
            raise
        await self._end(taken, place)
        self._wake_reput()
        logger.info("queues dropped count=%d born=%d", len(taken), place)

    async def _end(self, taken: Sequence[int], born: int) -> None:
        async with self._writing:
            await asyncio.to_thread(self._writer.end_drop, list(taken), born)

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
