"""How fast totals grow, by samples of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from mqcore import clock


class TransferRates:
    """Bytes a second between the last two samples, for what they were transferred over.

    RocketMQ counts anew each second as well. Source: RocketMQ 5.x store/ha/FlowMonitor.java.
    """

    def __init__(self, seconds: Callable[[], float] = clock.monotonic_s) -> None:
        self._seconds = seconds
        self._at: float | None = None
        self._totals: Mapping[Hashable, int] = {}
        self._rates: dict[Hashable, int] = {}

    def sample(self, totals: Mapping[Hashable, int]) -> None:
        """Take what has been transferred so far. What was not there before began with nothing."""
        now = self._seconds()
        if self._at is not None and now > self._at:
            passed = now - self._at
            self._rates = {key: round((total - self._totals.get(key, 0)) / passed) for key, total in totals.items()}
        self._at, self._totals = now, totals

    def of(self, key: Hashable) -> int:
        """Return the bytes a second of one; 0 for who is not known for long enough."""
        return self._rates.get(key, 0)
