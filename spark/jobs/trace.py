"""trace: RocketMQ's trace topic to latencies and failures per topic, group and hour, and a chart of them.

    spark-submit trace.py --name-server 127.0.0.1:9876 --output report.json --chart report.svg

Clients with tracing on write what they send and consume into the trace topic, as texts: fields separated by 0x01,
records by 0x02. Sending is measured by the producer (``Pub``); consuming by the consumer (``SubAfter``), whose record
names neither topic nor, from some clients, group and time: these come from ``SubBefore`` and ``Pub`` of the message.
Source: RocketMQ client/trace/TraceDataEncoder.java.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from mqcore.protocol.names import TRACE_TOPIC
from mqcore.spark.jobs.chart import render
from mqcore.spark.jobs.command import DONE, NOTHING, parser, read_topic, run, say

PERCENTILES: Final = (0.5, 0.95, 0.99)
PERCENTILE_NAMES: Final = ("p50Ms", "p95Ms", "p99Ms")
PERCENTILE_ACCURACY: Final = 10_000
UNKNOWN: Final = "(unknown)"

# Where fields stand in the records of each type.
PUB: Final = {"time": 1, "group": 3, "topic": 4, "msgId": 5, "costMs": 10, "success": 13}
SUB_BEFORE: Final = {"time": 1, "group": 3, "requestId": 4, "msgId": 5}
SUB_AFTER: Final = {"requestId": 1, "msgId": 2, "costMs": 3, "success": 4, "time": 7, "group": 8}


def arguments() -> argparse.ArgumentParser:
    made = parser("trace", "Latency percentiles and failures from the trace topic.")
    made.add_argument("--trace-topic", default=TRACE_TOPIC, help=f"{TRACE_TOPIC} by default")
    made.add_argument("--since", help="traces stored at this time or later, ms since 1970 or ISO 8601")
    made.add_argument("--output", help="the report, one JSON object per line; standard output by default")
    made.add_argument("--chart", help="an SVG file: latencies and failures over the hours")
    return made


def work(spark: SparkSession, options: argparse.Namespace) -> int:
    more = {"startingTimestamp": options.since, "startingOffsetsByTimestampStrategy": "latest"} if options.since else {}
    read = read_topic(spark, options, subscribe=options.trace_topic, columns="body", decode="utf8", **more)
    rows = [row.asDict() for row in report(spans(read)).collect()]
    text = "".join(json.dumps(row, default=str) + "\n" for row in rows)
    if options.output:
        Path(options.output).write_text(text)
    else:
        sys.stdout.write(text)
    if options.chart and rows:
        Path(options.chart).write_text(render(rows))
        say(f"trace: chart in {options.chart}")
    say(f"trace: {sum(row['count'] for row in rows)} spans in {len(rows)} rows")
    return DONE if rows else NOTHING


def spans(messages: DataFrame) -> DataFrame:
    """Return one row per message sent or consumed: kind, topic, group, time (ms), costMs, success.

    A trace record that came twice, because its producer tried again, counts once.
    """
    records = messages.select(F.explode(F.split("body", "\x02")).alias("record")).select(
        F.split("record", "\x01").alias("field")
    )
    pub = _records(records, "Pub", PUB)
    before = _records(records, "SubBefore", SUB_BEFORE)
    after = _records(records, "SubAfter", SUB_AFTER)
    topics = pub.groupBy("msgId").agg(F.first("topic").alias("topic"))
    begun = before.select("requestId", "msgId", F.col("time").alias("begun"), F.col("group").alias("beganIn"))
    consumed = (
        after.join(begun, ["requestId", "msgId"], "left")
        .join(topics, "msgId", "left")
        .select(
            F.lit("consume").alias("kind"),
            F.coalesce("topic", F.lit(UNKNOWN)).alias("topic"),
            F.coalesce("group", "beganIn", F.lit(UNKNOWN)).alias("group"),
            F.coalesce("time", "begun").cast("long").alias("time"),
            F.col("costMs").cast("long").alias("costMs"),
            (F.col("success") == "true").alias("success"),
        )
    )
    sent = pub.select(
        F.lit("send").alias("kind"),
        "topic",
        "group",
        F.col("time").cast("long").alias("time"),
        F.col("costMs").cast("long").alias("costMs"),
        (F.col("success") == "true").alias("success"),
    )
    return sent.unionByName(consumed)


def _records(records: DataFrame, kind: str, places: dict[str, int]) -> DataFrame:
    """Return the distinct records of a type with its fields by name; "null" and missing ones are null."""
    columns = [_field(place).alias(name) for name, place in places.items()]
    return records.where(F.get("field", F.lit(0)) == kind).select(*columns).dropDuplicates()


def _field(place: int) -> Column:
    value = F.get("field", F.lit(place))
    return F.when(value.isin("null", ""), F.lit(None)).otherwise(value)


def report(found: DataFrame) -> DataFrame:
    """Return count, failures and percentiles by kind, topic, group and hour (UTC, ``2026-01-31 13:00``)."""
    timed = found.where(F.col("time").isNotNull())
    hour = F.date_trunc("hour", F.timestamp_millis("time"))
    percentiles = F.percentile_approx("costMs", list(PERCENTILES), PERCENTILE_ACCURACY)
    grouped = (
        timed.withColumn("hour", hour)
        .groupBy("kind", "topic", "group", "hour")
        .agg(
            F.count("*").alias("count"),
            F.sum((~F.col("success")).cast("int")).alias("failures"),
            percentiles.alias("percentiles"),
            F.max("costMs").alias("maxMs"),
        )
    )
    utc = F.to_utc_timestamp("hour", F.expr("current_timezone()"))
    return grouped.select(
        "kind",
        "topic",
        "group",
        F.date_format(utc, "yyyy-MM-dd HH:00").alias("hour"),
        "count",
        "failures",
        *(F.col("percentiles")[at].alias(name) for at, name in enumerate(PERCENTILE_NAMES)),
        "maxMs",
    ).orderBy("kind", "topic", "group", "hour")


def main(given: Sequence[str] | None = None) -> int:
    return run("trace", arguments(), work, given)


if __name__ == "__main__":
    sys.exit(main())
