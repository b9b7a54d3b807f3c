"""Against Apache's broker: what mqcore's own does not have yet (SQL92), or does not ask for (keys)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import pytest

from mqcore.codes import ResponseCode
from mqcore.errors import BrokerError
from mqcore.spark import connection
from mqcore.spark.errors import SinkError
from mqcore.spark.options import Use
from mqcore.spark.schema import schema_of
from mqcore.spark.settings import sink_settings
from mqcore.spark.sink_keys import RandomKeys
from mqcore.spark.sink_rows import TaskRows
from mqcore.spark.stream import StreamReader
from tests.rigs import ApacheServer, apache, maven, wire
from tests.spark.helpers import FAST, bodies_of, fill, make_topic, read, settings_of
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.compat,
    pytest.mark.slow,
    pytest.mark.skipif(bool(maven.missing_tools()), reason=maven.missing_tools() or "Maven is there"),
]

COUNT = 3000
KEYS = """
globalWhiteRemoteAddresses:
accounts:
- accessKey: spark-job
  secretKey: s3cret/with:signs
  whiteRemoteAddress:
  admin: true
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
"""
WITH_KEYS = {"accessKey": "spark-job", "secretKey": "s3cret/with:signs"}


@pytest.fixture(autouse=True)
def no_links_are_kept() -> Iterator[None]:
    yield
    connection.close_idle_links()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheServer]:
    with ApacheServer("4.9.8", tmp_path_factory.mktemp("apache") / "store", {"enablePropertyFilter": "true"}) as server:
        yield server


def body(number: int) -> bytes:
    return b"%07d" % number


def test_sql_expressions_are_evaluated_by_the_broker(server: ApacheServer) -> None:
    topic = make_topic(server, "Priced", 2)
    properties = [{"price": str(number), "colour": "red" if number % 3 else "blue"} for number in range(COUNT)]
    fill(
        server, topic, [body(number) for number in range(COUNT)], tags=["cheap", "dear"] * (COUNT // 2),
        queueId=[number % 4 // 2 for number in range(COUNT)],
        properties=pa.array([list(row.items()) for row in properties], pa.map_(pa.string(), pa.string())),
    )  # fmt: skip
    expression = "price BETWEEN 100 AND 2000 AND colour = 'blue' AND TAGS = 'dear'"
    wanted = [body(number) for number in range(100, 2001) if number % 3 == 0 and number % 2 == 1]
    assert bodies_of(read(server, subscribe=topic, sqlExpression=expression)) == wanted
    # The old connector's name, and ranges that are cut anywhere.
    many = read(server, subscribe=topic, minPartitions=7, **{"filter.sql": expression})
    assert bodies_of(many) == wanted
    assert bodies_of(read(server, subscribe=topic, sqlExpression="price > 2990 AND price IS NOT NULL")) == [
        body(number) for number in range(2991, COUNT)
    ]
    assert read(server, subscribe=topic, sqlExpression="colour = 'green'") == []
    # With a condition of our own on top.
    some = read(server, subscribe=topic, sqlExpression=expression, where="queueId = 1 AND tags = 'dear'")
    assert bodies_of(some) == [one for one in wanted if int(one) % 4 == 3]
    # A stream reads the same.
    stream = StreamReader(
        settings_of(server, Use.STREAM, subscribe=topic, startingOffsets="earliest", sqlExpression=expression),
        schema_of(["body"]),
    )
    parts = stream.partitions(stream.initialOffset(), stream.latestOffset(stream.initialOffset()))
    rows = [row for part in parts for batch in stream.read(part) for row in batch.to_pylist()]
    assert bodies_of(rows) == wanted


def test_a_bad_sql_expression_fails_with_the_brokers_words(server: ApacheServer) -> None:
    topic = make_topic(server, "Misspelt", 1)
    fill(server, topic, [b"x"])
    with pytest.raises(BrokerError, match="sqlExpression 'price >>> 1'") as caught:
        read(server, subscribe=topic, sqlExpression="price >>> 1")
    assert caught.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    stream = StreamReader(
        settings_of(server, Use.STREAM, subscribe=topic, sqlExpression="price >>> 1"), schema_of(["body"])
    )
    with pytest.raises(BrokerError, match="sqlExpression"):
        stream.latestOffset({f"{topic}/broker-a/0": 0})


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheServer]:
    """A broker that wants keys."""
    store = tmp_path_factory.mktemp("acl") / "store"
    conf = store.with_name(store.name + ".apache") / "conf"
    conf.mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(KEYS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(apache, "serves", refuses)
        server = ApacheServer("4.9.8", store, {"aclEnable": "true"})
    with server:
        yield server


def refuses(name_server: str, broker: str) -> bool:
    """Whether the broker is registered and answers; the question has no keys, so with a refusal."""
    addresses = {address for ids in wire.registered_brokers(name_server).values() for address in ids.values()}
    try:
        return broker in addresses and wire.call(broker, wire.GET_BROKER_RUNTIME_INFO).code == ResponseCode.SYSTEM_ERROR
    except OSError:
        return False


def write(server: ApacheServer, topic: str, count: int, **keys: str) -> None:
    settings = sink_settings({"nameServer": server.name_server, "topic": topic, **FAST, "numRetries": "1", **keys})
    with TaskRows(settings, 0, RandomKeys()) as rows:
        rows.send(pa.RecordBatch.from_pydict({"body": pa.array(list(map(body, range(count))), pa.binary())}))
        rows.finish()


def test_a_broker_that_asks_for_keys_is_written_and_read_with_them(guarded: ApacheServer) -> None:
    topic = "Guarded"
    with pytest.raises(SinkError, match=r"AclException|No accessKey"):
        write(guarded, topic, 1)
    write(guarded, topic, COUNT, **WITH_KEYS)
    options = {"subscribe": topic, "group": "spark", **WITH_KEYS}
    wait_until(partial(is_whole, guarded, options), 30, "all that was sent can be read")
    with pytest.raises(BrokerError, match=r"AclException|No accessKey"):
        read(guarded, subscribe=topic, numRetries=1)
    with pytest.raises(BrokerError, match=r"AclException|signature"):
        read(guarded, numRetries=1, **{**options, "secretKey": "wrong"})


def is_whole(server: ApacheServer, options: dict[str, str]) -> bool:
    return bodies_of(read(server, **options)) == list(map(body, range(COUNT)))
