"""Back-pressure: how much may be under way at once, by count and by bytes.

A send waits here, in order of arrival, until there is room. One message larger than the whole byte limit may pass when
nothing else is under way, so that no send waits for ever. RocketMQ 4.9 has no byte limit; memory has.
"""

from __future__ import annotations

import asyncio
from collections import deque


class InflightLimit:
    """Room for *messages_max* messages and *bytes_max* bytes. Used from one event loop."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._messages = 0
        self._bytes = 0
        self._waiters: deque[tuple[asyncio.Future[None], int]] = deque()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def messages(self) -> int:
        return self._messages

    @property
    def bytes(self) -> int:
        return self._bytes

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    async def acquire(self, size: int) -> None:
        """Take room for one message of *size* bytes, waiting behind earlier callers if there is none."""
        if not self._waiters and self._has_room(size):
            self._take(size)
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (waiter, size)
        self._waiters.append(entry)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release(size)  # the room was given in the same turn in which the caller gave up
            elif entry in self._waiters:
                self._waiters.remove(entry)
                self._grant()  # a smaller message behind the one that left may fit
            raise

    def release(self, size: int) -> None:
        """Give back the room of one message of *size* bytes."""
        self._messages -= 1
        self._bytes -= size
        self._grant()
        if self._messages == 0:
            self._idle.set()

    async def wait_idle(self) -> None:
        """Return when nothing is under way."""
        await self._idle.wait()

    def _has_room(self, size: int) -> bool:
        if self._messages == 0:
            return True
        return self._messages < self._messages_max and self._bytes + size <= self._bytes_max

    def _take(self, size: int) -> None:
        self._messages += 1
        self._bytes += size
        self._idle.clear()

    def _grant(self) -> None:
        while self._waiters and self._has_room(self._waiters[0][1]):
            waiter, size = self._waiters.popleft()
            if not waiter.done():
                self._take(size)
                waiter.set_result(None)
