"""Latencies in buckets of equal relative width, and percentiles from them.

A value below 256 ns has a bucket of its own; above, each power of two is cut into 128 buckets, so that a percentile is
at most 1/128 (0.8 %) above the true one. The loop that counts is in _load.pyx and uses the same numbers; a test
compares them. Nothing is ever dropped: what takes 2**41 ns (36 minutes) or longer counts in the last bucket.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

SUB_BUCKET_BITS: Final = 7
SUB_BUCKETS: Final = 1 << SUB_BUCKET_BITS
VALUE_BITS: Final = 41
BUCKET_COUNT: Final = (VALUE_BITS - SUB_BUCKET_BITS + 1) * SUB_BUCKETS
"""Values of up to 8 bits take two rows of 128 buckets, each further bit one row."""


def bucket_of(value_ns: int) -> int:
    """Return the index of the bucket in which *value_ns* is counted."""
    if value_ns < 2 * SUB_BUCKETS:
        return max(value_ns, 0)
    shift = value_ns.bit_length() - 1 - SUB_BUCKET_BITS
    return min(shift * SUB_BUCKETS + (value_ns >> shift), BUCKET_COUNT - 1)


def bucket_range(index: int) -> tuple[int, int]:
    """Return the smallest and the largest value, ns, that the bucket counts."""
    if not 0 <= index < BUCKET_COUNT:
        raise IndexError(f"no such bucket: got {index}, wanted 0 to {BUCKET_COUNT - 1}")
    shift = max(index // SUB_BUCKETS - 1, 0)
    low = (index - shift * SUB_BUCKETS) << shift
    return low, low + (1 << shift) - 1


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts per bucket, and the largest value seen, which is exact."""

    counts: tuple[int, ...]
    max_ns: int

    @classmethod
    def of_counts(cls, counts: Sequence[int], max_ns: int) -> Histogram:
        """Take the buckets of a run. Raises ValueError if they are not BUCKET_COUNT many."""
        if len(counts) != BUCKET_COUNT:
            raise ValueError(f"histogram: got {len(counts)} buckets, wanted {BUCKET_COUNT}")
        return cls(tuple(counts), max_ns)

    @classmethod
    def of_values(cls, values_ns: Iterable[int]) -> Histogram:
        """Count *values_ns* one by one; the plain statement of what the loop does."""
        counts = [0] * BUCKET_COUNT
        max_ns = 0
        for value_ns in values_ns:
            counts[bucket_of(value_ns)] += 1
            max_ns = max(max_ns, value_ns)
        return cls(tuple(counts), max_ns)

    @property
    def total(self) -> int:
        """How many values were counted."""
        return sum(self.counts)

    def percentile_ns(self, percent: float) -> int:
        """Return the value, ns, that *percent* of the counted values do not exceed; 0 if nothing was counted.

        It is the largest value of its bucket, but never above the largest value seen. The rank is rounded up, so that
        the percentile of few values is one of them.
        """
        if not 0 < percent <= 100:
            raise ValueError(f"percent: got {percent}, wanted above 0, at most 100")
        total = self.total
        if total == 0:
            return 0
        rank = math.ceil(round(total * percent / 100, 6))  # rounded first: 99.9 % of 1,000 is 999, not a little more
        index = next(i for i, seen in enumerate(accumulate(self.counts)) if seen >= rank)
        return min(bucket_range(index)[1], self.max_ns)
