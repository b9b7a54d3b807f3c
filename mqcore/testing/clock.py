"""The clock of the clients in a test's own process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from mqcore import clock


class ClientClock:
    """The time in which this process's clients live. Made by ``client_clock``."""

    def __init__(self) -> None:
        self._ahead = timedelta()

    def now_ms(self) -> int:
        """Return the time of day as clients see it, ms since 1970."""
        return clock.now_ms()

    def advance(self, by: timedelta | None = None, *, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Let clients find that so much time has passed."""
        self._ahead += (by or timedelta()) + timedelta(hours=hours, minutes=minutes, seconds=seconds)
        clock.put_ahead(round(self._ahead.total_seconds() * 1000))


@contextmanager
def client_clock() -> Iterator[ClientClock]:
    """Return, in a ``with`` block, the clock of this process's clients; behind the block they have the real time again.

    It moves what clients compare with the time of day: how long a broker that failed is left out (fault avoidance), the
    time in message ids, the time that a message says it was born. Time-outs, and intervals such as those of
    heart-beats, are the event loop's and go on as they are: give them short settings. What waits at the broker is moved
    by ``RunningBroker.advance``.
    """
    made = ClientClock()
    try:
        yield made
    finally:
        clock.put_ahead(0)
