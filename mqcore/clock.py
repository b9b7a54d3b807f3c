"""The doors to time, so that tests can stand in them: who asks what time it is, or how long something took, asks here.

Call them through the module, ``clock.now_s()``: a name that was imported from it goes on showing the machine's time
when somebody stands in the doors.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

now_s: Callable[[], float] = time.time
"""Returns the wall clock, seconds since the epoch; it may go back. Not put ahead."""

monotonic_s: Callable[[], float] = time.monotonic
"""Returns a clock that never goes back, seconds from an arbitrary start; for intervals only. Not put ahead."""


def _boot_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


boot_s: Callable[[], float] = _boot_s
"""As ``monotonic_s``, and goes on while the machine sleeps. Not put ahead."""

_now_ns: Callable[[], int] = time.time_ns
_monotonic_ns: Callable[[], int] = time.monotonic_ns

_ahead_ms = 0
"""How far this process believes to be ahead of the real time: 0 except in tests."""

_skips: list[tuple[int, int]] = []
_listeners: list[Callable[[], None]] = []


def now_ms() -> int:
    """Return the wall clock, milliseconds since the epoch; it may go back."""
    return _now_ns() // 1_000_000 + _ahead_ms


def monotonic_ms() -> int:
    """Return a clock that never goes back, milliseconds from an arbitrary start; for intervals only."""
    return _monotonic_ns() // 1_000_000 + _ahead_ms


def skipped_ms(since_ms: int) -> int:
    """Return how much longer than the clocks show it is since *since_ms*: 0 except in tests."""
    return sum(duration_ms for at_ms, duration_ms in _skips if at_ms >= since_ms)


def on_move(listener: Callable[[], None]) -> None:
    """Call *listener* when somebody moves the time of this process, so that who waits for a time looks again.

    Nobody tells of a machine's clock that is set: who waits long looks now and then all the same.
    """
    _listeners.append(listener)


def off_move(listener: Callable[[], None]) -> None:
    """Call *listener* no more; nothing happens if it is not called."""
    if listener in _listeners:
        _listeners.remove(listener)


def put_ahead(duration_ms: int) -> None:
    """Let the clocks in milliseconds be *duration_ms* ahead of the real time, 0 for none. For tests only.

    Those in seconds stay: what this process does by itself, it does by the timers of its event loop, which stay too.
    """
    global _ahead_ms
    _ahead_ms = duration_ms
    _tell()


def skip(at_ms: int, duration_ms: int) -> None:
    """Let it be *duration_ms* longer since every time up to *at_ms*. For tests only: they do not wait for hours.

    The clocks go on as they are, since other processes have the machine's: what comes later waits its full time, as it
    would if all clocks had been put forward at *at_ms*.
    """
    _skips.append((at_ms, duration_ms))
    _tell()


def skips() -> list[tuple[int, int]]:
    """Return when time was skipped and for how long, both ms, in the order of the calls."""
    return list(_skips)


def forget_skips() -> None:
    """Take back every ``skip``."""
    _skips.clear()


def _tell() -> None:
    for listener in tuple(_listeners):
        listener()


@contextmanager
def stand_in(elapsed_s: Callable[[], float], epoch_s: float) -> Iterator[None]:
    """Let all clocks of this process show *elapsed_s*, begun at *epoch_s*. For tests only, in a ``with`` block.

    Who begins to listen in the block listens to that time, and is forgotten with it.
    """
    global now_s, monotonic_s, boot_s, _now_ns, _monotonic_ns, _listeners
    before = now_s, monotonic_s, boot_s, _now_ns, _monotonic_ns, _listeners
    _listeners = []
    epoch_ns = round(epoch_s * 1e9)

    def elapsed_ns() -> int:
        return round(elapsed_s() * 1e9)

    now_s, monotonic_s, boot_s = (lambda: epoch_s + elapsed_s()), elapsed_s, elapsed_s
    _now_ns, _monotonic_ns = (lambda: epoch_ns + elapsed_ns()), elapsed_ns
    try:
        yield
    finally:
        now_s, monotonic_s, boot_s, _now_ns, _monotonic_ns, _listeners = before
