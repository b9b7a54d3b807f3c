"""The format "rocketmq-store" beside an in-memory Arrow source, its ceiling.

``python -m benchmarks.bench_spark_store``; --help lists the options.

Both give rows of the same columns and sizes, in batches of the same size and as many partitions, to Spark's noop sink,
in turn, in one session on this machine's cores. The store is made for the run, with consume queues, and lies in the
page cache. The number of rows is checked first, and both are read once before anything is timed.
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
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import psutil
from numpy.typing import NDArray

from benchmarks.spark_memory_source import QUEUES, TOPIC, MemorySource, numbered_records, template
from mqcore.layout import BLANK_MAGIC, BLANK_RECORD, CONSUME_QUEUE_FILE_UNITS, CONSUME_QUEUE_UNIT
from mqcore.spark.java import java_environment
from mqcore.store.paths import StorePaths, file_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT: Final = Path(__file__).resolve().parent.parent
FILE_SIZE: Final = 1 << 28
ROUNDS: Final = 5
BAR: Final = 0.6
"""The store source is to reach this share of the ceiling."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One size of body: medians over the rounds; MB are 10^6 bytes of bodies.

    *share* is the store's rate by the ceiling's; *cpu_share* the ceiling's CPU time by the store's, of the JVM and all
    Python processes, which other load on the machine disturbs less.
    """

    body_size: int
    rows: int
    store_rows_per_s: float
    store_mb_per_s: float
    ceiling_rows_per_s: float
    ceiling_mb_per_s: float
    share: float
    cpu_share: float


def make_store(root: Path, body_size: int, rows: int) -> None:
    """Write a store of *rows* messages in QUEUES queues of the topic Bench."""
    paths = StorePaths.at(root)
    paths.make_directories()
    record_size = len(template(body_size))
    per_file = (FILE_SIZE - BLANK_RECORD.size) // record_size
    places = []
    for first in range(0, rows, per_file):
        numbers = np.arange(first, min(rows, first + per_file), dtype=np.int64)
        start = first // per_file * FILE_SIZE
        physical = start + (numbers - first) * record_size
        data = numbered_records(numbers, body_size, physical)
        with (paths.commit_log / file_name(start)).open("wb") as file:
            file.write(data)
            if first + per_file < rows:
                file.write(BLANK_RECORD.struct.pack(FILE_SIZE - len(data), BLANK_MAGIC))
            file.truncate(FILE_SIZE)
        places.append(physical)
    write_queues(paths, np.concatenate(places), record_size)


def write_queues(paths: StorePaths, places: NDArray[np.int64], record_size: int) -> None:
    """Write the consume queues of records at *places*, which went to the queues in turn."""
    for queue_id in range(QUEUES):
        own = places[queue_id::QUEUES]
        directory = paths.consume_queue / TOPIC / str(queue_id)
        directory.mkdir(parents=True)
        for first in range(0, len(own), CONSUME_QUEUE_FILE_UNITS):
            units = np.zeros(CONSUME_QUEUE_FILE_UNITS, dtype=CONSUME_QUEUE_UNIT.dtype)
            part = own[first : first + CONSUME_QUEUE_FILE_UNITS]
            units["physical_offset"][: len(part)] = part
            units["record_size"][: len(part)] = record_size
            (directory / file_name(first * CONSUME_QUEUE_UNIT.size)).write_bytes(units.tobytes())


def cpu_time() -> float:
    """Return the CPU time that this process and all below it have taken, s; those that have ended count too."""
    total = 0.0
    own = psutil.Process()
    for process in [own, *own.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total


def run_once(frame: DataFrame) -> tuple[float, float]:
    """Return how long it takes to read *frame* to its end, and the CPU time that it takes, s."""
    start, cpu_start = time.perf_counter(), cpu_time()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - start, cpu_time() - cpu_start


def from_memory(spark: SparkSession, rows: int, body_size: int, columns: str, **more: Any) -> DataFrame:
    """Return the ceiling: *rows* rows of *columns*; *more* are other options of MemorySource."""
    given = {"rows": rows, "bodySize": body_size, "columns": columns, **more}
    return spark.read.format(MemorySource.name()).options(**given).load()


def measure(spark: SparkSession, root: Path, body_size: int, rows: int, options: dict[str, str]) -> Measured:
    """Compare both sources on a store of *rows* messages; raises RuntimeError if a source gives another number."""
    store = spark.read.format("rocketmq-store").options(**options).load(str(root))
    ceiling = from_memory(
        spark, rows, body_size, ",".join(store.columns), partitions=store.rdd.getNumPartitions(),
        **{name: value for name, value in options.items() if name == "batchBytes"},
    )  # fmt: skip
    for frame in (store, ceiling):
        if frame.count() != rows:
            raise RuntimeError(f"wrong number of rows: got {frame.count()}, wanted {rows}")
        run_once(frame)
    times: list[tuple[tuple[float, float], tuple[float, float]]] = []
    for number in range(ROUNDS):
        if number % 2:
            second, first = run_once(ceiling), run_once(store)
        else:
            first, second = run_once(store), run_once(ceiling)
        times.append((first, second))
    rates = [rows / statistics.median(seconds for seconds, _ in column) for column in zip(*times, strict=True)]
    share, cpu_share = (statistics.median(top[kind] / own[kind] for own, top in times) for kind in (0, 1))
    megabytes = [rate * body_size / 1e6 for rate in rates]
    return Measured(body_size, rows, rates[0], megabytes[0], rates[1], megabytes[1], share, cpu_share)


def new_session(cores: int, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return a session on *cores* of this machine, with more *settings* if given."""
    os.environ.update(java_environment())
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{cores}]").appName("bench_spark_store")
    for name, value in {
        "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.showConsoleProgress": "false", **(settings or {}),
    }.items():  # fmt: skip
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.dataSource.register(MemorySource)
    return session


def main() -> int:
    """Run the comparison; exit code 1 with --check if the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, action="append", help="size of bodies; 100 and 1024")
    parser.add_argument("--megabytes", type=int, default=512, help="size of each commit log, about")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="an option of both sources")
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--check", action="store_true", help=f"exit code 1 below {BAR:.0%} of the ceiling")
    chosen = parser.parse_args()
    options = dict(text.partition("=")[::2] for text in chosen.option)
    results = []
    spark = new_session(chosen.cores)
    try:
        for body_size in chosen.size or [100, 1024]:
            with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory:
                rows = (chosen.megabytes << 20) // len(template(body_size))
                make_store(Path(directory), body_size, rows)
                found = measure(spark, Path(directory), body_size, rows, options)
            results.append(found)
            print(f"{body_size:5} B x {found.rows:,}: store {found.store_rows_per_s:,.0f} rows/s "
                  f"{found.store_mb_per_s:,.0f} MB/s, ceiling {found.ceiling_rows_per_s:,.0f} rows/s "
                  f"{found.ceiling_mb_per_s:,.0f} MB/s, share {found.share:.0%}, by CPU time {found.cpu_share:.0%}",
                  flush=True)  # fmt: skip
    finally:
        spark.stop()
    if chosen.json:
        Path(chosen.json).write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")
    return 1 if chosen.check and any(result.share < BAR for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
