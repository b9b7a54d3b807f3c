"""mqcore's Python client sends to Apache's Java clients, receives from them, and shares groups with them."""

from __future__ import annotations

import asyncio
import hashlib
import random
import threading
from collections import Counter
from collections.abc import Sequence

import pytest

from mqcore import aio
from mqcore.client import Client
from mqcore.client.errors import ClientClosedError
from mqcore.protocol.names import retry_topic
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
)
from tests.rigs.deliveries import (
    await_committed,
    check_each_exactly_once,
    check_intact,
    check_queue_order,
    sent_by_key,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.compat

QUEUES = 8
LISTENERS = ("concurrent", "orderly")
LINES = 1_500
COMMIT_INTERVAL_S = 0.5
TAGS = ("TagA", "TagB", "TagC")
UNDER_WAY_MAX = 200
ARRIVAL_DEADLINE_S = 120.0


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return gather(tmp_path_factory.mktemp("text") / "lines.txt", LINES)


class PythonMember:
    """A member of a group that iterates in a thread of its own and reports as the Java driver does.

    Each message is settled before it is counted, so that who has seen the count may let this member leave: what is in
    hand when a consumer closes comes again. The keys in *refuse* are refused when they come first.
    """

    def __init__(
        self,
        broker: RunningBroker,
        topic: str,
        *,
        orderly: bool = False,
        refuse: Sequence[str] = (),
        delay_level: int = 1,
    ) -> None:
        self._topic = topic
        self._refuse = set(refuse)
        self._delay_level = delay_level
        self._client = Client(broker.name_server, offset_commit_interval_s=COMMIT_INTERVAL_S)
        self._consumer = self._client.consumer(
            f"G_{topic}", {topic: " || ".join(TAGS)}, from_where="earliest", orderly=orderly, concurrency=QUEUES
        )
        self.received: list[ReceivedMessage] = []
        self._consumer.start()
        self._thread = threading.Thread(target=self._work, name=f"member of G_{topic}")
        self._thread.start()

    def _work(self) -> None:
        try:
            self._iterate()
        except ClientClosedError:
            """Closed between two messages: the second, unsettled and uncounted, comes again."""

    def _iterate(self) -> None:
        for message in self._consumer:
            (key,) = message.keys
            is_refused = key in self._refuse
            if is_refused:
                self._refuse.discard(key)
                message.nack(self._delay_level)
            else:
                message.ack()
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
                    outcome="refused" if is_refused else "iterated",
                    message_id=message.msg_id,
                )
            )

    @property
    def client_id(self) -> str:
        return self._client.client_id

    def queues(self) -> list[QueueName]:
        """The queues of the topic that this member holds now."""
        held = self._consumer.queues
        return [QueueName(queue.broker_name, queue.queue_id) for queue in held if queue.topic == self._topic]

    def retry_queues(self) -> int:
        """How many queues of the group's retry topic this member holds now."""
        return sum(queue.topic == retry_topic(self._consumer.group) for queue in self._consumer.queues)

    def count(self) -> int:
        return len(self.received)

    def refused(self) -> list[str]:
        """The keys refused so far."""
        return [message.key for message in list(self.received) if message.outcome == "refused"]

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


def await_retry_owner(members: Sequence[Member]) -> None:
    """Wait until the one queue of the retry topic belongs to whom it will belong from then on: the first of all."""
    first = min(member.client_id for member in members)
    wait_until(
        lambda: all(member.retry_queues() == (member.client_id == first) for member in members),
        ARRIVAL_DEADLINE_S,
        "the retry topic's queue belongs to the first member",
    )


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
        await_committed(mq_broker.broker_address, f"G_{topic}", topic, QUEUES, members)
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
        await_committed(mq_broker.broker_address, f"G_{topic}", topic, QUEUES)
    finally:
        parts = [member.stop() for member in members]
    check_promises(text, sent, parts)


@pytest.mark.parametrize("way", ["either", *(pytest.param(way, marks=pytest.mark.slow) for way in LISTENERS)])
def test_python_and_java_share_a_group(
    mq_broker: RunningBroker, topic: str, text: Corpus, java: JavaDriver, way: str, chance: random.Random
) -> None:
    listener = chance.choice(LISTENERS) if way == "either" else way
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
    mq_broker: RunningBroker, topic: str, text: Corpus, java: JavaDriver
) -> None:
    python = PythonMember(mq_broker, topic)
    first = java.produce(mq_broker.name_server, topic, text.path, count=700, tags=",".join(TAGS))
    await_deliveries([python], 700)
    received = python.stop()
    java.produce(mq_broker.name_server, topic, text.path, first=700, count=700, tags=",".join(TAGS))
    with java.consumer(mq_broker.name_server, topic, f"G_{topic}", tags=" || ".join(TAGS)) as other:
        await_deliveries([other], 700)
        received = [*received, *other.stop()]
    assert first.failures == 0
    check_each_exactly_once([f"L{line}" for line in range(1_400)], received)


def check_refused_came_again(received: Sequence[ReceivedMessage], refused: Sequence[str]) -> None:
    """Of 20 messages each came once, and the *refused* ones once more, marked as such."""
    times = Counter(message.key for message in received)
    assert times == Counter({f"L{line}": 1 + (f"L{line}" in refused) for line in range(20)})
    for key in refused:
        again = sorted((m.reconsume_times, m.topic, m.body_sha1) for m in received if m.key == key)
        assert [row[0] for row in again] == [0, 1]
        assert len({row[1:] for row in again}) == 1


def test_a_message_that_python_refused_comes_again_to_whoever_is_there(
    mq_broker: RunningBroker, topic: str, text: Corpus, java: JavaDriver
) -> None:
    """Messages go to a group that has settled, the retry topic's queue included.

    While that queue changes its owner, RocketMQ may give its messages to both: the new owner reads the group's offset
    as soon as it has heard of the change, and the old one commits when it has heard of it.
    """
    python = PythonMember(mq_broker, topic, refuse=[f"L{line}" for line in range(20)])
    try:
        with java.consumer(mq_broker.name_server, topic, f"G_{topic}", tags=" || ".join(TAGS), poll_ms=500) as other:
            await_fair_shares([python, other])
            await_retry_owner([python, other])
            java.produce(mq_broker.name_server, topic, text.path, count=20, tags=",".join(TAGS))
            # No count but the last one is as large as 20 and what Python has refused by then.
            wait_until(
                lambda: python.count() + other.count() >= 20 + len(python.refused()),
                ARRIVAL_DEADLINE_S,
                "all messages, and those again that were refused",
            )
            # Who stays takes over the queues of who leaves, before Java's last commit may have come.
            await_committed(mq_broker.broker_address, f"G_{topic}", topic, QUEUES, [other])
            await_committed(mq_broker.broker_address, f"G_{topic}", retry_topic(f"G_{topic}"), 1, [other])
            received = [*other.stop(), *python.stop()]
    finally:
        python.stop()
    assert python.refused()
    check_refused_came_again(received, python.refused())


def test_a_message_that_python_refused_comes_again_to_java_when_python_has_left(
    mq_broker: RunningBroker, topic: str, text: Corpus, java: JavaDriver
) -> None:
    """Python has left before Java joins, so nothing may come once more than it was refused."""
    python = PythonMember(mq_broker, topic, refuse=["L3", "L7"], delay_level=2)
    try:
        java.produce(mq_broker.name_server, topic, text.path, count=20, tags=",".join(TAGS))
        await_deliveries([python], 20)
    finally:
        received = python.stop()
    with java.consumer(mq_broker.name_server, topic, f"G_{topic}", tags=" || ".join(TAGS), poll_ms=500) as other:
        wait_until(lambda: len(received) + other.count() >= 22, ARRIVAL_DEADLINE_S, "the refused messages")
        received = [*received, *other.stop()]
    check_refused_came_again(received, ["L3", "L7"])
