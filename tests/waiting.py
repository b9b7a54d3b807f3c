"""Waiting on conditions: tests never sleep for luck."""

from __future__ import annotations

import time
from collections.abc import Callable

POLL_S, POLL_S_MAX = 0.01, 0.05
PATIENCE = 1 / 40
"""Who has waited for a while looks less often, late by this part of that time at most: many looks ask a broker."""


def wait_until(condition: Callable[[], object], deadline_s: float = 30.0, describe: str = "the condition") -> None:
    """Return once *condition()* is true; raise AssertionError that says *describe* after *deadline_s*."""
    began = time.monotonic()
    deadline = began + deadline_s
    while True:
        is_late = time.monotonic() >= deadline  # before the look: there is always one after the deadline
        if condition():
            return
        if is_late:
            raise AssertionError(f"waited {deadline_s:g} s in vain: {describe}")
        time.sleep(min(POLL_S_MAX, max(POLL_S, (time.monotonic() - began) * PATIENCE)))
