"""Audit of stores: every message's CRC, order and gaps in every queue, duplicate keys; a report for each topic.

    spark-submit --master 'local[4]' spark/jobs/audit.py --store /backup/store --json report.json

or ``python -m mqcore.spark.jobs.audit``. No broker is needed, and nothing is written to the stores. Exit code: 0 if
every message is there and whole, 1 if not (with --strict also for duplicate keys and clock steps), 2 for wrong
arguments or a store that cannot be read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mqcore.errors import MQError, OffsetOutOfRangeError
from mqcore.layout import BLANK_MAGIC, BLANK_RECORD
from mqcore.spark.jobs.audit_checks import COLUMNS, NOTE_SCHEMA, Note, audit_part
from mqcore.spark.jobs.audit_report import StoreReport, make_report, table
from mqcore.spark.jobs.progress import progress
from mqcore.store.reader import StoreReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CLEAN: Final = 0
NOT_CLEAN: Final = 1
WRONG_USE: Final = 2
SHOWN_FINDINGS: Final = 20
DUPLICATES_MAX: Final = 100_000
"""So many keys are looked at for the report; the driver holds them all."""

KEY_COLUMNS: Final = "topic,uniqKey,reconsumeTimes"


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the program's arguments; ends the program, with code 2, if they are wrong."""
    parser = argparse.ArgumentParser(prog="audit", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--store", action="append", required=True, metavar="DIR",
                        help="a store's directory, as executors see it; may be given several times")  # fmt: skip
    parser.add_argument("--commit-log", metavar="DIRS", help="where the commit log lies, if elsewhere; one store only")
    parser.add_argument("--topics", metavar="A,B", help="only these topics; damage of the log is then not looked for")
    parser.add_argument("--no-keys", action="store_true", help="do not look for duplicate keys, which takes a shuffle")
    parser.add_argument("--strict", action="store_true", help="exit code 1 also for duplicate keys and clock steps")
    parser.add_argument("--min-partitions", type=int, metavar="N", help="cut the log into about so many tasks at least")
    parser.add_argument("--json", metavar="FILE", help="write the whole report, with its findings, to this file")
    parser.add_argument("--parquet", metavar="DIR", help="write topics/ and findings/ as Parquet under this path")
    parser.add_argument("--quiet", action="store_true", help="no table, no progress")
    chosen = parser.parse_args(given)
    if chosen.commit_log and len(chosen.store) > 1:
        parser.error("--commit-log goes with one --store")
    return chosen


def main(given: Sequence[str] | None = None, spark: SparkSession | None = None) -> int:
    """Run the audit and return the exit code; with *spark*, in that session, which is left open."""
    from pyspark.errors import PySparkException

    chosen = arguments(given)
    session = spark or new_session()
    try:
        reports = [audit_store(session, store, chosen) for store in chosen.store]
        write_reports(session, reports, chosen)
    except (MQError, OSError, PySparkException) as error:
        print(f"audit: {error}", file=sys.stderr)
        return WRONG_USE
    finally:
        if spark is None:
            session.stop()
    return NOT_CLEAN if any(is_bad(report, chosen.strict) for report in reports) else CLEAN


def new_session() -> SparkSession:
    """Return a session as spark-submit has set it up."""
    from pyspark.sql import SparkSession

    return SparkSession.builder.appName("mqcore audit").getOrCreate()


def is_bad(report: StoreReport, strict: bool) -> bool:
    """Whether *report* makes the exit code 1."""
    has_notes = bool(report.clock_steps) or any(topic.duplicate_keys for topic in report.topics)
    return not report.is_clean or (strict and has_notes)


def audit_store(spark: SparkSession, store: str, chosen: argparse.Namespace) -> StoreReport:
    """Return the report on one store; reads it twice, once for its keys. Raises MQError if it cannot be read."""
    with StoreReader(store, chosen.commit_log) as reader:
        extent = reader.extent
        with progress(spark, f"audit of {store}", _stream(chosen)):
            messages = read_store(spark, store, chosen, ",".join(COLUMNS))
            notes = [Note(*row) for row in messages.mapInArrow(audit_part, NOTE_SCHEMA).collect()]
            duplicates = [] if chosen.no_keys else find_duplicates(read_store(spark, store, chosen, KEY_COLUMNS))
        bounds = (extent.start, extent.end)
        if chosen.topics:
            return make_report(store, bounds, notes, duplicates, lambda start: extent.end)
        return make_report(store, bounds, notes, duplicates, lambda start: behind_filler(reader, start))


def _stream(chosen: argparse.Namespace) -> Any:
    return _Silence() if chosen.quiet else sys.stderr


class _Silence:
    """A stream for which nothing is said."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass


def read_store(spark: SparkSession, store: str, chosen: argparse.Namespace, columns: str) -> DataFrame:
    """Return the messages of *store*, damaged ranges left out, bodies not looked at but for their CRC."""
    reader = spark.read.format("rocketmq-store").option("columns", columns).option("pruneByQueues", "false")
    reader = reader.option("failOnDataLoss", "false").option("checkCrc", "false").option("decompress", "false")
    for name, value in (
        ("commitLogPath", chosen.commit_log), ("subscribe", chosen.topics), ("minPartitions", chosen.min_partitions),
    ):  # fmt: skip
        if value:
            reader = reader.option(name, str(value))
    return reader.load(store)


def find_duplicates(messages: DataFrame) -> list[tuple[str, str, int]]:
    """Return topic, key and count of the unique keys that several messages of a topic have, the most frequent first.

    A message that was sent back is stored again under its key, with another count of its turns: that is no duplicate.
    """
    from pyspark.sql import functions

    counts = messages.where("uniqKey is not null").groupBy(*KEY_COLUMNS.split(",")).count().where("count > 1")
    totals = counts.groupBy("topic", "uniqKey").agg(functions.sum("count").alias("count"))
    rows = totals.orderBy(functions.desc("count"), "topic", "uniqKey").limit(DUPLICATES_MAX).collect()
    return [(row["topic"], row["uniqKey"], row["count"]) for row in rows]


def behind_filler(reader: StoreReader, start: int) -> int:
    """Return the end of the file if its unused end begins at *start*, else *start*."""
    try:
        file_start, view = reader.files.file_view(start)
    except OffsetOutOfRangeError:
        return start
    _, magic = BLANK_RECORD.struct.unpack_from(view, start - file_start)
    return file_start + reader.files.file_size if magic == BLANK_MAGIC else start


def write_reports(spark: SparkSession, reports: list[StoreReport], chosen: argparse.Namespace) -> None:
    """Print the tables, and write the files that were asked for."""
    if not chosen.quiet:
        for report in reports:
            print(table(report))
            for finding in report.findings[:SHOWN_FINDINGS]:
                where = "" if finding.topic is None else f" {finding.topic}/{finding.queue_id}"
                print(f"  {finding.kind}{where} [{finding.start}, {finding.end}): {finding.text}")
    if chosen.json:
        Path(chosen.json).write_text(json.dumps([report.to_json() for report in reports], indent=1) + "\n")
    if chosen.parquet:
        write_parquet(spark, reports, chosen.parquet)


def write_parquet(spark: SparkSession, reports: Iterable[StoreReport], directory: str) -> None:
    """Write topics/ and findings/ under *directory*, which may be any path that Spark can write to."""
    topics = [{"store": report.store} | asdict(topic) for report in reports for topic in report.topics]
    findings = [{"store": report.store} | asdict(finding) for report in reports for finding in report.findings]
    schemas = {
        "topics": "store string, topic string, queues long, messages long, size long, first_time long, last_time long, "
        "crc_errors long, missing long, disordered long, repeated long, duplicate_keys long",
        "findings": "store string, kind string, topic string, queue_id int, start long, end long, count long, "
        "text string",
    }
    for name, rows in (("topics", topics), ("findings", findings)):
        frame = spark.createDataFrame(rows, schemas[name])
        frame.coalesce(1).write.mode("overwrite").parquet(f"{directory}/{name}")


if __name__ == "__main__":
    sys.exit(main())
