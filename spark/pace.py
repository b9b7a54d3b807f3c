"""A limit in messages per second, for one task."""

from __future__ import annotations

import sys
import time
from typing import Final

STEPS_PER_SECOND: Final = 4
"""A second's messages go out in so many parts, instead of in one burst."""


class Pace:
    """Slows a sender down to *rate* messages per second; None for no limit. What was missed is not caught up with."""

    def __init__(self, rate: int | None) -> None:
        self._rate = rate
        self._due_s = time.monotonic()

    def end(self, first: int) -> int:
        """Return the place where a batch that begins at *first* ends at the latest."""
        return sys.maxsize if self._rate is None else first + max(1, self._rate // STEPS_PER_SECOND)

    def wait(self, count: int) -> None:
        """Take notice of *count* messages, and wait until the next may go."""
        if self._rate is None:
            return
        self._due_s = max(self._due_s, time.monotonic() - 1 / STEPS_PER_SECOND) + count / self._rate
        time.sleep(max(0.0, self._due_s - time.monotonic()))
