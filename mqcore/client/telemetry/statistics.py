"""How fast a consumer pulls and consumes each topic: the figures that ``mqadmin consumerStatus`` shows.

Counts go into slots of ten seconds; rates are over the last minute, the number of failures over the last hour.
Source: RocketMQ client/stat/ConsumerStatsManager.java.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mqcore import clock as door_to_time
from mqcore.client.model.latency import Histogram

SLOT_S = 10.0
MINUTE_SLOTS = 6
HOUR_SLOTS = 360


@dataclass(slots=True)
class TenSeconds:
    """What happened in ten seconds. Times are ms."""

    started_s: float
    pulls: int = 0
    pull_time_ms: float = 0.0
    pulled: int = 0
    batches: int = 0
    consume_time_ms: float = 0.0
    ok: int = 0
    failed: int = 0


@dataclass(slots=True)
class TopicStatistics:
    """The last hour of one topic."""

    clock: Callable[[], float] = lambda: door_to_time.monotonic_s()
    slots: deque[TenSeconds] = field(default_factory=lambda: deque(maxlen=HOUR_SLOTS))
    pulled_before: int = 0
    """By the slots that have made room for newer ones; as ``failed_before``."""
    failed_before: int = 0
    calls: Histogram = field(default_factory=Histogram)
    """What handlers' calls took, since the beginning."""

    def current(self) -> TenSeconds:
        now_s = self.clock()
        if not self.slots or now_s - self.slots[-1].started_s >= SLOT_S:
            if len(self.slots) == HOUR_SLOTS:
                self.pulled_before += self.slots[0].pulled
                self.failed_before += self.slots[0].failed
            self.slots.append(TenSeconds(now_s))
        return self.slots[-1]

    def add_pull(self, count: int, time_ms: float) -> None:
        slot = self.current()
        slot.pulls += 1
        slot.pull_time_ms += time_ms
        slot.pulled += count

    def add_consumed(self, ok: int, failed: int, times_ms: Sequence[float]) -> None:
        """Note messages that are done, and those that have failed, after calls that took *times_ms* each."""
        slot = self.current()
        slot.batches += len(times_ms)
        slot.consume_time_ms += sum(times_ms)
        slot.ok += ok
        slot.failed += failed
        self.calls.add_each_ms(times_ms)

    def totals(self) -> tuple[int, int]:
        """Return how many messages have been pulled, and how many have failed, since the beginning."""
        slots = list(self.slots)
        pulled = self.pulled_before + sum(slot.pulled for slot in slots)
        return pulled, self.failed_before + sum(slot.failed for slot in slots)

    def figures(self) -> dict[str, float | int]:
        """Return the members of Java's ConsumeStatus: times in ms, rates in messages per second."""
        now_s = self.clock()
        minute = [slot for slot in self.slots if now_s - slot.started_s <= SLOT_S * MINUTE_SLOTS]
        hour = [slot for slot in self.slots if now_s - slot.started_s <= SLOT_S * HOUR_SLOTS]
        period_s = max(now_s - minute[0].started_s, 1.0) if minute else 1.0
        pulls = sum(slot.pulls for slot in minute)
        batches = sum(slot.batches for slot in minute)
        return {
            "pullRT": sum(slot.pull_time_ms for slot in minute) / pulls if pulls else 0.0,
            "pullTPS": sum(slot.pulled for slot in minute) / period_s,
            "consumeRT": sum(slot.consume_time_ms for slot in minute) / batches if batches else 0.0,
            "consumeOKTPS": sum(slot.ok for slot in minute) / period_s,
            "consumeFailedTPS": sum(slot.failed for slot in minute) / period_s,
            "consumeFailedMsgs": sum(slot.failed for slot in hour),
        }
