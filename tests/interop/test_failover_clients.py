"""Apache's Java clients, which know nothing of groups, send and receive while a group gets another master."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.fault.campaign.rig import QUEUES, TOPIC, Group
from tests.rigs import JavaDriver, etcd, gather, wire
from tests.rigs.deliveries import check_queue_order
from tests.rigs.reports import SEND_OK, QueueName
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.compat,
    pytest.mark.skipif(bool(etcd.missing_tools()), reason=f"etcd cannot run here: {etcd.missing_tools()}"),
]

MESSAGES = 5_000
BEFORE = 200
POLL_MS = 500
PAUSE_MS = 100
"""After a send that failed, or a producer would be through with all of them before another broker leads."""
DEADLINE_S = 60.0


@pytest.fixture
def group(tmp_path: Path, chance: random.Random) -> Iterator[Group]:
    with Group(tmp_path, chance, has_machines=False) as group:
        yield group


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
