"""The format "rocketmq" beside an in-memory Arrow source, its ceiling: the sink into a broker, the source out of it.

``python -m benchmarks.bench_spark_broker``; --help lists the options.

A broker of mqcore runs as a process on this machine and takes part of its cores. The rows of the in-memory source go to
Spark's noop sink (the ceiling of the sink), then through the sink into a topic, then out of it into the noop sink, and
from memory again (the ceiling of the source). The number of rows is checked before anything is timed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.bench_spark_store import cpu_time, make_store, new_session, run_once
from benchmarks.spark_memory_source import MEMORY_OPTION, MemorySource
from tests.rigs import MqcoreBroker, wire
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUEUES: Final = 8
ROUNDS: Final = 3
MODEL_ROWS: Final = 100_000
READABLE_S: Final = 120.0
COLUMNS: Final = "tags,keys,body"


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast rows went; MB are 10^6 bytes of bodies."""

    rows_per_s: float
    mb_per_s: float
    rows_per_cpu_s: float

    @staticmethod
    def of(rows: int, body_size: int, times: Sequence[tuple[float, float]]) -> Rate:
        clock_s, cpu_s = (statistics.median(column) for column in zip(*times, strict=True))
        return Rate(rows / clock_s, rows * body_size / clock_s / 1e6, rows / cpu_s)

    def __str__(self) -> str:
        return f"{self.rows_per_s:,.0f} rows/s {self.mb_per_s:,.0f} MB/s ({self.rows_per_cpu_s:,.0f} per CPU second)"


@dataclass(frozen=True, slots=True)
class Measured:
    """One size of body: medians over the rounds, by the clock and by the CPU time of Spark's processes."""

    body_size: int
    rows: int
    pull_count: int
    sink: Rate
    sink_ceiling: Rate
    source: Rate
    source_ceiling: Rate


def write_once(frame: DataFrame, broker: MqcoreBroker, topic: str) -> tuple[float, float]:
    """Return how long it takes until all of *frame* is acknowledged, and Spark's CPU time, s."""
    start, cpu_start = time.perf_counter(), cpu_time()
    frame.write.format("rocketmq").options(nameServer=broker.name_server, topic=topic).mode("append").save()
    return time.perf_counter() - start, cpu_time() - cpu_start


def from_broker(spark: SparkSession, broker: MqcoreBroker, topic: str, options: dict[str, str]) -> DataFrame:
    given = {"nameServer": broker.name_server, "subscribe": topic, **options}
    return spark.read.format("rocketmq").options(**given).load()


def from_memory(spark: SparkSession, model: Path, rows: int, columns: str | None = None) -> DataFrame:
    options: dict[str, Any] = {MEMORY_OPTION: rows} | ({} if columns is None else {"columns": columns})
    return spark.read.format(MemorySource.name()).options(**options).load(str(model))


def measure(spark: SparkSession, directory: Path, body_size: int, rows: int, pull_count: int,
            options: dict[str, str]) -> Measured:  # fmt: skip
    """Measure sink and source; raises RuntimeError if the topic has another number of rows than were written."""
    model = directory / "model"
    make_store(model, body_size, MODEL_ROWS)
    properties = {"mappedFileSizeCommitLog": str(1 << 28), "maxTransferCountOnMessageInMemory": str(pull_count),
                  "maxTransferBytesOnMessageInMemory": str(1 << 20)}  # fmt: skip
    sink, sink_ceiling = [], []
    with MqcoreBroker(directory / "store", properties) as broker:
        for number in range(ROUNDS):
            topic = f"Bench{number}"
            wire.create_topic(broker.broker_address, topic, queues=QUEUES)
            wait_until(lambda topic=topic: wire.has_route(broker.name_server, topic))  # type: ignore[misc]
            sink_ceiling.append(run_once(from_memory(spark, model, rows, COLUMNS)))
            sink.append(write_once(from_memory(spark, model, rows, COLUMNS), broker, topic))
        wait_until(lambda: is_dispatched(broker), READABLE_S, "what was written can be read")
        found = from_broker(spark, broker, topic, options).count()
        if found != rows:
            raise RuntimeError(f"wrong number of rows: got {found}, wanted {rows}")
        source, source_ceiling = [], []
        for _ in range(ROUNDS):
            source.append(run_once(from_broker(spark, broker, topic, options)))
            source_ceiling.append(run_once(from_memory(spark, model, rows, options.get("columns"))))
    rates = [Rate.of(rows, body_size, times) for times in (sink, sink_ceiling, source, source_ceiling)]
    return Measured(body_size, rows, pull_count, *rates)


def is_dispatched(broker: MqcoreBroker) -> bool:
    """Whether everything in the commit log is in its queue."""
    table = wire.call(broker.broker_address, wire.GET_BROKER_RUNTIME_INFO).json()["table"]
    return int(table["dispatchBehindBytes"]) == 0


def main() -> int:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, action="append", help="size of bodies; 100 and 1024")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--pull-count", type=int, default=32, help="messages that the broker gives to one pull")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="an option of the source")
    parser.add_argument("--json", help="write the figures to this file")
    chosen = parser.parse_args()
    options = dict(text.partition("=")[::2] for text in chosen.option)
    results = []
    spark = new_session(chosen.cores)
    try:
        for body_size in chosen.size or [100, 1024]:
            with tempfile.TemporaryDirectory() as directory:
                found = measure(spark, Path(directory), body_size, chosen.rows, chosen.pull_count, options)
            results.append(found)
            print(f"{body_size} B x {found.rows:,}, {found.pull_count} messages a pull", flush=True)
            for name in ("sink", "sink_ceiling", "source", "source_ceiling"):
                print(f"  {name:15}{getattr(found, name)}", flush=True)
    finally:
        spark.stop()
    if chosen.json:
        Path(chosen.json).write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
