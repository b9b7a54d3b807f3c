"""Apache's Java clients, which know nothing of groups, send and receive while a group gets another master."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from mqcore.codes import ResponseCode
from tests.fault.campaign.rig import QUEUES, TOPIC, Group
from tests.fault.talker import Talker, send_request
from tests.integration.group_sends import lost_with_its_master
from tests.rigs import JavaDriver, etcd, gather, wire
from tests.rigs.deliveries import check_queue_order
from tests.rigs.reports import SEND_OK, QueueName
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.compat,
    pytest.mark.skipif(bool(etcd.missing_tools()), reason=f"etcd cannot run here: {etcd.missing_tools()}"),
]

MESSAGES = 2_500
BEFORE = 200
POLL_MS = 500
PAUSE_MS = 100
"""After a send that failed, or a producer would be through with all of them before another broker leads."""
DEADLINE_S = 60.0
SENT_BACK_S = 120.0
"""A consumer that is sent back gives its queue up for 10 s, and takes it again when it balances queues next."""


@pytest.fixture
def group(tmp_path: Path, chance: random.Random) -> Iterator[Group]:
    with Group(tmp_path, chance, has_machines=False) as group:
        yield group


@pytest.fixture
def asynchronous(tmp_path: Path, chance: random.Random) -> Iterator[Group]:
    with Group(tmp_path, chance, has_machines=False, properties={"brokerRole": "ASYNC_MASTER"}) as group:
        group.await_in_sync(3)
        yield group


def send(broker: str, keys: Sequence[str]) -> None:
    """Send a message for each of *keys* to queue 0."""
    with Talker(broker) as talker:
        for key in keys:
            assert talker.call(send_request(TOPIC, 0, b"any", keys=key)).code == ResponseCode.SUCCESS


def readable(broker: str, places: Iterable[tuple[QueueName, int]]) -> bool:
    """Whether all these places of queues can be read."""
    lasts: dict[int, int] = {}
    for queue, offset in places:
        lasts[queue.queue_id] = max(offset, lasts.get(queue.queue_id, 0))
    return all(wire.max_offset(broker, TOPIC, queue_id) > last for queue_id, last in lasts.items())


def test_java_clients_go_on_with_another_master(group: Group, java: JavaDriver, tmp_path: Path) -> None:
    corpus = gather(tmp_path / "corpus.txt", MESSAGES)
    options = {"poll_ms": POLL_MS, "pause_ms": PAUSE_MS, "mode": "sync", "retries": 2}
    with (
        java.consumer(group.name_server, TOPIC, "G_failover", poll_ms=POLL_MS) as consumer,
        java.start_producer(group.name_server, TOPIC, corpus.path, **options) as producer,
    ):
        wait_until(lambda: consumer.count() >= BEFORE, DEADLINE_S, "messages arrive before the kill")
        killed = group.master_number()
        group.brokers[killed].kill()
        produced = producer.finish()
        told = {message.place: message.key for message in produced.sent if message.status == SEND_OK}
        assert group.master_number() != killed
        master = group.master().broker_address
        # What was acknowledged gets into the queues a moment later, and all that is stored besides was sent before it.
        wait_until(lambda: readable(master, told), DEADLINE_S, "what was acknowledged can be read")
        stored = sum(wire.max_offset(master, TOPIC, queue_id) for queue_id in range(QUEUES))
        wait_until(lambda: consumer.count() >= stored, DEADLINE_S, "all that is stored arrives")
        received = consumer.stop()

    assert len(told) == produced.accepted, "two messages have the same place"
    assert produced.sent[-1].status == SEND_OK, produced.sent[-1]
    assert check_queue_order(received) == set(range(QUEUES))
    arrived = {message.place: message.key for message in received}
    assert len(arrived) == len(received) == stored
    assert told.items() <= arrived.items()


@pytest.mark.slow
def test_a_java_consumer_that_has_read_what_is_lost_gets_everything_that_comes_instead(
    asynchronous: Group, java: JavaDriver
) -> None:
    group = asynchronous
    lost = [f"lost-{number}" for number in range(8)]
    kept = [f"kept-{number}" for number in range(len(lost) + 4)]
    with java.consumer(group.name_server, TOPIC, "G_ahead", poll_ms=POLL_MS) as consumer:
        # With each change of what it has it registers anew, and brokers that stand still could not look at that.
        wait_until(lambda: len(consumer.queues()) == QUEUES and consumer.retry_queues() == 1, DEADLINE_S, "it has all")
        send(group.master().broker_address, ["first"])
        wait_until(lambda: consumer.count() == 1, DEADLINE_S, "it reads")
        group.await_equal_ends()
        with lost_with_its_master(group) as master:
            send(master, lost)
            wait_until(lambda: consumer.count() == 1 + len(lost), DEADLINE_S, "it has read what is about to be lost")
        # By the time it comes there is something where it stands.
        send(group.master().broker_address, kept)
        wait_until(lambda: consumer.count() >= 1 + len(lost) + len(kept), SENT_BACK_S, "it is given what came instead")
        received = consumer.stop()
    assert {message.key for message in received} == {"first", *lost, *kept}
