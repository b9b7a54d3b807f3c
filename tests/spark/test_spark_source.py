"""The broker source and sink in Spark: batch and streaming, with messages of Apache's Java producer."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row
from pyspark.sql.types import StructType

from mqcore.errors import ConfigError
from mqcore.spark.batch import BatchReader
from mqcore.spark.errors import DataLossError
from mqcore.spark.options import Use
from mqcore.spark.schema import SCHEMA
from mqcore.spark.settings import sink_settings
from mqcore.spark.sink import BatchWriter, StreamRowWriter
from mqcore.spark.source import RocketMQDataSource
from mqcore.spark.stream import HAS_ADMISSION_CONTROL, StreamReader
from tests.rigs import JavaDriver, MqcoreBroker, gather, maven, wire
from tests.spark.helpers import (
    await_readable,
    bodies_of,
    fill,
    make_topic,
    read,
    settings_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JAVA_COUNT = 2000


@pytest.fixture
def topic(broker: MqcoreBroker, request: pytest.FixtureRequest) -> str:
    return make_topic(broker, request.node.name, 4)


def source(broker: MqcoreBroker, **options: str) -> RocketMQDataSource:
    return RocketMQDataSource({"nameServer": broker.name_server, **options})


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%07d" % number for number in range(first, first + count)]


def batch(spark: SparkSession, broker: MqcoreBroker, **options: Any) -> DataFrame:
    return spark.read.format("rocketmq").option("nameServer", broker.name_server).options(**options).load()


def stream(spark: SparkSession, broker: MqcoreBroker, **options: Any) -> DataFrame:
    given = {"startingOffsets": "earliest", "retryIntervalMs": "100", "numRetries": "300", **options}
    return spark.readStream.format("rocketmq").option("nameServer", broker.name_server).options(**given).load()


def run_to_end(frame: DataFrame, directory: Path) -> list[int]:
    """Append what is there to Parquet, from the checkpoint on; gives the rows of each micro-batch."""
    query = (
        frame.writeStream.format("parquet").option("path", str(directory / "out"))
        .option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def output(spark: SparkSession, directory: Path) -> list[bytes]:
    return sorted(bytes(row.body) for row in spark.read.parquet(str(directory / "out")).select("body").collect())


# Batch.


@pytest.mark.skipif(bool(maven.missing_tools()), reason=maven.missing_tools() or "Maven is there")
def test_what_apaches_producer_sent_is_read_as_it_was(
    spark: SparkSession, broker: MqcoreBroker, topic: str, tmp_path: Path
) -> None:
    corpus = gather(tmp_path / "corpus.txt", JAVA_COUNT)
    produced = JavaDriver("4.9.8", tmp_path / "java").produce(
        broker.name_server, topic, corpus.path, tags="TagA,TagB", in_flight=64
    )
    assert produced.accepted == JAVA_COUNT
    await_readable(broker, topic)
    rows = batch(spark, broker, subscribe=topic, includeProperties="true").collect()
    assert sorted(bytes(row.body) for row in rows) == sorted(corpus.lines())
    by_place = {(row.queueId, row.offset): row for row in rows}
    for sent in produced.sent:
        row = by_place[sent.queue_id, sent.queue_offset]
        assert (row.keys, row.msgId, row.properties["KEYS"]) == (sent.key, sent.message_id, sent.key)
        assert row.tags in ("TagA", "TagB")
    filtered = batch(spark, broker, subscribe=topic, subExpression="TagA")
    assert filtered.count() == sum(row.tags == "TagA" for row in rows)


def test_the_format_needs_no_registration_and_gives_nothing_of_nothing(
    spark: SparkSession, broker: MqcoreBroker, topic: str
) -> None:
    fill(broker, topic, numbered(100))
    frame = batch(spark, broker, subscribe=topic, startingOffsets="latest")
    assert frame.columns == [name for name in SCHEMA.names if name != "properties"]
    assert frame.count() == 0


def test_columns_are_chosen_by_schema_or_option(spark: SparkSession, broker: MqcoreBroker, topic: str) -> None:
    fill(broker, topic, numbered(10), keys=[str(number) for number in range(10)])
    by_option = batch(spark, broker, subscribe=topic, columns="keys,body", decode="utf8")
    assert by_option.dtypes == [("keys", "string"), ("body", "string")]
    assert sorted(row.body for row in by_option.collect()) == [body.decode() for body in numbered(10)]
    reader = spark.read.format("rocketmq").schema("queueOffset bigint, tags string")
    by_schema = reader.options(nameServer=broker.name_server, topic=topic).load()
    assert by_schema.columns == ["queueOffset", "tags"]
    assert by_schema.count() == 10


def test_conditions_leave_out_partitions_and_rows_for_every_query_of_a_frame(
    spark: SparkSession, broker: MqcoreBroker, topic: str
) -> None:
    fill(broker, topic, numbered(400), queueId=[number % 4 for number in range(400)], tags=["a", "b"] * 200)
    frame = batch(spark, broker, subscribe=topic, where="queueId IN (1, 3) AND offset >= 40 AND tags = 'b'")
    assert frame.rdd.getNumPartitions() == 2
    wanted = sorted((queue, offset) for queue in (1, 3) for offset in range(40, 100))
    places = frame.select("queueId", "offset")
    assert sorted(map(tuple, places.collect())) == wanted
    # Not only for the first query, whatever filters the next ones have.
    assert sorted(map(tuple, places.where("queueId = 1 AND offset < 50").collect())) == wanted[:10]
    assert places.where("queueId = 3").union(places).count() == 180
    assert frame.count() == 120


def test_sparks_own_filters_never_reach_into_another_query(
    spark: SparkSession, broker: MqcoreBroker, topic: str
) -> None:
    """With filter pushdown switched on, Spark hands one query's plan of a reader that takes filters to the next one."""
    fill(broker, topic, numbered(400), queueId=[number % 4 for number in range(400)], tags=["a", "b"] * 200)
    frame = batch(spark, broker, subscribe=topic)
    one = frame.where("queueId = 1 AND offset >= 40")
    assert one.count() == 60
    assert frame.count() == 400
    assert frame.where("queueId > 1 OR tags = 'a'").count() == 300
    assert one.union(frame.where("queueId = 2")).union(frame).count() == 560


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "T", "startingOfsets": "latest"}, "unknown option .*did you mean startingOffsets"),
        ({"subscribe": "T", "columns": "body,ofset"}, "ofset"),
        ({"subscribe": "T", "columns": " , "}, "columns: got no name"),
        ({"subscribe": "T", "where": "queueId ~ 1"}, "option where"),
        ({}, "one of the options subscribe"),
    ],
)
def test_mistakes_in_options_are_named(broker: MqcoreBroker, options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        source(broker, **options).schema()


def test_a_mistake_reaches_the_user_of_spark(spark: SparkSession, broker: MqcoreBroker) -> None:
    with pytest.raises(PySparkException, match=r"unknown option .*did you mean startingOffsets\?"):
        batch(spark, broker, subscribe="T", startingOfsets="latest")


# The sink.


def test_frames_are_written_with_all_their_columns(spark: SparkSession, broker: MqcoreBroker, topic: str) -> None:
    frame = spark.range(5000).selectExpr(
        "cast(lpad(cast(id as string), 7, '0') as binary) AS body", "concat('T', id % 3) AS tags",
        "cast(id AS string) AS keys", "map('half', cast(id div 2 AS string)) AS properties",
        "cast(id % 4 AS int) AS queueId", f"'{topic}' AS topic",
    )  # fmt: skip
    frame.write.format("rocketmq").option("nameServer", broker.name_server).mode("append").save()
    await_readable(broker, topic)
    rows = read(broker, SCHEMA, subscribe=topic)
    assert bodies_of(rows) == numbered(5000)
    for row in rows:
        number = int(row["body"])
        assert (row["queueId"], row["tags"], row["keys"]) == (number % 4, f"T{number % 3}", str(number))
        assert dict(row["properties"])["half"] == str(number // 2)
    assert len({row["msgId"] for row in rows}) == 5000


@pytest.mark.usefixtures("spark")  # without a session there is no schema
@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("body binary, tagz string", {"topic": "T"}, "column 'tagz' means nothing to the sink; did you mean tags"),
        ("body binary", {}, "needs a column topic, or the option topic"),
        ("tags string", {"topic": "T"}, "needs a column body"),
        ("body binary, queueId double", {"topic": "T"}, "column queueId: got double"),
        (
            "body binary, delayLevel int",
            {"topic": "T", "dedup": "true"},
            "delayed messages arrive in another order",
        ),
    ],
)
def test_frames_that_cannot_be_written_are_refused(
    broker: MqcoreBroker, columns: str, options: dict[str, str], message: str
) -> None:
    schema = StructType.fromDDL(columns)
    with pytest.raises(ConfigError, match=message):
        source(broker, **options).writer(schema, False)
    with pytest.raises(ConfigError, match=message):
        source(broker, **options).streamWriter(schema, False)


@pytest.mark.usefixtures("spark")  # without a session there is no schema
def test_topics_cannot_be_overwritten_and_keys_that_repeat_need_a_name(broker: MqcoreBroker) -> None:
    schema = StructType.fromDDL("body binary")
    with pytest.raises(ConfigError, match="append"):
        source(broker, topic="T").writer(schema, True)
    with pytest.raises(ConfigError, match="dedup needs the option queryId"):
        source(broker, topic="T", dedup="true").writer(schema, False)


def test_the_option_topic_counts_more_than_the_column_so_that_a_copy_is_not_sent_back(
    broker: MqcoreBroker, topic: str
) -> None:
    target = make_topic(broker, "other_than_" + topic, 4)
    fill(broker, topic, numbered(100))
    reading = BatchReader(settings_of(broker, subscribe=topic), SCHEMA)
    batches = [batch for part in reading.partitions() for batch in reading.read(part)]
    writer = source(broker, topic=target).writer(SCHEMA, False)
    assert isinstance(writer, BatchWriter)
    writer.write(iter(batches))
    await_readable(broker, target)
    assert bodies_of(read(broker, subscribe=target)) == numbered(100)
    assert bodies_of(read(broker, subscribe=topic)) == numbered(100)


@pytest.mark.usefixtures("spark")  # without a session there is no schema
def test_sparks_without_arrow_for_streams_write_the_same_rows(broker: MqcoreBroker, topic: str) -> None:
    schema = StructType.fromDDL("body binary, tags string, queueId int")
    writer = StreamRowWriter(sink_settings({"nameServer": broker.name_server, "topic": topic}), schema)
    sent = writer.write(iter([Row(body, "odd" if number % 2 else None, 3) for number, body in enumerate(numbered(50))]))
    assert sent.messages == 50
    await_readable(broker, topic)
    rows = read(broker, SCHEMA, subscribe=topic)
    assert [(row["body"], row["queueId"]) for row in rows] == [(body, 3) for body in numbered(50)]
    assert [row["tags"] for row in rows] == [None, "odd"] * 25


@pytest.mark.slow
def test_a_repeated_write_with_a_query_id_is_read_once(spark: SparkSession, broker: MqcoreBroker, topic: str) -> None:
    frame = spark.range(2000).selectExpr("cast(lpad(cast(id as string), 7, '0') as binary) AS body")
    for _ in range(2):
        frame.write.format("rocketmq").options(
            nameServer=broker.name_server, topic=topic, dedup="true", queryId="nightly"
        ).mode("append").save()
    await_readable(broker, topic)
    assert len(read(broker, subscribe=topic)) == 4000
    assert bodies_of(read(broker, subscribe=topic, dedup="true")) == numbered(2000)


# Streams.


def test_a_stream_reads_in_portions_and_goes_on_from_its_checkpoint(
    spark: SparkSession, broker: MqcoreBroker, topic: str, tmp_path: Path
) -> None:
    fill(broker, topic, numbered(1000), queueId=[number % 4 for number in range(1000)])
    options = {"subscribe": topic, "maxOffsetsPerTrigger": "600", "group": "mirrored", "commitOffsets": "true"}
    # Older Sparks make one micro-batch of the trigger AvailableNow, and the first one of a run has no limits.
    portions = [600, 400] if HAS_ADMISSION_CONTROL else [1000]
    assert run_to_end(stream(spark, broker, **options), tmp_path) == portions
    assert output(spark, tmp_path) == numbered(1000)
    fill(broker, topic, numbered(500, 1000), queueId=[number % 4 for number in range(500)])
    assert sum(run_to_end(stream(spark, broker, **options), tmp_path)) == 500
    assert output(spark, tmp_path) == numbered(1500)
    # Spark never says that the last portion of a run is done; the next run's first step does.
    committed = [wire.consumer_offset(broker.broker_address, "mirrored", topic, number) for number in range(4)]
    assert all(offset is not None and 250 <= offset <= 375 for offset in committed)


@pytest.mark.slow  # test_spark_effectively_once has a short form of it, with interruptions
def test_a_stream_copies_a_topic_and_the_guard_drops_what_came_twice(
    spark: SparkSession, broker: MqcoreBroker, topic: str, tmp_path: Path
) -> None:
    target = make_topic(broker, "copy_of_" + topic, 2)
    fill(broker, topic, numbered(1200))
    for attempt in ("first", "second"):
        copied = stream(spark, broker, subscribe=topic, columns="body,keys,tags")
        query = (
            copied.writeStream.format("rocketmq").options(nameServer=broker.name_server, topic=target, dedup="true")
            .option("queryId", "copy").option("checkpointLocation", str(tmp_path / attempt))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
    await_readable(broker, target)
    assert len(read(broker, subscribe=target)) == 2400
    assert bodies_of(read(broker, subscribe=target, dedup="true")) == numbered(1200)


def forget_unbegun(checkpoint: Path) -> None:
    """Remove a checkpoint in which no micro-batch was planned: Spark takes none with half a first plan in it."""
    if not any(path.name.isdigit() for path in (checkpoint / "offsets").glob("*")):
        shutil.rmtree(checkpoint, ignore_errors=True)


def restarted_at_random(
    spark: SparkSession, broker: MqcoreBroker, topic: str, directory: Path, chance: random.Random, rounds: int
) -> None:
    """Kill a query at random moments, with more messages each time; in the end each must be there once."""
    sent = 0
    for _ in range(rounds):
        more = chance.randrange(50, 400)
        fill(broker, topic, numbered(more, sent))
        sent += more
        copied = stream(
            spark, broker, subscribe=topic, maxOffsetsPerTrigger=str(chance.randrange(20, 200)), minPartitions="3"
        )
        query = (
            copied.writeStream.format("parquet").option("path", str(directory / "out"))
            .option("checkpointLocation", str(directory / "checkpoint")).trigger(processingTime="0 seconds").start()
        )  # fmt: skip
        # The moment is anywhere between the plan of a micro-batch and its commit.
        query.awaitTermination(chance.uniform(0.05, 4.0))
        query.stop()
        forget_unbegun(directory / "checkpoint")
    run_to_end(stream(spark, broker, subscribe=topic), directory)
    if not HAS_ADMISSION_CONTROL:  # that was one micro-batch: the one which was broken off
        run_to_end(stream(spark, broker, subscribe=topic), directory)
    assert output(spark, directory) == numbered(sent)


def test_a_query_stopped_at_random_moments_gives_each_message_once(
    spark: SparkSession, broker: MqcoreBroker, topic: str, tmp_path: Path, chance: random.Random
) -> None:
    restarted_at_random(spark, broker, topic, tmp_path, chance, rounds=1)


@pytest.mark.slow
def test_a_query_stopped_very_often_gives_each_message_once(
    spark: SparkSession, broker: MqcoreBroker, topic: str, tmp_path: Path, chance: random.Random
) -> None:
    restarted_at_random(spark, broker, topic, tmp_path, chance, rounds=20)


# The planner's answers, without a query around them.


def planner(broker: MqcoreBroker, topic: str, **options: Any) -> StreamReader:
    options = {"startingOffsets": "earliest", **options}
    return StreamReader(settings_of(broker, Use.STREAM, subscribe=topic, **options), SCHEMA)


def total(offsets: dict[str, int]) -> int:
    return sum(offsets.values())


def test_limits_in_offsets_and_bytes_shape_a_micro_batch(broker: MqcoreBroker, topic: str) -> None:
    fill(broker, topic, [b"x" * 1000] * 800, queueId=[number % 4 for number in range(800)])
    for options in ({"maxOffsetsPerTrigger": 200}, {"maxBytesPerTrigger": 230_000}):
        reader = planner(broker, topic, **options)
        start = reader.initialOffset()
        assert total(start) == 0
        limit = reader.getDefaultReadLimit() if HAS_ADMISSION_CONTROL else None
        assert 180 <= total(reader.latestOffset(start, limit)) <= 210
    # Spark 4.0 and 4.1 tell neither the start nor a limit.
    older = planner(broker, topic, maxOffsetsPerTrigger=200)
    assert total(older.latestOffset()) == 800
    older.partitions(older.initialOffset(), older.initialOffset())
    assert total(older.latestOffset()) == 200


def test_a_stream_waits_for_enough_offsets_but_not_for_ever(broker: MqcoreBroker, topic: str) -> None:
    fill(broker, topic, numbered(10))
    patient = planner(broker, topic, minOffsetsPerTrigger=100, maxTriggerDelay="1h")
    start = patient.initialOffset()
    assert patient.latestOffset(start) == start
    hasty = planner(broker, topic, minOffsetsPerTrigger=100, maxTriggerDelay="0ms")
    assert total(hasty.latestOffset(start)) == 10
    fill(broker, topic, numbered(90))
    assert total(patient.latestOffset(start)) == 100
    at_once = planner(broker, topic, minOffsetsPerTrigger=1000)
    at_once.prepareForTriggerAvailableNow()
    fill(broker, topic, numbered(5))
    assert total(at_once.latestOffset(start)) == 100


def test_a_queue_that_shrank_is_loss_and_stands_still_otherwise(broker: MqcoreBroker, topic: str) -> None:
    fill(broker, topic, numbered(8), queueId=[number % 4 for number in range(8)])
    read_before = {f"{topic}/broker-a/{number}": 50 if number == 1 else 2 for number in range(4)}
    with pytest.raises(DataLossError, match="/1 was read up to 50: the queue ends at 2; its topic was made anew"):
        planner(broker, topic, numRetries=1).latestOffset(read_before)
    lenient = planner(broker, topic, numRetries=1, failOnDataLoss="false")
    assert lenient.latestOffset(read_before) == read_before


def test_queues_that_appear_are_read_from_their_beginning(broker: MqcoreBroker, topic: str) -> None:
    fill(broker, topic, numbered(8), queueId=[number % 4 for number in range(8)])
    reader = planner(broker, topic)
    known = {f"{topic}/broker-a/0": 1}
    end = reader.latestOffset(known)
    assert total(end) == 8
    ranges = {str(part) for part in reader.partitions(known, end)}
    assert ranges == {f"{topic}/broker-a/0 [1, 2)", *(f"{topic}/broker-a/{number} [0, 2)" for number in (1, 2, 3))}
    assert json.loads(json.dumps(end)) == end
