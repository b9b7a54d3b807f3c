"""``mqcore top`` over Apache's broker: all but its processes and latencies."""

from __future__ import annotations

from mqcore.client import Client, Message
from tests.integration.client_helpers import make_topic
from tests.rigs import RunningBroker
from tests.rigs.command_line import CommandLine
from tests.waiting import wait_until

STORED, CONSUMED = 9, 4


def test_an_apache_broker_is_watched(shared_apache: RunningBroker) -> None:
    topic, group = make_topic(shared_apache, "watched", 1), "watchers"
    with Client(shared_apache.name_server) as mq:
        mq.admin.create_group(group)
        with mq.producer("P") as producer:
            for number in range(STORED):
                producer.send(Message(topic, b"%d" % number))
        (queue,) = mq.queues(topic)
        mq.admin.set_offset(group, queue, CONSUMED)
    line = CommandLine(shared_apache.name_server)

    def is_seen() -> bool:
        found = line.json("top", "--once", "--every", "0.2")
        return any(row["group"] == group and row["lag"] == STORED - CONSUMED for row in found["groups"])

    wait_until(is_seen, 60, "the group is seen")
    found = line.json("top", "--once", "--every", "0.2")
    assert found["errors"] == []
    (broker,) = found["brokers"]
    assert broker["address"] == shared_apache.broker_address
    assert broker["inRate"] == 0
    assert 0 < broker["diskRatio"] < 1
    assert (broker["sendP99Ms"], broker["pullP99Ms"], found["processes"]) == (None, None, [])
    assert [row["messages"] for row in found["topics"] if row["topic"] == topic] == [STORED]
    assert [row["role"] for row in found["replicas"]] == ["master"]
