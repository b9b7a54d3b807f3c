"""A survey as Prometheus reads it, by prometheus-client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from time import sleep
from typing import Final, cast

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from mqcore.broker.metrics.bounds import Tallies, Thing, number
from mqcore.broker.metrics.rows import ROWS, MetricRow
from mqcore.broker.metrics.survey import Pause, Things

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
PORTION: Final = 100
"""Things or samples that are made in one go: a third of a millisecond."""

PAUSE_S: Final = 0.0003
"""For so long a thread leaves the interpreter alone then: whoever waits for it has it."""


class Breath:
    """Has a thread that works for long give way to the event loop."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self) -> None:
        self._count += 1
        if self._count % PORTION == 0:
            sleep(PAUSE_S)


class OneMetric(Collector):
    """Gives a row's metric. Its samples are made as they are asked for, and are walked once."""

    def __init__(self, row: MetricRow, things: Iterable[Thing], common: Mapping[str, str], pause: Pause) -> None:
        self._row = row
        self._things = things
        self._shared = {label: common[label] for label in row.labels if label in common}
        self._pause = pause

    def collect(self) -> Iterator[Metric]:
        metric = Metric(self._row.base_name, f"{self._row.help}, {self._row.unit}", self._row.kind.value)
        metric.samples = cast("list[Sample]", self._samples())
        yield metric

    def _samples(self) -> Iterator[Sample]:
        row = self._row
        for thing in self._things:
            if row.key in thing:
                self._pause()
                # What a thing says of itself goes before what is said of all.
                labels = self._shared | {label: str(thing[label]) for label in row.labels if label in thing}
                assert len(labels) == len(row.labels), f"{row.name} lacks labels: {labels}"
                value = thing[row.key]
                if isinstance(value, Tallies):
                    yield from buckets(row.name, labels, value)
                else:
                    yield Sample(row.name, labels, number(value))


def buckets(name: str, labels: dict[str, str], tallies: Tallies) -> Iterator[Sample]:
    """Give a histogram, without the sum of its values, which nobody has counted."""
    total = 0
    for bound, count in zip((*map(str, tallies.bounds), "+Inf"), tallies.counts, strict=True):
        total += count
        yield Sample(f"{name}_bucket", labels | {"le": bound}, total)
    yield Sample(f"{name}_count", labels, total)


def render(things: Things, common: Mapping[str, str], pause: Pause) -> list[bytes]:
    """Return the text of CONTENT_TYPE, a part for each metric that has a series.

    One text of all would be megabytes that become another text, and bytes, while nobody else has the interpreter.
    """
    parts = []
    for row in ROWS:
        if any(row.key in thing for thing in things[row.subject]):
            registry = CollectorRegistry(auto_describe=False)
            registry.register(OneMetric(row, things[row.subject], common, pause))
            parts.append(generate_latest(registry))
    return parts
