"""Where a group without offsets begins, in queues that have all their messages and in such that have lost the first.

A broker says 0 for a queue whose first message is there, as if that had been committed, so that a new group reads young
topics from their start whatever it asks for. Java's client is asked, and Apache's broker beside ours.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.rigs import ApacheServer, JavaDriver, MqcoreBroker, RunningBroker, wire
from tests.waiting import wait_until

pytestmark = pytest.mark.compat

LOG_FILE_SIZE = 64 << 10
YOUNG, AGED = "Young", "Aged"
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


def send(broker: RunningBroker, topic: str, count: int) -> None:
    for _ in range(count):
        fields = {
            "producerGroup": "P", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": "1",
            "queueId": "0", "sysFlag": "0", "bornTimestamp": "0", "flag": "0", "properties": "", "reconsumeTimes": "0",
            "unitMode": "false", "batch": "false",
        }  # fmt: skip
        answer = wire.call(broker.broker_address, 10, fields, BODY)
        assert answer.code == wire.SUCCESS, answer.remark


def min_offset(broker: RunningBroker, topic: str) -> int:
    return int(wire.call(broker.broker_address, 31, {"topic": topic, "queueId": "0"}).ext_fields["offset"])


def age(broker: MqcoreBroker | ApacheServer) -> None:
    """Fill a topic, and take away the first files of the commit log, as retention does after days; then a young one."""
    wire.create_topic(broker.broker_address, AGED, queues=1)
    send(broker, AGED, OLD_MESSAGES)
    wait_until(lambda: wire.is_dispatched(broker.broker_address), describe="dispatched")
    (broker if isinstance(broker, MqcoreBroker) else broker.broker).stop()
    files = sorted((broker.store_dir / "commitlog").iterdir())
    for file in files[:2]:
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
