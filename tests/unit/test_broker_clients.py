"""Heart-beats, members, good-byes, notices, offsets and queue locks."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_ports import BrokerRig, MemoryChannel, subscription

from mqcore.codes import RequestCode
from mqcore.protocol import fastjson
from mqcore.protocol.bodies import (
    CheckClientRequestBody,
    ConsumeType,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageModel,
    SubscriptionGroupConfig,
)
from mqcore.protocol.message import MessageQueue


@pytest.fixture
async def rig(tmp_path: Path) -> BrokerRig:
    rig = BrokerRig(tmp_path)
    await rig.create_topic("orders")
    return rig


def notices(channel: MemoryChannel) -> int:
    """How many notices of a changed group the client got since the last look; each must be well formed."""
    for command in channel.sent:
        assert command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        assert command.is_oneway
        assert not command.is_response
        assert command.ext_fields == {"consumerGroup": "g"}
    count = len(channel.sent)
    channel.sent.clear()
    return count


async def test_a_heart_beat_creates_the_group_and_its_retry_topic(rig: BrokerRig) -> None:
    await rig.broker.groups.update(SubscriptionGroupConfig("h", retry_queue_nums=3))
    for group in ("g", "h"):
        reply = await rig.heart_beat(group, [subscription("orders")])
        assert (reply.code, reply.remark, reply.ext_fields, reply.body) == (0, None, None, b"")
    assert rig.broker.groups.find("g") is not None
    for topic, queues in (("%RETRY%g", 1), ("%RETRY%h", 3)):
        config = rig.broker.topics.find(topic)
        assert config is not None
        assert (config.write_queue_nums, config.perm, config.topic_sys_flag) == (queues, 6, 0)
    assert '"%RETRY%g"' in rig.config_text("topics.json")


async def test_a_cpp_heart_beat_with_ordinals_is_understood(rig: BrokerRig) -> None:
    body = (
        b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,"groupName":"g","messageModel":0,'
        b'"subscriptionDataSet":[{"codeSet":["1"],"subString":"*","subVersion":"7","tagsSet":[],"topic":"orders"}]}],'
        b'"producerDataSet":[{"groupName":"p"}]}'
    )
    assert (await rig.ask(RequestCode.HEART_BEAT, None, body)).code == 0
    members = rig.broker.consumers.groups["g"]
    assert (members.consume_type, members.message_model) == (ConsumeType.CONSUME_PASSIVELY, MessageModel.BROADCASTING)
    assert members.subscriptions["orders"].sub_version == 7
    assert rig.broker.producers.find_channel("c") is rig.client


async def test_an_empty_heart_beat_is_an_error(rig: BrokerRig) -> None:
    assert (await rig.ask(RequestCode.HEART_BEAT)).code == 1


async def test_every_member_is_told_of_a_new_one_itself_included(rig: BrokerRig) -> None:
    first, second = MemoryChannel(), MemoryChannel()
    await rig.heart_beat("g", [subscription("orders")], channel=first)
    assert notices(first) == 1
    await rig.heart_beat("g", [subscription("orders")], channel=second, client_id="client-2")
    assert (notices(first), notices(second)) == (1, 1)
    await rig.heart_beat("g", [subscription("orders")], channel=first)
    assert (notices(first), notices(second)) == (0, 0)


async def test_topics_that_come_or_go_are_told_and_new_versions_are_not(rig: BrokerRig) -> None:
    channel = MemoryChannel()
    await rig.heart_beat("g", [subscription("orders")], channel=channel)
    channel.sent.clear()
    await rig.heart_beat("g", [subscription("orders", "a", 2)], channel=channel)
    assert notices(channel) == 0
    assert rig.broker.consumers.groups["g"].subscriptions["orders"].sub_string == "a"
    await rig.heart_beat("g", [subscription("orders", "b", 1)], channel=channel)
    assert rig.broker.consumers.groups["g"].subscriptions["orders"].sub_string == "a"
    await rig.heart_beat("g", [subscription("more")], channel=channel)
    assert notices(channel) == 1
    assert list(rig.broker.consumers.groups["g"].subscriptions) == ["more"]


@pytest.mark.parametrize("switch", ["group", "broker"])
async def test_notices_can_be_switched_off(rig: BrokerRig, switch: str) -> None:
    channel = MemoryChannel()
    if switch == "group":
        await rig.broker.groups.update(SubscriptionGroupConfig("g", notify_consumer_ids_changed_enable=False))
    else:
        await rig.broker.settings.update({"notifyConsumerIdsChangedEnable": "false"})
    await rig.heart_beat("g", [subscription("orders")], channel=channel)
    assert notices(channel) == 0


async def test_a_good_bye_is_told_to_the_rest(rig: BrokerRig) -> None:
    first, second = MemoryChannel(), MemoryChannel()
    await rig.heart_beat("g", [subscription("orders")], channel=first)
    await rig.heart_beat("g", [subscription("orders")], channel=second, client_id="client-2", producers=["p"])
    first.sent.clear()
    reply = await rig.ask(
        RequestCode.UNREGISTER_CLIENT,
        {"clientID": "client-2", "consumerGroup": "g", "producerGroup": "p"},
        channel=second,
    )
    assert (reply.code, reply.ext_fields) == (0, {})
    assert notices(first) == 1
    assert rig.broker.producers.groups == {}
    await rig.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "client-1", "consumerGroup": "g"}, channel=first)
    assert rig.broker.consumers.groups == {}


async def test_a_closed_connection_leaves_every_group(rig: BrokerRig) -> None:
    first, second = MemoryChannel(), MemoryChannel()
    await rig.broker.groups.update(SubscriptionGroupConfig("g", notify_consumer_ids_changed_enable=False))
    await rig.heart_beat("g", [subscription("orders")], channel=first)
    await rig.heart_beat("g", [subscription("orders")], channel=second, client_id="client-2", producers=["p"])
    second.close()
    rig.core.on_channel_closed(second)
    assert notices(first) == 1  # whatever the group's own switch says
    assert rig.broker.producers.groups == {}
    assert rig.broker.producers.find_channel("client-2") is None
    rig.core.on_channel_closed(second)
    assert notices(first) == 0


async def test_a_connection_that_closed_during_its_heart_beat_stays_out(rig: BrokerRig) -> None:
    channel = MemoryChannel()
    channel.close()
    await rig.heart_beat("g", [subscription("orders")], channel=channel, producers=["p"])
    assert rig.broker.consumers.groups == {}
    assert rig.broker.producers.groups == {}


async def test_silent_clients_are_taken_out_without_a_notice(rig: BrokerRig) -> None:
    silent, lively = MemoryChannel(), MemoryChannel()
    await rig.heart_beat("g", [subscription("orders")], channel=silent, producers=["p"])
    rig.clock.advance(120_000)
    await rig.heart_beat("g", [subscription("orders")], channel=lively, client_id="client-2", producers=["p"])
    lively.sent.clear()
    rig.broker.housekeeping.scan()
    assert silent.is_open
    rig.clock.advance(1)
    rig.broker.housekeeping.scan()
    assert not silent.is_open
    assert notices(lively) == 0
    assert [info.client_id for info in rig.broker.consumers.groups["g"].channels.values()] == ["client-2"]
    assert [info.client_id for info in rig.broker.producers.groups["p"].values()] == ["client-2"]


async def test_a_member_list_names_the_clients(rig: BrokerRig) -> None:
    await rig.heart_beat("g", [subscription("orders")])
    await rig.heart_beat("g", [subscription("orders")], channel=MemoryChannel(), client_id="client-2")
    reply = await rig.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"})
    assert (reply.code, reply.ext_fields) == (0, {})
    assert reply.body == b'{"consumerIdList":["client-1","client-2"]}'
    reply = await rig.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "none"})
    assert (reply.code, reply.remark, reply.ext_fields) == (1, "no consumer for this group, none", {})


async def test_an_open_producer_connection_is_picked_in_turn(rig: BrokerRig) -> None:
    channels = [MemoryChannel() for _ in range(3)]
    for number, channel in enumerate(channels):
        await rig.heart_beat("", channel=channel, client_id=f"client-{number}", producers=["p"])
    picked = {id(rig.broker.producers.available_channel("p")) for _ in range(3)}
    assert picked == {id(channel) for channel in channels}
    channels[0].close()
    channels[1].close()
    assert rig.broker.producers.available_channel("p") is channels[2]
    channels[2].close()
    assert rig.broker.producers.available_channel("p") is None
    assert rig.broker.producers.available_channel("none") is None


@pytest.mark.parametrize(
    ("kind", "expression", "code", "remark"),
    [
        ("TAG", "a", 0, None),
        ("SQL92", "a = 1", 0, None),
        ("SQL92", "a > TRUE", 23, "java.lang.RuntimeException: Value 'TRUE' cannot be compared."),
        ("XPATH", "a", 23, "no filter of type XPATH"),
    ],
)
async def test_check_client_config(rig: BrokerRig, kind: str, expression: str, code: int, remark: str | None) -> None:
    body = CheckClientRequestBody("c", "g", subscription("orders", expression, kind=kind)).encode()
    reply = await rig.ask(RequestCode.CHECK_CLIENT_CONFIG, None, body)
    assert (reply.code, reply.remark, reply.ext_fields) == (code, remark, None)


@pytest.mark.parametrize(
    ("kind", "code", "remark"),
    [("TAG", 0, None), ("SQL92", 1, "The broker does not support consumer to filter message by SQL92")],
)
async def test_check_client_config_without_filters(rig: BrokerRig, kind: str, code: int, remark: str | None) -> None:
    await rig.broker.settings.update({"enablePropertyFilter": "false"})
    body = CheckClientRequestBody("c", "g", subscription("orders", "a", kind=kind)).encode()
    reply = await rig.ask(RequestCode.CHECK_CLIENT_CONFIG, None, body)
    assert (reply.code, reply.remark, reply.ext_fields) == (code, remark, None)


# Offsets.


def offset_ext(**changes: object) -> dict[str, object]:
    return {"consumerGroup": "g", "topic": "orders", "queueId": 0} | changes


async def test_an_offset_is_stored_and_found_again_backwards_too(rig: BrokerRig) -> None:
    for offset in (7, 3):
        reply = await rig.ask(RequestCode.UPDATE_CONSUMER_OFFSET, offset_ext(commitOffset=offset))
        assert (reply.code, reply.remark, reply.ext_fields) == (0, None, {})
        reply = await rig.ask(RequestCode.QUERY_CONSUMER_OFFSET, offset_ext())
        assert (reply.code, reply.ext_fields) == (0, {"offset": str(offset)})


async def test_a_new_group_on_a_young_queue_starts_at_zero(rig: BrokerRig) -> None:
    reply = await rig.ask(RequestCode.QUERY_CONSUMER_OFFSET, offset_ext())
    assert (reply.code, reply.ext_fields) == (0, {"offset": "0"})
    await rig.send("orders")
    assert (await rig.ask(RequestCode.QUERY_CONSUMER_OFFSET, offset_ext())).code == 0


@pytest.mark.parametrize("why", ["start is gone", "start is on disk"])
async def test_a_new_group_on_an_old_queue_has_no_offset(rig: BrokerRig, why: str) -> None:
    for _ in range(2):
        await rig.send("orders")
    if why == "start is gone":
        rig.store.drop_before("orders", 0, 1)
    else:
        rig.store.on_disk = True
    reply = await rig.ask(RequestCode.QUERY_CONSUMER_OFFSET, offset_ext())
    assert (reply.code, reply.ext_fields) == (22, {})
    assert reply.remark == "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"


async def test_the_offset_file_is_in_apaches_form_and_survives_a_restart(rig: BrokerRig) -> None:
    for queue_id, offset in ((0, 3), (10, 1), (2, 1)):
        rig.broker.offsets.commit("G1", "orders", queue_id, offset, "c")
    await rig.core.shutdown()
    assert (
        rig.config_text("consumerOffset.json") == '{\n\t"offsetTable":{\n\t\t"orders@G1":{0:3,2:1,10:1\n\t\t}\n\t}\n}'
    )
    rig.reopen()
    assert await rig.broker.offsets.queues("G1", "orders") == {0: 3, 2: 1, 10: 1}


async def test_keys_that_are_no_pair_stay_in_the_file(rig: BrokerRig) -> None:
    path = rig.root / "store" / "config" / "consumerOffset.json"
    path.write_text('{"offsetTable":{"odd":{0:5},"orders@g":{"1":6}}}')
    rig.reopen()
    assert rig.broker.offsets.query("g", "orders", 1) == 6
    rig.broker.offsets.commit("g", "orders", 1, 7, "c")
    await rig.broker.offsets.persist()
    assert fastjson.loads(rig.config_text("consumerOffset.json")) == {
        "offsetTable": {"orders@g": {"1": 7}, "odd": {"0": 5}}
    }


# Queue locks.


QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(2)]


async def lock(rig: BrokerRig, client_id: str, queues: list[MessageQueue]) -> list[MessageQueue]:
    body = LockBatchRequestBody("g", client_id, queues).encode()
    reply = await rig.ask(RequestCode.LOCK_BATCH_MQ, None, body)
    assert (reply.code, reply.ext_fields) == (0, None)
    return LockBatchResponseBody.decode(reply.body).lock_ok_mq_set


async def test_a_lock_keeps_others_out_until_it_expires(rig: BrokerRig) -> None:
    assert await lock(rig, "a", QUEUES[:1]) == QUEUES[:1]
    assert await lock(rig, "b", QUEUES) == QUEUES[1:]
    rig.clock.advance(30_000)
    assert await lock(rig, "a", QUEUES[:1]) == QUEUES[:1]
    rig.clock.advance(60_000)
    assert await lock(rig, "b", QUEUES[:1]) == []
    rig.clock.advance(1)
    assert await lock(rig, "b", QUEUES[:1]) == QUEUES[:1]


async def test_only_the_owner_unlocks(rig: BrokerRig) -> None:
    await lock(rig, "a", QUEUES)
    for client_id in ("b", "a"):
        body = LockBatchRequestBody("g", client_id, QUEUES).encode()
        reply = await rig.ask(RequestCode.UNLOCK_BATCH_MQ, {}, body)
        assert (reply.code, reply.body) == (0, b"")
        assert await lock(rig, "b", QUEUES) == ([] if client_id == "b" else QUEUES)


async def test_locks_of_groups_do_not_meet(rig: BrokerRig) -> None:
    await lock(rig, "a", QUEUES)
    assert rig.broker.queue_locks.lock("other", "b", QUEUES) == QUEUES
