"""The broker source without Spark around it: what is read, from where to where, and what a broker's end does to it."""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from mqcore.errors import BrokerError, ConfigError, RemotingConnectError
from mqcore.protocol.message import MessageQueue
from mqcore.spark import connection
from mqcore.spark.batch import BatchReader
from mqcore.spark.cluster import Cluster
from mqcore.spark.encoder import BatchEncoder, texts_of
from mqcore.spark.errors import DataLossError, SinkError, TopicRouteError
from mqcore.spark.options import Use
from mqcore.spark.ranges import QueueRange
from mqcore.spark.reading import RangeReading, cut_before
from mqcore.spark.record_size import record_sizes
from mqcore.spark.schema import SCHEMA, schema_of
from mqcore.spark.sending import Sender, Work
from mqcore.spark.settings import sink_settings
from mqcore.spark.sink_keys import RowKeys
from mqcore.spark.stream import StreamReader
from tests.rigs import MqcoreBroker, wire
from tests.spark.helpers import (
    FAST,
    await_readable,
    bodies_of,
    fill,
    make_topic,
    read,
    reader,
    running_broker,
    settings_of,
)

QUEUES = 4


@pytest.fixture(autouse=True)
def no_links_are_kept() -> Iterator[None]:
    yield
    connection.close_idle_links()


@pytest.fixture
def topic(broker: MqcoreBroker, request: pytest.FixtureRequest) -> str:
    return make_topic(broker, request.node.name, QUEUES)


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%07d" % number for number in range(first, first + count)]


def test_every_message_is_read_once_in_the_order_of_its_queue(broker: MqcoreBroker, topic: str) -> None:
    fill(broker, topic, numbered(5000), batchBytes="8192")
    rows = read(broker, subscribe=topic)
    assert bodies_of(rows) == numbered(5000)
    for queue_id in range(QUEUES):
        offsets = [row["offset"] for row in rows if row["queueId"] == queue_id]
        assert offsets == list(range(len(offsets)))


def test_columns_come_as_the_schema_asks_and_carry_what_was_sent(broker: MqcoreBroker, topic: str) -> None:
    fill(
        broker, topic, [b"body"], tags=["TagA"], keys=["k1 k2"], flag=[3], queueId=[2],
        properties=pa.array([{"colour": "red", "TAGS": "ignored"}], pa.map_(pa.string(), pa.string())),
    )  # fmt: skip
    (row,) = read(broker, SCHEMA, subscribe=topic)
    assert (row["topic"], row["brokerName"], row["queueId"], row["offset"]) == (topic, "broker-a", 2, 0)
    assert (row["tags"], row["keys"], row["body"], row["reconsumeTimes"]) == ("TagA", "k1 k2", b"body", 0)
    properties = dict(row["properties"])
    assert properties["colour"] == "red"
    assert properties["UNIQ_KEY"] == row["msgId"]
    assert row["bornTimestamp"] <= row["storeTimestamp"]
    (short,) = read(broker, schema_of(["flag", "offset"]), subscribe=topic)
    assert short == {"flag": 3, "offset": 0}


def test_record_batches_are_as_large_as_asked(broker: MqcoreBroker, topic: str) -> None:
    fill(broker, topic, [b"x" * 1000] * 2000, queueId=[0] * 2000)
    chosen = reader(broker, schema_of(["body"]), subscribe=topic, batchBytes=256 << 10)
    batches = [batch for part in chosen.partitions() for batch in chosen.read(part)]
    assert sum(batch.num_rows for batch in batches) == 2000
    assert all(128 << 10 < batch.nbytes < 512 << 10 for batch in batches[:-1])


def test_tags_are_filtered_by_the_broker_and_by_their_text(broker: MqcoreBroker, topic: str) -> None:
    # "Aa" and "BB" have the same hash: the broker cannot tell them apart.
    tags = ["Aa", "BB", "C", None] * 500
    fill(broker, topic, numbered(2000), tags=tags)
    schema = schema_of(["tags", "body"])
    assert {row["tags"] for row in read(broker, schema, subscribe=topic, subExpression="Aa || C")} == {"Aa", "C"}
    rows = read(broker, schema, subscribe=topic, subExpression="BB")
    assert bodies_of(rows) == [body for body, tag in zip(numbered(2000), tags, strict=True) if tag == "BB"]


def test_a_rare_tag_is_found_across_many_others(broker: MqcoreBroker, topic: str) -> None:
    count = 30_000
    tags = ["rare" if number % 9000 == 8999 else "common" for number in range(count)]
    fill(broker, topic, numbered(count), tags=tags, queueId=[1] * count)
    rows = read(broker, subscribe=topic, subExpression="rare")
    assert [row["offset"] for row in rows] == [8999, 17999, 26999]


def test_large_messages_come_whole(broker: MqcoreBroker, topic: str) -> None:
    bodies = [bytes([number]) * size for number, size in enumerate([0, 1, 300_000, 900_000, 5, 2_000_000])]
    fill(broker, topic, bodies, queueId=[0] * len(bodies))
    rows = read(broker, subscribe=topic, fetchMaxBytes=256 << 10)
    assert [row["body"] for row in rows] == bodies


def test_a_broker_that_gives_no_more_before_its_answers_are_read_is_asked_again(tmp_path: Path) -> None:
    """More pulls under way than any buffer holds: the broker answers a part of them with "ask again"."""
    properties = {
        "maxTransferCountOnMessageInMemory": "1000", "maxTransferBytesOnMessageInMemory": str(1 << 20),
        "connectionWriteBufferBytes": str(4 << 20),
    }  # fmt: skip
    for broker in running_broker(tmp_path, **properties):
        topic = make_topic(broker, "Crowded", 1)
        fill(broker, topic, [b"%07d" % number + bytes(4000) for number in range(10_000)], queueId=[0] * 10_000)
        settings = settings_of(broker, subscribe=topic, pullsInFlight=256, fetchMaxBytes=1 << 30)
        cluster, part = Cluster(settings.calling), QueueRange(topic, "broker-a", 0, 0, 10_000)
        bodies = RangeReading(cluster, settings, part).bodies()
        sizes = record_sizes(next(bodies))
        # All pulls are on their way by now; what comes after them is answered when they are.
        cluster.pull_some(part.queue, 0)
        for body in bodies:
            sizes += record_sizes(body)
        assert len(sizes) == 10_000


def test_ranges_are_split_and_read_the_same(broker: MqcoreBroker, topic: str) -> None:
    fill(broker, topic, numbered(3000), batchBytes="4096")
    split = reader(broker, subscribe=topic, minPartitions=9)
    assert len(split.partitions()) == 9
    assert bodies_of(read(broker, subscribe=topic, minPartitions=9)) == numbered(3000)
    limited = reader(broker, subscribe=topic, maxRecordsPerPartition=100)
    parts = [part for part in limited.partitions() if isinstance(part, QueueRange)]
    assert all(part.size <= 100 for part in parts)
    assert bodies_of(read(broker, subscribe=topic, maxRecordsPerPartition=100)) == numbered(3000)


def test_positions_limit_what_is_read(broker: MqcoreBroker, topic: str) -> None:
    fill(broker, topic, numbered(100), queueId=[0] * 100)
    offsets = f'{{"{topic}":{{"broker-a":{{"0":%d,"1":-2,"2":-1,"3":0}}}}}}'
    rows = read(broker, subscribe=topic, startingOffsets=offsets % 10, endingOffsets=offsets % 30)
    assert [row["offset"] for row in rows] == list(range(10, 30))
    wire.commit_offset(broker.broker_address, "positions", topic, 0, 60)
    rows = read(broker, subscribe=topic, startingOffsets="committed", group="positions")
    assert [row["offset"] for row in rows] == list(range(60, 100))
    rows = read(broker, assign=f'{{"{topic}":{{"broker-a":[1]}}}}')
    assert rows == []


def test_a_timestamp_finds_the_first_message_stored_then_or_later(broker: MqcoreBroker, topic: str) -> None:
    schema = schema_of(["offset", "storeTimestamp"])
    for _ in range(12):
        fill(broker, topic, numbered(40), queueId=[0] * 40)
    rows = read(broker, schema, subscribe=topic)
    times = [int(row["storeTimestamp"].timestamp() * 1000) for row in rows]
    queue = MessageQueue(topic, "broker-a", 0)
    cluster = Cluster(settings_of(broker, subscribe=topic).calling)
    for time_ms in sorted({*times, times[0] - 1000, times[-1] + 1000, *(time_ms + 1 for time_ms in times)}):
        wanted = next((offset for offset, stored in enumerate(times) if stored >= time_ms), len(times))
        assert cluster.offsets_at({queue: time_ms}) == {queue: wanted}
    middle = times[250]
    rows = read(broker, schema, assign=f'{{"{topic}":{{"broker-a":[0]}}}}', startingTimestamp=middle)
    assert rows[0]["offset"] == times.index(middle)


def test_a_time_without_messages_is_an_error_or_the_end_as_asked(broker: MqcoreBroker, topic: str) -> None:
    fill(broker, topic, numbered(4), queueId=[0, 1, 2, 3])
    later = {"subscribe": topic, "startingTimestamp": "2100-01-01"}
    with pytest.raises(ConfigError, match=r"startingTimestamp: the queue .* has no message stored at"):
        read(broker, **later)
    assert read(broker, startingOffsetsByTimestampStrategy="latest", **later) == []


def test_what_cannot_be_found_is_named(broker: MqcoreBroker, topic: str) -> None:
    with pytest.raises(TopicRouteError, match="nowhere"):
        read(broker, subscribe="nowhere", numRetries=0)
    with pytest.raises(ConfigError, match=f"no readable queue {topic}/broker-a/9"):
        read(broker, assign=f'{{"{topic}":{{"broker-a":[9]}}}}')
    with pytest.raises(ConfigError, match="names Other, which is not among the queues"):
        read(broker, subscribe=topic, startingOffsetsByTimestamp='{"Other":5}')
    with pytest.raises(ConfigError, match="option subscribe: got 'a b'"):
        read(broker, subscribe="a b")
    with pytest.raises(RemotingConnectError, match=r"no name server of 127\.0\.0\.1:1 can be reached"):
        read(broker, subscribe=topic, nameServer="127.0.0.1:1", numRetries=0)


def test_offsets_that_are_not_there_are_loss_unless_the_query_does_not_mind(broker: MqcoreBroker, topic: str) -> None:
    fill(broker, topic, numbered(10), queueId=[0] * 10)
    far = f'{{"{topic}":{{"broker-a":{{"0":50,"1":-2,"2":-2,"3":-2}}}}}}'
    with pytest.raises(DataLossError, match=re.escape(f"offset 50 of {topic}/broker-a/0 is outside [0, 10]")):
        read(broker, subscribe=topic, endingOffsets=far)
    assert len(read(broker, subscribe=topic, endingOffsets=far, failOnDataLoss="false")) == 10


def test_a_range_beyond_the_queue_is_loss_and_gives_what_is_there_otherwise(broker: MqcoreBroker, topic: str) -> None:
    fill(broker, topic, numbered(10), queueId=[0] * 10)
    part = QueueRange(topic, "broker-a", 0, 5, 25)
    with pytest.raises(DataLossError, match=r"\[5, 25\): the queue ends at 10"):
        list(reader(broker, subscribe=topic, numRetries=2).read(part))
    lenient = reader(broker, subscribe=topic, numRetries=2, failOnDataLoss="false")
    assert [batch.num_rows for batch in lenient.read(part)] == [5]


def test_a_pattern_follows_the_topics_that_there_are(broker: MqcoreBroker, topic: str) -> None:
    fill(broker, topic, numbered(4))
    rows = read(broker, schema_of(["topic", "body"]), subscribePattern=topic[:-3] + ".*")
    assert {row["topic"] for row in rows} == {topic}
    assert read(broker, subscribePattern="no_topic_is_called_so") == []


def test_what_spark_pickles_can_be_pickled_and_holds_no_connection(broker: MqcoreBroker, topic: str) -> None:
    fill(broker, topic, numbered(20))
    chosen = reader(broker, subscribe=topic)
    parts = chosen.partitions()
    copy: BatchReader = pickle.loads(pickle.dumps(chosen))
    again = pickle.loads(pickle.dumps(parts))
    assert sum(batch.num_rows for part in again for batch in copy.read(part)) == 20
    stream = StreamReader(settings_of(broker, Use.STREAM, subscribe=topic), StructType())
    assert pickle.loads(pickle.dumps(stream)).initialOffset() == stream.initialOffset()
    error = pickle.loads(pickle.dumps(SinkError(1, 2, "T", 13, "too large")))
    assert str(error) == "sending row 2 of partition 1 to topic 'T' failed, code 13: too large"


def test_connections_are_kept_for_the_next_read_and_not_taken_over_by_a_fork(broker: MqcoreBroker, topic: str) -> None:
    address = broker.broker_address
    with connection.borrow(address, 5) as first:
        pass
    with connection.borrow(address, 5) as second, connection.borrow(address, 5) as third:
        assert second is first
        assert third is not first
    with pytest.raises(RuntimeError, match="spoilt"), connection.borrow(address, 5) as spoilt:
        raise RuntimeError("spoilt")
    with connection.borrow(address, 5) as fresh:
        assert fresh is not spoilt
    child = os.fork()
    if child == 0:
        with connection.borrow(address, 5) as own:
            os._exit(0 if own not in (first, second, third, fresh) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_records_are_cut_before_an_offset(broker: MqcoreBroker, topic: str) -> None:
    fill(broker, topic, numbered(6), queueId=[0] * 6)
    settings = settings_of(broker, subscribe=topic)
    reading = RangeReading(Cluster(settings.calling), settings, QueueRange(topic, "broker-a", 0, 0, 6))
    body = b"".join(reading.bodies())
    assert len(body) % 6 == 0
    for end in range(8):
        assert len(cut_before(body, end)) == min(end, 6) * len(body) // 6


def test_repeated_rows_are_dropped_where_the_reader_is_asked_to(broker: MqcoreBroker, topic: str) -> None:
    keys = RowKeys("job", 0, 0)
    for count in (700, 300, 1000):  # two attempts that broke off, and the one that did not
        fill(broker, topic, numbered(count), keys, portion=100, dedup="true", batchBytes="4096")
    assert len(read(broker, subscribe=topic)) == 2000
    assert bodies_of(read(broker, subscribe=topic, dedup="true")) == numbered(1000)
    assert "msgId" not in read(broker, subscribe=topic, dedup="true")[0]


def test_compressed_and_delayed_rows_go_alone_and_arrive(broker: MqcoreBroker, topic: str) -> None:
    bodies = [b"short", b"long " * 3000, b"short again"]
    fill(broker, topic, bodies, compression="zlib")
    rows = read(broker, schema_of(["body", "sysFlag", "bodySize"]), subscribe=topic)
    assert bodies_of(rows) == sorted(bodies)
    (long,) = [row for row in rows if len(row["body"]) > 1000]
    assert long["sysFlag"] & 1
    assert long["bodySize"] < 1000
    fill(broker, topic, [b"later"], delayLevel=[1], queueId=[3])
    assert len(read(broker, subscribe="SCHEDULE_TOPIC_XXXX", failOnDataLoss="false")) >= 1


def test_a_sharding_key_keeps_its_rows_in_one_queue(broker: MqcoreBroker, topic: str) -> None:
    keys = [f"customer-{number % 7}" for number in range(700)]
    fill(broker, topic, numbered(700), shardingKey=keys, batchBytes="4096")
    rows = read(broker, subscribe=topic)
    assert bodies_of(rows) == numbered(700)
    queue_of = {int(row["body"]): row["queueId"] for row in rows}
    for customer in range(7):
        assert len({queue_of[number] for number in range(customer, 700, 7)}) == 1


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"tags": ["fine", "bad\x01"]}, "sending row 1 of partition 0 to topic '.*' failed, code -1: .*separator"),
        ({"topic": ["", "T"]}, "row 0 .*the row has no topic"),
        ({"queueId": [0, 77]}, "row 1 .*no queue 77"),
    ],
)
def test_a_bad_row_is_named(broker: MqcoreBroker, topic: str, columns: dict[str, list[object]], message: str) -> None:
    with pytest.raises(SinkError, match=message):
        fill(broker, topic, [b"a", b"b"], **columns)


def test_a_refused_message_is_named_with_the_brokers_code(broker: MqcoreBroker, topic: str) -> None:
    with pytest.raises(SinkError, match=r"row 0 .*code 13: ") as caught:
        fill(broker, topic, [b"x" * (5 << 20)])
    assert caught.value.code == 13


def test_an_unknown_topic_is_made_by_its_first_message(broker: MqcoreBroker) -> None:
    fill(broker, "MadeByTheSink", numbered(10))
    assert bodies_of(read(broker, subscribe="MadeByTheSink")) == numbered(10)


def test_a_refused_filter_fails_at_once_with_the_brokers_words(broker: MqcoreBroker, topic: str) -> None:
    fill(broker, topic, numbered(1))
    with pytest.raises(BrokerError, match="sqlExpression 'a >'") as caught:
        read(broker, subscribe=topic, sqlExpression="a >")
    assert caught.value.address == broker.broker_address


# A broker that goes and comes back; each test has one of its own.


def test_a_broker_killed_in_mid_read_costs_a_retry_and_no_row(tmp_path: Path) -> None:
    for broker in running_broker(tmp_path, flushDiskType="SYNC_FLUSH"):
        topic = make_topic(broker, "restarted", 2)
        fill(broker, topic, numbered(20_000), queueId=[number % 2 for number in range(20_000)])
        chosen = reader(broker, subscribe=topic, batchBytes=64 << 10, fetchMaxBytes=256 << 10)
        parts = chosen.partitions()
        rows = []
        for part in parts:
            batches = chosen.read(part)
            rows += next(batches).to_pylist()
            broker.kill()
            broker.start_again()
            rows += [row for batch in batches for row in batch.to_pylist()]
        assert bodies_of(rows) == numbered(20_000)
        for queue_id in range(2):
            assert [row["offset"] for row in rows if row["queueId"] == queue_id] == list(range(10_000))


def test_a_broker_killed_in_mid_write_loses_no_row_and_the_guard_drops_repeats(tmp_path: Path) -> None:
    for broker in running_broker(tmp_path, flushDiskType="SYNC_FLUSH"):
        topic = make_topic(broker, "restarted", 3)
        settings = sink_settings({"nameServer": broker.name_server, **FAST})
        queues = [MessageQueue(topic, "broker-a", number) for number in range(3)]
        with Sender(settings, 0) as sender:
            bodies = numbered(3000)
            ids = RowKeys("job", 0, 0).ids(0, [])
            encoder = BatchEncoder(
                texts_of(pa.array(bodies)), [], None, None,
                id_prefix=ids.prefix.encode(), id_base=ids.base, id_suffix=ids.suffix.encode(),
            )  # fmt: skip
            rows = np.arange(3000, dtype=np.int64)
            for number in range(60):
                batch = encoder.encode(rows[: number * 50 + 50], number * 50, 1 << 20)
                sender.submit(
                    Work(queue=queues[number % 3], body=batch.body, row=number * 50, count=50, is_pinned=True)
                )
                if number in (20, 40):
                    broker.kill()
                    broker.start_again()
            sender.finish()
            assert sender.stored == 3000
        await_readable(broker, topic)
        assert bodies_of(read(broker, subscribe=topic, dedup="true")) == bodies
        assert set(bodies_of(read(broker, subscribe=topic))) == set(bodies)


def test_a_broker_that_stays_away_is_an_error_that_names_it(tmp_path: Path) -> None:
    for broker in running_broker(tmp_path):
        topic = make_topic(broker, "gone", 1)
        fill(broker, topic, numbered(10))
        chosen = reader(broker, subscribe=topic, numRetries=2)
        parts = chosen.partitions()
        broker.kill()
        with pytest.raises(RemotingConnectError, match="no name server"):
            [list(chosen.read(part)) for part in parts]
        with pytest.raises(SinkError, match="row 0 of partition 0 to topic 'gone' failed, code -1: no name server"):
            fill(broker, topic, numbered(1), numRetries="2")
