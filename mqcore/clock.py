"""The door to time, so that tests can stand in it."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Return the wall clock, milliseconds since the epoch; it may go back."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Return a clock that never goes back, milliseconds from an arbitrary start; for intervals only."""
    return time.monotonic_ns() // 1_000_000
