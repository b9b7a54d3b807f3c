"""How long a connection may take: for the headers of a request, for its body, for taking the answer, for going.

uvicorn knows one limit, between two requests; who sends a byte now and then would keep a connection for ever, and a few
dozen of those all of them. Here each thing that is waited for has its time, and where there are as many connections as
there may be, the one whose peer has let us wait for longest makes room for who comes.
"""

from __future__ import annotations

import asyncio
from enum import Enum, unique
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS_MAX: Final = 64
KEEP_ALIVE_S: Final = 15
BODY_BYTES_MAX: Final = 4 << 20
"""Twice what a form may have (``forms``): whoever sends more does not listen to the answer that says so."""


@unique
class Awaited(Enum):
    """What a connection waits for, and how long, in s."""

    HEADERS = 10.0
    NEXT_REQUEST = float(KEEP_ALIVE_S)
    BODY = 40.0
    """More than a form is read for, which is answered when its time is over."""
    ANSWER = 60.0
    """To be made, and to be taken by the peer."""
    END = 5.0
    """The peer has all but the last bytes, and is to take those."""


FREE_TO_GO: Final = frozenset({Awaited.HEADERS, Awaited.NEXT_REQUEST, Awaited.BODY})
"""What the peer alone is to blame for, so that its connection may make room for others."""


class PatientProtocol(H11Protocol):
    """uvicorn's protocol with a time for everything."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._awaited: Awaited | None = None
        self._since_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._body_bytes = 0

    # What asyncio and uvicorn call.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        if len(self.connections) >= CONNECTIONS_MAX:
            self._make_room()
        super().connection_made(transport)
        self._look()

    def data_received(self, data: bytes) -> None:
        if self._awaited is Awaited.NEXT_REQUEST:
            self._wait_for(Awaited.HEADERS)
        self._body_bytes = self._body_bytes + len(data) if self._awaited is Awaited.BODY else 0
        if self._body_bytes > BODY_BYTES_MAX:
            self.transport.abort()
            return
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._look()

    def shutdown(self) -> None:
        super().shutdown()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_for(None)
        super().connection_lost(exc)

    # Limits.

    def _look(self) -> None:
        """Find out what is waited for now. Its time runs on if that is what it was."""
        now = self._find()
        if now is not self._awaited:
            self._wait_for(now)

    def _find(self) -> Awaited:
        if self.transport.is_closing():
            return Awaited.END
        if self.conn.their_state is h11.SEND_BODY:
            return Awaited.BODY
        if self.conn.their_state is not h11.IDLE:
            return Awaited.ANSWER
        return Awaited.HEADERS if self.timeout_keep_alive_task is None else Awaited.NEXT_REQUEST

    def _wait_for(self, what: Awaited | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._awaited, self._since_s = what, self.loop.time()
        self._timer = None if what is None else self.loop.call_later(self._limit_s(what), self.transport.abort)

    def _limit_s(self, what: Awaited) -> float:
        return what.value

    def _make_room(self) -> None:
        waiting = [held for held in self.connections if isinstance(held, PatientProtocol) and held.may_go]
        if waiting:
            longest = min(waiting, key=lambda held: held._since_s)
            self.connections.discard(longest)  # what has not ended before the next one is counted
            longest.transport.abort()

    @property
    def may_go(self) -> bool:
        """Whether its peer has let us wait, and nobody works for it."""
        return self._awaited in FREE_TO_GO
