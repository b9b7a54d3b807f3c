"""The door to time, so that tests can stand in it."""

from __future__ import annotations

import time

_ahead_ms = 0
"""How far this process believes to be ahead of the real time: 0 except in tests."""


def now_ms() -> int:
    """Return the wall clock, milliseconds since the epoch; it may go back."""
    return time.time_ns() // 1_000_000 + _ahead_ms


def monotonic_ms() -> int:
    """Return a clock that never goes back, milliseconds from an arbitrary start; for intervals only."""
    return time.monotonic_ns() // 1_000_000 + _ahead_ms


def put_ahead(duration_ms: int) -> None:
    """Let both clocks of this process be *duration_ms* ahead of the real time, 0 for none. For tests only."""
    global _ahead_ms
    _ahead_ms = duration_ms
