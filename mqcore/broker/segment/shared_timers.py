"""ports.TimerPort on the shared segment, the store's files and the supervisor."""

from __future__ import annotations

import asyncio
import mmap
from collections.abc import Awaitable, Callable
from typing import Final

from mqcore._fast.segment.boards import SharedSegment
from mqcore.broker.ports.timers import TimerFacts
from mqcore.config import BrokerRole, Settings
from mqcore.protocol.names import TIMER_TOPIC
from mqcore.store.paths import StorePaths
from mqcore.store.timer.checkpoint import TimerCheck
from mqcore.store.timer.wheel import TimerWheel, map_wheel

ALL_IS_KEPT: Final = 1
"""Of store_board.timer_keeps: retention waits until the timer worker has said what it needs."""


class SharedTimers:
    """Looks at the board and at the worker's files. *start_worker* starts it and returns when it runs."""

    def __init__(self, settings: Settings, segment: SharedSegment, start_worker: Callable[[], Awaitable[None]]) -> None:
        self._settings = settings
        self._segment = segment
        self._paths = StorePaths.of(settings.store)
        self._start_worker = start_worker
        self._starting = asyncio.Lock()
        self._map: mmap.mmap | None = None
        self._inode = 0

    def are_there(self, *, has_topic: bool) -> bool:
        """Whether the store has had timers, ours or RocketMQ's, that are to go on.

        *has_topic*: whether the broker knows the timer topic, which is there before the first message is; its queue's
        directory may come later.
        """
        paths = (self._paths.timer_wheel, self._paths.timer_log, self._paths.queue(TIMER_TOPIC, 0))
        store = self._settings.store
        # A slave delivers nothing by itself: what its master delivers is in the log that it copies.
        is_ours = store.timer_wheel_enable and store.broker_role is not BrokerRole.SLAVE
        return is_ours and (has_topic or any(path.exists() for path in paths))

    async def start(self) -> None:
        async with self._starting:
            segment = self._segment
            if segment.get("timer_keeps") == 0:
                segment.set("timer_keeps", ALL_IS_KEPT)
            row = segment.queue_row(TIMER_TOPIC.encode(), 0, True)
            # The send workers put messages there from now on; the worker finds those that come before it runs.
            segment.set("timer_row", row + 1)
            await self._start_worker()

    def facts(self) -> TimerFacts:
        get = self._segment.get
        row = get("timer_row") - 1
        if row < 0:
            return TimerFacts()
        return TimerFacts(
            read_time=get("timer_read_time"),
            behind=max(0, self._segment.queue_bounds(row)[1] - get("timer_queue_offset")),
            pending=get("timer_pending"),
            enqueued=get("timer_enqueued"),
            delivered=get("timer_delivered"),
        )

    def slot_count(self, slot_time: int) -> int:
        try:
            inode = self._paths.timer_wheel.stat().st_ino
            if self._map is None or inode != self._inode:  # a worker that finds it damaged builds another one
                self._map, self._inode = map_wheel(self._paths.timer_wheel), inode
        except FileNotFoundError:
            return 0
        return TimerWheel(self._map, self._settings.store.timer_precision_ms).slot(slot_time).message_count

    def checkpoint(self) -> bytes:
        return TimerCheck.read(self._paths.timer_check).encode()

    def metrics(self) -> bytes:
        try:
            return self._paths.timer_metrics.read_bytes()
        except FileNotFoundError:
            return b""
