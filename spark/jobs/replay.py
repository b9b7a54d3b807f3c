"""replay: archived messages back into topics, in the order of their queues, not faster than wanted.

    spark-submit replay.py --name-server 127.0.0.1:9876 --input s3://bucket/mq --topic OrdersAgain --rate 5000

Tags, keys, properties and bodies are those of the archive; ids and times are new, the old id is in the property
ARCHIVED_MSG_ID. With ``--job-id`` a replay that was broken off can be started again: its messages carry keys by which
readers with ``dedup=true`` drop what came twice.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from mqcore.spark.jobs.command import DONE, NOTHING, parser, run, say, write_topic

ARCHIVED_MSG_ID: Final = "ARCHIVED_MSG_ID"
QUEUE_COLUMNS: Final = ("topic", "brokerName", "queueId")


def arguments() -> argparse.ArgumentParser:
    made = parser("replay", "Send archived messages again.")
    made.add_argument("--input", required=True, help="what the job archive has written, or Parquet with its columns")
    made.add_argument("--topic", help="where to; by default each message to the topic it came from")
    made.add_argument("--where", help="a SQL condition on the archive's columns, such as \"tags = 'paid'\"")
    made.add_argument("--rate", type=int, default=0, help="messages per second in all; 0 for as fast as it goes")
    made.add_argument("--tasks", type=int, default=0, help="tasks at once; the default is what the session has")
    made.add_argument("--keep-queues", action="store_true", help="send to the queue ids of the archive")
    made.add_argument("--job-id", help="a name for this replay, the same when it is started again")
    return made


def work(spark: SparkSession, options: argparse.Namespace) -> int:
    frame = spark.read.parquet(options.input)
    if options.where:
        frame = frame.where(options.where)
    count = frame.count()
    if not count:
        say(f"replay: nothing to send in {options.input}")
        return NOTHING
    tasks = options.tasks or spark.sparkContext.defaultParallelism
    if options.rate:
        tasks = min(tasks, options.rate)
    say(f"replay: {count} messages by {tasks} tasks" + (f", {options.rate} per second" if options.rate else ""))
    more = {}
    if options.rate:
        more["maxMessagesPerSecond"] = str(max(1, options.rate // tasks))
    if options.job_id:
        more |= {"dedup": "true", "queryId": options.job_id}
    write_topic(outgoing(frame, options, tasks), options, **more)
    say(f"replay: {count} messages sent")
    return DONE


def outgoing(frame: DataFrame, options: argparse.Namespace, tasks: int) -> DataFrame:
    """Return the columns of the sink, each queue's messages in one task and in their order."""
    ordered = frame.repartition(tasks, *QUEUE_COLUMNS).sortWithinPartitions(*QUEUE_COLUMNS, "offset")
    properties = F.map_concat(
        F.map_filter(
            F.coalesce(F.col("properties"), F.create_map().cast("map<string,string>")),
            lambda name, _: name != ARCHIVED_MSG_ID,
        ),
        F.create_map(F.lit(ARCHIVED_MSG_ID), F.col("msgId")),
    )
    columns: list[Column] = [
        F.lit(options.topic).alias("topic") if options.topic else F.col("topic"),
        F.col("tags"),
        F.col("keys"),
        F.col("body"),
        properties.alias("properties"),
    ]
    if options.keep_queues:
        columns.append(F.col("queueId"))
    return ordered.select(*columns)


def main(given: Sequence[str] | None = None) -> int:
    return run("replay", arguments(), work, given)


if __name__ == "__main__":
    sys.exit(main())
