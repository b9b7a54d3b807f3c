"""The format "rocketmq" beside an in-memory Arrow source, its ceiling, and beside Spark's own Kafka source.

``python -m benchmarks.bench_spark_broker``; --help lists the options.

A broker of mqcore runs as a process on this machine and takes part of its cores. The rows of the in-memory source go to
Spark's noop sink (the ceiling of the sink), then through the sink into a topic, then out of it into the noop sink, and
from memory again (the ceiling of the source). The number of rows is checked before anything is timed.

With ``--kafka`` the same rows also go into a Kafka broker, and Spark's Kafka source takes its turn with the others. It
always makes seven columns, so the format "rocketmq" is read once more with the seven that correspond.
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
from typing import TYPE_CHECKING, Any, Final

import psutil

from benchmarks.bench_spark_store import make_store, new_session
from benchmarks.client.kafka import KafkaBroker
from benchmarks.spark_kafka import fill, from_kafka, missing_tools, source_jars
from benchmarks.spark_memory_source import MEMORY_OPTION, MemorySource
from tests.rigs import MqcoreBroker, wire
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUEUES: Final = 8
MODEL_ROWS: Final = 100_000
READABLE_S: Final = 120.0
COLUMNS: Final = "tags,keys,body"
KAFKA_COLUMNS: Final = "keys,body,topic,queueId,offset,storeTimestamp,sysFlag"
"""What comes nearest to the columns of Spark's Kafka source: key, value, topic, partition, offset, timestamp, type."""

Spent = tuple[float, float, float]
"""By the clock, CPU time of Spark, CPU time of the broker, s."""
CpuTime = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast rows went, medians; MB are 10^6 bytes of bodies. CPU seconds are those of Spark's JVM and of all Python
    processes; what the broker took is apart, us per row."""

    rows_per_s: float
    mb_per_s: float
    rows_per_cpu_s: float
    broker_us: float

    @staticmethod
    def of(rows: int, body_size: int, times: Sequence[Spent]) -> Rate:
        clock_s, cpu_s, broker_s = (statistics.median(column) for column in zip(*times, strict=True))
        return Rate(rows / clock_s, rows * body_size / clock_s / 1e6, rows / cpu_s, broker_s / rows * 1e6)

    def __str__(self) -> str:
        return (
            f"{self.rows_per_s:11,.0f} rows/s {self.mb_per_s:7,.0f} MB/s "
            f"{self.rows_per_cpu_s:11,.0f} rows per CPU second {self.broker_us:6.2f} us of the broker"
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


def from_memory(spark: SparkSession, model: Path, rows: int, columns: str | None = None) -> DataFrame:
    options: dict[str, Any] = {MEMORY_OPTION: rows} | ({} if columns is None else {"columns": columns})
    return spark.read.format(MemorySource.name()).options(**options).load(str(model))


@dataclass(frozen=True, slots=True)
class Bench:
    """What is the same for all sizes."""

    spark: SparkSession
    rows: int
    rounds: int
    pull_count: int
    options: dict[str, str]
    with_kafka: bool

    def measure(self, directory: Path, body_size: int) -> Measured:
        """Measure sink and sources; raises RuntimeError if a topic has another number of rows than were written."""
        make_store(directory / "model", body_size, MODEL_ROWS)
        properties = {
            "mappedFileSizeCommitLog": str(1 << 28),
            "maxTransferCountOnMessageInMemory": str(self.pull_count),
            "maxTransferBytesOnMessageInMemory": str(1 << 20),
        }
        with ExitStack() as stack:
            broker = stack.enter_context(MqcoreBroker(directory / "store", properties))
            times = self.measure_sink(directory / "model", broker)
            topic = f"Bench{self.rounds - 1}"
            readers = self.readers(directory / "model", broker, topic)
            if self.with_kafka:
                kafka = stack.enter_context(KafkaBroker(directory / "kafka"))
                fill(self.memory(directory / "model", COLUMNS), kafka, topic, QUEUES)
                readers["kafka_source"] = (from_kafka(self.spark, kafka, topic), kafka.child.cpu_time_s)
            times |= self.measure_sources(readers)
        rates = {name: Rate.of(self.rows, body_size, spent) for name, spent in times.items()}
        return Measured(body_size, self.rows, self.pull_count, rates)

    def memory(self, model: Path, columns: str | None) -> DataFrame:
        return from_memory(self.spark, model, self.rows, columns)

    def measure_sink(self, model: Path, broker: MqcoreBroker) -> dict[str, list[Spent]]:
        """Write into a new topic in each round; the last one is complete, and can be read, at the end."""
        times: dict[str, list[Spent]] = {"sink": [], "sink_ceiling": []}
        for number in range(self.rounds):
            topic = f"Bench{number}"
            wire.create_topic(broker.broker_address, topic, queues=QUEUES)
            wait_until(partial(wire.has_route, broker.name_server, topic))
            frame = self.memory(model, COLUMNS)
            times["sink_ceiling"].append(spend(self.spark, no_broker, partial(drain, frame)))
            times["sink"].append(spend(self.spark, broker.cpu_time_s, partial(send, frame, broker, topic)))
        wait_until(lambda: is_dispatched(broker), READABLE_S, "what was written can be read")
        return times

    def readers(self, model: Path, broker: MqcoreBroker, topic: str) -> dict[str, tuple[DataFrame, CpuTime]]:
        """Return what is to be read, and the CPU time of whom it is read from."""
        found = {
            "source": (from_broker(self.spark, broker, topic, self.options), broker.cpu_time_s),
            "source_ceiling": (self.memory(model, self.options.get("columns")), no_broker),
        }
        if self.with_kafka:
            options = {**self.options, "columns": KAFKA_COLUMNS}
            found["source_as_kafka"] = (from_broker(self.spark, broker, topic, options), broker.cpu_time_s)
        return found

    def measure_sources(self, readers: dict[str, tuple[DataFrame, CpuTime]]) -> dict[str, list[Spent]]:
        """Read in turn, forwards and backwards."""
        for name, (frame, _) in readers.items():
            found = frame.count()
            if found != self.rows:
                raise RuntimeError(f"{name}: wrong number of rows: got {found}, wanted {self.rows}")
            drain(frame)
        times: dict[str, list[Spent]] = {name: [] for name in readers}
        for number in range(self.rounds):
            for name in readers if number % 2 == 0 else reversed(readers):
                frame, broker_cpu = readers[name]
                times[name].append(spend(self.spark, broker_cpu, partial(drain, frame)))
        return times


def is_dispatched(broker: MqcoreBroker) -> bool:
    """Whether everything in the commit log is in its queue."""
    table = wire.call(broker.broker_address, wire.GET_BROKER_RUNTIME_INFO).json()["table"]
    return int(table["dispatchBehindBytes"]) == 0


def main() -> int:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, action="append", help="size of bodies; 100 and 1024")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
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
    bench = Bench(spark, chosen.rows, chosen.rounds, chosen.pull_count, options, chosen.kafka)
    results = []
    try:
        for body_size in chosen.size or [100, 1024]:
            with tempfile.TemporaryDirectory() as directory:
                found = bench.measure(Path(directory), body_size)
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
