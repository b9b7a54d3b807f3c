"""deadletters: what lies in a group's dead letter topic, by cause; and chosen ones sent again.

    spark-submit deadletters.py --name-server 127.0.0.1:9876 --group billing
    spark-submit deadletters.py --name-server 127.0.0.1:9876 --group billing --resend --where "originTopic = 'Orders'"

Brokers do not store why a message died, but they store enough to tell the kinds apart: how often it was delivered,
where it came from and when. The summary goes to standard output, one JSON object per line. A message that is sent again
goes to its original topic with its tags, keys, properties and body; the property DEAD_LETTER_ID says which it was.
Dead letters stay where they are, so ``--since`` the last run keeps a second run from sending them once more.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mqcore.protocol import properties as names
from mqcore.protocol.names import dlq_topic
from mqcore.spark.jobs.command import DONE, NOTHING, parser, read_topic, run, say, write_topic

DEAD_LETTER_ID: Final = "DEAD_LETTER_ID"
RETRIES_DEFAULT: Final = 16
CAUSES: Final = ("originTopic", "tags", "cause")


def arguments() -> argparse.ArgumentParser:
    made = parser("deadletters", "Summarise and resend the dead letters of a consumer group.")
    made.add_argument("--group", required=True, help="the consumer group")
    made.add_argument("--retries", type=int, default=RETRIES_DEFAULT, help="how often the group retries (16)")
    made.add_argument("--since", help="dead letters of this time or later, ms since 1970 or ISO 8601")
    made.add_argument(
        "--where",
        help="a SQL condition on originTopic, tags, keys, body, cause, deliveries, storeTimestamp, properties",
    )
    made.add_argument("--resend", action="store_true", help="send the chosen ones again")
    made.add_argument("--to", help="where to send them; by default each to the topic it came from")
    made.add_argument("--limit", type=int, help="send at most so many")
    return made


def work(spark: SparkSession, options: argparse.Namespace) -> int:
    more = {"startingTimestamp": options.since, "startingOffsetsByTimestampStrategy": "latest"} if options.since else {}
    read = read_topic(spark, options, subscribe=dlq_topic(options.group), includeProperties="true", **more)
    letters = with_causes(read, options.retries)
    if options.where:
        letters = letters.where(options.where)
    if options.limit is not None:
        letters = letters.orderBy("storeTimestamp", "offset").limit(options.limit)
    letters = letters.cache()
    try:
        found = summary(letters)
        for row in found:
            sys.stdout.write(json.dumps(row, default=str) + "\n")
        total = sum(row["messages"] for row in found)
        say(f"deadletters: {total} of group {options.group}")
        if options.resend and total:
            resend(letters, options)
            say(f"deadletters: {total} sent again")
        return DONE if total else NOTHING
    finally:
        letters.unpersist()


def with_causes(letters: DataFrame, retries: int) -> DataFrame:
    """Add originTopic, deliveries and cause. A broker counts a message up when it is sent back, the last time too."""
    deliveries = F.greatest(F.col("reconsumeTimes"), F.lit(1))
    return letters.withColumns(
        {
            "originTopic": F.coalesce(
                F.col("properties")[names.PROPERTY_RETRY_TOPIC], F.col("properties")[names.PROPERTY_REAL_TOPIC]
            ),
            "deliveries": deliveries,
            "cause": F.when(deliveries > retries, F.lit("retries used up"))
            .when(deliveries > 1, F.lit("given up before the last retry"))
            .otherwise(F.lit("rejected at once")),
        }
    )


def summary(letters: DataFrame) -> list[dict[str, Any]]:
    """Return one row per origin topic, tag and cause, the most frequent first."""
    grouped = letters.groupBy(*CAUSES).agg(
        F.count("*").alias("messages"),
        F.sum(F.length("body")).alias("bytes"),
        F.max("deliveries").alias("deliveriesMax"),
        F.min("storeTimestamp").alias("first"),
        F.max("storeTimestamp").alias("last"),
        F.min("msgId").alias("example"),
    )
    return [row.asDict() for row in grouped.orderBy(F.desc("messages"), *CAUSES).collect()]


def resend(letters: DataFrame, options: argparse.Namespace) -> None:
    """Send *letters* to where they came from, or to ``--to``."""
    topic = F.lit(options.to) if options.to else F.col("originTopic")
    properties = F.map_concat(
        F.map_filter(F.col("properties"), lambda name, _: name != DEAD_LETTER_ID),
        F.create_map(F.lit(DEAD_LETTER_ID), F.col("msgId")),
    )
    frame = letters.select(topic.alias("topic"), "tags", "keys", "body", properties.alias("properties"))
    write_topic(frame, options)


def main(given: Sequence[str] | None = None) -> int:
    return run("deadletters", arguments(), work, given)


if __name__ == "__main__":
    sys.exit(main())
