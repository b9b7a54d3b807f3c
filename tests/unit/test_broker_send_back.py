"""Messages that a consumer sends back: the retry topic, the levels, and the dead letters."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_ports import BrokerRig

from mqcore.broker.ports import PutStatus
from mqcore.codes import MQVersion, RequestCode
from mqcore.protocol.bodies import SubscriptionGroupConfig
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.message import MessageExt


@pytest.fixture
async def rig(tmp_path: Path) -> BrokerRig:
    rig = BrokerRig(tmp_path)
    await rig.create_topic("orders")
    await rig.send("orders", b"body")
    return rig


async def send_back(rig: BrokerRig, version: int = MQVersion.V4_9_8, **changes: object) -> RemotingCommand:
    ext: dict[str, object] = {"offset": 0, "group": "g", "delayLevel": 0, "originTopic": "orders", "unitMode": False}
    return await rig.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ext | changes, version=version)


def delayed(rig: BrokerRig, level: int) -> list[MessageExt]:
    return rig.store.messages("SCHEDULE_TOPIC_XXXX", level - 1)


async def test_the_first_retry_waits_at_level_three(rig: BrokerRig) -> None:
    original = rig.store.messages("orders")[0]
    reply = await send_back(rig)
    assert (reply.code, reply.remark, reply.ext_fields, reply.body) == (0, None, None, b"")
    (message,) = delayed(rig, 3)
    assert message.body == b"body"
    assert message.reconsume_times == 1
    assert message.born_timestamp == original.born_timestamp
    assert message.born_host == original.born_host
    assert message.properties == {
        "TAGS": "TagA",
        "KEYS": "k1",
        "CLUSTER": "DefaultCluster",
        "RETRY_TOPIC": "orders",
        "WAIT": "false",
        "ORIGIN_MESSAGE_ID": original.offset_msg_id,
        "DELAY": "3",
        "REAL_TOPIC": "%RETRY%g",
        "REAL_QID": "0",
    }
    config = rig.broker.topics.find("%RETRY%g")
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)
    assert rig.store.puts[-1].wait_store_ok is False


async def test_an_explicit_level_is_obeyed(rig: BrokerRig) -> None:
    await send_back(rig, delayLevel=2)
    assert len(delayed(rig, 2)) == 1


async def test_a_message_keeps_its_first_topic_and_id_over_many_retries(rig: BrokerRig) -> None:
    await send_back(rig, delayLevel=1)
    first = delayed(rig, 1)[0]
    await send_back(rig, offset=first.physical_offset)
    second = delayed(rig, 4)[0]
    assert second.reconsume_times == 2
    assert second.properties["RETRY_TOPIC"] == "orders"
    assert second.properties["ORIGIN_MESSAGE_ID"] == first.properties["ORIGIN_MESSAGE_ID"]


@pytest.mark.parametrize(
    ("changes", "version"),
    [
        ({"delayLevel": -1}, MQVersion.V4_9_8),
        ({"maxReconsumeTimes": 0}, MQVersion.V4_9_8),
    ],
)
async def test_dead_letters(rig: BrokerRig, changes: dict[str, object], version: int) -> None:
    reply = await send_back(rig, version, **changes)
    assert reply.code == 0
    (message,) = rig.store.messages("%DLQ%g")
    assert message.reconsume_times == 1
    assert message.properties["DELAY"] == "0"
    assert rig.broker.topics.find("%DLQ%g") is not None


async def test_the_limit_of_an_old_clients_header_is_not_honoured(rig: BrokerRig) -> None:
    await send_back(rig, MQVersion.V3_4_9 - 1, maxReconsumeTimes=0)
    assert len(delayed(rig, 3)) == 1


@pytest.mark.parametrize(("tried", "is_dead"), [(1, False), (2, True)])
async def test_the_groups_limit_is_reached_when_tries_equal_it(rig: BrokerRig, tried: int, is_dead: bool) -> None:
    await rig.broker.groups.update(SubscriptionGroupConfig("g", retry_max_times=2))
    await rig.send("orders", b"tried", j=tried)
    offset = rig.store.messages("orders")[1].physical_offset
    await send_back(rig, offset=offset)
    assert len(rig.store.messages("%DLQ%g")) == is_dead


async def test_retries_spread_over_the_groups_queues(rig: BrokerRig) -> None:
    await rig.broker.groups.update(SubscriptionGroupConfig("g", retry_queue_nums=3))
    for _ in range(30):
        await send_back(rig, delayLevel=1)
    assert {message.properties["REAL_QID"] for message in delayed(rig, 1)} == {"0", "1", "2"}


async def test_a_group_without_retry_queues_drops_in_silence(rig: BrokerRig) -> None:
    await rig.broker.groups.update(SubscriptionGroupConfig("g", retry_queue_nums=0))
    before = len(rig.store.puts)
    assert (await send_back(rig)).code == 0
    assert len(rig.store.puts) == before


async def test_an_unknown_group_is_refused(rig: BrokerRig) -> None:
    rig.properties["autoCreateSubscriptionGroup"] = "false"
    rig.reopen()
    reply = await send_back(rig)
    assert (reply.code, reply.remark) == (26, "subscription group not exist, g")


async def test_a_broker_that_is_not_writeable_refuses(rig: BrokerRig) -> None:
    await rig.broker.settings.update({"brokerPermission": "4"})
    reply = await send_back(rig)
    assert (reply.code, reply.remark) == (16, "the broker[127.0.0.1] sending message is forbidden")


async def test_a_retry_topic_that_is_not_writeable_refuses(rig: BrokerRig) -> None:
    await rig.create_topic("%RETRY%g", 1, perm=4)
    reply = await send_back(rig)
    assert (reply.code, reply.remark) == (16, "the topic[%RETRY%g] sending message is forbidden")


async def test_an_offset_without_a_message_is_an_error(rig: BrokerRig) -> None:
    reply = await send_back(rig, offset=5)
    assert (reply.code, reply.remark) == (1, "look message by offset failed, 5")


@pytest.mark.parametrize("status", [PutStatus.FLUSH_DISK_TIMEOUT, PutStatus.SERVICE_NOT_AVAILABLE])
async def test_what_is_not_safely_stored_is_a_failure(rig: BrokerRig, status: PutStatus) -> None:
    rig.store.outcome = status
    reply = await send_back(rig)
    assert (reply.code, reply.remark) == (1, status.value)


async def test_send_backs_are_counted_for_the_first_topic(rig: BrokerRig) -> None:
    await send_back(rig)
    assert rig.broker.statistics.view("SNDBCK_PUT_NUMS", "orders@g") is not None
    assert rig.broker.statistics.view("TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX") is not None
