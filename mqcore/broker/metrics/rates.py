"""How fast counts grow, for the names of the 4.x exporter, which are rates."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

SPAN_S: Final = 10.0
"""Rates are over at least so long, however often they are asked for; the first ones are over the life of the broker."""


class GrowthRates:
    """Rates since the newest look that was kept and is SPAN_S old; each look begins with ``begin``."""

    def __init__(self, started_s: float) -> None:
        """*started_s* is when the counts began at nothing, by the clock of ``begin``."""
        self._base: dict[Hashable, float] = {}
        self._base_s = started_s
        self._kept: dict[Hashable, float] = {}
        self._kept_s = started_s
        self._now_s = started_s
        self._keeps = False

    def begin(self, now_s: float) -> None:
        """A look begins."""
        self._now_s = now_s
        self._keeps = now_s - self._kept_s >= SPAN_S
        if self._keeps:
            self._base, self._base_s = self._kept, self._kept_s
            self._kept, self._kept_s = {}, now_s

    def of(self, key: Hashable, count: float) -> float:
        """Return how much *count* of *key* grows a second; what was not there before began at nothing."""
        if self._keeps:
            self._kept[key] = count
        elapsed_s = self._now_s - self._base_s
        return max(0.0, count - self._base.get(key, 0.0)) / elapsed_s if elapsed_s > 0 else 0.0
