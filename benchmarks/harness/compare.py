"""Two brokers under the same loads, in turn, in one run; ratios of medians; and the project's bars.

Repetitions come in pairs, AB then BA, so that a drift of the machine favours neither. A pair counts only if the machine
was left alone and its two cores were equally near during both repetitions; otherwise it is dropped and made again.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.harness.control import Address
from benchmarks.harness.loads import Load, LoadSession, Measurement
from benchmarks.harness.procstat import await_quiet

REFUSED_SHARE_MAX: Final = 0.02
"""A broker whose disk is full, say, refuses faster than it stores."""
CORE_DISTANCE_RATIO_MAX: Final = 2.0
"""Hand-over times that differ by more belong to different places of the cores: near is 2 to 5 times faster than far."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the brokers."""

    label: str
    address: Address
    pid: int
    replica_pids: tuple[int, ...] = ()
    """Of the brokers that copy its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long and how often, and what is too noisy."""

    seconds: float
    warm_up_seconds_max: float
    pair_count: int
    retry_count: int
    """How many dropped pairs of one load may be made again."""
    others_share_max: float
    quiet_wait_seconds_max: float
    """How long to wait, before each pair, for others to finish; then the pair is made all the same."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One repetition on each side, and why the pair was dropped, or an empty text."""

    first: Measurement
    second: Measurement
    dropped: str


@dataclass(frozen=True, slots=True)
class LoadComparison:
    """All pairs of one load."""

    load: Load
    pairs: tuple[Pair, ...]

    @property
    def kept(self) -> list[Pair]:
        """The pairs that count."""
        return [pair for pair in self.pairs if not pair.dropped]

    def with_more(self, other: LoadComparison) -> LoadComparison:
        """The pairs of this load that were made in another life of the brokers, too."""
        return LoadComparison(self.load, self.pairs + other.pairs)

    def ratio(self, metric: str) -> float | None:
        """Return median of the first side by median of the second for one field; None where there is none."""
        sides = [pair.first for pair in self.kept], [pair.second for pair in self.kept]
        if not self.kept or any(getattr(each, metric) is None for side in sides for each in side):
            return None
        second = median(metric, sides[1])
        return median(metric, sides[0]) / second if second else None


@dataclass(frozen=True, slots=True)
class Bar:
    """What mqcore promises against Apache's broker for one load: a ratio of medians at least or at most so large."""

    load: str
    metric: str
    at_least: float | None = None
    at_most: float | None = None
    role: str = ""
    """Of both masters, each with a slave; none for brokers alone."""

    def is_met(self, ratio: float) -> bool:
        """Whether *ratio* keeps the promise."""
        return (self.at_least is None or ratio >= self.at_least) and (self.at_most is None or ratio <= self.at_most)


BARS: Final = (
    Bar("send:8x32", "broker_cpu_us", at_most=0.2),
    Bar("send:8x32", "messages_per_s", at_least=3.0),
    Bar("send:64x1", "broker_cpu_us", at_most=0.4),
    Bar("send:64x1", "messages_per_s", at_least=1.5),
    Bar("send:1x1", "p50_us", at_most=0.75),
    Bar("pull:8x1", "messages_per_s", at_least=1.3),
    Bar("tls-send:8x32", "messages_per_s", at_least=3.0),
    Bar("transaction:8x32", "messages_per_s", at_least=5.0),
    Bar("transaction:8x32", "broker_cpu_us", at_most=0.2),
    Bar("send:8x32", "messages_per_s", at_least=3.0, role="SYNC_MASTER"),
    Bar("send:8x32", "all_cpu_us", at_most=0.25, role="SYNC_MASTER"),
)
"""mqcore first and Apache 4.9 second, both on the same machine in one run."""
BAR_BODY_SIZE: Final = 1024
BAR_PULL_SIZE: Final = 32


def median(metric: str, measurements: Iterable[Measurement]) -> float:
    """Return the median of one field; the field must have been measured in all of them."""
    return float(statistics.median(getattr(measurement, metric) for measurement in measurements))


def noise_in(measurements: Sequence[Measurement], others_share_max: float) -> str:
    """Say why these repetitions should not be compared with each other; an empty text if they may."""
    others = max(measurement.others_share for measurement in measurements)
    refused = max(measurement.refused_share for measurement in measurements)
    if refused > REFUSED_SHARE_MAX:
        return f"{refused:.0%} of the requests were refused"
    if others > others_share_max:
        return f"others used {others:.0%} of the machine"
    distances = [distance for measurement in measurements for distance in measurement.core_distances_ns]
    if distances and max(distances) > CORE_DISTANCE_RATIO_MAX * min(distances):
        return f"cores moved: {min(distances):.0f} to {max(distances):.0f} ns"
    return ""


def compare_load(
    sides: tuple[Side, Side], load: Load, plan: Plan, on_pair: Callable[[Pair], None], *, is_turned: bool = False
) -> LoadComparison:
    """Run one load on both brokers in turn until pair_count pairs count or the retries are used up.

    They take turns in being the first of a pair; the second side begins with *is_turned*.
    *on_pair* is called with each pair as it is made. Raises what LoadSession.measure raises: the speed of a broker that
    loses or invents messages is of no interest.
    """
    topic = f"benchmark_{load.kind}_{load.connections}x{load.window}_{load.body_size}"
    pairs: list[Pair] = []
    first, second = (
        LoadSession(side.address, load, topic, broker_pid=side.pid, replica_pids=side.replica_pids) for side in sides
    )
    for session in (second, first) if is_turned else (first, second):
        session.warm_up(plan.seconds, plan.warm_up_seconds_max, plan.others_share_max)
    while (kept := sum(not pair.dropped for pair in pairs)) < plan.pair_count:
        if len(pairs) - kept > plan.retry_count:
            break
        await_quiet(plan.others_share_max, plan.quiet_wait_seconds_max)
        if kept % 2 == int(is_turned):
            of_first, of_second = first.measure(plan.seconds), second.measure(plan.seconds)
        else:
            of_second, of_first = second.measure(plan.seconds), first.measure(plan.seconds)
        pairs.append(Pair(of_first, of_second, noise_in((of_first, of_second), plan.others_share_max)))
        on_pair(pairs[-1])
    return LoadComparison(load, tuple(pairs))
