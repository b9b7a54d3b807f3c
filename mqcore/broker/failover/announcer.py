"""A broker says again and again that it is there: a key under its id, with a lease that ends if it says so no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from mqcore import clock
from mqcore.errors import EngineError

from .etcd import EtcdEngine
from .facts import Announcement
from .group_keys import ALIVE, encode

RETRY_S: Final = 0.1
LOOK_S: Final = 0.05
NAME_TAKEN_LEASES: Final = 4
"""A name that was refused for so many leases is another process's, and no remnant of an earlier one."""


class Announcer:
    """Announces member *me* by what *announcement* returns, in one life of its broker."""

    def __init__(self, engine: EtcdEngine, me: int, lease_s: int, announcement: Callable[[], Announcement]) -> None:
        """*engine* keeps the lease over lives."""
        self._engine = engine
        self._key = f"{ALIVE}{me}"
        self._lease_s = lease_s
        self._announcement = announcement
        self._turn = asyncio.Lock()
        self._at_s = 0.0
        self._refused_since_s: float | None = None
        self.is_announced = False
        self._renewed_s = 0.0
        self.heard_s = 0.0
        """When the engine answered last, by the monotonic clock."""

    @property
    def is_name_taken(self) -> bool:
        """Whether another process has the name."""
        since_s = self._refused_since_s
        return since_s is not None and clock.monotonic_s() - since_s > NAME_TAKEN_LEASES * self._lease_s

    @property
    def is_expiring(self) -> bool:
        """Whether the lease was not renewed for two thirds of its time, that included for which the machine slept."""
        return clock.boot_s() - self._renewed_s > self._lease_s * 2 / 3

    def soon(self) -> None:
        """Let ``rest`` end."""
        self._at_s = 0.0

    async def rest(self) -> None:
        """Return when it is time to announce again."""
        while clock.monotonic_s() < self._at_s:
            await asyncio.sleep(LOOK_S)

    async def announce(self) -> None:
        """Say what there is to say now. Raises EngineError."""
        self._at_s = clock.monotonic_s() + self._lease_s / 3
        try:
            async with self._turn:
                began_s = clock.boot_s()
                is_ours = await self._engine.announce(self._key, encode(self._announcement()), self._lease_s)
        except EngineError:
            self._at_s = min(self._at_s, clock.monotonic_s() + RETRY_S)
            raise
        self.heard_s = clock.monotonic_s()
        if is_ours:
            self.is_announced, self._refused_since_s, self._renewed_s = True, None, began_s
        else:
            self._refused_since_s = self._refused_since_s or self.heard_s
            self._at_s = self.heard_s + RETRY_S
