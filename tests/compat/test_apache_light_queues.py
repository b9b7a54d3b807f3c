"""Light queues in both directions: Apache writes and ours goes on, ours writes and Apache goes on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mqcore.store.log.record import decode, property_value
from tests.compat import apache_requests as requests
from tests.rigs import ApacheServer, MqcoreBroker, maven, wire
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.compat,
    pytest.mark.skipif(bool(maven.missing_tools()), reason=f"Apache's broker cannot run here: {maven.missing_tools()}"),
]

RELEASE = "4.9.8"
TOPIC = "Parent"
LIGHT = {"enableLmq": "true", "enableMultiDispatch": "true"}
NAMES = ("%LMQ%a", "%LMQ%b")
GROUP = "%LMQ%reader"
PROPERTIES = {b"INNER_MULTI_DISPATCH", b"INNER_MULTI_QUEUE_OFFSET"}


class Sender:
    """Sends messages that list light queues and an ordinary one, and knows what each must hold."""

    def __init__(self) -> None:
        self.sent = 0
        # Without %LMQ% the queue has the number of the message's own.
        self.bodies: dict[tuple[str, int], list[bytes]] = {
            (NAMES[0], 0): [], (NAMES[1], 0): [], ("Second", 0): [], ("Second", 1): [],
        }  # fmt: skip

    def send(self, broker: str, count: int) -> None:
        for _ in range(count):
            queue_id = self.sent % 2
            places = [(NAMES[0], 0), ("Second", queue_id)] + [(NAMES[1], 0)] * (self.sent % 3 == 0)
            properties = {"TAGS": "T", "INNER_MULTI_DISPATCH": ",".join(name for name, _ in places)}
            now = time.time_ns() // 1_000_000
            assert requests.send(broker, TOPIC, queue_id, b"%d" % self.sent, now, properties).code == wire.SUCCESS
            for place in places:
                self.bodies[place].append(b"%d" % self.sent)
            self.sent += 1

    def assert_whole(self, broker: str) -> None:
        for (name, queue_id), bodies in self.bodies.items():
            wait_until(
                lambda n=name, q=queue_id, b=bodies: wire.max_offset(broker, n, q) == len(b), describe=f"{name} is full"
            )
            raw = requests.pull_all(broker, name, queue_id, group=GROUP)
            records = [decode(record, 0) for record in requests.split_records(raw)]
            assert [record.body for record in records] == bodies
            for place, record in enumerate(records):
                names, offsets = (property_value(record.properties, key).split(b",") for key in sorted(PROPERTIES))
                assert int(dict(zip(names, offsets, strict=True))[name.encode()]) == place


def prepare(broker: str) -> None:
    for topic in (TOPIC, "Second"):
        wire.create_topic(broker, topic, queues=2)


def assert_committed(broker: str, offset: int) -> None:
    assert wire.consumer_offset(broker, GROUP, NAMES[0], 0) == offset
    assert wire.consumer_offset(broker, "Ordinary", TOPIC, 1) == offset + 1


def commit(broker: str, offset: int) -> None:
    wire.commit_offset(broker, GROUP, NAMES[0], 0, offset)
    wire.commit_offset(broker, "Ordinary", TOPIC, 1, offset + 1)


def test_our_broker_goes_on_with_apaches_light_queues(tmp_path: Path) -> None:
    sender = Sender()
    with ApacheServer(RELEASE, tmp_path / "store", LIGHT) as apache:
        prepare(apache.broker_address)
        sender.send(apache.broker_address, 40)
        sender.assert_whole(apache.broker_address)
        commit(apache.broker_address, 17)
        apache.stop()
    with MqcoreBroker(tmp_path / "store", LIGHT) as ours:
        sender.assert_whole(ours.broker_address)
        assert_committed(ours.broker_address, 17)
        sender.send(ours.broker_address, 40)
        sender.assert_whole(ours.broker_address)
        commit(ours.broker_address, 33)
        ours.stop()
    with ApacheServer(RELEASE, tmp_path / "store", LIGHT) as apache:
        sender.assert_whole(apache.broker_address)
        assert_committed(apache.broker_address, 33)
        sender.send(apache.broker_address, 20)
        sender.assert_whole(apache.broker_address)
        apache.kill()
    with MqcoreBroker(tmp_path / "store", LIGHT) as ours:
        sender.send(ours.broker_address, 20)
        sender.assert_whole(ours.broker_address)
        ours.stop()


@pytest.mark.slow
def test_apaches_broker_recovers_our_light_queues_after_a_crash(tmp_path: Path) -> None:
    sender = Sender()
    with MqcoreBroker(tmp_path / "store", LIGHT) as ours:
        prepare(ours.broker_address)
        sender.send(ours.broker_address, 60)
        sender.assert_whole(ours.broker_address)
        ours.kill()
    with ApacheServer(RELEASE, tmp_path / "store", LIGHT) as apache:
        sender.assert_whole(apache.broker_address)
        sender.send(apache.broker_address, 20)
        sender.assert_whole(apache.broker_address)
        apache.stop()
