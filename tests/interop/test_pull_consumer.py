"""mqcore's pull consumer shares groups with Apache's lite pull consumers, and goes on where they left."""

from __future__ import annotations

import hashlib
import threading

import pytest

from mqcore.client import Client, Message, Sql
from tests.rigs import (
    Corpus,
    JavaConsumer,
    JavaDriver,
    QueueName,
    ReceivedMessage,
    RunningBroker,
    StartBroker,
    gather,
    wire,
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
LINES = 4_000
TAGS = ("TagA", "TagB", "TagC")
DEADLINE_S = 120.0


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return gather(tmp_path_factory.mktemp("text") / "lines.txt", LINES)


class PythonMember:
    """A pull consumer that iterates in a thread of its own and reports as the Java driver does."""

    def __init__(self, broker: RunningBroker, topic: str) -> None:
        self._client = Client(broker.name_server)
        self._consumer = self._client.pull_consumer(
            f"G_{topic}", {topic: " || ".join(TAGS)}, from_where="earliest", auto_commit_interval_s=1
        )
        self.received: list[ReceivedMessage] = []
        self._consumer.start()
        self._thread = threading.Thread(target=self._work, name=f"member of G_{topic}")
        self._thread.start()

    def _work(self) -> None:
        """Closing counts everything that the iteration has given as done, so who has seen the count may stop this."""
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

    def queues(self) -> list[QueueName]:
        """The queues that this member holds now."""
        return [QueueName(queue.broker_name, queue.queue_id) for queue in self._consumer.assignment]

    def count(self) -> int:
        return len(self.received)

    def stop(self) -> list[ReceivedMessage]:
        """Leave the group in order and give the deliveries in their order."""
        self._client.close()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()
        return self.received


Member = PythonMember | JavaConsumer


def await_fair_shares(*members: Member) -> None:
    """Wait until the members share the queues evenly, each queue having one owner."""
    everything = [QueueName("broker-a", queue_id) for queue_id in range(QUEUES)]

    def is_fair() -> bool:
        shares = [member.queues() for member in members]
        return sorted(queue for share in shares for queue in share) == everything and all(
            len(share) == QUEUES // len(members) for share in shares
        )

    wait_until(is_fair, DEADLINE_S, "the members share the queues")


def await_deliveries(count: int, *members: Member) -> None:
    wait_until(lambda: sum(member.count() for member in members) >= count, DEADLINE_S, f"{count} deliveries")


def test_a_python_and_a_java_pull_consumer_share_a_group(
    mq_broker: RunningBroker, topic: str, text: Corpus, java: JavaDriver
) -> None:
    tags = " || ".join(TAGS)
    python = PythonMember(mq_broker, topic)
    try:
        with java.lite_consumer(mq_broker.name_server, topic, f"G_{topic}", tags=tags, poll_ms=1000) as other:
            await_fair_shares(python, other)
            sent = sent_by_key(java.produce(mq_broker.name_server, topic, text.path, tags=",".join(TAGS)))
            await_deliveries(text.count, python, other)
            parts = [list(python.received), other.stop()]
            wait_until(lambda: len(python.queues()) == QUEUES, DEADLINE_S, "the queues of the one that left")
    finally:
        python.stop()
    everything = [message for part in parts for message in part]
    check_each_exactly_once(sent, everything)
    check_intact(text.lines(), sent, everything)
    owned = [check_queue_order(part) for part in parts]
    assert sorted(queue for part in owned for queue in part) == list(range(QUEUES)), "each queue has one consumer"


def test_each_goes_on_where_the_other_left(
    mq_broker: RunningBroker, topic: str, text: Corpus, java_4_9_8: JavaDriver
) -> None:
    java = java_4_9_8
    group, tags = f"G_{topic}", ",".join(TAGS)
    received: list[ReceivedMessage] = []
    python = PythonMember(mq_broker, topic)
    try:
        java.produce(mq_broker.name_server, topic, text.path, count=500, tags=tags)
        await_deliveries(500, python)
    finally:
        received += python.stop()
    java.produce(mq_broker.name_server, topic, text.path, first=500, count=500, tags=tags)
    with java.lite_consumer(mq_broker.name_server, topic, group, tags=" || ".join(TAGS)) as other:
        await_deliveries(500, other)
        received += other.stop()
    # Java does not wait for the answer to its last commit.
    await_committed(mq_broker.broker_address, group, topic, QUEUES)
    java.produce(mq_broker.name_server, topic, text.path, first=1_000, count=500, tags=tags)
    python = PythonMember(mq_broker, topic)
    try:
        await_deliveries(500, python)
    finally:
        received += python.stop()
    check_each_exactly_once([f"L{line}" for line in range(1_500)], received)


def test_python_reads_a_group_of_push_consumers_without_joining(
    mq_broker: RunningBroker, topic: str, text: Corpus, java_4_9_8: JavaDriver
) -> None:
    group = f"G_{topic}"
    with java_4_9_8.consumer(mq_broker.name_server, topic, group) as other:
        await_fair_shares(other)
        with Client(mq_broker.name_server) as mq, mq.pull_consumer(f"R_{topic}", from_where="earliest") as reader:
            reader.assign(mq.queues(topic))
            java_4_9_8.produce(mq_broker.name_server, topic, text.path, count=300)
            seen: list[str] = []
            while len(seen) < 300:
                messages = reader.poll(DEADLINE_S)
                assert messages
                seen += [message.keys[0] for message in messages]
            await_deliveries(300, other)
            assert len(other.queues()) == QUEUES
    assert sorted(seen) == sorted(f"L{line}" for line in range(300))


def test_an_sql_expression_chooses_by_properties(start_broker: StartBroker) -> None:
    broker = start_broker({"enablePropertyFilter": "true"})
    wire.create_topic(broker.broker_address, "Priced", queues=2)
    wait_until(lambda: wire.has_route(broker.name_server, "Priced"), describe="route to Priced")
    with Client(broker.name_server) as mq:
        with mq.producer("P") as producer:
            for price in range(20):
                producer.send(Message("Priced", b"%d" % price, properties={"price": str(price)}))
        with mq.pull_consumer("C", {"Priced": Sql("price > 14 AND price <> 17")}, from_where="earliest") as consumer:
            found: list[int] = []
            while len(found) < 4:
                messages = consumer.poll(DEADLINE_S)
                assert messages
                found += [int(message.body) for message in messages]
    assert sorted(found) == [15, 16, 18, 19]
