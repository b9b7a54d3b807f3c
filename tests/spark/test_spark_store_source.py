"""The format "rocketmq-store": every stored message is one row, whatever state the store's files are in."""

from __future__ import annotations

import datetime
import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mqcore.errors import ConfigError
from mqcore.spark.options import option_table
from mqcore.spark.store_options import STORE_OPTIONS, store_settings
from mqcore.spark.store_source import RocketMQStoreDataSource, StoreBatchReader
from mqcore.store.message_columns import UNBOUNDED_MAX, Selection
from mqcore.store.recovery import Recovery
from tests.compat.make_apache_store import ARCHIVE
from tests.unit.store_builder import FIRST_TIMESTAMP, GEOMETRY, STEP_MS, StoreBuilder, memory_directory
from tests.unit.test_store_reader import fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "topic,queueId,offset,physicalOffset,body"


@pytest.fixture(scope="module")
def store() -> Iterator[StoreBuilder]:
    """A store that is only read; tests that change one make a copy."""
    with memory_directory() as directory:
        builder = StoreBuilder(directory / "store")
        fill(builder, 300)
        builder.crash()
        Recovery(builder.paths, GEOMETRY).run()
        yield builder


def load(spark: SparkSession, store: StoreBuilder | Path, **options: Any) -> DataFrame:
    reader = spark.read.format("rocketmq-store").options(**{"columns": COLUMNS} | options)
    return reader.load(str(store.paths.root if isinstance(store, StoreBuilder) else store))


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=lambda row: row[3])


def stored(store: StoreBuilder) -> list[tuple[Any, ...]]:
    return [
        (record.topic.decode(), record.queue_id, record.queue_offset, record.physical_offset, bytearray(record.body))
        for record in store.records
    ]


def test_the_format_is_there_without_being_registered(spark, store):
    assert rows(load(spark, store)) == stored(store)


def test_every_column_has_its_value(spark, store):
    frame = spark.read.format("rocketmq-store").option("includeProperties", "true").option("brokerName", "broker-a")
    row = frame.load(str(store.paths.root)).where("topic = 'Rare' and properties['KEYS'] = 'k17'").collect()[0]
    record = store.records[17]
    time = datetime.datetime.fromtimestamp(record.store_timestamp / 1000, datetime.UTC).replace(tzinfo=None)
    assert row.asDict() == {
        "topic": "Rare", "brokerName": "broker-a", "queueId": 2, "offset": 0, "msgId": "U000017", "tags": "T1",
        "keys": "k17", "body": bytearray(record.body), "bornHost": "127.0.0.1:10911", "reconsumeTimes": 0,
        "properties": {"TAGS": "T1", "KEYS": "k17", "UNIQ_KEY": "U000017"}, "sysFlag": 0,
        "storeTimestamp": time, "bornTimestamp": time - datetime.timedelta(milliseconds=1),
    }  # fmt: skip


@pytest.mark.parametrize("with_queues", [True, False])
def test_partitions_of_any_number_give_every_message_once(spark, store, tmp_path, with_queues):
    copy = store.copy_to(tmp_path / "copy")
    if not with_queues:
        shutil.rmtree(copy.paths.consume_queue)
    frame = load(spark, copy, minPartitions="7")
    assert frame.rdd.getNumPartitions() >= 7
    assert rows(frame) == stored(store)
    assert load(spark, copy).rdd.getNumPartitions() == 1


def test_batches_are_cut_by_size(spark, store):
    assert rows(load(spark, store, batchBytes="4096")) == stored(store)


def test_several_stores_are_one_table(spark, store, tmp_path):
    other = StoreBuilder(tmp_path / "other")
    fill(other, 30)
    frame = (
        spark.read.format("rocketmq-store")
        .option("brokerName", "a,b")
        .load([str(store.paths.root), str(other.paths.root)])
    )
    assert frame.groupBy("brokerName").count().orderBy("brokerName").collect() == [("a", 300), ("b", 30)]


def test_a_schema_chooses_columns(spark, store):
    frame = spark.read.format("rocketmq-store").schema("body string, offset bigint, storeTimestamp timestamp")
    frame = frame.option("subscribe", "Nobody").load(str(store.paths.root))
    assert frame.columns == ["body", "offset", "storeTimestamp"]
    assert frame.collect() == []


# Selections


def test_topics_queues_and_offsets_are_selected(spark, store):
    everything = stored(store)
    assert rows(load(spark, store, subscribe="Orders, Rare")) == [r for r in everything if r[0] in ("Orders", "Rare")]
    assert rows(load(spark, store, subscribePattern="Ev.*")) == [r for r in everything if r[0] == "Events"]
    assert rows(load(spark, store, assign='{"Logs":[0,2]}')) == [
        r for r in everything if r[0] == "Logs" and r[1] in (0, 2)
    ]
    frame = load(
        spark, store, assign='{"Logs":{"broker-a":[0]},"Orders":[1]}',
        startingOffsets='{"Logs":{"broker-a":{"0":3}},"Orders":{"1":-2}}', endingOffsets='{"Logs":{"0":7}}',
    )  # fmt: skip
    assert rows(frame) == [
        r for r in everything if (r[0] == "Logs" and r[1] == 0 and 3 <= r[2] < 7) or r[:2] == ("Orders", 1)
    ]
    assert rows(load(spark, store, startingOffsets='{"Logs":{"0":100000}}')) == [
        r for r in everything if r[:2] != ("Logs", 0)
    ]


def test_times_and_tags_are_selected(spark, store):
    start, end = FIRST_TIMESTAMP + 50 * STEP_MS, FIRST_TIMESTAMP + 70 * STEP_MS
    wanted = [row for row, record in zip(stored(store), store.records, strict=True)
              if start <= record.store_timestamp < end]  # fmt: skip
    iso = datetime.datetime.fromtimestamp(end / 1000, datetime.UTC).isoformat()
    assert rows(load(spark, store, startingTimestamp=str(start), endingTimestamp=iso)) == wanted
    assert len(wanted) == 20
    tagged = [row for number, row in enumerate(stored(store)) if number % 2]
    assert rows(load(spark, store, subExpression="T1 || T9")) == tagged


def test_conditions_hold_for_every_query_of_a_frame(spark, store):
    start = FIRST_TIMESTAMP + 100 * STEP_MS
    conditions = f"topic = 'Orders' AND queueId IN (0, 1) AND offset >= 5 AND tags = 'T1' AND storeTimestamp >= {start}"
    frame = load(spark, store, where=conditions)
    wanted = [
        row for number, (row, record) in enumerate(zip(stored(store), store.records, strict=True))
        if row[0] == "Orders" and row[1] in (0, 1) and row[2] >= 5 and number % 2 and record.store_timestamp >= start
    ]  # fmt: skip
    assert wanted
    assert rows(frame.where("queueId = 1")) == [row for row in wanted if row[1] == 1]
    assert rows(frame) == wanted
    # Spark's own filters stay with their query.
    everything = load(spark, store)
    some = everything.where("topic = 'Orders' AND offset >= 5")
    assert some.union(everything).count() == some.count() + len(store.records)
    assert everything.where("offset < 3 or queueId = 2").count() == sum(
        row[2] < 3 or row[1] == 2 for row in stored(store)
    )


def test_what_is_not_wanted_is_not_read(store):
    def planned(**options: str) -> int:
        source = RocketMQStoreDataSource({"path": str(store.paths.root)} | options)
        reader = source.reader(source.schema())
        assert isinstance(reader, StoreBatchReader)
        return sum(partition.size for partition in reader.partitions())  # type: ignore[attr-defined]

    everything = planned()
    assert planned(subscribe="Rare") < everything / 4
    assert planned(subscribe="Rare", pruneByQueues="false") == everything
    assert planned(startingTimestamp=str(FIRST_TIMESTAMP + 290 * STEP_MS)) < everything / 2
    assert planned(endingTimestamp="1") == 0
    assert planned(where="topic = 'Rare'") == planned(subscribe="Rare")


# Stores in a bad state


def test_a_torn_tail_is_not_a_row(spark, store, tmp_path):
    copy = store.copy_to(tmp_path / "copy")
    last = copy.records[-1]
    copy.write(last.physical_offset + 60, bytes(last.total_size - 60))
    assert rows(load(spark, copy)) == stored(store)[:-1]


def test_damage_fails_the_query_by_name_or_is_passed_over(spark, store, tmp_path):
    copy = store.copy_to(tmp_path / "copy")
    bad = next(record for record in copy.records[40:] if record.body)
    copy.flip(bad.physical_offset + 88, 0xFF)
    with pytest.raises(Exception, match=rf"CRC.*physical_offset={bad.physical_offset}"):
        load(spark, copy).collect()
    left = [row for row in stored(store) if row[3] != bad.physical_offset]
    assert rows(load(spark, copy, failOnDataLoss="false")) == left
    assert len(rows(load(spark, copy, checkCrc="false"))) == len(store.records)


def test_a_missing_file_fails_the_query_or_is_passed_over(spark, store, tmp_path):
    copy = store.copy_to(tmp_path / "copy")
    size = GEOMETRY.commit_log_file_size
    copy.log_file(2 * size).unlink()
    with pytest.raises(Exception, match="missing between"):
        load(spark, copy).collect()
    left = [row for row in stored(store) if not 2 * size <= row[3] < 3 * size]
    assert rows(load(spark, copy, failOnDataLoss="false")) == left


def test_a_directory_without_a_store_is_named(spark, tmp_path):
    with pytest.raises(Exception, match="not the directory of a store"):
        load(spark, tmp_path).collect()


@pytest.mark.compat
@pytest.mark.parametrize("kind", ["clean", "killed"])
def test_a_store_of_apaches_broker_is_read_whole(spark, tmp_path, kind):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    answers = json.loads((tmp_path / "answers.json").read_text())
    frame = load(spark, tmp_path / kind, columns="physicalOffset,bodyCrc,computedBodyCrc", decompress="false")
    found = sorted(frame.collect())
    offsets = [row.physicalOffset for row in found]
    assert len(set(offsets)) == len(offsets)
    assert set(answers[f"{kind}_offsets"]) <= set(offsets)
    assert all(row.bodyCrc == row.computedBodyCrc for row in found)


# Options


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({}, "path is needed"),
        ({"path": "/s", "subscribe": "A", "assign": "{}"}, "exclude each other"),
        ({"path": "/s", "subscribe": " , "}, "got no topic"),
        ({"path": "/s", "startingOffset": "x"}, "unknown option 'startingOffset'; did you mean startingOffsets"),
        ({"path": "/s", "startingOffsets": "latest"}, "startingOffsets: got 'latest'"),
        ({"path": "/s", "startingOffsets": "{"}, "wanted JSON"),
        ({"path": "/s", "endingOffsets": '{"T":{"x":1}}'}, "endingOffsets"),
        ({"path": "/s", "assign": '{"T":[]}'}, "assign"),
        ({"path": "/s", "assign": '{"T":["a"]}'}, "assign"),
        ({"path": "/s", "startingTimestamp": "yesterday"}, "startingTimestamp"),
        ({"path": "/s", "batchBytes": "1"}, "batchBytes: got '1'"),
        ({"path": "/s", "columns": ","}, "columns"),
        ({"path": "/s", "where": "body = 'x'"}, "option where"),
        ({"paths": '["/a","/b"]', "brokerName": "one"}, "brokerName"),
        ({"paths": "/a,/b", "commitLogPath": "/c"}, "commitLogPath"),
    ],
)
def test_wrong_options_are_named(options, match):
    with pytest.raises(ConfigError, match=match):
        store_settings(options)


def test_options_become_settings():
    settings = store_settings(
        {
            "paths": '["file:///a", "/b"]',
            "SUBSCRIBE": "X",
            "startingoffsets": '{"X":{"0":-2,"1":7}}',
            "minPartitions": "3",
        }
    )
    assert [place.path for place in settings.places] == ["/a", "/b"]
    assert settings.selection == Selection(
        topics=frozenset({"X"}), ranges={"X": {0: (0, UNBOUNDED_MAX), 1: (7, UNBOUNDED_MAX)}}
    )
    assert settings.min_partitions == 3


def test_the_table_of_options_is_that_of_the_code():
    page = Path(__file__).resolve().parent.parent.parent / "docs" / "store-reader.md"
    assert option_table(STORE_OPTIONS) in page.read_text()
