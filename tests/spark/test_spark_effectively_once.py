"""Effectively once, end to end: a sink whose tasks are repeated, and readers that see a part at a time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from mqcore.protocol.message import MessageQueue
from mqcore.spark.cluster import Cluster
from mqcore.spark.history import QueueHistory
from mqcore.spark.ranges import QueueRange
from mqcore.spark.schema import SCHEMA
from mqcore.spark.sink_keys import RowKeys
from mqcore.spark.snapshots import ProcessMemory
from mqcore.spark.stream import HAS_ADMISSION_CONTROL
from tests.conftest import ENDING_S
from tests.rigs import MqcoreBroker, wire
from tests.spark.helpers import await_readable, bodies_of, fill, make_topic, read, settings_of
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

Hand = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

PATIENT = {"retryIntervalMs": "100", "numRetries": "300"}
QUEUES = 3


@pytest.fixture
def topic(broker: MqcoreBroker, request: pytest.FixtureRequest) -> str:
    return make_topic(broker, request.node.name, QUEUES)


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read of this process is one of a process that was just started."""
    monkeypatch.setattr(ProcessMemory, "of", lambda self, reader_id, queue: {})


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%07d" % number for number in range(first, first + count)]


def pieces(broker: MqcoreBroker, topic: str, chance: random.Random, count: int) -> list[dict[str, str]]:
    """Return the options of *count* batch reads that together read each offset of *topic* once."""
    queues = [MessageQueue(topic, "broker-a", number) for number in range(QUEUES)]
    ends = Cluster(settings_of(broker, subscribe=topic).calling).max_offsets(queues)
    edges = {
        queue: [0, *sorted(chance.randrange(end + 1) for _ in range(count - 1)), end] for queue, end in ends.items()
    }

    def at(number: int) -> str:
        offsets = ",".join(f'"{queue.queue_id}":{edge[number]}' for queue, edge in edges.items())
        return f'{{"{topic}":{{"broker-a":{{{offsets}}}}}}}'

    return [{"startingOffsets": at(number), "endingOffsets": at(number + 1)} for number in range(count)]


def read_in_pieces(broker: MqcoreBroker, topic: str, chance: random.Random, count: int, **options: Any) -> list[bytes]:
    """Read *topic* in disjoint parts, last one first; gives the bodies."""
    chosen = pieces(broker, topic, chance, count)
    rows = [row for part in reversed(chosen) for row in read(broker, subscribe=topic, dedup="true", **part, **options)]
    return bodies_of(rows)


# Batch reads.


@pytest.mark.parametrize("spread", ["turns", "queues", "keys", "compressed"])
def test_disjoint_reads_of_a_repeated_write_give_each_row_once(
    broker: MqcoreBroker, topic: str, spread: str, chance: random.Random
) -> None:
    columns: dict[str, Any] = {
        "queues": {"queueId": [number * number % QUEUES for number in range(2000)]},
        "keys": {"shardingKey": [f"customer-{number % 7}" for number in range(2000)]},
        "compressed": {"compression": "zlib", "compressOverBytes": "100"},
    }.get(spread, {})
    bodies = [body + bytes(120) * (spread == "compressed" and at % 3 == 0) for at, body in enumerate(numbered(2000))]
    for count in (1500, 500, 2000, 2000):
        some = {name: value if isinstance(value, str) else value[:count] for name, value in columns.items()}
        keys = RowKeys("nightly", 0, 0)
        fill(broker, topic, bodies[:count], keys, portion=500, dedup="true", batchBytes="4096", **some)
    assert len(read(broker, subscribe=topic)) == 6000
    assert read_in_pieces(broker, topic, chance, 5) == sorted(bodies)


def test_what_conditions_leave_out_still_counts_as_a_first_copy(broker: MqcoreBroker, topic: str) -> None:
    first_s = write_twice(broker, topic, tags=["even", "odd"] * 500)
    once = {"subscribe": topic, "dedup": "true"}
    assert bodies_of(read(broker, where="offset >= 1000", **once)) == []
    assert bodies_of(read(broker, where="offset >= 300 AND offset < 1500", **once)) == numbered(700, 300)
    odd = numbered(1000)[1::2]
    assert bodies_of(read(broker, subExpression="odd", **once)) == odd
    assert bodies_of(read(broker, subExpression="odd", where="offset >= 500", **once)) == odd[250:]
    between_ms = int(first_s * 1000)
    assert len(read(broker, subscribe=topic, where=f"storeTimestamp > {between_ms}")) == 1000
    assert read(broker, where=f"storeTimestamp > {between_ms}", **once) == []
    assert bodies_of(read(broker, where=f"storeTimestamp <= {between_ms}", **once)) == numbered(1000)


def test_looking_back_ends_at_the_time_that_is_set(broker: MqcoreBroker, topic: str) -> None:
    write_twice(broker, topic)
    second = {"subscribe": topic, "dedup": "true", "where": "offset >= 1000"}
    assert read(broker, dedupLookback="1h", **second) == []
    assert bodies_of(read(broker, dedupLookback="0", **second)) == numbered(1000)


def write_twice(broker: MqcoreBroker, topic: str, **columns: Any) -> float:
    """Write 1000 rows twice into queue 0; gives a time between the two, s since 1970."""
    fill(broker, topic, numbered(1000), RowKeys("job", 0, 0), dedup="true", queueId=[0] * 1000, **columns)
    between_s = time.time()
    wait_until(lambda: time.time() > between_s + 0.005, 30, "the clock has moved on")
    fill(broker, topic, numbered(1000), RowKeys("job", 0, 0), dedup="true", queueId=[0] * 1000, **columns)
    return between_s


def test_what_is_gone_before_a_range_is_no_loss(broker: MqcoreBroker, topic: str) -> None:
    fill(broker, topic, numbered(10), queueId=[0] * 10)
    settings = settings_of(broker, subscribe=topic, dedup="true", numRetries=1)
    past = QueueHistory(Cluster(settings.calling), settings, QueueRange(topic, "broker-a", 0, 40, 50))
    assert [len(ids) for ids in past.ids(5, 30)] == [5]


def test_a_changed_layout_gives_other_keys_and_the_same_one_the_same(broker: MqcoreBroker, topic: str) -> None:
    def ids(**options: Any) -> set[str]:
        """Write 100 rows, and return the ids that were not there before."""
        before = {row["msgId"] for row in read(broker, SCHEMA, subscribe=topic)}
        fill(broker, topic, numbered(100), RowKeys("query", 3, 1), dedup="true", **options)
        return {row["msgId"] for row in read(broker, SCHEMA, subscribe=topic)} - before

    assert len(ids()) == 100
    assert len(ids()) == 0
    assert len(ids(batchBytes="8192")) == 100
    assert len(ids(portion=50)) == 100
    wire.create_topic(broker.broker_address, topic, queues=QUEUES + 1)
    wait_until(lambda: len(ids()) == 100, 30, "the sink sees the new queue")


# Streams.


def started(frame: DataFrame, directory: Path, **trigger: Any) -> StreamingQuery:
    """Start to append *frame* to Parquet files, from the checkpoint on."""
    return (
        frame.writeStream.format("parquet").option("path", str(directory / "out"))
        .option("checkpointLocation", str(directory / "checkpoint")).trigger(**trigger).start()
    )  # fmt: skip


def stream(spark: SparkSession, broker: MqcoreBroker, topic: str, **options: str) -> DataFrame:
    given = {"nameServer": broker.name_server, "startingOffsets": "earliest", **PATIENT, **options}
    return spark.readStream.format("rocketmq").options(subscribe=topic, columns="body", **given).load()


def failing_once(broker: MqcoreBroker, topic: str, marker: Path) -> Hand:
    """Return a function that hands on what it gets, and fails as soon as some of it is stored in *topic*, unless
    *marker* says that somebody did so already."""
    address = broker.broker_address

    def stored() -> int:
        return sum(wire.max_offset(address, topic, number) for number in range(QUEUES))

    def hand_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if marker.exists():
            yield from batches
            return
        before = stored()
        yield from batches
        wait_until(lambda: stored() > before, 60, "what was handed on is stored")
        marker.touch()
        raise RuntimeError("half-way")

    return hand_on


def kill_workers() -> None:
    """Kill the Python processes that Spark's daemon has forked for tasks, whatever they are doing.

    It waits until the daemon has noticed: Spark gives an idle worker that is not gone to the next task, which fails.
    """
    killed = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            parent = process.parent()
            if parent is not None and "pyspark.daemon" in parent.cmdline() and "pyspark.daemon" in process.cmdline():
                process.kill()
                killed.append(process)
    _, left = psutil.wait_procs(killed, ENDING_S)
    assert not left


def written_and_read_with_interruptions(
    spark: SparkSession, broker: MqcoreBroker, topic: str, directory: Path, chance: random.Random, rounds: int
) -> None:
    """Copy a topic by a query that fails half-way, is stopped, and has its tasks killed; read the copy by one that is
    broken off too, in small portions. In the end each row must have been read once."""
    origin, sent = make_topic(broker, "origin_of_" + topic, 2), 0
    for number in range(rounds):
        fill(broker, origin, wide(500, sent), queueId=[at % 2 for at in range(500)], portion=100)
        sent += 500
        hand_on = failing_once(broker, topic, directory / f"failed-{number}")
        with pytest.raises(PySparkException, match="half-way"):
            copy(spark, broker, origin, topic, directory, hand_on).trigger(availableNow=True).start().awaitTermination()
        query = copy(spark, broker, origin, topic, directory, hand_on).trigger(processingTime="0 seconds").start()
        break_off(query, chance)
        await_readable(broker, topic)
        portions = str(chance.randrange(100, 400))
        read_once = stream(spark, broker, topic, dedup="true", maxOffsetsPerTrigger=portions)
        break_off(started(read_once, directory, processingTime="0 seconds"), chance)
    for _ in range(1 if HAS_ADMISSION_CONTROL else 2):  # else that was one micro-batch: the one which was broken off
        copy(spark, broker, origin, topic, directory, hand_on).trigger(availableNow=True).start().awaitTermination()
    await_readable(broker, topic)
    assert len(read(broker, subscribe=topic)) > sent
    for _ in range(1 if HAS_ADMISSION_CONTROL else 2):
        read_once = stream(spark, broker, topic, dedup="true", maxOffsetsPerTrigger="400")
        started(read_once, directory, availableNow=True).awaitTermination()
    rows = spark.read.parquet(str(directory / "out")).collect()
    assert sorted(bytes(row.body) for row in rows) == wide(sent)
    assert read_in_pieces(broker, topic, chance, 7) == wide(sent)


def copy(
    spark: SparkSession, broker: MqcoreBroker, origin: str, topic: str, directory: Path, hand_on: Hand
) -> DataStreamWriter:
    frame = stream(spark, broker, origin, maxOffsetsPerTrigger="300").mapInArrow(hand_on, "body binary")
    given = {"nameServer": broker.name_server, "topic": topic, "dedup": "true", "batchBytes": "16384", **PATIENT}
    return frame.writeStream.format("rocketmq").options(**given).option("checkpointLocation", str(directory / "copied"))


def break_off(query: StreamingQuery, chance: random.Random) -> None:
    """Let a query run for a moment, and end it: by its tasks' death or in order."""
    with suppress(PySparkException):
        query.awaitTermination(chance.uniform(0.3, 2.5))
        if chance.random() < 0.5:
            kill_workers()
            query.awaitTermination(1)
    query.stop()


def wide(count: int, first: int = 0) -> list[bytes]:
    """Bodies so large that what is handed on does not stay in buffers."""
    return [body + bytes(4000) for body in numbered(count, first)]


@pytest.fixture
def portions_of_spark_are_small(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "20")
    yield
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


@pytest.mark.usefixtures("portions_of_spark_are_small")
def test_a_stream_read_in_portions_gives_each_row_of_an_interrupted_write_once(
    spark: SparkSession, broker: MqcoreBroker, topic: str, tmp_path: Path, chance: random.Random
) -> None:
    written_and_read_with_interruptions(spark, broker, topic, tmp_path, chance, rounds=1)


@pytest.mark.slow
@pytest.mark.usefixtures("portions_of_spark_are_small")
def test_a_stream_interrupted_very_often_gives_each_row_once(
    spark: SparkSession, broker: MqcoreBroker, topic: str, tmp_path: Path, chance: random.Random
) -> None:
    written_and_read_with_interruptions(spark, broker, topic, tmp_path, chance, rounds=10)
