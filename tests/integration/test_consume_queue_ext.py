"""A broker that writes consume queue ext files: tags are filtered by them, through crashes and with the setting off."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mqcore.store.log.record import decode
from mqcore.store.queues.ext import is_ext_address
from tests.compat import apache_requests as requests
from tests.fault.rig import await_successor, kill_worker
from tests.rigs import MqcoreBroker, wire
from tests.waiting import wait_until

TOPIC = "Orders"
TAGS = ("T0", "T1", "T2")
# Two hundred units to a file.
EXT = {"enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": "4004", "workerRestartBackoffMillis": "1"}


class Sender:
    """Sends messages of three tags in turn into queue 0, and knows what a consumer of each must get."""

    def __init__(self, broker: MqcoreBroker) -> None:
        self.broker = broker
        self.sent = 0
        self.kept_from = 0  # the topic was deleted when so many had been sent

    def send(self, count: int) -> None:
        for _ in range(count):
            properties = {"TAGS": TAGS[self.sent % 3]}
            now = time.time_ns() // 1_000_000
            answer = requests.send(self.broker.broker_address, TOPIC, 0, b"%d" % self.sent, now, properties)
            assert answer.code == wire.SUCCESS
            self.sent += 1

    def assert_filtered(self) -> None:
        address = self.broker.broker_address
        count = self.sent - self.kept_from
        wait_until(lambda: wire.max_offset(address, TOPIC, 0) == count, describe="everything is dispatched")
        for index, tag in enumerate(TAGS):
            records = list(requests.split_records(requests.pull_all(address, TOPIC, 0, tag)))
            wanted = [b"%d" % n for n in range(self.kept_from, self.sent) if n % 3 == index]
            assert [decode(record, 0).body for record in records] == wanted


@pytest.mark.parametrize("enabled", ["true", pytest.param("false", marks=pytest.mark.slow)])
def test_tags_are_filtered_by_ext_units_through_crashes(tmp_path: Path, enabled: str) -> None:
    with MqcoreBroker(tmp_path / "store", EXT) as broker:
        wire.create_topic(broker.broker_address, TOPIC, queues=1)
        sender = Sender(broker)
        sender.send(150)
        await_successor(broker, "reput", kill_worker(broker, "reput"))
        sender.send(150)
        sender.assert_filtered()
        units = requests.queue_units(broker.broker_address, TOPIC, 0, 300)
        assert all(is_ext_address(unit["tagsCode"]) for unit in units)
        broker.properties["enableConsumeQueueExt"] = enabled
        broker.kill()
        broker.start_again()
        sender.send(60)
        sender.assert_filtered()
        broker.properties["enableConsumeQueueExt"] = "true"
        broker.restart()
        sender.send(60)
        sender.assert_filtered()
        units = requests.queue_units(broker.broker_address, TOPIC, 0, 420)
        assert [is_ext_address(unit["tagsCode"]) for unit in units[-60:]] == [True] * 60
        broker.stop()
    assert (tmp_path / "store" / "consumequeue_ext" / TOPIC / "0").is_dir()


def test_ext_files_go_with_their_topic(tmp_path: Path) -> None:
    with MqcoreBroker(tmp_path / "store", EXT) as broker:
        wire.create_topic(broker.broker_address, TOPIC, queues=1)
        sender = Sender(broker)
        sender.send(3)
        sender.assert_filtered()
        directory = tmp_path / "store" / "consumequeue_ext" / TOPIC
        assert directory.is_dir()
        assert wire.call(broker.broker_address, 215, {"topic": TOPIC}).code == wire.SUCCESS
        wait_until(lambda: not directory.exists(), describe="the ext files are removed")
        wire.create_topic(broker.broker_address, TOPIC, queues=1)
        sender.kept_from = sender.sent
        sender.send(3)
        sender.assert_filtered()
        broker.stop()
