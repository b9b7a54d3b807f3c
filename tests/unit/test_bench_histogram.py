"""The benchmark harness's percentiles: what is shown must be what was measured."""

from __future__ import annotations

import random

import pytest

from benchmarks.harness.histogram import BUCKET_COUNT, Histogram, bucket_of, bucket_range
from benchmarks.harness.native import bucket_of as compiled_bucket_of
from tests.rows import walked

EDGES_NS = sorted({edge + step for power in range(41) for edge in (1 << power,) for step in (-1, 0, 1)})


def exact_percentile(values: list[int], percent: float) -> int:
    """The smallest value that at least *percent* of all do not exceed."""
    ordered = sorted(values)
    return next(value for rank, value in enumerate(ordered, 1) if rank * 100 >= percent * len(ordered) - 1e-6)


@walked("value_ns", EDGES_NS)
def test_a_value_lies_in_the_range_of_its_bucket(value_ns: int) -> None:
    low, high = bucket_range(bucket_of(value_ns))
    assert low <= value_ns <= high
    assert high - low <= value_ns // 128


def test_buckets_follow_each_other_without_gap_or_overlap() -> None:
    expected_low = 0
    for index in range(BUCKET_COUNT):
        low, high = bucket_range(index)
        assert (low, bucket_of(low), bucket_of(high)) == (expected_low, index, index)
        expected_low = high + 1
    assert expected_low == 1 << 41


def test_values_beyond_the_last_bucket_are_counted_in_it() -> None:
    histogram = Histogram.of_values([1 << 41, 1 << 50])
    assert histogram.counts[-1] == histogram.total == 2
    assert histogram.percentile_ns(100) == bucket_range(BUCKET_COUNT - 1)[1]


@walked("percent", [0.1, 50, 90, 99, 99.9, 99.99, 100])
@walked("count", [1, 2, 10, 999, 1000, 1001])
def test_percentile_is_at_most_one_bucket_above_the_exact_one(
    count: int, percent: float, chance: random.Random
) -> None:
    values = [int(chance.lognormvariate(12, 2)) for _ in range(count)]
    exact = exact_percentile(values, percent)
    got = Histogram.of_values(values).percentile_ns(percent)
    assert exact <= got <= exact + exact // 128


def test_percentile_is_never_above_the_largest_value() -> None:
    assert Histogram.of_values([1_000_001]).percentile_ns(50) == 1_000_001


def test_percentile_of_nothing_is_zero() -> None:
    assert Histogram.of_values([]).percentile_ns(99) == 0


@pytest.mark.parametrize("percent", [0, -1, 100.1])
def test_percentile_outside_0_to_100_is_refused(percent: float) -> None:
    with pytest.raises(ValueError, match="percent: got"):
        Histogram.of_values([1]).percentile_ns(percent)


def test_counts_of_another_layout_are_refused() -> None:
    with pytest.raises(ValueError, match="wanted 4480"):
        Histogram.of_counts([0] * 10, 0)


def test_the_compiled_loop_counts_in_the_same_buckets(chance: random.Random) -> None:
    values = [*EDGES_NS, -1, 0, 1 << 41, 1 << 50, *(chance.randrange(1 << 41) for _ in range(10_000))]
    assert [compiled_bucket_of(value) for value in values] == [bucket_of(value) for value in values]
