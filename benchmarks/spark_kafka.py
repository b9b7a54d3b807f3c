"""Spark's own Kafka source, for the same rows from a Kafka broker. Needs a JDK, Maven and confluent-kafka."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.client import kafka
from benchmarks.client.kafka import KafkaBroker, resolve_class_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

POM: Final = Path(__file__).with_name("spark_kafka.pom.xml").resolve()


def missing_tools() -> str:
    """Say why nothing of Kafka can run here; an empty text if it can."""
    without = "" if find_spec("confluent_kafka") else "not installed: confluent-kafka"
    return kafka.missing_tools() or without


def source_jars(spark_version: str) -> list[str]:
    """Return the jars of the source for one version of Spark, downloading what is missing.

    Raises RuntimeError if there are none: not every version has all of them.
    """
    return resolve_class_path(POM, {"spark.version": spark_version}).split(os.pathsep)


def fill(frame: DataFrame, broker: KafkaBroker, topic: str, partitions: int) -> None:
    """Write ``keys`` and ``body`` of *frame* to *topic*, the rows to the partitions in turn."""
    broker.create_topic(topic, partitions)
    columns = "keys AS key", "body AS value", f"CAST(monotonically_increasing_id() % {partitions} AS int) AS partition"
    options = {"kafka.bootstrap.servers": broker.address, "topic": topic}
    frame.selectExpr(*columns).write.format("kafka").options(**options).save()


def from_kafka(spark: SparkSession, broker: KafkaBroker, topic: str, **more: str) -> DataFrame:
    """Return all of *topic*, with the seven columns that the source always makes; *more* are its options."""
    options = {"kafka.bootstrap.servers": broker.address, "subscribe": topic, **more}
    return spark.read.format("kafka").options(**options).load()
