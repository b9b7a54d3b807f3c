"""How long things take, in a histogram of fixed buckets: what percentiles are told from.

Counting is a search among some ninety numbers and an addition, so that it can be done for each answer of a broker.
Buckets grow by a fifth: a percentile is off by a tenth at most. They are the same everywhere, and so histograms add up.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

LEAST_S: Final = 10e-6
STEPS_PER_DOUBLING: Final = 4
DOUBLINGS: Final = 24
"""From 10 us up to almost 3 minutes; what takes longer is in the last bucket."""

BOUNDS_S: Final = tuple(
    LEAST_S * 2 ** (step / STEPS_PER_DOUBLING) for step in range(STEPS_PER_DOUBLING * DOUBLINGS + 1)
)
"""Where each bucket but the first begins, seconds."""
BOUNDS_MS: Final = tuple(bound_s * 1000 for bound_s in BOUNDS_S)


@dataclass(frozen=True, slots=True)
class Latency:
    """How long *count* of them took, seconds; all 0 when there were none. A percentile is good to a tenth."""

    count: int = 0
    mean_s: float = 0.0
    p50_s: float = 0.0
    p95_s: float = 0.0
    p99_s: float = 0.0
    max_s: float = 0.0


class Histogram:
    """Times, counted by how long they are. From one thread at a time; reading may be done from any."""

    __slots__ = ("_counts", "_max_s", "_sum_s")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._sum_s = 0.0
        self._max_s = 0.0

    def add(self, seconds: float, count: int = 1) -> None:
        """Count *count* things that took *seconds* each."""
        self._counts[bisect_right(BOUNDS_S, seconds)] += count
        self._sum_s += seconds * count
        if seconds > self._max_s:
            self._max_s = seconds

    def add_each(self, times_s: Iterable[float]) -> None:
        """Count each of *times_s*: what many calls have taken, in one go."""
        self._add(sorted(times_s), BOUNDS_S, 1.0)

    def add_each_ms(self, times_ms: Iterable[float]) -> None:
        """Count each of *times_ms*."""
        self._add(sorted(times_ms), BOUNDS_MS, 1e-3)

    def _add(self, ordered: list[float], bounds: Sequence[float], unit_s: float) -> None:
        at, count = 0, len(ordered)
        while at < count:  # from bucket to bucket: most times are in one or two
            bucket = bisect_right(bounds, ordered[at])
            behind = count if bucket == len(bounds) else bisect_left(ordered, bounds[bucket], at)
            self._counts[bucket] += behind - at
            at = behind
        if ordered:
            self._sum_s += sum(ordered) * unit_s
            self._max_s = max(self._max_s, ordered[-1] * unit_s)

    def add_all(self, other: Histogram) -> None:
        """Count what *other* has counted, too."""
        self._counts = [mine + others for mine, others in zip(self._counts, other._counts, strict=True)]
        self._sum_s += other._sum_s
        self._max_s = max(self._max_s, other._max_s)

    @property
    def count(self) -> int:
        return sum(self._counts)

    def percentile_s(self, share: float) -> float:
        """Return the time, seconds, that *share* (0 to 1) of them did not exceed; 0 when there are none."""
        counts = list(self._counts)
        rank = share * sum(counts)
        for bucket, count in enumerate(counts):
            if count and rank <= count:
                low_s = BOUNDS_S[bucket - 1] if bucket else 0.0
                high_s = BOUNDS_S[bucket] if bucket < len(BOUNDS_S) else self._max_s
                return min(low_s + (high_s - low_s) * rank / count, self._max_s)
            rank -= count
        return self._max_s

    def latency(self) -> Latency:
        """Return what is known now."""
        count = self.count
        if not count:
            return Latency()
        p50_s, p95_s, p99_s = (self.percentile_s(share) for share in (0.5, 0.95, 0.99))
        return Latency(count, self._sum_s / count, p50_s, p95_s, p99_s, self._max_s)


def together(histograms: Iterable[Histogram]) -> Histogram:
    """Return one histogram of all that is in *histograms*."""
    total = Histogram()
    for histogram in histograms:
        total.add_all(histogram)
    return total
