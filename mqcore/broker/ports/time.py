"""What time it is, for who must not ask the machine."""

from __future__ import annotations

from collections.abc import Callable

from mqcore import clock

Clock = Callable[[], int]
"""Milliseconds since the epoch."""


def wall_clock_ms() -> int:
    """Return the time of this machine's clock."""
    return clock.now_ms()
