"""What OpenTelemetry costs a client: CPU time of its process for each message, beside the same client without it.

    python -m benchmarks.client.watched [--share N] [--rounds N] [--only LOAD]

Each load of ``benchmarks.client.loads`` runs four ways, which take turns against one broker: without; with metrics from
the counts alone; with the histograms of durations besides; and with spans besides, all sampled, which a batch processor
hands to an exporter that drops them. The median of each is shown, and its ratio to the first. With the environment
variable BASE, the path of another checkout, that one's client runs as well, without OpenTelemetry.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click

from benchmarks.client.__main__ import COUNTS, RECEIVES, Side, line, median, mqcore_side
from benchmarks.client.loads import LOADS, WARM_UP_SHARE

WAYS: Final = ("base", "without", "metrics", "durations", "spans")
LOADS_SHOWN: Final = ("send_sync", "send_pipelined", "receive", "receive_handler")
EXPORT_EVERY_MS: Final = 1000.0


def watch(way: str) -> None:
    """Let OpenTelemetry watch this process's clients, as *way* says."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

    from mqcore import otel

    nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  open for as long as the process
    reader = PeriodicExportingMetricReader(
        ConsoleMetricExporter(nowhere, formatter=lambda data: ""), export_interval_millis=EXPORT_EVERY_MS
    )
    tracers = TracerProvider()
    tracers.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter(out=nowhere, formatter=lambda span: "")))
    otel.Instrumentor().instrument(
        tracer_provider=tracers,
        meter_provider=MeterProvider([reader]),
        spans=way == "spans",
        durations=way != "metrics",
    )


class WatchedSide(Side):
    """mqcore's client, watched in one way."""

    def __init__(self, plain: Side, way: str) -> None:
        super().__init__("mqcore", plain._address, plain._cpu_time_s, plain._make_topic, plain._logs)
        self.way = way

    def command(self, load: str, topic: str, count: int) -> list[str]:
        module = "benchmarks.client.loads" if self.way in ("base", "without") else "benchmarks.client.watched"
        return [sys.executable, "-m", module, self.client, load, self._address, topic, str(count), *self._rest()]

    def _rest(self) -> list[str]:
        return [] if self.way in ("base", "without") else [self.way]

    def directory(self) -> Path | None:
        return Path(os.environ["BASE"]) if self.way == "base" else None


@click.command()
@click.option("--share", type=click.IntRange(1), default=4, show_default=True, help="A part of the usual messages.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option("--only", type=click.Choice(LOADS_SHOWN), multiple=True)
def main(share: int, rounds: int, only: tuple[str, ...]) -> None:
    """Print the median of each load and way."""
    with ExitStack() as stack:
        plain = mqcore_side(stack, Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-"))))
        sides = [WatchedSide(plain, way) for way in WAYS if way != "base" or "BASE" in os.environ]
        for load in only or LOADS_SHOWN:
            compare(plain, sides, load, COUNTS[load] // share, rounds)


def compare(plain: Side, sides: list[WatchedSide], load: str, count: int, rounds: int) -> None:
    topic = f"watched_{load}"
    if load in RECEIVES:
        plain.run("send_pipelined", topic, count + count // WARM_UP_SHARE)
        for side in sides:
            side._topics.add(topic)
    found = {side.way: [] for side in sides}
    for number in range(rounds):
        for side in sides if number % 2 == 0 else reversed(sides):
            repetition = side.run(load, topic, count)
            found[side.way].append(repetition)
            click.echo(f"{load:16} {side.way:10} {line(repetition)}", err=True)
    without_us = statistics.median(one.client_cpu_us for one in found["without"])
    for way, repetitions in found.items():
        cost_us = statistics.median(one.client_cpu_us for one in repetitions)
        click.echo(
            f"{load:16} {way:10} {line(median(repetitions))}  {cost_us / without_us:5.2f} times the CPU of without"
        )


if __name__ == "__main__":
    if len(sys.argv) == 7 and sys.argv[6] in WAYS:
        client, load, address, topic, count, way = sys.argv[1:]
        watch(way)
        LOADS[client, load](address, topic, int(count))
    else:
        main(prog_name="python -m benchmarks.client.watched")
