"""Which brokers a producer avoids for a while, because they were slow or failed.

After each send the broker is noted with the time that the send took. A slow send keeps the broker out of the choice
for a time that the table gives; a failed one counts as a send of 30 s, which is ten minutes. When every broker of a
topic is avoided, one of the better half of all that are known is tried. Off by default: then only the broker of the
attempt just failed is passed over. Times are ms; "from when on" is on the clock that never goes back.
Source: RocketMQ client/latency/MQFaultStrategy.java, LatencyFaultToleranceImpl.java.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mqcore import clock
from mqcore.client.model.selectors import INDEX_MASK, Rotation
from mqcore.client.settings.classes import LATENCY_MAX_MS, NOT_AVAILABLE_DURATION_MS
from mqcore.protocol.message import MessageQueue

ISOLATION_LATENCY_MS: Final = 30_000
"""The latency that a failed send counts as."""


def not_available_duration_ms(
    latency_ms: int,
    latency_max_ms: Sequence[int] = LATENCY_MAX_MS,
    durations_ms: Sequence[int] = NOT_AVAILABLE_DURATION_MS,
) -> int:
    """Return for how long a send of *latency_ms* keeps its broker out: the row with the largest bound not above it."""
    row = bisect_right(latency_max_ms, latency_ms) - 1
    return 0 if row < 0 else durations_ms[row]


@dataclass(frozen=True, slots=True)
class BrokerFault:
    """What is known of one broker: its last latency, and from when on it may be chosen again."""

    broker_name: str
    latency_ms: int
    available_from_ms: int

    @property
    def is_available(self) -> bool:
        return clock.monotonic_ms() >= self.available_from_ms

    @property
    def available_in_ms(self) -> int:
        """How long it is still avoided; 0 when it is not."""
        return max(0, self.available_from_ms - clock.monotonic_ms())


class LatencyFaultTolerance:
    """The brokers known to a producer, with their last latency."""

    def __init__(self, pick_start: int | None = None) -> None:
        self._faults: dict[str, BrokerFault] = {}
        self._picks = random.getrandbits(31) if pick_start is None else pick_start

    def update(self, broker_name: str, latency_ms: int, not_available_ms: int) -> None:
        """Note a latency, and that the broker is avoided for *not_available_ms* from now on."""
        self._faults[broker_name] = BrokerFault(broker_name, latency_ms, clock.monotonic_ms() + not_available_ms)

    def is_available(self, broker_name: str) -> bool:
        """Whether *broker_name* may be chosen: it is unknown, or its time is over."""
        fault = self._faults.get(broker_name)
        return fault is None or fault.is_available

    def remove(self, broker_name: str) -> None:
        self._faults.pop(broker_name, None)

    def ranking(self) -> list[BrokerFault]:
        """Return all that is known, the best first: available ones, then lower latency, then available earlier."""
        now_ms = clock.monotonic_ms()
        return sorted(
            self._faults.values(),
            key=lambda fault: (now_ms < fault.available_from_ms, fault.latency_ms, fault.available_from_ms),
        )

    def pick_one_at_least(self) -> str | None:
        """Return a broker although none may be available: the brokers of the better half in turn. None knows none."""
        ranking = self.ranking()
        if not ranking:
            return None
        half = len(ranking) // 2
        if half == 0:
            return ranking[0].broker_name
        self._picks = (self._picks + 1) & INDEX_MASK
        return ranking[self._picks % half].broker_name


class FaultStrategy:
    """Chooses the queue of each attempt of one producer, and learns from how the attempts went."""

    def __init__(
        self,
        enabled: bool = False,
        latency_max_ms: Sequence[int] = LATENCY_MAX_MS,
        durations_ms: Sequence[int] = NOT_AVAILABLE_DURATION_MS,
    ) -> None:
        self.enabled = enabled
        """May be switched while running; what is known stays."""
        self.tolerance = LatencyFaultTolerance()
        self._latency_max_ms = tuple(latency_max_ms)
        self._durations_ms = tuple(durations_ms)

    def faults(self) -> list[BrokerFault]:
        """Return what is known of the brokers, the best first. Empty while the strategy is off."""
        return self.tolerance.ranking()

    def update(self, broker_name: str, latency_ms: int, *, isolate: bool = False) -> None:
        """Note how an attempt went; *isolate* says that it failed."""
        if not self.enabled:
            return
        counted_ms = ISOLATION_LATENCY_MS if isolate else latency_ms
        duration_ms = not_available_duration_ms(counted_ms, self._latency_max_ms, self._durations_ms)
        self.tolerance.update(broker_name, latency_ms, duration_ms)

    def select(self, rotation: Rotation, last_broker: str | None = None) -> MessageQueue:
        """Return the queue for an attempt. *last_broker* is that of the attempt before, which failed.

        Switched on, the broker of the last attempt is not avoided for that reason, but because it is isolated.
        """
        if not self.enabled:
            return rotation.next(avoid_broker=last_broker)
        for queue in rotation.round():
            if self.tolerance.is_available(queue.broker_name):
                return queue
        broker_name = self.tolerance.pick_one_at_least()
        if broker_name is not None:
            # Java counts the broker's write queues in the route, writable or not; ours are those that can be sent to.
            queues = rotation.queues_of(broker_name)
            if queues:
                rotation.next()  # Java takes a turn here whose broker and queue id it then replaces
                return rotation.next_of(queues)
            self.tolerance.remove(broker_name)
        return rotation.next()
