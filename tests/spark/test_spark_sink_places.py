"""The queues that rows of the sink name, or that their keys choose, and rows whose place is not there."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mqcore.errors import ConfigError
from mqcore.protocol.hashing import java_string_hash
from mqcore.spark import connection
from mqcore.spark.errors import SinkError
from mqcore.spark.schema import schema_of
from mqcore.spark.settings import sink_settings
from mqcore.spark.sink_rows import check_schema
from tests.rigs import MqcoreBroker, wire
from tests.spark.helpers import await_readable, fill, make_topic, read, running_broker

QUEUES = 4
COUNT = 5
BODIES = [b"%d" % number for number in range(COUNT)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreBroker]:
    yield from running_broker(tmp_path_factory.mktemp("mq"))
    connection.close_idle_links()


@pytest.fixture
def topic(broker: MqcoreBroker, request: pytest.FixtureRequest) -> str:
    return make_topic(broker, request.node.name, QUEUES)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        (
            {"topic": ["no good name"]},
            "row 0 of partition 0 to topic 'no good name' failed, code -1: .*illegal characters",
        ),
        ({"topic": ["x" * 128]}, "longer than topic max length"),
        ({"queueId": [9]}, "the topic has no queue 9 to be written to"),
        (
            {"queueId": [0], "brokerName": ["broker-x"]},
            "no queue 0 on a broker 'broker-x'.*without the columns brokerName",
        ),
    ],
)
def test_a_row_with_a_place_that_is_not_there_is_refused(
    broker: MqcoreBroker, topic: str, columns: dict[str, list[Any]], reason: str
) -> None:
    with pytest.raises(SinkError, match=reason):
        fill(broker, topic, [b"x"], numRetries="1", **columns)


def test_rows_wait_for_the_broker_that_they_name(broker: MqcoreBroker, topic: str, tmp_path: Path) -> None:
    names = ["broker-a", "broker-b", None, "broker-b", ""]
    keys = ["k"] * COUNT  # no longer counts where a queue is named
    columns = {"queueId": [1, 1, 1, 2, None], "brokerName": names, "shardingKey": keys}
    elsewhere = {
        "brokerName": "broker-b",
        "namesrvAddr": broker.name_server,
        "namesrvListenPort": broker.properties["namesrvListenPort"],
    }
    with ThreadPoolExecutor(1) as threads:
        filling = threads.submit(fill, broker, topic, BODIES, **columns)
        with MqcoreBroker(tmp_path / "second", elsewhere) as second:
            assert not filling.done()
            wire.create_topic(second.broker_address, topic, queues=QUEUES)
            filling.result(60)
            await_readable(second, topic)
            rows = read(broker, schema_of(["brokerName", "queueId", "body"]), subscribe=topic)
    places = {row["body"]: (row["brokerName"], row["queueId"]) for row in rows}
    by_key = java_string_hash("k") % QUEUES
    wanted = [("broker-a", 1), ("broker-b", 1), ("broker-a", 1), ("broker-b", 2), ("broker-a", by_key)]
    assert [places[body] for body in BODIES] == wanted


def test_an_option_that_names_no_topic_is_refused_before_anything_runs() -> None:
    settings = sink_settings({"nameServer": "127.0.0.1:1", "topic": "no good name"})
    with pytest.raises(ConfigError, match=r"option topic: got 'no good name': .*illegal characters"):
        check_schema(schema_of(["body"]), settings)
