"""Sends that wait for their answer: a broker that stands still is noticed before their time is over.

It closes no connection, and a send would wait until its time-out while another broker has long been the master. So once
a send has waited for a while, the route is asked for as after a failure. When that names another master, and the silent
broker no more, what waits for the silent one is broken off: nobody knows then whether it was stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from mqcore import clock

LONG_S: Final = 2.0
"""After so long without an answer the route is asked for. A broker that waits for disks or replicas may take longer."""

LOOK_S: Final = 0.5


class PendingSend:
    """A send to the broker at *address*, or what is used for one at a time."""

    __slots__ = ("address", "is_doubted", "since_s")

    def __init__(self, address: str) -> None:
        self.address = address
        self.since_s = 0.0
        self.is_doubted = False

    def break_off(self) -> None:
        """Let it fail now. Without effect where that is done with the connection that it shares."""


class WaitingSends:
    """Those of one client. ``begin`` and ``end`` may be called from any thread, the rest from the event loop's."""

    def __init__(self, on_silent: Callable[[str], None], trust: Callable[[str], None]) -> None:
        """*on_silent* is told the address of a broker that is silent, again and again; *trust* that it has answered."""
        self._on_silent = on_silent
        self._trust = trust
        self._all: set[PendingSend] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_looking = False

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()

    def begin(self, send: PendingSend) -> None:
        """Note that *send* waits from now on."""
        send.since_s, send.is_doubted = clock.monotonic_s(), False
        self._all.add(send)
        if not self._is_looking and self._loop is not None:
            self._is_looking = True
            self._loop.call_soon_threadsafe(self._look_later)

    def end(self, send: PendingSend, *, is_answered: bool) -> None:
        """Note that *send* waits no more."""
        self._all.discard(send)
        if is_answered and send.is_doubted and self._loop is not None:
            self._loop.call_soon_threadsafe(self._trust, send.address)

    def break_off(self, address: str) -> None:
        """Let all fail that wait for the broker at *address*."""
        for send in tuple(self._all):
            if send.address == address:
                send.break_off()

    def _look_later(self) -> None:
        if self._timer is None and self._loop is not None:
            self._timer = self._loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._timer = None
        long_ago_s = clock.monotonic_s() - LONG_S
        silent = [send for send in tuple(self._all) if send.since_s <= long_ago_s]
        for send in silent:
            send.is_doubted = True
        for address in {send.address for send in silent}:
            self._on_silent(address)
        # In this order: who begins meanwhile sees that nobody looks, or is seen here.
        self._is_looking = False
        if self._all:
            self._is_looking = True
            self._look_later()
