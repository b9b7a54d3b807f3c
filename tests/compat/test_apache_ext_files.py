"""Consume queue ext files in both directions: Apache writes and ours reads, ours writes and Apache reads."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from mqcore.store.log.record import decode
from mqcore.store.queues.ext import is_ext_address
from tests.compat import apache_requests as requests
from tests.rigs import ApacheServer, JavaDriver, MqcoreBroker, maven, wire
from tests.rigs.wire import call
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.compat,
    pytest.mark.skipif(bool(maven.missing_tools()), reason=f"Apache's broker cannot run here: {maven.missing_tools()}"),
]

RELEASE = "4.9.8"
TOPIC = "Orders"
TAGS = ("T0", "T1", "標籤")
DELAYED = "Later"
DELAY_LEVEL, DELAY_MS = "2", 5000
HEART_BEAT = 34
# A hundred units without a bitmap to a file.
EXT = {"enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": "2004"}
OFF = {"enableConsumeQueueExt": "false", "mappedFileSizeConsumeQueueExt": "2004"}
BITMAPS = {"enableCalcFilterBitMap": "true", "enablePropertyFilter": "true"}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Sender:
    """Sends messages of three tags in turn, and knows what each broker must give for a tag."""

    def __init__(self) -> None:
        self.sent = 0

    def send(self, broker: str, count: int) -> None:
        for _ in range(count):
            properties = {"TAGS": TAGS[self.sent % 3]}
            assert requests.send(broker, TOPIC, 0, b"%d" % self.sent, now_ms(), properties).code == wire.SUCCESS
            self.sent += 1

    def await_dispatched(self, broker: str) -> None:
        wait_until(lambda: wire.max_offset(broker, TOPIC, 0) == self.sent, describe="everything is dispatched")

    def assert_filtered(self, broker: str) -> None:
        self.await_dispatched(broker)
        for index, tag in enumerate(TAGS):
            got = requests.split_records(requests.pull_all(broker, TOPIC, 0, tag))
            assert [decode(record, 0).body for record in got] == [b"%d" % n for n in range(index, self.sent, 3)]

    def assert_units(self, broker: str, wanted: Sequence[bool]) -> None:
        units = requests.queue_units(broker, TOPIC, 0, self.sent)
        assert [is_ext_address(unit["tagsCode"]) for unit in units] == list(wanted)


def register_sql_consumer(broker: str) -> None:
    """Make the broker calculate filter bitmaps for the topic from now on."""
    subscription = {
        "classFilterMode": False, "codeSet": [], "expressionType": "SQL92", "subString": "a > 1",
        "subVersion": 1, "tagsSet": [], "topic": TOPIC,
    }  # fmt: skip
    consumer = {
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "consumeType": "CONSUME_PASSIVELY", "groupName": "SQL",
        "messageModel": "CLUSTERING", "subscriptionDataSet": [subscription], "unitMode": False,
    }  # fmt: skip
    body = {"clientID": "127.0.0.1@sql", "consumerDataSet": [consumer], "producerDataSet": []}
    assert call(broker, HEART_BEAT, {}, json.dumps(body).encode()).code == wire.SUCCESS


def send_delayed(broker: str) -> int:
    """Send a message with a delay; its time of sending, ms."""
    wire.create_topic(broker, DELAYED, queues=1)
    sent_at = now_ms()
    assert requests.send(broker, DELAYED, 0, b"later", sent_at, {"DELAY": DELAY_LEVEL}).code == wire.SUCCESS
    return sent_at


def assert_delivered_in_time(broker: str, sent_at: int) -> None:
    wait_until(lambda: wire.max_offset(broker, DELAYED, 0) == 1, describe="the delayed message is delivered")
    (record,) = requests.split_records(requests.pull_all(broker, DELAYED, 0))
    # Apache's broker looks for due messages with the precision of a millisecond less than its clock.
    assert decode(record, 0).store_timestamp >= sent_at + DELAY_MS - 1


@pytest.mark.parametrize("settings", [pytest.param(EXT, id="on", marks=pytest.mark.slow), pytest.param(OFF, id="off")])
def test_our_broker_goes_on_with_apaches_ext_files(tmp_path: Path, settings: dict[str, str]) -> None:
    sender = Sender()
    with ApacheServer(RELEASE, tmp_path / "store", EXT | BITMAPS) as apache:
        address = apache.broker_address
        wire.create_topic(address, TOPIC, queues=1)
        sender.send(address, 120)
        # A bitmap is written when a message comes into its queue, which is after its acknowledgement.
        sender.await_dispatched(address)
        register_sql_consumer(address)
        sender.send(address, 60)
        sender.assert_filtered(address)
        told = requests.queue_units(address, TOPIC, 0, 180)
        assert [bool(unit.get("bitMap")) for unit in told] == [False] * 120 + [True] * 60
        sent_at = send_delayed(address)
        apache.stop()
    with MqcoreBroker(tmp_path / "store", settings) as ours:
        assert requests.queue_units(ours.broker_address, TOPIC, 0, 180) == told
        sender.assert_filtered(ours.broker_address)
        sender.send(ours.broker_address, 90)
        sender.assert_filtered(ours.broker_address)
        assert_delivered_in_time(ours.broker_address, sent_at)
        ours.kill()
        ours.start_again()
        sender.assert_filtered(ours.broker_address)
        ours.stop()
    with ApacheServer(RELEASE, tmp_path / "store", EXT) as apache:
        sender.assert_filtered(apache.broker_address)
        sender.send(apache.broker_address, 30)
        sender.assert_filtered(apache.broker_address)
        apache.stop()


def test_apaches_broker_goes_on_with_our_ext_files_and_crashes(tmp_path: Path) -> None:
    sender = Sender()
    with MqcoreBroker(tmp_path / "store", EXT) as ours:
        wire.create_topic(ours.broker_address, TOPIC, queues=1)
        sender.send(ours.broker_address, 250)
        sender.assert_filtered(ours.broker_address)
        told = requests.queue_units(ours.broker_address, TOPIC, 0, 250)
        sent_at = send_delayed(ours.broker_address)
        ours.stop()
    with ApacheServer(RELEASE, tmp_path / "store", EXT) as apache:
        assert requests.queue_units(apache.broker_address, TOPIC, 0, 250) == told
        sender.assert_filtered(apache.broker_address)
        assert_delivered_in_time(apache.broker_address, sent_at)
        sender.send(apache.broker_address, 120)
        sender.assert_filtered(apache.broker_address)
        apache.kill()
    with MqcoreBroker(tmp_path / "store", EXT) as ours:
        sender.assert_filtered(ours.broker_address)
        sender.assert_units(ours.broker_address, [True] * 370)
        sender.send(ours.broker_address, 30)
        sender.assert_filtered(ours.broker_address)
        ours.stop()


@pytest.mark.slow
def test_a_java_consumer_with_a_tag_gets_what_it_asked_for(tmp_path: Path) -> None:
    sender = Sender()
    with ApacheServer(RELEASE, tmp_path / "store", EXT) as apache:
        wire.create_topic(apache.broker_address, TOPIC, queues=1)
        sender.send(apache.broker_address, 60)
        apache.stop()
    with MqcoreBroker(tmp_path / "store", EXT) as ours:
        sender.send(ours.broker_address, 60)
        driver = JavaDriver(RELEASE, tmp_path / "java")
        with driver.consumer(ours.name_server, TOPIC, "Tagged", tags="T0 || T1") as consumer:
            wait_until(lambda: consumer.count() >= 80, deadline_s=120, describe="the consumer has its messages")
            received = consumer.stop()
        assert sorted(message.queue_offset for message in received) == [n for n in range(120) if n % 3 != 2]
        ours.stop()
