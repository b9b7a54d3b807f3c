"""Where a group without offsets begins, in queues that have all their messages and in such that have lost the first.

A broker says 0 for a queue whose first message is there, as if that had been committed, so that a new group reads young
topics from their start whatever it asks for. Java's client is asked, and Apache's broker beside ours.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from mqcore.client import Client, ReceivedMessage
from mqcore.client.settings.classes import ConsumeFromWhere
from tests.rigs import ApacheServer, GoClient, JavaDriver, MqcoreBroker, RunningBroker, wire
from tests.rigs.go_client import queues_of_go
from tests.waiting import wait_until

pytestmark = pytest.mark.compat

LOG_FILE_SIZE = 64 << 10
YOUNG, AGED, SHARED = "Young", "Aged", "Shared"
MEMBERS = 3
"""And as many queues of the topic that they share."""

OLD_MESSAGES = 100
LATER_MESSAGES = 5
PROPERTIES = {"mappedFileSizeCommitLog": str(LOG_FILE_SIZE), "maxMessageSize": "32768"}
BODY = b"x" * 2000

WHERES = (
    # A pull from before the first message is corrected, and Java's client waits for ten seconds then.
    pytest.param("CONSUME_FROM_FIRST_OFFSET", marks=pytest.mark.slow),
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)


def send(broker: RunningBroker, topic: str, count: int, queue_id: int = 0) -> None:
    for _ in range(count):
        fields = {
            "producerGroup": "P", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": "1",
            "queueId": str(queue_id), "sysFlag": "0", "bornTimestamp": "0", "flag": "0", "properties": "",
            "reconsumeTimes": "0", "unitMode": "false", "batch": "false",
        }  # fmt: skip
        answer = wire.call(broker.broker_address, 10, fields, BODY)
        assert answer.code == wire.SUCCESS, answer.remark


def min_offset(broker: RunningBroker, topic: str, queue_id: int = 0) -> int:
    fields = {"topic": topic, "queueId": str(queue_id)}
    return int(wire.call(broker.broker_address, 31, fields).ext_fields["offset"])


def age(broker: MqcoreBroker | ApacheServer) -> None:
    """Fill a topic, and take away the first files of the commit log, as retention does after days; then a young one."""
    wire.create_topic(broker.broker_address, AGED, queues=1)
    wire.create_topic(broker.broker_address, SHARED, queues=MEMBERS)
    for _ in range(OLD_MESSAGES):
        send(broker, AGED, 1)
        for queue_id in range(MEMBERS):
            send(broker, SHARED, 1, queue_id)
    wait_until(lambda: wire.is_dispatched(broker.broker_address), describe="dispatched")
    (broker if isinstance(broker, MqcoreBroker) else broker.broker).stop()
    files = sorted((broker.store_dir / "commitlog").iterdir())
    for file in files[:4]:
        file.unlink()
    broker.start_again()
    wait_until(lambda: min_offset(broker, AGED) > 0, deadline_s=90, describe="the queue begins later")
    wire.create_topic(broker.broker_address, YOUNG, queues=1)
    send(broker, YOUNG, LATER_MESSAGES)
    wait_until(lambda: wire.is_dispatched(broker.broker_address), describe="dispatched")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with MqcoreBroker(tmp_path_factory.mktemp("begin") / "store", PROPERTIES) as broker:
        age(broker)
        yield broker


@pytest.mark.slow  # Apache's broker looks at the ends of its queues every ten seconds
def test_a_new_group_hears_where_to_begin_as_from_apaches_broker(broker: RunningBroker, tmp_path: Path) -> None:
    def answers(broker: RunningBroker) -> list[tuple[object, ...]]:
        asked = [{"consumerGroup": "New", "topic": topic, "queueId": "0"} for topic in (YOUNG, AGED, "NoSuchTopic")]
        found = [wire.call(broker.broker_address, wire.QUERY_CONSUMER_OFFSET, fields) for fields in asked]
        return [(answer.code, answer.remark, answer.ext_fields) for answer in found]

    with ApacheServer("4.9.8", tmp_path / "apache", PROPERTIES) as referee:
        age(referee)
        assert answers(broker) == answers(referee)
    assert [code for code, _, _ in answers(broker)] == [0, 22, 0]


@pytest.mark.parametrize("where", WHERES)
def test_java_begins_where_it_asks_to_in_an_aged_topic_and_at_the_start_of_a_young_one(
    broker: RunningBroker, java_4_9_8: JavaDriver, where: str
) -> None:
    moment = time.strftime("%Y%m%d%H%M%S", time.localtime(time.time() - 3600))
    options = {"from": where, "timestamp": moment, "poll_ms": 500}
    begin = {"CONSUME_FROM_LAST_OFFSET": OLD_MESSAGES}.get(where, min_offset(broker, AGED))
    with ExitStack() as stack:
        members = {
            topic: stack.enter_context(java_4_9_8.consumer(broker.name_server, topic, f"G_{where}_{topic}", **options))
            for topic in (YOUNG, AGED)
        }
        for member in members.values():
            wait_until(lambda member=member: len(member.queues()) == 1, 60, "has its queue")
        before = wire.max_offset(broker.broker_address, AGED, 0)
        send(broker, AGED, 1)
        wanted = {YOUNG: LATER_MESSAGES, AGED: before + 1 - (begin if begin != OLD_MESSAGES else before)}
        for topic, count in wanted.items():
            wait_until(lambda topic=topic, count=count: members[topic].count() >= count, 60, f"{count} of {topic}")
        first = {topic: min(message.queue_offset for message in member.stop()) for topic, member in members.items()}
    assert first == {YOUNG: 0, AGED: before if begin == OLD_MESSAGES else begin}


class PythonMember:
    """A member in this process, which notes where each message lies."""

    def __init__(
        self, name_server: str, topic: str, group: str, where: str, moment: datetime, stack: ExitStack
    ) -> None:
        self.seen: list[tuple[int, int]] = []
        self.mq = stack.enter_context(Client(name_server, route_refresh_interval_s=0.5))
        self._consumer = stack.enter_context(
            self.mq.consumer(
                group, topic, handler=self._handle, from_where=ConsumeFromWhere(where), from_timestamp=moment,
                rebalance_interval_s=0.5,
            )
        )  # fmt: skip

    def _handle(self, message: ReceivedMessage) -> None:
        self.seen.append((message.queue.queue_id, message.queue_offset))

    def queue_count(self) -> int:
        return len([queue for queue in self._consumer.queues if queue.topic == SHARED])


@pytest.mark.parametrize("where", WHERES)
def test_a_group_of_java_go_and_python_begins_where_it_asks_to(
    broker: RunningBroker, java_4_9_8: JavaDriver, go_client: GoClient, where: str
) -> None:
    """Each queue from where the group asked for, whoever has it; and each message once."""
    group = f"Mixed_{where}"
    moment = datetime.now() - timedelta(hours=1)
    options = {"from": where, "timestamp": moment.strftime("%Y%m%d%H%M%S")}
    before = [wire.max_offset(broker.broker_address, SHARED, queue_id) for queue_id in range(MEMBERS)]
    with ExitStack() as stack:
        java = stack.enter_context(java_4_9_8.consumer(broker.name_server, SHARED, group, poll_ms=500, **options))
        go = stack.enter_context(go_client.consumer(broker.name_server, SHARED, group, **options))
        python = PythonMember(broker.name_server, SHARED, group, where, moment, stack)
        # What they have is the third's then.
        wait_until(lambda: len(java.queues()) == 1 and python.queue_count() == 1, 120, "each has a queue")
        is_last = where == "CONSUME_FROM_LAST_OFFSET"
        if is_last:
            # Who asks for the end of its queue only now would begin behind what is sent now.
            wait_until(
                lambda: len(queues_of_go(python.mq, group, SHARED)) == 1, 120, "Go's member knows where it begins"
            )
        begin = [before[queue] if is_last else min_offset(broker, SHARED, queue) for queue in range(MEMBERS)]
        for queue_id in range(MEMBERS):
            send(broker, SHARED, 1, queue_id)
        wanted = {(queue, at) for queue in range(MEMBERS) for at in range(begin[queue], before[queue] + 1)}
        wait_until(lambda: java.count() + go.count() + len(python.seen) >= len(wanted), 120, f"{len(wanted)} messages")
        told = [(message.queue_id, message.queue_offset) for member in (java, go) for message in member.stop()]
    assert min(begin) > 0
    assert set(told + python.seen) == wanted
