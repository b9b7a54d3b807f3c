"""Percentiles are told from buckets, and are off by a tenth at most."""

from __future__ import annotations

import random

import pytest

from mqcore.client.model.latency import BOUNDS_S, Histogram, Latency, together


@pytest.fixture
def times_s(chance: random.Random) -> list[float]:
    """Times of a service: most around a ms, some a hundred times longer."""
    return [chance.lognormvariate(-7, 1.2) for _ in range(20_000)]


def test_a_percentile_is_good_to_a_tenth(times_s: list[float]) -> None:
    histogram = Histogram()
    histogram.add_each(times_s)
    in_order = sorted(times_s)
    for share in (0.01, 0.5, 0.9, 0.95, 0.99, 0.999):
        assert histogram.percentile_s(share) == pytest.approx(in_order[int(share * len(in_order))], rel=0.1)
    latency = histogram.latency()
    assert latency.count == len(times_s)
    assert latency.mean_s == pytest.approx(sum(times_s) / len(times_s))
    assert latency.max_s == in_order[-1] == histogram.percentile_s(1.0)


def test_counting_one_by_one_all_at_once_and_together_gives_the_same(times_s: list[float]) -> None:
    singly, at_once, in_ms, halves = Histogram(), Histogram(), Histogram(), [Histogram(), Histogram()]
    for number, seconds in enumerate(times_s):
        singly.add(seconds)
        halves[number % 2].add(seconds)
    at_once.add_each(times_s)
    in_ms.add_each_ms(seconds * 1000 for seconds in times_s)
    in_ms.add_each_ms(())
    for other in (at_once, in_ms, together(halves)):
        assert other.latency().count == singly.latency().count
        assert [other.percentile_s(share / 100) for share in range(101)] == pytest.approx(
            [singly.percentile_s(share / 100) for share in range(101)]
        )


def test_a_batch_counts_for_each_of_its_messages() -> None:
    histogram = Histogram()
    histogram.add(0.001, 99)
    histogram.add(1.0)
    latency = histogram.latency()
    assert (latency.count, latency.max_s) == (100, 1.0)
    assert latency.mean_s == pytest.approx(0.01099)
    assert latency.p50_s == pytest.approx(0.001, rel=0.1)
    assert histogram.percentile_s(0.995) == pytest.approx(1.0, rel=0.2)


@pytest.mark.parametrize("seconds", [-1e-3, 0.0, 1e-9, BOUNDS_S[-1], 3600.0])
def test_what_is_shorter_or_longer_than_all_buckets_counts(seconds: float) -> None:
    histogram = Histogram()
    histogram.add(seconds)
    several = Histogram()
    several.add_each([seconds] * 3)
    assert (histogram.count, several.count) == (1, 3)
    assert histogram.percentile_s(0.5) <= max(seconds, 0.0) == histogram.latency().max_s


def test_without_any_all_is_zero() -> None:
    assert Histogram().latency() == together([]).latency() == Latency()
