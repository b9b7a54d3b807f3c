"""mqcore's Python client sends to Apache's Java clients, receives from them, and shares groups with them."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from mqcore import aio
from mqcore.client import Client
from tests.rigs import (
    Corpus,
    JavaConsumer,
    JavaDriver,
    Produced,
    QueueName,
    ReceivedMessage,
    RunningBroker,
    SentMessage,
    gather,
    wire,
)
from tests.rigs.deliveries import check_each_exactly_once, check_intact, check_queue_order, sent_by_key
from tests.waiting import wait_until

pytestmark = pytest.mark.compat

QUEUES = 8
LINES = 20_000
TAGS = ("TagA", "TagB", "TagC")
UNDER_WAY_MAX = 200
ARRIVAL_DEADLINE_S = 120.0


@pytest.fixture(params=["4.9.8", "5.3.3"])
def java(request: pytest.FixtureRequest) -> JavaDriver:
    """The client of each release in turn."""
    driver: JavaDriver = request.getfixturevalue(f"java_{request.param.replace('.', '_')}")
    return driver


@pytest.fixture
def topic(mq_broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    """A new topic with QUEUES queues, named after the test."""
    name = "".join(c if c.isalnum() else "_" for c in request.node.name)
    wire.create_topic(mq_broker.broker_address, name, queues=QUEUES)
    wait_until(lambda: wire.has_route(mq_broker.name_server, name), describe=f"route to {name}")
    return name


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return gather(tmp_path_factory.mktemp("text") / "lines.txt", LINES)


class PythonMember:
    """A member of a group that iterates in a thread of its own and reports as the Java driver does."""

    def __init__(self, broker: RunningBroker, topic: str, *, orderly: bool = False, refuse: Sequence[str] = ()) -> None:
        self._topic = topic
        self._refuse = set(refuse)
        self._client = Client(broker.name_server)
        self._consumer = self._client.consumer(
            f"G_{topic}", {topic: " || ".join(TAGS)}, from_where="earliest", orderly=orderly, concurrency=QUEUES
        )
        self.received: list[ReceivedMessage] = []
        self._consumer.start()
        self._thread = threading.Thread(target=self._work, name=f"member of G_{topic}")
        self._thread.start()

    def _work(self) -> None:
        for message in self._consumer:
            (key,) = message.keys
            self.received.append(
                ReceivedMessage(
                    key=key,
                    topic=message.topic,
                    queue_id=message.queue.queue_id,
                    queue_offset=message.queue_offset,
                    body_sha1=hashlib.sha1(message.body).hexdigest(),
                    body_size=len(message.body),
                    reconsume_times=message.reconsume_times,
                    broker=message.queue.broker_name,
                    tags=message.tag or "",
                    outcome="iterated",
                    message_id=message.msg_id,
                )
            )
            if key in self._refuse:
                self._refuse.discard(key)
                message.nack(1)

    def queues(self) -> list[QueueName]:
        """The queues of the topic that this member holds now."""
        held = self._consumer.queues
        return [QueueName(queue.broker_name, queue.queue_id) for queue in held if queue.topic == self._topic]

    def count(self) -> int:
        return len(self.received)

    def stop(self) -> list[ReceivedMessage]:
        """Leave the group in order and give the deliveries in their order."""
        self._client.close()
        self._thread.join(ARRIVAL_DEADLINE_S)
        assert not self._thread.is_alive()
        return self.received


Member = PythonMember | JavaConsumer


def await_fair_shares(members: Sequence[Member]) -> None:
    """Wait until the members share the queues evenly, each queue having one owner."""
    everything = [QueueName("broker-a", queue_id) for queue_id in range(QUEUES)]

    def is_fair() -> bool:
        shares = [member.queues() for member in members]
        return sorted(queue for share in shares for queue in share) == everything and all(
            len(share) == QUEUES // len(members) for share in shares
        )

    wait_until(is_fair, ARRIVAL_DEADLINE_S, "the members share the queues")


def await_deliveries(members: Sequence[Member], count: int) -> None:
    wait_until(lambda: sum(member.count() for member in members) >= count, ARRIVAL_DEADLINE_S, f"{count} deliveries")


def check_promises(text: Corpus, sent: dict[str, SentMessage], parts: Sequence[list[ReceivedMessage]]) -> None:
    """Each message came once, whole, with its tag, and each queue in order to one member."""
    everything = [message for part in parts for message in part]
    check_each_exactly_once(sent, everything)
    check_intact(text.lines(), sent, everything)
    assert all(message.tags == TAGS[int(message.key[1:]) % len(TAGS)] for message in everything)
    owned = [check_queue_order(part) for part in parts]
    assert sorted(queue for part in owned for queue in part) == list(range(QUEUES)), "each queue has one consumer"


async def produce(broker: RunningBroker, topic: str, lines: Sequence[bytes]) -> Produced:
    """Send *lines*, many at once, and report as the Java driver does."""
    places = asyncio.Semaphore(UNDER_WAY_MAX)

    async def send(producer: aio.Producer, number: int) -> SentMessage:
        key = f"L{number}"
        async with places:
            message = aio.Message(topic, lines[number], tag=TAGS[number % len(TAGS)], keys=[key])
            receipt = await producer.send(message, timeout_s=30)
        queue = receipt.queue
        return SentMessage(
            key,
            receipt.status.name,
            receipt.msg_id,
            receipt.offset_msg_id,
            queue.broker_name,
            queue.queue_id,
            receipt.offset,
        )

    async with aio.Client(broker.name_server) as mq, mq.producer("P") as producer:
        sent = await asyncio.gather(*(send(producer, number) for number in range(len(lines))))
    return Produced(len(lines), len(sent), 0, 0.0, list(sent))


def test_two_java_consumers_share_what_python_sends(
    mq_broker: RunningBroker, topic: str, text: Corpus, java_4_9_8: JavaDriver, java_5_3_3: JavaDriver
) -> None:
    members = [
        java.consumer(mq_broker.name_server, topic, f"G_{topic}", instance=java.version, tags=" || ".join(TAGS))
        for java in (java_4_9_8, java_5_3_3)
    ]
    with members[0], members[1]:
        await_fair_shares(members)
        sent = sent_by_key(asyncio.run(produce(mq_broker, topic, text.lines())))
        await_deliveries(members, text.count)
        parts = [member.stop() for member in members]
    check_promises(text, sent, parts)


def test_two_python_consumers_share_what_java_sends(
    mq_broker: RunningBroker, topic: str, text: Corpus, java: JavaDriver
) -> None:
    members = [PythonMember(mq_broker, topic) for _ in range(2)]
    try:
        await_fair_shares(members)
        sent = sent_by_key(java.produce(mq_broker.name_server, topic, text.path, tags=",".join(TAGS)))
        await_deliveries(members, text.count)
    finally:
        parts = [member.stop() for member in members]
    check_promises(text, sent, parts)


@pytest.mark.parametrize("listener", ["concurrent", "orderly"])
def test_python_and_java_share_a_group(
    mq_broker: RunningBroker, topic: str, text: Corpus, java: JavaDriver, listener: str
) -> None:
    python = PythonMember(mq_broker, topic, orderly=listener == "orderly")
    options = {"listener": listener} if listener == "orderly" else {}
    try:
        with java.consumer(mq_broker.name_server, topic, f"G_{topic}", tags=" || ".join(TAGS), **options) as other:
            await_fair_shares([python, other])
            sent = sent_by_key(java.produce(mq_broker.name_server, topic, text.path, tags=",".join(TAGS)))
            await_deliveries([python, other], text.count)
            parts = [list(python.received), other.stop()]
            wait_until(lambda: len(python.queues()) == QUEUES, ARRIVAL_DEADLINE_S, "the queues of the one that left")
    finally:
        python.stop()
    check_promises(text, sent, parts)


def test_java_goes_on_where_a_python_member_left(
    mq_broker: RunningBroker, topic: str, text: Corpus, java: JavaDriver, tmp_path: Path
) -> None:
    python = PythonMember(mq_broker, topic)
    first = java.produce(mq_broker.name_server, topic, text.path, count=1_000, tags=",".join(TAGS))
    await_deliveries([python], 1_000)
    received = python.stop()
    java.produce(mq_broker.name_server, topic, text.path, first=1_000, count=1_000, tags=",".join(TAGS))
    with java.consumer(mq_broker.name_server, topic, f"G_{topic}", tags=" || ".join(TAGS)) as other:
        await_deliveries([other], 1_000)
        received = [*received, *other.stop()]
    assert first.failures == 0
    check_each_exactly_once([f"L{line}" for line in range(2_000)], received)


def test_a_message_that_python_refused_comes_again_to_whoever_is_there(
    mq_broker: RunningBroker, topic: str, text: Corpus, java: JavaDriver
) -> None:
    python = PythonMember(mq_broker, topic, refuse=["L3", "L7"])
    java.produce(mq_broker.name_server, topic, text.path, count=20, tags=",".join(TAGS))
    await_deliveries([python], 20)
    try:
        with java.consumer(mq_broker.name_server, topic, f"G_{topic}", tags=" || ".join(TAGS), poll_ms=500) as other:
            await_deliveries([python, other], 22)
            received = [*other.stop(), *python.stop()]
    finally:
        python.stop()
    times = Counter(message.key for message in received)
    assert times == Counter({f"L{line}": 2 if line in (3, 7) else 1 for line in range(20)})
    for key in ("L3", "L7"):
        again = sorted((m.reconsume_times, m.topic, m.body_sha1) for m in received if m.key == key)
        assert [row[0] for row in again] == [0, 1]
        assert len({row[1:] for row in again}) == 1
