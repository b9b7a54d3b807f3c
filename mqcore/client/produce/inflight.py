"""Back-pressure: how much may be under way at once, by count and by bytes.

A send waits here, in order of arrival, until there is room. One message larger than the whole byte limit may pass when
nothing else is under way, so that no send waits for ever. RocketMQ 4.9 has no byte limit; memory has.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from mqcore.client.produce.codec import Room


class _Waiter:
    """Somebody who waits for *size* bytes; *wake* tells him, from any thread, that he has got them."""

    __slots__ = ("is_granted", "size", "wake")

    def __init__(self, size: int, wake: Callable[[], object]) -> None:
        self.size = size
        self.wake = wake
        self.is_granted = False


class InflightLimit:
    """Room for *messages_max* messages and *bytes_max* bytes. Event loops and threads may use one at the same time."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self.room = Room(messages_max, bytes_max)
        self._lock = threading.Lock()
        self._waiters: deque[_Waiter] = deque()
        self._idle_waiters: list[Callable[[], object]] = []

    @property
    def messages(self) -> int:
        return self.room.messages

    @property
    def bytes(self) -> int:
        return self.room.bytes

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    def try_acquire(self, size: int) -> bool:
        """Take room for one message of *size* bytes if there is some and nobody waits for it; never waits itself."""
        return self.room.try_take(size)

    async def acquire(self, size: int) -> None:
        """Take room for one message of *size* bytes, waiting behind earlier callers if there is none."""
        if self.try_acquire(size):
            return
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        waiter = self._enqueue(size, lambda: _wake(loop, woken))
        try:
            await woken
        except asyncio.CancelledError:
            self._leave(waiter)
            raise

    def acquire_blocking(self, size: int) -> None:
        """Do the same for a thread without an event loop; an interrupt of the waiting thread gives its place up."""
        if self.try_acquire(size):
            return
        woken = threading.Event()
        waiter = self._enqueue(size, woken.set)
        try:
            woken.wait()
        except BaseException:
            self._leave(waiter)
            raise

    def release(self, size: int, count: int = 1) -> None:
        """Give back the room of *count* messages of *size* bytes together."""
        if not self.room.give_back(size, count):
            return
        with self._lock:
            granted = self._grant()
        for wake in granted:
            wake()

    async def wait_idle(self) -> None:
        """Return when nothing is under way."""
        loop = asyncio.get_running_loop()
        while self.room.messages:
            woken: asyncio.Future[None] = loop.create_future()
            with self._lock:
                self._idle_waiters.append(partial(_wake, loop, woken))
                granted = self._grant()  # the last one may have ended since the look before
            for wake in granted:
                wake()
            await woken

    def _enqueue(self, size: int, wake: Callable[[], object]) -> _Waiter:
        waiter = _Waiter(size, wake)
        with self._lock:
            self._waiters.append(waiter)
            self.room.has_waiters = (
                True  # from here on nobody passes by, and whoever gives room back comes to ``_grant``
            )
            granted = self._grant()  # there may have been room since the look before
        for call in granted:
            call()
        return waiter

    def _leave(self, waiter: _Waiter) -> None:
        """Take out a waiter who gave up; give back what he was given at the same moment."""
        with self._lock:
            was_granted = waiter.is_granted
            granted = []
            if not was_granted:
                self._waiters.remove(waiter)
                granted = self._grant()  # a smaller message behind the one that left may fit
        if was_granted:
            self.release(waiter.size)
        for wake in granted:
            wake()

    def _grant(self) -> list[Callable[[], object]]:
        """Under the lock: give room to those who wait, as far as there is some; return whom to wake."""
        self.room.has_waiters = True
        granted: list[Callable[[], object]] = []
        while self._waiters and self.room.take(self._waiters[0].size):
            waiter = self._waiters.popleft()
            waiter.is_granted = True
            granted.append(waiter.wake)
        if not self.room.messages:
            granted += self._idle_waiters
            self._idle_waiters = []
        self.room.has_waiters = bool(self._waiters or self._idle_waiters)
        return granted


def _wake(loop: asyncio.AbstractEventLoop, woken: asyncio.Future[None]) -> None:
    # A loop that has been closed meanwhile has nobody left to wake.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(_set_done, woken)


def _set_done(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
