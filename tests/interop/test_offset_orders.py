"""Offsets moved by operators: reset while members are online or not, one queue alone, skipped, cloned; and messages
given to one member by hand. Every order is mqadmin's, the members are Java, Go and Python.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from mqcore.client import Client, Message
from tests.rigs import GoClient, JavaDriver, Mqadmin, RunningBroker, wire
from tests.waiting import wait_until

pytestmark = pytest.mark.compat

QUEUES = 6
MESSAGES = 60
DEADLINE_S = 90.0


class PythonMember:
    """A member in this process."""

    def __init__(self, name_server: str, topic: str, group: str, stack: ExitStack) -> None:
        self._lock = threading.Lock()
        self._count = 0
        mq = stack.enter_context(Client(name_server, route_refresh_interval_s=0.5))
        stack.enter_context(
            mq.consumer(group, topic, handler=self._handle, from_where="earliest", rebalance_interval_s=0.5)
        )
        self.client_id = mq.client_id

    def _handle(self, _message: object) -> None:
        with self._lock:
            self._count += 1

    def count(self) -> int:
        return self._count


def fill(broker: RunningBroker, topic: str, count: int = MESSAGES) -> list[str]:
    """Send messages to all queues in turn; gives their offset ids."""
    with Client(broker.name_server) as mq, mq.producer("P") as producer:
        receipts = [producer.send(Message(topic, b"%d" % number)) for number in range(count)]
    return [receipt.offset_msg_id for receipt in receipts]


def committed(broker: RunningBroker, group: str, topic: str) -> list[int | None]:
    return [wire.consumer_offset(broker.broker_address, group, topic, queue_id) for queue_id in range(QUEUES)]


def commit_all(broker: RunningBroker, group: str, topic: str) -> list[int]:
    """Commit the end of every queue, as members do in time; gives the ends."""
    wait_until(lambda: wire.is_dispatched(broker.broker_address), describe="dispatched")
    ends = [wire.max_offset(broker.broker_address, topic, queue_id) for queue_id in range(QUEUES)]
    for queue_id, end in enumerate(ends):
        wire.commit_offset(broker.broker_address, group, topic, queue_id, end)
    return ends


@pytest.mark.slow  # Java's and Go's clients wait for ten seconds before they begin anew
def test_members_of_all_languages_read_again_after_a_reset(
    mq_broker: RunningBroker, topic: str, java_4_9_8: JavaDriver, go_client: GoClient, mqadmin_4_9_8: Mqadmin
) -> None:
    group = f"G_{topic}"
    fill(mq_broker, topic)
    with ExitStack() as stack:
        java = stack.enter_context(java_4_9_8.consumer(mq_broker.name_server, topic, group, poll_ms=500))
        go = stack.enter_context(go_client.consumer(mq_broker.name_server, topic, group))
        members = (java, go, PythonMember(mq_broker.name_server, topic, group, stack))
        wait_until(lambda: sum(member.count() for member in members) >= MESSAGES, DEADLINE_S, "all consumed")
        fill(mq_broker, topic)  # now that they have shared out the queues
        wait_until(lambda: sum(member.count() for member in members) >= 2 * MESSAGES, DEADLINE_S, "all consumed")
        commit_all(mq_broker, group, topic)
        before = [member.count() for member in members]
        printed = mqadmin_4_9_8.run(mq_broker.name_server, "resetOffsetByTime", "-g", group, "-t", topic, "-s", "1")
        assert printed.text.count("broker-a") == QUEUES, printed.text
        wait_until(
            lambda: sum(member.count() for member in members) >= sum(before) + 2 * MESSAGES, DEADLINE_S, "all again"
        )
        assert all(member.count() > then for member, then in zip(members, before, strict=True))


@pytest.fixture(params=["4.9.8", pytest.param("5.3.3", marks=pytest.mark.slow)])
def mqadmin(request: pytest.FixtureRequest) -> Mqadmin:
    tool: Mqadmin = request.getfixturevalue(f"mqadmin_{request.param.replace('.', '_')}")
    return tool


@pytest.fixture
def offline(mq_broker: RunningBroker, topic: str) -> Callable[[str], list[int]]:
    """Makes a group that has read everything and gone."""
    fill(mq_broker, topic)

    def make(group: str) -> list[int]:
        return commit_all(mq_broker, group, topic)

    return make


def test_a_group_that_is_offline_is_reset(
    mq_broker: RunningBroker, topic: str, mqadmin: Mqadmin, offline: Callable[[str], list[int]]
) -> None:
    group = f"G_{topic}"
    offline(group)
    # Release 5 asks for the group's configuration first.
    mqadmin.run(mq_broker.name_server, "updateSubGroup", "-b", mq_broker.broker_address, "-g", group)
    mqadmin.run(mq_broker.name_server, "resetOffsetByTime", "-g", group, "-t", topic, "-s", "1")
    assert committed(mq_broker, group, topic) == [0] * QUEUES


def test_what_has_piled_up_is_skipped(
    mq_broker: RunningBroker, topic: str, mqadmin: Mqadmin, offline: Callable[[str], list[int]]
) -> None:
    group = f"G_{topic}"
    ends = offline(group)
    for queue_id in range(QUEUES):
        wire.commit_offset(mq_broker.broker_address, group, topic, queue_id, 1)
    printed = mqadmin.run(mq_broker.name_server, "skipAccumulatedMessage", "-g", group, "-t", topic)
    assert committed(mq_broker, group, topic) == ends, printed.text


def test_offsets_are_cloned(
    mq_broker: RunningBroker, topic: str, mqadmin: Mqadmin, offline: Callable[[str], list[int]]
) -> None:
    source, target = f"G_{topic}", f"H_{topic}"
    ends = offline(source)
    for group in (source, target):
        wire.create_topic(mq_broker.broker_address, f"%RETRY%{group}", queues=1)
    wait_until(lambda: wire.has_route(mq_broker.name_server, f"%RETRY%{source}"), describe="route of the retry topic")
    order = ("cloneGroupOffset", "-s", source, "-d", target, "-t", topic, "-o", "true")
    printed = mqadmin.run(mq_broker.name_server, *order)
    assert committed(mq_broker, target, topic) == ends, printed.text


def test_one_queue_is_reset_to_an_offset(
    mq_broker: RunningBroker, topic: str, mqadmin_5_3_3: Mqadmin, offline: Callable[[str], list[int]]
) -> None:
    """Only release 5 can say so; a broker of 4.9 would reset all queues by time."""
    group = f"G_{topic}"
    ends = offline(group)
    order = ("resetOffsetByTime", "-g", group, "-t", topic, "-s", "-1", "-b", mq_broker.broker_address, "-q", "2")
    printed = mqadmin_5_3_3.run(mq_broker.name_server, *order, "-o", "3")
    assert committed(mq_broker, group, topic) == [*ends[:2], 3, *ends[3:]], printed.text


def test_a_message_is_given_to_one_member_by_hand(
    mq_broker: RunningBroker, topic: str, java_5_3_3: JavaDriver, go_client: GoClient, mqadmin_4_9_8: Mqadmin
) -> None:
    """Nothing else is consumed, and no offset moves."""
    group = f"G_{topic}"
    ids = fill(mq_broker, topic)
    ends = commit_all(mq_broker, group, topic)
    with ExitStack() as stack:
        java = stack.enter_context(java_5_3_3.consumer(mq_broker.name_server, topic, group))
        go = stack.enter_context(go_client.consumer(mq_broker.name_server, topic, group))
        python = PythonMember(mq_broker.name_server, topic, group, stack)
        names = {info["clientId"] for info in connections(mq_broker, group)}
        (go_name,) = names - {java.client_id, python.client_id}
        orders = [("queryMsgById", "-i", ids[5], "-g", group, "-d", name) for name in
                  (java.client_id, go_name, python.client_id)]  # fmt: skip
        printed = mqadmin_4_9_8.run_all(mq_broker.name_server, orders)
        assert ["CR_SUCCESS" in output.text for output in printed] == [True] * 3, [output.text for output in printed]
        assert [member.count() for member in (java, go, python)] == [1, 1, 1]
        assert committed(mq_broker, group, topic) == ends


def connections(broker: RunningBroker, group: str) -> list[dict[str, str]]:
    answer = wire.call(broker.broker_address, 203, {"consumerGroup": group})
    members: list[dict[str, str]] = answer.json()["connectionSet"]
    return members
