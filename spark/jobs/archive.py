"""archive: topics to partitioned Parquet, as much as there is, each time from where the last run ended.

    spark-submit archive.py --name-server 127.0.0.1:9876 --topics Orders,Payments --output s3://bucket/mq

Files lie in ``batch=<n>/topic=<topic>/date=<day>``. What a batch reads is written down before it is read, in
``_archive/<n>.json``, and ``_archive/<n>.done`` says that it is complete. A batch that was broken off is read again
from the same offsets to the same offsets and replaces its directory, so each message is there exactly once, whoever
reads the files and whenever the job was killed. Only one archive job may write to an output at a time.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from mqcore.errors import ConfigError
from mqcore.spark.cluster import Cluster
from mqcore.spark.jobs.command import DONE, NOTHING, extra_options, parser, run, say
from mqcore.spark.jobs.files import Directory
from mqcore.spark.offsets import Offsets, from_json, to_json
from mqcore.spark.options import Use
from mqcore.spark.ranges import share_out
from mqcore.spark.settings import source_settings
from mqcore.spark.source import FORMAT
from mqcore.spark.subscription import find_queues

PLANS: Final = "_archive"
MESSAGES_PER_BATCH: Final = 5_000_000
GRAINS: Final = {"date": "yyyy-MM-dd", "hour": "yyyy-MM-dd-HH"}


@dataclass(frozen=True, slots=True)
class Plan:
    """Batch *number* has what lies from *start* up to *end*."""

    number: int
    start: Offsets
    end: Offsets

    @property
    def size(self) -> int:
        return sum(self.end[queue] - self.start[queue] for queue in self.end)

    def to_text(self) -> str:
        return json.dumps({"start": to_json(self.start), "end": to_json(self.end)})

    @staticmethod
    def from_text(number: int, text: str) -> Plan:
        tree = json.loads(text)
        return Plan(number, from_json(tree["start"]), from_json(tree["end"]))


class Archive:
    """One output: its plans, and the writing of its batches."""

    def __init__(self, spark: SparkSession, options: argparse.Namespace) -> None:
        self._spark = spark
        self._options = options
        self._output = options.output.rstrip("/")
        self._plans = Directory(spark, f"{self._output}/{PLANS}")
        self._given = {"nameServer": options.name_server, **extra_options(options)}
        chosen = {"subscribe": options.topics} if options.topics else {"subscribePattern": options.pattern}
        self._settings = source_settings({**self._given, **chosen}, Use.BATCH)
        self._cluster = Cluster(self._settings.calling)

    def run(self) -> int:
        """Archive all that is there now; returns how many messages that were."""
        final = self._cluster.max_offsets(find_queues(self._settings, self._cluster))
        plan, is_done = self._last()
        written = 0
        if plan is not None and not is_done:
            say(f"archive: batch {plan.number} was broken off and is written again")
            written += self._write(plan)
        while (following := self._next(plan, final)) is not None:
            self._plans.write(f"{following.number}.json", following.to_text())
            written += self._write(following)
            plan = following
        return written

    def _last(self) -> tuple[Plan | None, bool]:
        """Return the last plan, None if there is none, and whether it was carried out.

        Raises ConfigError for batches without a plan: beginning anew would archive everything twice.
        """
        names = self._plans.names()
        numbers = [int(name.removesuffix(".json")) for name in names if name.endswith(".json") and name[0] != "_"]
        if not numbers:
            batches = [name for name in Directory(self._spark, self._output).names() if name.startswith("batch=")]
            if batches:
                raise ConfigError(
                    f"{self._output} has {len(batches)} batches and no plans in {PLANS}: give another output"
                )
            return None, True
        last = max(numbers)
        return Plan.from_text(last, self._plans.read(f"{last}.json")), f"{last}.done" in names

    def _next(self, plan: Plan | None, final: Offsets) -> Plan | None:
        """Return the batch after *plan* on the way to *final*; None if there is nothing left."""
        known = {} if plan is None else plan.end
        new = [queue for queue in final if queue not in known]
        start = {queue: known[queue] for queue in final if queue in known} | self._cluster.min_offsets(new)
        end = share_out(start, final, self._options.batch)
        if all(end[queue] <= start[queue] for queue in end):
            return None
        # Queues that are away just now keep their place.
        return Plan(0 if plan is None else plan.number + 1, known | start, known | end)

    def _write(self, plan: Plan) -> int:
        """Write a batch, replacing what there may be of it, and mark it as done; returns how many messages it has."""
        options = {
            **self._given,
            "assign": _assigned(plan),
            "startingOffsets": json.dumps(to_json(_ranged(plan.start, plan))),
            "endingOffsets": json.dumps(to_json(_ranged(plan.end, plan))),
            "includeProperties": "true",
        }
        frame = self._spark.read.format(FORMAT).options(**options).load()
        grain = self._options.partition_by
        utc = F.to_utc_timestamp(F.col("storeTimestamp"), F.expr("current_timezone()"))
        dated = frame.withColumn(grain, F.date_format(utc, GRAINS[grain]))
        target = f"{self._output}/batch={plan.number}"
        dated.write.mode("overwrite").partitionBy("topic", grain).parquet(target)
        count = self._spark.read.schema(dated.schema).parquet(target).count()
        self._plans.write(f"{plan.number}.done", str(count))
        if self._options.group:
            self._cluster.commit_offsets(self._options.group, _ranged(plan.end, plan))
        say(f"archive: batch {plan.number}: {count} messages")
        return count


def _ranged(offsets: Offsets, plan: Plan) -> Offsets:
    """Return the offsets of the queues from which the batch has anything."""
    return {queue: offset for queue, offset in offsets.items() if plan.end[queue] > plan.start[queue]}


def _assigned(plan: Plan) -> str:
    tree: dict[str, dict[str, list[int]]] = {}
    for queue in _ranged(plan.end, plan):
        tree.setdefault(queue.topic, {}).setdefault(queue.broker_name, []).append(queue.queue_id)
    return json.dumps(tree)


def arguments() -> argparse.ArgumentParser:
    made = parser("archive", "Archive topics as Parquet, incrementally.")
    chosen = made.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--topics", help="names, separated by commas")
    chosen.add_argument("--pattern", help="a regular expression for whole names")
    made.add_argument("--output", required=True, help="where the files go: any path that Spark can write")
    made.add_argument("--partition-by", choices=sorted(GRAINS), default="date", help="of the time of storing, UTC")
    made.add_argument("--batch", type=int, default=MESSAGES_PER_BATCH, help="messages of a batch, about")
    made.add_argument("--group", help="a consumer group to which progress is written, so that its lag can be watched")
    return made


def work(spark: SparkSession, options: argparse.Namespace) -> int:
    written = Archive(spark, options).run()
    say(f"archive: {written} messages to {options.output}")
    return DONE if written else NOTHING


def main(given: Sequence[str] | None = None) -> int:
    return run("archive", arguments(), work, given)


if __name__ == "__main__":
    sys.exit(main())
