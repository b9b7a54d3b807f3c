"""Messages that wait for a time, between others' clients and ours: each comes once, to one member, near its time.

Apache's client 5.3.3 asks for it by its methods, 4.9.8, which does not know timers, by properties that an application
sets; ours by delay and deliver_at. The group has members of both releases, in Go and in Python, and what is taken back
comes to none of them.
"""

from __future__ import annotations

import base64
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from mqcore.client import Client, Message, Producer
from mqcore.errors import ArgumentError
from tests.rigs import GoClient, JavaConsumer, JavaDriver, ReceivedMessage, RunningBroker, start_broker_under_test
from tests.rigs.go_client import queues_of_go
from tests.rigs.process import Child
from tests.rigs.talkers import arguments
from tests.rigs.under_test import chosen_broker, make_topic
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.compat,
    pytest.mark.skipif(chosen_broker() == "apache", reason="RocketMQ 4.9 knows no timers"),
]

QUEUES = 8
EACH = 9
AHEAD_MS = 3_000
RECALL_AHEAD_MS = 20_000
"""Enough for a busy machine to take a message back before it is due."""
ARRIVAL_DEADLINE_S = 90.0
LATE_MS = 30_000
"""A loaded machine may be so late; how late an idle one is, the benchmark says."""
EARLY_MS = 0


class Timed(NamedTuple):
    """A message that waits: its key, which is its body too, and when it is due, ms."""

    key: str
    due: int


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    store = tmp_path_factory.mktemp("timers") / "store"
    with start_broker_under_test(store, {"recallMessageEnable": "true"}) as made:
        yield made
        made.stop()


@pytest.fixture
def python_member(broker: RunningBroker, topic: str, tmp_path: Path) -> Iterator[JavaConsumer]:
    report = tmp_path / "python.tsv"
    options = {
        "name_server": broker.name_server, "topic": topic, "group": f"G_{topic}", "report": report, "poll_ms": 1000,
    }  # fmt: skip
    child = Child(
        [sys.executable, "-m", "tests.interop.python_member", *arguments(options)],
        log=tmp_path / "python.log",
        talks=True,
    )
    with JavaConsumer(child, report) as member:
        yield member


@pytest.fixture
def topic(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    return make_topic(broker, request.node.name, QUEUES)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def send_ours(producer: Producer, topic: str) -> Iterator[Timed]:
    for number in range(EACH):
        due = now_ms() + AHEAD_MS
        key = f"P{number}"
        when = {"delay": timedelta(milliseconds=AHEAD_MS)} if number % 2 else {"deliver_at": due}
        producer.send(Message(topic, key.encode(), keys=[key], **when))  # type: ignore[arg-type]
        yield Timed(key, due)


def store_times(broker: RunningBroker, topic: str, count: int) -> dict[str, int]:
    """By key, when the broker put each of *count* messages into the topic, ms."""
    found: dict[str, int] = {}
    with (
        Client(broker.name_server) as mq,
        mq.pull_consumer(f"times-{topic}", topic, from_where="earliest") as consumer,
    ):
        deadline = time.monotonic() + ARRIVAL_DEADLINE_S
        while len(found) < count and time.monotonic() < deadline:
            found |= {message.body.decode(): message.store_timestamp for message in consumer.poll(timeout_s=0.5)}
    return found


def test_a_group_of_all_clients_gets_each_message_once_near_its_time(
    broker: RunningBroker,
    topic: str,
    java_4_9_8: JavaDriver,
    java_5_3_3: JavaDriver,
    go_client: GoClient,
    python_member: JavaConsumer,
) -> None:
    server, group = broker.name_server, f"G_{topic}"
    timed: list[Timed] = []
    gone: set[str] = set()
    with ExitStack() as stack:
        old = stack.enter_context(java_4_9_8.consumer(server, topic, group, poll_ms=1000))
        new = stack.enter_context(java_5_3_3.consumer(server, topic, group, poll_ms=1000))
        go = stack.enter_context(go_client.consumer(server, topic, group))
        members = [old, new, python_member]
        mq = stack.enter_context(Client(server))

        def all_have_queues() -> bool:
            held = [queue.queue_id for member in members for queue in member.queues()]
            # Go looks at its share when it is told to, or every 20 s: until then it has what the others have got since.
            held += queues_of_go(mq, group, topic)
            return sorted(held) == list(range(QUEUES)) and all(member.queues() for member in members)

        wait_until(all_have_queues, ARRIVAL_DEADLINE_S, "each member has a quarter of the queues")
        producer = stack.enter_context(mq.producer(f"P_{topic}"))
        # The first message that waits starts what delivers them.
        producer.send(Message(topic, b"P-first", keys=["P-first"], delay=1.5))
        timed.append(Timed("P-first", 0))
        for prefix, driver in (("old", java_4_9_8), ("new", java_5_3_3)):
            sender = stack.enter_context(driver.timed(server, topic, prefix=prefix, count=EACH, delay_ms=AHEAD_MS))
            timed += [Timed(one["key"], one["due"]) for one in sender.sent]
            assert all((one["handle"] is None) == (prefix == "old") for one in sender.sent)
        timed += send_ours(producer, topic)

        recaller = stack.enter_context(
            java_5_3_3.timed(server, topic, prefix="back", count=2, delay_ms=RECALL_AHEAD_MS)
        )
        first, second = recaller.sent
        assert recaller.recall(first["key"]) == first["id"]
        gone.add(first["key"])
        # A handle is anybody's who has it: what Java sent, we take back; and what we sent ourselves.
        assert producer.recall(topic, second["handle"]) == second["id"]
        gone.add(second["key"])
        mine = producer.send(Message(topic, b"P-back", keys=["P-back"], delay=RECALL_AHEAD_MS / 1000))
        assert mine.recall_handle is not None
        assert base64.urlsafe_b64decode(mine.recall_handle).decode().split(" ")[1:3] == [topic, "broker-a"]
        assert producer.recall(topic, mine.recall_handle) == mine.msg_id
        gone.add("P-back")
        with pytest.raises(ArgumentError, match="no recall handle"):
            producer.recall(topic, "nonsense")
        # Due with what is taken back, and sent later: when it is there, nothing else comes.
        producer.send(Message(topic, b"P-last", keys=["P-last"], delay=RECALL_AHEAD_MS / 1000 + 1))
        timed.append(Timed("P-last", 0))

        counts = [*members, go]
        wait_until(
            lambda: sum(member.count() for member in counts) >= len(timed), ARRIVAL_DEADLINE_S, "all messages came"
        )
        received: list[ReceivedMessage] = [message for member in counts for message in member.stop()]
    keys = [message.key for message in received]
    assert sorted(keys) == sorted(one.key for one in timed)
    assert not gone & set(keys)
    assert all(message.body_size == len(message.key) for message in received)
    times = store_times(broker, topic, len(timed))
    late = {one.key: times[one.key] - one.due for one in timed if one.due}
    assert {key: value for key, value in late.items() if not EARLY_MS <= value < LATE_MS} == {}
    print("late, ms:", sorted(late.values()))


def test_our_client_warns_when_a_broker_ignores_a_timer(
    shared_apache: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """RocketMQ 4.9 delivers at once; the message is stored, so that an error would only have it sent again."""
    topic = make_topic(shared_apache, "ignored_timers", 1)
    with caplog.at_level(logging.WARNING), Client(shared_apache.name_server) as mq, mq.producer("P") as producer:
        producer.send(Message(topic, b"past", deliver_at=1))
        producer.send(Message(topic, b"level", delay_level=3))
        assert [record for record in caplog.records if "timers" in record.message] == []
        receipt = producer.send(Message(topic, b"ignored", delay=90))
        producer.send(Message(topic, b"ignored too", delay=90))
    assert receipt.recall_handle is None
    (warning,) = [record for record in caplog.records if "timers" in record.message]
    assert "delivered at once" in warning.message
    assert f"topic={topic}" in warning.message
    assert "version=V4_9_8" in warning.message
