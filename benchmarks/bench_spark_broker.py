"""The format "rocketmq" beside an in-memory Arrow source, its ceiling, and beside Spark's own Kafka source.

``python -m benchmarks.bench_spark_broker``; --help lists the options.

A broker of mqcore runs as a process on this machine and takes part of its cores. The rows of the in-memory source go to
Spark's noop sink (the ceiling of the sink), then through the sink into a topic, then out of it into the noop sink, and
from memory again (the ceiling of the source). The number of rows is checked before anything is timed.

With ``--kafka`` the same rows also go into a Kafka broker, and Spark's Kafka source takes its turn with the others. It
always makes seven columns, so the format "rocketmq" is read once more with the seven that correspond.

What counts per core is CPU time: that of Spark is of the driver, its JVM (in which the executors run) and all Python
processes, the planner's and the workers'; that of the broker is apart, and then both together. Every query has a part
that does not depend on the rows (planning, tasks); it is measured with one row of each queue.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from benchmarks.bench_spark_store import from_memory, new_session
from benchmarks.client.kafka import KafkaBroker
from benchmarks.spark_kafka import fill, from_kafka, missing_tools, source_jars
from benchmarks.spark_memory_source import BROKER_NAME, QUEUES
from tests.rigs import MqcoreBroker, wire
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

READABLE_S: Final = 120.0
COLUMNS: Final = "tags,keys,body"
ROWS: Final = {100: 4_000_000, 1024: 1_000_000}
ROWS_OTHERWISE: Final = 1_000_000
KAFKA_COLUMNS: Final = "keys,body,topic,queueId,offset,storeTimestamp,sysFlag"
"""What comes nearest to the columns of Spark's Kafka source: key, value, topic, partition, offset, timestamp, type."""

Spent = tuple[float, float, float]
"""By the clock, CPU time of Spark, CPU time of the broker, s."""
CpuTime = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast rows went, medians; MB are 10^6 bytes of bodies. What the broker took is us per row; *per_query_cpu_s*
    is what Spark takes for a query over the same partitions with next to no rows."""

    rows_per_s: float
    mb_per_s: float
    rows_per_cpu_s: float
    broker_us: float
    rows_per_cpu_s_in_all: float
    per_query_cpu_s: float | None = None

    @staticmethod
    def of(rows: int, body_size: int, times: Sequence[Spent], per_query: Sequence[Spent] = ()) -> Rate:
        clock_s, cpu_s, broker_s = (statistics.median(column) for column in zip(*times, strict=True))
        per_query_cpu_s = statistics.median(spent[1] for spent in per_query) if per_query else None
        return Rate(
            rows / clock_s, rows * body_size / clock_s / 1e6, rows / cpu_s, broker_s / rows * 1e6,
            rows / (cpu_s + broker_s), per_query_cpu_s,
        )  # fmt: skip

    def __str__(self) -> str:
        apart = "" if self.per_query_cpu_s is None else f", of Spark {self.per_query_cpu_s:.2f} s in any query"
        return (
            f"{self.rows_per_s:11,.0f} rows/s {self.mb_per_s:7,.0f} MB/s "
            f"{self.rows_per_cpu_s:11,.0f} rows per CPU second of Spark {self.broker_us:6.2f} us of the broker "
            f"{self.rows_per_cpu_s_in_all:11,.0f} rows per CPU second of both{apart}"
        )


@dataclass(frozen=True, slots=True)
class Measured:
    """One size of body: *rates* are by what was measured."""

    body_size: int
    rows: int
    pull_count: int
    rates: dict[str, Rate]


def spark_cpu_time(spark: SparkSession) -> float:
    """Return the CPU time that the driver, its JVM and the Python workers have taken, s: brokers are children of this
    process too, and do not count."""
    total = sum(psutil.Process().cpu_times()[:2])
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    jvm = psutil.Process(gateway.proc.pid)
    for process in [jvm, *jvm.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total


def spend(spark: SparkSession, broker_cpu: CpuTime, work: Callable[[], None]) -> Spent:
    """Do *work* and return what it took."""
    before = time.perf_counter(), spark_cpu_time(spark), broker_cpu()
    work()
    after = time.perf_counter(), spark_cpu_time(spark), broker_cpu()
    return after[0] - before[0], after[1] - before[1], after[2] - before[2]


def no_broker() -> float:
    return 0.0


def drain(frame: DataFrame) -> None:
    """Read *frame* to its end."""
    frame.write.format("noop").mode("overwrite").save()


def send(frame: DataFrame, broker: MqcoreBroker, topic: str) -> None:
    """Write *frame* to a topic; all is acknowledged afterwards."""
    frame.write.format("rocketmq").options(nameServer=broker.name_server, topic=topic).mode("append").save()


def from_broker(spark: SparkSession, broker: MqcoreBroker, topic: str, options: dict[str, str]) -> DataFrame:
    given = {"nameServer": broker.name_server, "subscribe": topic, **options}
    return spark.read.format("rocketmq").options(**given).load()


@dataclass(frozen=True, slots=True)
class Reader:
    """What is read, the CPU time of the broker that gives it, and the same with one row of each queue, if that can be
    said."""

    frame: DataFrame
    broker_cpu: CpuTime
    next_to_nothing: DataFrame | None = None


@dataclass(frozen=True, slots=True)
class Bench:
    """What is the same for all sizes."""

    spark: SparkSession
    rounds: int
    sink_rounds: int
    pull_count: int
    options: dict[str, str]
    with_kafka: bool

    def measure(self, directory: Path, body_size: int, rows: int) -> Measured:
        """Measure sink and sources; raises RuntimeError if a topic has another number of rows than were written."""
        properties = {
            "mappedFileSizeCommitLog": str(1 << 28),
            "maxTransferCountOnMessageInMemory": str(self.pull_count),
            "maxTransferBytesOnMessageInMemory": str(1 << 20),
        }
        model = from_memory(self.spark, rows, body_size, COLUMNS)
        with ExitStack() as stack:
            broker = stack.enter_context(MqcoreBroker(directory / "store", properties))
            rates = {name: Rate.of(rows, body_size, times) for name, times in self.measure_sink(model, broker).items()}
            topic = f"Bench{self.sink_rounds - 1}"
            readers = self.readers(broker, topic, rows, body_size)
            if self.with_kafka:
                kafka = stack.enter_context(KafkaBroker(directory / "kafka"))
                fill(model, kafka, topic, QUEUES)
                readers["kafka_source"] = Reader(
                    from_kafka(self.spark, kafka, topic),
                    kafka.child.cpu_time_s,
                    from_kafka(self.spark, kafka, topic, endingOffsets=json.dumps({topic: one_each()})),
                )
            times, per_query = self.measure_sources(readers, rows)
        rates |= {name: Rate.of(rows, body_size, spent, per_query[name]) for name, spent in times.items()}
        return Measured(body_size, rows, self.pull_count, rates)

    def measure_sink(self, model: DataFrame, broker: MqcoreBroker) -> dict[str, list[Spent]]:
        """Write into a new topic in each round; the last one is complete, and can be read, at the end."""
        times: dict[str, list[Spent]] = {"sink": [], "sink_ceiling": []}
        drain(model)
        for number in range(self.sink_rounds):
            topic = f"Bench{number}"
            wire.create_topic(broker.broker_address, topic, queues=QUEUES)
            wait_until(partial(wire.has_route, broker.name_server, topic))
            times["sink_ceiling"].append(spend(self.spark, no_broker, partial(drain, model)))
            times["sink"].append(spend(self.spark, broker.cpu_time_s, partial(send, model, broker, topic)))
        wait_until(lambda: is_dispatched(broker), READABLE_S, "what was written can be read")
        return times

    def readers(self, broker: MqcoreBroker, topic: str, rows: int, body_size: int) -> dict[str, Reader]:
        """Return what is to be read: all columns or those chosen, and the ceiling; with Kafka, its columns too."""
        source = self.from_broker(broker, topic, {})
        found = {"source": source, "source_ceiling": self.ceiling(source, rows, body_size)}
        if self.with_kafka:
            as_kafka = self.from_broker(broker, topic, {"columns": KAFKA_COLUMNS})
            found |= {"source_as_kafka": as_kafka, "ceiling_as_kafka": self.ceiling(as_kafka, rows, body_size)}
        return found

    def from_broker(self, broker: MqcoreBroker, topic: str, more: dict[str, str]) -> Reader:
        options = {**self.options, **more}
        ends = json.dumps({topic: {BROKER_NAME: one_each()}})
        return Reader(
            from_broker(self.spark, broker, topic, options),
            broker.cpu_time_s,
            from_broker(self.spark, broker, topic, {**options, "endingOffsets": ends}),
        )

    def ceiling(self, source: Reader, rows: int, body_size: int) -> Reader:
        batch = {name: value for name, value in self.options.items() if name == "batchBytes"}
        return Reader(from_memory(self.spark, rows, body_size, ",".join(source.frame.columns), **batch), no_broker)

    def measure_sources(
        self, readers: dict[str, Reader], rows: int
    ) -> tuple[dict[str, list[Spent]], dict[str, list[Spent]]]:
        """Read in turn, forwards and backwards; gives the times of whole reads and of those of next to nothing."""
        for name, reader in readers.items():
            found = reader.frame.count()
            if found != rows:
                raise RuntimeError(f"{name}: wrong number of rows: got {found}, wanted {rows}")
            drain(reader.frame)
        times: dict[str, list[Spent]] = {name: [] for name in readers}
        per_query: dict[str, list[Spent]] = {name: [] for name in readers}
        for number in range(self.rounds):
            for name in readers if number % 2 == 0 else reversed(readers):
                reader = readers[name]
                times[name].append(spend(self.spark, reader.broker_cpu, partial(drain, reader.frame)))
                if reader.next_to_nothing is not None:
                    few = partial(drain, reader.next_to_nothing)
                    per_query[name].append(spend(self.spark, reader.broker_cpu, few))
        return times, per_query


def one_each() -> dict[str, int]:
    """Return ending offsets that leave one message of each queue."""
    return {str(number): 1 for number in range(QUEUES)}


def is_dispatched(broker: MqcoreBroker) -> bool:
    """Whether everything in the commit log is in its queue."""
    table = wire.call(broker.broker_address, wire.GET_BROKER_RUNTIME_INFO).json()["table"]
    return int(table["dispatchBehindBytes"]) == 0


def main() -> int:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, action="append", help="size of bodies; 100 and 1024")
    parser.add_argument("--rows", type=int, help="4,000,000 of 100 B, else 1,000,000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sink-rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--pull-count", type=int, default=32, help="messages that the broker gives to one pull")
    parser.add_argument("--kafka", action="store_true", help="compare with Spark's Kafka source, which needs a JDK, "
                        "Maven and confluent-kafka; Maven Central lacks it for some versions of Spark")  # fmt: skip
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="an option of the source")
    parser.add_argument("--json", help="write the figures to this file")
    chosen = parser.parse_args()
    if chosen.kafka and missing_tools():
        parser.error(f"--kafka: {missing_tools()}")
    import pyspark

    options = dict(text.partition("=")[::2] for text in chosen.option)
    jars = {"spark.jars": ",".join(source_jars(pyspark.__version__))} if chosen.kafka else {}
    spark = new_session(chosen.cores, jars)
    bench = Bench(spark, chosen.rounds, chosen.sink_rounds, chosen.pull_count, options, chosen.kafka)
    results = []
    try:
        for body_size in chosen.size or [100, 1024]:
            with tempfile.TemporaryDirectory() as directory:
                rows = chosen.rows or ROWS.get(body_size, ROWS_OTHERWISE)
                found = bench.measure(Path(directory), body_size, rows)
            results.append(found)
            print(f"Spark {pyspark.__version__}, {body_size} B x {found.rows:,}, {found.pull_count} messages a pull")
            for name, rate in found.rates.items():
                print(f"  {name:16}{rate}", flush=True)
    finally:
        spark.stop()
    if chosen.json:
        Path(chosen.json).write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
