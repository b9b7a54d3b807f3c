"""Latencies: where each is counted, and what the counts of all send workers are together."""

from __future__ import annotations

from bisect import bisect_right

import pytest
from fast_rig import RawSegment, shared_segment

from mqcore import layout
from mqcore._fast.segment.latencies import place, sum_latencies

BOUNDS = layout.LATENCY_BOUNDS_US
KIND = layout.constants("LatencyKind")


def test_every_latency_is_counted_below_its_bound() -> None:
    near = {bound + step for bound in BOUNDS for step in (-1, 0, 1)}
    spread = {1 << power for power in range(62)} | {(1 << power) - 1 for power in range(1, 63)}
    for took_us in sorted(near | spread | {0, 7, 8, 15}):
        assert place(took_us) == bisect_right(BOUNDS, took_us), took_us


def test_the_counts_of_all_send_workers_are_summed() -> None:
    with shared_segment() as segment:
        rows = RawSegment(segment.fd).rows("latencies")
        assert len(rows) == layout.SEND_WORKERS_MAX * len(KIND)
        for worker in range(layout.SEND_WORKERS_MAX):
            row = rows[worker * len(KIND) + KIND["PULL"]]
            row["sum_us"], row["count_0"], row[f"count_{len(BOUNDS)}"] = 10 + worker, 1, worker
        sum_us, counts = sum_latencies(segment, KIND["PULL"])
        assert (sum_us, counts[0], counts[-1], sum(counts)) == (46, 4, 6, 10)
        assert all(sum_latencies(segment, KIND[kind]) == (0, (0,) * len(counts)) for kind in KIND if kind != "PULL")
        with pytest.raises(IndexError, match="wanted 0 to 3"):
            sum_latencies(segment, len(KIND))
