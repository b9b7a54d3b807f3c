"""A survey as Prometheus reads it, by prometheus-client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from time import sleep
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from mqcore.broker.metrics.bounds import Tallies, Thing, number
from mqcore.broker.metrics.rows import ROWS, MetricRow
from mqcore.broker.metrics.survey import Pause, Things

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
PORTION: Final = 250
"""Things or samples that are made in one go: half a millisecond."""

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
    """Gives a row's metric, without samples."""

    def __init__(self, row: MetricRow) -> None:
        self._row = row

    def collect(self) -> Iterator[Metric]:
        yield Metric(self._row.base_name, f"{self._row.help}, {self._row.unit}", self._row.kind.value)


def heading(row: MetricRow) -> str:
    """Return what stands above a metric's samples."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(OneMetric(row))
    return generate_latest(registry).decode()


HEADINGS: Final = {row.name: heading(row) for row in ROWS}


def render(things: Things, common: Mapping[str, str], pause: Pause) -> list[bytes]:
    """Return the text of CONTENT_TYPE, a part for each metric that has a series.

    One text of all would be megabytes that become another text, and bytes, while nobody else has the interpreter.
    """
    parts = []
    for row in ROWS:
        lines = "".join(sample_lines(row, things[row.subject], common, pause))
        if lines:
            parts.append((HEADINGS[row.name] + lines).encode())
    return parts


def sample_lines(row: MetricRow, things: Iterable[Thing], common: Mapping[str, str], pause: Pause) -> Iterator[str]:
    """Give a row's samples. ``generate_latest`` takes nine microseconds for each, and there are twenty for each topic.

    What a thing says of itself goes before what all have in common.
    """
    for thing in things:
        if row.key not in thing:
            continue
        pause()
        labels = ",".join(
            [f'{label}="{escaped(str(thing[label] if label in thing else common[label]))}"' for label in row.labels]
        )
        value = thing[row.key]
        if isinstance(value, Tallies):
            yield from bucket_lines(row.name, labels, value)
        else:
            yield f"{row.name}{{{labels}}} {number(value)}\n"


def bucket_lines(name: str, labels: str, tallies: Tallies) -> Iterator[str]:
    """Give a histogram, without the sum of its values where nobody has counted it."""
    total = 0
    for bound, count in zip((*map(str, tallies.bounds), "+Inf"), tallies.counts, strict=True):
        total += count
        yield f'{name}_bucket{{{labels},le="{bound}"}} {total}\n'
    yield f"{name}_count{{{labels}}} {total}\n"
    if tallies.total is not None:
        yield f"{name}_sum{{{labels}}} {number(tallies.total)}\n"


def escaped(value: str) -> str:
    """Return the value of a label as it stands between its quotes."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
