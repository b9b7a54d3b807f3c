"""A store with SQL92 consumers and filter bitmaps goes from mqcore's broker to Apache's and back: nothing is hidden."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from mqcore.client import Client, Sql
from tests.compat import apache_requests as requests
from tests.rigs import ApacheServer, MqcoreBroker, RunningBroker, maven, wire
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.compat,
    pytest.mark.skipif(bool(maven.missing_tools()), reason=f"Apache's broker cannot run here: {maven.missing_tools()}"),
]

TOPIC, GROUP = "Priced", "Dear"
SETTINGS = {"enableConsumeQueueExt": "true", "enableCalcFilterBitMap": "true", "enablePropertyFilter": "true"}
DEADLINE_S = 60.0


def send(broker: RunningBroker, prices: range) -> None:
    for price in prices:
        properties = {"price": str(price % 10)}
        answer = requests.send(broker.broker_address, TOPIC, 0, b"%d" % price, time.time_ns() // 1_000_000, properties)
        assert answer.code == wire.SUCCESS


def consume(broker: RunningBroker, kept: range, fresh: range) -> None:
    """Join the group, take what it wants of *kept*, send *fresh*, and take what it wants of these."""
    wait_until(lambda: wire.has_route(broker.name_server, TOPIC), describe="a route")
    with (
        Client(broker.name_server) as mq,
        mq.pull_consumer(GROUP, {TOPIC: Sql("price > 5")}, from_where="earliest") as consumer,
    ):
        for prices in (kept, fresh):
            if prices is fresh:
                send(broker, fresh)
            found: list[int] = []
            wanted = [price for price in prices if price % 10 > 5]
            while len(found) < len(wanted):
                messages = consumer.poll(DEADLINE_S)
                assert messages, f"got {found}, wanted {wanted}"
                found += [int(message.body) for message in messages]
            assert found == wanted
        consumer.commit()


def has_bitmaps(broker: RunningBroker, units: range) -> bool:
    told = requests.queue_units(broker.broker_address, TOPIC, 0, units.stop)
    return all(unit.get("bitMap") for unit in told[units.start :])


def stored_filter(directory: Path) -> dict[str, Any]:
    text = (directory / "config" / "consumerFilter.json").read_text()
    entry: dict[str, Any] = json.loads(text)["filterDataByTopic"][TOPIC]["groupFilterData"][GROUP]
    return entry


def test_filters_and_bitmaps_go_to_apaches_broker_and_back(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with MqcoreBroker(store, SETTINGS) as ours:
        wire.create_topic(ours.broker_address, TOPIC, queues=1)
        consume(ours, range(0), range(40))
        consume(ours, range(0), range(40, 80))
        assert has_bitmaps(ours, range(40, 80))
        send(ours, range(80, 100))
        ours.stop()
    written = stored_filter(store)
    assert written["deadTime"] >= written["bornTime"]
    with ApacheServer("4.9.8", store, SETTINGS) as apache:
        consume(apache, range(80, 100), range(100, 140))
        assert has_bitmaps(apache, range(80, 140))
        send(apache, range(140, 160))
        apache.stop()
    # It has taken ours over: the filter is the same one.
    assert stored_filter(store)["bornTime"] == written["bornTime"]
    with MqcoreBroker(store, SETTINGS) as ours:
        consume(ours, range(140, 160), range(160, 200))
        ours.stop()
    assert stored_filter(store)["bloomFilterData"] == written["bloomFilterData"]
