"""What a broker knows of groups and names beyond their messages: quarrels, units, namespaces, the system's topics."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from mqcore.codes import PullSysFlag, RequestCode, ResponseCode
from mqcore.protocol import headers
from mqcore.protocol.bodies import ConsumerConnection, ConsumerData, HeartbeatData, SubscriptionData
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.names import SCHEDULE_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from tests.fault.talker import Talker, send_request
from tests.integration.client_helpers import running_broker
from tests.rigs import RunningBroker, wire
from tests.waiting import wait_until

GET_UNIT_SUBSCRIBER_TOPICS = 312
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Members may differ for no time, and transactions are looked for at once."""
    settings = {"subscriptionConflictMillis": "0", "transactionCheckInterval": "200"}
    yield from running_broker(tmp_path_factory.mktemp("groups"), settings)


@pytest.fixture
def talkers(broker: RunningBroker) -> Iterator[tuple[Talker, Talker]]:
    with Talker(broker.broker_address) as one, Talker(broker.broker_address) as other:
        yield one, other


def beat(talker: Talker, client_id: str, group: str, topic: str, tags: str = "*", *, unit_mode: bool = False) -> str:
    """Be a member; what the broker remarks."""
    wanted = SubscriptionData.build(topic, tags, sub_version=time.time_ns() // 1_000_000)
    member = ConsumerData(group, subscription_data_set=[wanted], unit_mode=unit_mode)
    request = RemotingCommand(RequestCode.HEART_BEAT, body=HeartbeatData(client_id, [], [member]).encode())
    answer = talker.call(request)
    assert answer.code == ResponseCode.SUCCESS
    return answer.remark or ""


def conflict_of(broker: RunningBroker, group: str) -> str | None:
    answer = wire.call(broker.broker_address, RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group})
    shown = ConsumerConnection.decode(answer.body).subscription_conflict
    return None if shown is None else str(shown)


def runtime_table(broker: RunningBroker) -> dict[str, str]:
    table: dict[str, str] = wire.call(broker.broker_address, wire.GET_BROKER_RUNTIME_INFO).json()["table"]
    return table


def test_members_that_subscribe_differently_are_told_shown_and_counted(
    broker: RunningBroker, talkers: tuple[Talker, Talker]
) -> None:
    one, other = talkers
    wire.create_topic(broker.broker_address, "Quarrels", queues=1)
    assert beat(one, "one", "quarrel", "Quarrels") == ""
    assert not any(key.startswith("subscription") for key in runtime_table(broker))
    remark = beat(other, "other", "quarrel", "Quarrels", "TagA")
    assert all(words in remark for words in ("[one] wants [TAG *]", "[other] wants [TAG TagA]"))
    assert conflict_of(broker, "quarrel") is not None
    table = runtime_table(broker)
    assert (table["subscriptionConflictTotal"], table["subscriptionConflictGroups"]) == ("1", "quarrel")
    assert beat(other, "other", "quarrel", "Quarrels") == ""
    assert conflict_of(broker, "quarrel") is None
    table = runtime_table(broker)
    assert (table["subscriptionConflictTotal"], table["subscriptionConflictGroups"]) == ("1", "")


def test_a_member_whose_topic_another_has_taken_away_hears_why(
    broker: RunningBroker, talkers: tuple[Talker, Talker]
) -> None:
    one, other = talkers
    for topic in ("Mine", "Yours"):
        wire.create_topic(broker.broker_address, topic, queues=1)
    beat(one, "one", "thieves", "Mine")
    beat(other, "other", "thieves", "Yours")
    fields = headers.encode_request(
        RequestCode.PULL_MESSAGE, consumer_group="thieves", topic="Mine", queue_id=0, queue_offset=0, max_msg_nums=32,
        sys_flag=int(PullSysFlag.SUSPEND), commit_offset=0, suspend_timeout_millis=1000, subscription=None,
        sub_version=0, expression_type="TAG",
    )  # fmt: skip
    answer = one.call(RemotingCommand(RequestCode.PULL_MESSAGE, ext_fields=fields))
    assert answer.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    assert "[other] wants" in (answer.remark or "")


def test_the_retry_topic_of_a_group_of_a_unit_is_marked_and_listed(
    broker: RunningBroker, talkers: tuple[Talker, Talker]
) -> None:
    wire.create_topic(broker.broker_address, "Units", queues=1)
    beat(talkers[0], "one", "unit_group", "Units", unit_mode=True)
    beat(talkers[1], "other", "plain_group", "Units")

    def listed() -> list[str]:
        return wire.call(broker.name_server, GET_UNIT_SUBSCRIBER_TOPICS).json().get("topicList") or []

    wait_until(lambda: "%RETRY%unit_group" in listed(), DEADLINE_S, "the topic is listed")
    assert "%RETRY%plain_group" not in listed()


def test_groups_of_two_namespaces_do_not_know_each_other(broker: RunningBroker, talkers: tuple[Talker, Talker]) -> None:
    """To a broker a namespace is a part of names: topics, groups and retry topics of each are its own."""
    for namespace, talker in zip(("first", "second"), talkers, strict=True):
        topic, group = f"{namespace}%Orders", f"{namespace}%billing"
        wire.create_topic(broker.broker_address, topic, queues=1)
        beat(talker, namespace, group, topic)
        assert talker.call(send_request(topic, 0, namespace.encode())).code == ResponseCode.SUCCESS
        assert wire.has_route(broker.name_server, f"%RETRY%{group}")
    wait_until(lambda: wire.is_dispatched(broker.broker_address), DEADLINE_S, "all is dispatched")
    for namespace in ("first", "second"):
        assert wire.max_offset(broker.broker_address, f"{namespace}%Orders", 0) == 1
        members = wire.call(
            broker.broker_address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": f"{namespace}%billing"}
        )
        assert members.json()["consumerIdList"] == [namespace]


def test_the_topics_of_the_system_are_there_and_clients_may_not_send_to_its_own(
    broker: RunningBroker, talkers: tuple[Talker, Talker]
) -> None:
    answer = wire.call(broker.broker_address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    known = set(answer.json()["topicList"])
    assert {SCHEDULE_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC, "TBW102", "OFFSET_MOVED_EVENT"} <= known
    # As with RocketMQ, the half topic has a route from the first look for open transactions on.
    wait_until(lambda: wire.has_route(broker.name_server, TRANS_HALF_TOPIC), DEADLINE_S, "the half topic")
    for topic in (SCHEDULE_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC, "OFFSET_MOVED_EVENT"):
        refused = talkers[0].call(send_request(topic, 0, b"not for clients"))
        assert refused.code == ResponseCode.NO_PERMISSION
        assert refused.remark == f"Sending message to topic[{topic}] is forbidden."
