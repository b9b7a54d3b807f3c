"""Figures of a load: throughput, and percentiles of latency in bounded memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final

PERCENTILES: Final = {"p50Ms": 50.0, "p95Ms": 95.0, "p99Ms": 99.0, "p999Ms": 99.9}
STEPS: Final = 64
"""Buckets for each doubling: a percentile is exact within 1.1 %."""
SMALLEST_S: Final = 1e-6
MIB: Final = 1 << 20


class Latencies:
    """Counts of durations in buckets of a logarithmic scale from a microsecond up."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.count = 0
        self.total_s = 0.0
        self.longest_s = 0.0

    def add(self, duration_s: float) -> None:
        bucket = int(math.log2(max(duration_s, SMALLEST_S) / SMALLEST_S) * STEPS)
        self._counts[bucket] = self._counts.get(bucket, 0) + 1
        self.count += 1
        self.total_s += duration_s
        self.longest_s = max(self.longest_s, duration_s)

    def percentile_s(self, percent: float) -> float:
        """Return the duration that *percent* of all do not exceed; 0 when there are none."""
        wanted = math.ceil(self.count * percent / 100)
        seen = 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= wanted:
                return min(self.longest_s, SMALLEST_S * 2 ** ((bucket + 1) / STEPS))
        return 0.0

    def record(self) -> dict[str, float | None]:
        """Return the percentiles, the mean and the longest, in ms; None where nothing was measured."""
        if not self.count:
            return dict.fromkeys([*PERCENTILES, "meanMs", "maxMs"])
        found = {name: round(self.percentile_s(percent) * 1000, 3) for name, percent in PERCENTILES.items()}
        return {
            **found,
            "meanMs": round(self.total_s / self.count * 1000, 3),
            "maxMs": round(self.longest_s * 1000, 3),
        }


@dataclass(slots=True)
class Load:
    """What a load did, from the first message to the last."""

    what: str
    topic: str
    messages: int = 0
    bytes: int = 0
    failed: int = 0
    seconds: float = 0.0
    latencies: Latencies = field(default_factory=Latencies)
    facts: dict[str, Any] = field(default_factory=dict)
    """How it was done."""

    def record(self) -> dict[str, Any]:
        """Return what is printed. Latency of sending is from the call to the receipt; of consuming, from birth."""
        seconds = self.seconds or math.inf
        return {
            "what": self.what,
            "topic": self.topic,
            **self.facts,
            "messages": self.messages,
            "bytes": self.bytes,
            "failed": self.failed,
            "seconds": round(self.seconds, 3),
            "messagesPerSecond": round(self.messages / seconds, 1),
            "mibPerSecond": round(self.bytes / seconds / MIB, 3),
            **self.latencies.record(),
        }
