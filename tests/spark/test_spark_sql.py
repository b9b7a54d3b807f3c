"""The option sqlExpression: the broker filters, mqcore's and Apache's alike."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from mqcore.codes import ResponseCode
from mqcore.errors import BrokerError
from mqcore.spark import connection
from mqcore.spark.options import Use
from mqcore.spark.schema import schema_of
from mqcore.spark.stream import StreamReader
from tests.rigs import ApacheServer, MqcoreBroker, RunningBroker, maven
from tests.spark.helpers import bodies_of, fill, make_topic, read, settings_of

COUNT = 3000
APACHE = [
    pytest.mark.compat,
    pytest.mark.slow,
    pytest.mark.skipif(bool(maven.missing_tools()), reason=maven.missing_tools() or "Maven is there"),
]


@pytest.fixture(autouse=True)
def no_links_are_kept() -> Iterator[None]:
    yield
    connection.close_idle_links()


@pytest.fixture(scope="module", params=["mqcore", pytest.param("apache", marks=APACHE)])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    store = tmp_path_factory.mktemp(request.param) / "store"
    started: RunningBroker = (
        MqcoreBroker(store, {})
        if request.param == "mqcore"
        else ApacheServer("4.9.8", store, {"enablePropertyFilter": "true"})
    )
    with started as running:
        yield running


def body(number: int) -> bytes:
    return b"%07d" % number


def test_sql_expressions_are_evaluated_by_the_broker(server: RunningBroker) -> None:
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


def test_a_bad_sql_expression_fails_with_the_brokers_words(server: RunningBroker) -> None:
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
