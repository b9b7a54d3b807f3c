"""Percentiles of mqcore bench are those of the durations, within what its buckets promise."""

from __future__ import annotations

import random

from mqcore.admin.bench_figures import PERCENTILES, Latencies, Load


def test_percentiles_are_exact_within_a_bucket() -> None:
    chance = random.Random(5)
    durations = sorted(chance.lognormvariate(-7, 1.5) for _ in range(20_000))
    latencies = Latencies()
    for duration in durations:
        latencies.add(duration)
    for percent in PERCENTILES.values():
        exact = durations[min(len(durations) - 1, int(len(durations) * percent / 100))]
        assert abs(latencies.percentile_s(percent) / exact - 1) < 0.015, percent
    assert latencies.record()["maxMs"] == round(durations[-1] * 1000, 3)


def test_a_load_without_messages_has_no_latency() -> None:
    record = Load("send", "T").record()
    assert (record["messagesPerSecond"], record["p99Ms"]) == (0.0, None)


def test_throughput_is_of_the_time_it_took() -> None:
    load = Load("send", "T", messages=1000, bytes=2 << 20, seconds=2.0)
    assert (load.record()["messagesPerSecond"], load.record()["mibPerSecond"]) == (500.0, 1.0)
