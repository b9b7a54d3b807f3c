"""Light queues (%LMQ%...): a message goes into every queue that it lists, through crashes, and is waited for there."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore import compat
from mqcore.codes import SysFlag
from mqcore.protocol.names import TRANS_HALF_TOPIC
from mqcore.store.log.record import decode, property_value
from tests.compat import apache_requests as requests
from tests.fault.rig import await_successor, kill_worker
from tests.rigs import MqcoreBroker, RunningBroker, wire
from tests.waiting import wait_until

TOPIC = "Parent"
LIGHT = {"enableLmq": "true", "enableMultiDispatch": "true", "workerRestartBackoffMillis": "1"}
NAMES = ("%LMQ%a", "%LMQ%b", "%LMQ%c")
HALVES = {"transactionCheckInterval": "200", "transactionTimeOut": "100", "transactionCheckMax": "100"}
GROUP = "%LMQ%reader"
SYSTEM_ERROR, MESSAGE_ILLEGAL = 1, 13
RESUME_CHECK = 323
DELETE_TOPIC = 215
HELD_MS = 20_000

_numbers = itertools.count()


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreBroker]:
    """A broker with light queues, for tests that leave it as it is; each takes names of its own."""
    with MqcoreBroker(tmp_path_factory.mktemp("light") / "store", LIGHT | HALVES) as broker:
        yield broker
        broker.stop()


def own_sender(broker: RunningBroker) -> Sender:
    """A sender whose topic and light queues no other test has."""
    number = next(_numbers)
    return Sender(broker, f"{TOPIC}{number}", tuple(f"{name}{number}" for name in NAMES))


class Sender:
    """Sends messages into queues of the parent topic that list some of *names*, and knows what each must hold."""

    def __init__(self, broker: RunningBroker, topic: str = TOPIC, names: tuple[str, ...] = NAMES) -> None:
        self.broker = broker
        self.topic, self.names = topic, names
        self.sent = 0
        self.bodies: dict[str, list[bytes]] = {name: [] for name in names}
        wire.create_topic(broker.broker_address, topic, queues=2)

    def send_one(self, *names: str) -> wire.Answer:
        properties = {"TAGS": "T", "INNER_MULTI_DISPATCH": ",".join(names)}
        now = time.time_ns() // 1_000_000
        return requests.send(self.broker.broker_address, self.topic, self.sent % 2, b"%d" % self.sent, now, properties)

    def send(self, count: int) -> None:
        for _ in range(count):
            names = [name for index, name in enumerate(self.names) if self.sent % (index + 1) == 0]
            assert self.send_one(*names).code == wire.SUCCESS
            for name in names:
                self.bodies[name].append(b"%d" % self.sent)
            self.sent += 1

    def assert_whole(self) -> None:
        """Each light queue holds its messages in order, and each message knows its places."""
        address = self.broker.broker_address
        for name, bodies in self.bodies.items():
            wait_until(lambda n=name, b=bodies: wire.max_offset(address, n, 0) == len(b), describe=f"{name} is filled")
            raw = requests.pull_all(address, name, 0, group=GROUP)
            records = [decode(record, 0) for record in requests.split_records(raw)]
            assert [record.body for record in records] == bodies
            for place, record in enumerate(records):
                assert record.topic == self.topic.encode()
                names = property_value(record.properties, b"INNER_MULTI_DISPATCH").split(b",")
                offsets = property_value(record.properties, b"INNER_MULTI_QUEUE_OFFSET").split(b",")
                assert int(dict(zip(names, offsets, strict=True))[name.encode()]) == place
        assert sum(wire.max_offset(address, self.topic, queue_id) for queue_id in (0, 1)) == self.sent


def test_messages_lie_in_every_queue_that_they_list_through_crashes(tmp_path: Path) -> None:
    with MqcoreBroker(tmp_path / "store", LIGHT) as broker:
        sender = Sender(broker)
        sender.send(60)
        sender.assert_whole()
        await_successor(broker, "reput", kill_worker(broker, "reput"))
        sender.send(60)
        sender.assert_whole()
        broker.kill()
        broker.start_again()
        sender.send(30)
        sender.assert_whole()
        broker.restart()
        sender.send(30)
        sender.assert_whole()
        broker.stop()


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_what_was_acknowledged_while_everything_was_killed_is_in_every_queue(tmp_path: Path, flush: str) -> None:
    settings = {**LIGHT, "flushDiskType": flush, "enableConsumeQueueExt": "true"}
    with MqcoreBroker(tmp_path / "store", settings) as broker:
        sender = Sender(broker)
        acknowledged: list[bytes] = []

        def send_until_it_dies() -> None:
            with contextlib.suppress(OSError):
                while sender.send_one(*NAMES).code == wire.SUCCESS:
                    acknowledged.append(b"%d" % sender.sent)
                    sender.sent += 1

        for _ in range(2):
            before = len(acknowledged)
            thread = threading.Thread(target=send_until_it_dies)
            thread.start()
            wait_until(lambda b=before: len(acknowledged) > b + 100, describe="messages are acknowledged")
            broker.kill()
            thread.join()
            # What was under way may have been stored; it is sent again under the same number.
            broker.start_again()
        for name in NAMES:
            raw = requests.pull_all(broker.broker_address, name, 0, group=GROUP)
            stored = [decode(record, 0).body for record in requests.split_records(raw)]
            assert list(dict.fromkeys(stored))[: len(acknowledged)] == acknowledged
            assert len(stored) <= len(acknowledged) + 2
        broker.stop()


def test_a_pull_of_a_light_queue_waits_for_its_next_message(light: MqcoreBroker) -> None:
    sender = own_sender(light)
    sender.send(1)
    sender.assert_whole()
    answers: list[wire.Answer] = []

    def wait_for_next() -> None:
        answers.append(requests.pull(light.broker_address, sender.names[0], 0, 1, group=GROUP, suspend_ms=HELD_MS))

    began = time.monotonic()
    waiter = threading.Thread(target=wait_for_next)
    waiter.start()
    sender.send(1)
    waiter.join()
    assert time.monotonic() - began < HELD_MS / 1000
    assert [decode(answer.body, 0).body for answer in answers] == [b"1"]


def test_a_pull_consumer_reads_a_light_queue(light: MqcoreBroker) -> None:
    sender = own_sender(light)
    sender.send(50)
    sender.assert_whole()
    consumer = compat.DefaultMQPullConsumer("Puller")
    consumer.set_namesrv_addr(light.name_server)
    consumer.set_broker_suspend_max_time_millis(500)
    consumer.start()
    try:
        # No name server knows a light queue; the client knows the broker by the parent topic.
        queues = consumer.fetch_subscribe_message_queues(sender.topic)
        queue = compat.MessageQueue(sender.names[0], queues.pop().get_broker_name(), 0)
        bodies: list[bytes] = []
        while (found := consumer.pull(queue, "T", len(bodies), 32)).get_pull_status() is compat.PullStatus.FOUND:
            bodies += [message.get_body() for message in found.get_msg_found_list()]
        assert bodies == sender.bodies[sender.names[0]]
        assert consumer.max_offset(queue) == len(bodies)
        consumer.update_consume_offset(queue, 20)
        assert consumer.fetch_consume_offset(queue, False) == 20
    finally:
        consumer.shutdown()


def test_offsets_of_light_groups_have_their_own_file_and_survive(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with MqcoreBroker(store, {}) as broker:
        wire.create_topic(broker.broker_address, TOPIC, queues=2)
        wire.commit_offset(broker.broker_address, "Ordinary", TOPIC, 1, 7)
        broker.stop()
        broker.properties.update(LIGHT)
        broker.start_again()
        address = broker.broker_address
        assert wire.consumer_offset(address, "Ordinary", TOPIC, 1) == 7
        wire.commit_offset(address, GROUP, NAMES[0], 0, 5)
        wire.commit_offset(address, "Ordinary", NAMES[1], 0, 6)
        broker.restart()
        assert wire.consumer_offset(address, GROUP, NAMES[0], 0) == 5
        assert wire.consumer_offset(address, "Ordinary", NAMES[1], 0) == 6
        assert wire.consumer_offset(address, "Ordinary", TOPIC, 1) == 7
        broker.stop()
    text = (store / "config" / "lmqConsumerOffset.json").read_text()
    assert json.loads(text.replace("{0:", '{"0":').replace("{1:", '{"1":')) == {
        "lmqOffsetTable": {f"{NAMES[0]}@{GROUP}": 5},
        "offsetTable": {f"{NAMES[1]}@Ordinary": {"0": 6}, f"{TOPIC}@Ordinary": {"1": 7}},
    }


def test_a_deleted_light_queue_starts_anew(light: MqcoreBroker) -> None:
    sender = own_sender(light)
    sender.send(12)
    sender.assert_whole()
    assert wire.call(light.broker_address, DELETE_TOPIC, {"topic": sender.names[1]}).code == wire.SUCCESS
    directory = light.store_dir / "consumequeue" / sender.names[1]
    wait_until(lambda: not directory.exists(), describe="the queue is removed")
    wait_until(lambda: wire.max_offset(light.broker_address, sender.names[1], 0) == 0, describe="and counts from 0")
    sender.bodies[sender.names[1]] = []
    sender.send(12)
    sender.assert_whole()
    # The queues of the parent topic, and the other light ones, go on when an ordinary topic is deleted.
    wire.create_topic(light.broker_address, "Other", queues=1)
    assert wire.call(light.broker_address, DELETE_TOPIC, {"topic": "Other"}).code == wire.SUCCESS
    sender.send(6)
    sender.assert_whole()


@pytest.mark.slow
def test_more_light_queues_than_are_allowed_are_refused(tmp_path: Path) -> None:
    with MqcoreBroker(tmp_path / "store", {**LIGHT, "maxLmqConsumeQueueNum": "3"}) as broker:
        sender = Sender(broker)
        sender.send(6)
        answer = sender.send_one("%LMQ%a", "%LMQ%d")
        assert answer.code == SYSTEM_ERROR
        assert answer.remark is not None
        assert answer.remark.startswith("[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]")
        sender.send(6)
        sender.assert_whole()
        broker.stop()
        broker.properties["maxLmqConsumeQueueNum"] = "2"
        broker.start_again()
        refused = requests.pull(broker.broker_address, NAMES[0], 0, 0, group=GROUP)
        assert (refused.code, refused.remark) == (SYSTEM_ERROR, "store getMessage return null")
        broker.properties["maxLmqConsumeQueueNum"] = "3"
        broker.restart()
        sender.assert_whole()
        broker.stop()


def test_a_list_with_a_name_that_cannot_be_a_queue_is_refused(light: MqcoreBroker) -> None:
    sender = own_sender(light)
    for name in ("a/b", "..", "", "x" * 128):
        assert sender.send_one("%LMQ%a", name, "%LMQ%b").code == MESSAGE_ILLEGAL
    sender.send(3)
    sender.assert_whole()


def test_without_the_settings_a_list_is_a_property_like_any_other(broker: RunningBroker) -> None:
    sender = own_sender(broker)
    assert sender.send_one(*sender.names).code == wire.SUCCESS
    wait_until(lambda: wire.max_offset(broker.broker_address, sender.topic, 0) == 1, describe="it is dispatched")
    (record,) = requests.split_records(requests.pull_all(broker.broker_address, sender.topic, 0))
    assert property_value(decode(record, 0).properties, b"INNER_MULTI_QUEUE_OFFSET") is None
    # Its first file is made behind the message, which can be read without it.
    own = {sender.topic, *sender.names}
    queues = broker.store_dir / "consumequeue"
    wait_until(
        lambda: [path.name for path in queues.iterdir() if path.name in own] == [sender.topic],
        describe="the topic's queue, and no other",
    )
    assert requests.pull(broker.broker_address, sender.names[0], 0, 0).code == 17


def light_bodies(broker: MqcoreBroker, name: str) -> list[bytes]:
    raw = requests.pull_all(broker.broker_address, name, 0, group=GROUP)
    return [decode(record, 0).body for record in requests.split_records(raw)]


def test_a_half_message_lies_in_no_queue_that_it_lists_before_it_is_committed(light: MqcoreBroker) -> None:
    sender = own_sender(light)
    address = light.broker_address
    # The places are not the client's to choose.
    properties = {"TRAN_MSG": "true", "PGROUP": requests.PRODUCER_GROUP, "UNIQ_KEY": "unique",
                  "INNER_MULTI_DISPATCH": ",".join(sender.names[:2]), "INNER_MULTI_QUEUE_OFFSET": "0,7"}  # fmt: skip
    now = time.time_ns() // 1_000_000
    half = requests.send(address, sender.topic, 0, b"half", now, properties, sys_flag=4)
    # Asked about, it is put again, also by an administrator's word.
    wait_until(lambda: wire.max_offset(address, TRANS_HALF_TOPIC, 0) >= 3, describe="the half is put again")
    assert wire.call(address, RESUME_CHECK, {"msgId": half.ext_fields["msgId"]}).code == wire.SUCCESS
    wait_until(lambda: wire.is_dispatched(address), describe="all is dispatched")
    assert [light_bodies(light, name) for name in sender.names[:2]] == [[], []]
    assert requests.end_transaction(address, half, "unique", int(SysFlag.TRANSACTION_COMMIT)).code == wire.SUCCESS
    for name in sender.names[:2]:
        wait_until(lambda n=name: wire.max_offset(address, n, 0) == 1, describe=f"{name} has the message")
        assert light_bodies(light, name) == [b"half"]
