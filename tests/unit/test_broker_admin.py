"""What administrators' tools ask: topics, groups, offsets, settings, queues."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_ports import START_MS, BrokerRig, MemoryChannel, subscription

from mqcore.broker.ports import QueueUnit
from mqcore.codes import LanguageCode, MQVersion, RequestCode, ResponseCode
from mqcore.protocol import fastjson
from mqcore.protocol.bodies import (
    GetConsumerStatusBody,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.hashing import java_string_hash
from mqcore.protocol.message import MessageQueue
from mqcore.store.queues.ext import ExtUnit, ext_address

NOT_SET = "not set any response code"
QUEUE = MessageQueue("orders", "broker-a", 0)


@pytest.fixture
async def rig(tmp_path: Path) -> BrokerRig:
    rig = BrokerRig(tmp_path)
    await rig.create_topic("orders", 2)
    return rig


def topic_ext(topic: str = "fresh", **changes: object) -> dict[str, object]:
    return {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": 8, "writeQueueNums": 4, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False,
    } | changes  # fmt: skip


# Topics.


async def test_an_updated_topic_is_on_disk_when_it_is_acknowledged(rig: BrokerRig) -> None:
    reply = await rig.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topicFilterType="MULTI_TAG"))
    assert (reply.code, reply.remark, reply.ext_fields) == (0, NOT_SET, None)
    rig.reopen()
    config = rig.broker.topics.find("fresh")
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums, config.topic_filter_type.name) == (8, 4, "MULTI_TAG")


async def test_whether_a_topic_is_in_order_is_for_the_name_servers_table_to_say(rig: BrokerRig) -> None:
    assert (await rig.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(order="true"))).code == 0
    config = rig.broker.topics.find("fresh")
    assert config is not None
    assert not config.order


@pytest.mark.parametrize(
    ("topic", "remark"),
    [
        ("TBW102", "The topic[TBW102] is conflict with system topic."),
        ("broker-a", "The topic[broker-a] is conflict with system topic."),
        ("rmq_sys_x", "The topic[rmq_sys_x] is conflict with system topic."),
        ("a b", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
    ],
)
@pytest.mark.parametrize("code", [RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.DELETE_TOPIC_IN_BROKER])
async def test_names_that_may_not_be_changed(rig: BrokerRig, code: RequestCode, topic: str, remark: str) -> None:
    reply = await rig.ask(code, topic_ext(topic))
    assert (reply.code, reply.remark) == (1, remark)


async def test_an_unknown_filter_type_is_an_error(rig: BrokerRig) -> None:
    reply = await rig.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topicFilterType="NO_TAG"))
    assert reply.code == 1
    assert "topicFilterType" in (reply.remark or "")


async def test_a_deleted_topic_takes_queues_offsets_and_counters_with_it(rig: BrokerRig) -> None:
    await rig.send("orders")
    rig.broker.offsets.commit("g", "orders", 0, 1, "c")
    reply = await rig.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
    assert (reply.code, reply.remark, reply.ext_fields) == (0, None, None)
    assert not rig.store.has_queue("orders", 0)
    assert rig.broker.offsets.query("g", "orders", 0) == -1
    assert rig.broker.statistics.view("TOPIC_PUT_NUMS", "orders") is None
    rig.reopen()
    assert rig.broker.topics.find("orders") is None


async def test_all_topics_are_shown_with_their_version(rig: BrokerRig) -> None:
    reply = await rig.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
    assert (reply.code, reply.ext_fields) == (0, {})
    wrapper = TopicConfigSerializeWrapper.decode(reply.body)
    assert wrapper.data_version == rig.broker.topics.version
    assert wrapper.topic_config_table["orders"] == TopicConfig("orders", 2, 2)
    assert reply.body.startswith(b'{"dataVersion":{"counter":1,"timestamp":1700000000000},"topicConfigTable":{"')


async def test_one_topic_for_tools_of_5x(rig: BrokerRig) -> None:
    reply = await rig.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "orders", "lo": True})
    assert reply.body == (
        b'{"order":false,"perm":6,"readQueueNums":2,"topicFilterType":"SINGLE_TAG","topicName":"orders",'
        b'"topicSysFlag":0,"writeQueueNums":2}'
    )
    assert (await rig.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "none"})).code == 17


async def test_the_system_topics(rig: BrokerRig) -> None:
    topics = fastjson.loads((await rig.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)).body)["topicList"]
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "DefaultCluster", "broker-a", "DefaultCluster_REPLY_TOPIC"} <= set(topics)
    assert "orders" not in topics


async def test_topic_stats(rig: BrokerRig) -> None:
    await rig.send("orders")
    reply = await rig.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "orders"})
    assert reply.body == (
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:'
        b'{"lastUpdateTimestamp":1700000000000,"maxOffset":1,"minOffset":0},'
        b'{"brokerName":"broker-a","queueId":1,"topic":"orders"}:'
        b'{"lastUpdateTimestamp":0,"maxOffset":0,"minOffset":0}}}'
    )
    reply = await rig.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "none"})
    assert (reply.code, reply.remark) == (17, "topic[none] not exist")


async def test_who_consumes_a_topic(rig: BrokerRig) -> None:
    rig.broker.offsets.commit("stored", "orders", 0, 1, "c")
    await rig.heart_beat("online", [subscription("orders")])
    reply = await rig.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "orders"})
    assert reply.body == b'{"groupList":["online","stored"]}'


# Groups and clients.


async def test_an_updated_group_is_on_disk_when_it_is_acknowledged(rig: BrokerRig) -> None:
    config = SubscriptionGroupConfig("g", retry_max_times=3)
    reply = await rig.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config.encode())
    assert (reply.code, reply.remark, reply.ext_fields) == (0, None, None)
    rig.reopen()
    assert rig.broker.groups.find("g") == config
    reply = await rig.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    assert fastjson.loads(reply.body)["subscriptionGroupTable"]["g"]["retryMaxTimes"] == 3
    assert reply.ext_fields is None


async def test_a_group_name_that_breaks_offset_keys_is_refused(rig: BrokerRig) -> None:
    body = SubscriptionGroupConfig("a@b").encode()
    assert (await rig.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)).code == 1
    assert (await rig.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)).code == 1


@pytest.mark.parametrize(
    ("flags", "is_kept"),
    [({"removeOffset": False}, True), ({"removeOffset": True}, False), ({"cleanOffset": True}, False)],
)
async def test_a_deleted_group_loses_its_offsets_when_asked(
    rig: BrokerRig, flags: dict[str, object], is_kept: bool
) -> None:
    await rig.broker.groups.find_or_create("g")
    rig.broker.offsets.commit("g", "orders", 0, 5, "c")
    reply = await rig.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g"} | flags)
    assert reply.code == 0
    assert (rig.broker.offsets.query("g", "orders", 0) == 5) == is_kept
    rig.reopen()
    assert rig.broker.groups.find("g") is None


async def test_consumer_connections(rig: BrokerRig) -> None:
    await rig.heart_beat("g", [subscription("orders", "a", 3)])
    reply = await rig.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g"})
    assert reply.body == (
        b'{"connectionSet":[{"clientAddr":"192.0.2.7:40001","clientId":"client-1","language":"JAVA","version":409}],'
        b'"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING",'
        b'"subscriptionTable":{"orders":{"classFilterMode":false,"codeSet":[97],"expressionType":"TAG",'
        b'"subString":"a","subVersion":3,"tagsSet":["a"],"topic":"orders"}}}'
    )
    reply = await rig.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "none"})
    assert (reply.code, reply.remark) == (206, "the consumer group[none] not online")


async def test_producer_connections(rig: BrokerRig) -> None:
    await rig.heart_beat("", producers=["p"])
    reply = await rig.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "p"})
    assert reply.body == (
        b'{"connectionSet":[{"clientAddr":"192.0.2.7:40001","clientId":"client-1","language":"JAVA","version":409}]}'
    )
    reply = await rig.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "none"})
    assert (reply.code, reply.remark) == (1, "the producer group[none] not exist")
    reply = await rig.ask(RequestCode.GET_ALL_PRODUCER_INFO)
    assert reply.body == (
        b'{"data":{"p":[{"clientId":"client-1","language":"JAVA","lastUpdateTimestamp":1700000000000,'
        b'"remoteIP":"/192.0.2.7:40001","version":409}]}}'
    )


# Offsets and progress.


async def test_all_offsets_are_shown_in_the_compact_form(rig: BrokerRig) -> None:
    rig.broker.offsets.commit("g", "orders", 1, 6, "c")
    rig.broker.offsets.commit("g", "orders", 0, 3, "c")
    rig.broker.schedule.offsets = {1: 2, 3: 3}
    assert (await rig.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)).body == b'{"offsetTable":{"orders@g":{0:3,1:6}}}'
    assert (await rig.ask(RequestCode.GET_ALL_DELAY_OFFSET)).body == b'{"offsetTable":{1:2,3:3}}'


async def test_consume_stats_of_a_group(rig: BrokerRig) -> None:
    for _ in range(3):
        await rig.send("orders")
        rig.clock.advance(10)
    rig.broker.offsets.commit("g", "orders", 0, 2, "c")
    rig.broker.offsets.commit("g", "deleted", 0, 2, "c")
    rig.offsets.pulls["g", "orders", 0] = 3
    rig.offsets.pulls["h", "orders", 1] = 3
    reply = await rig.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g"})
    assert reply.body == (
        b'{"consumeTps":0.0,"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:'
        b'{"brokerOffset":3,"consumerOffset":2,"lastTimestamp":1700000000010,"pullOffset":3},'
        b'{"brokerName":"broker-a","queueId":1,"topic":"orders"}:'
        b'{"brokerOffset":0,"consumerOffset":0,"lastTimestamp":0,"pullOffset":0}}}'
    )


async def test_a_group_that_commits_without_pulling_has_nothing_in_flight(rig: BrokerRig) -> None:
    """An administrator has set its offset, or it has not pulled since the broker started."""
    await rig.send("orders")
    rig.broker.offsets.commit("g", "orders", 0, 1, "c")
    reply = await rig.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g"})
    assert b'{"brokerOffset":1,"consumerOffset":1,"lastTimestamp":1700000000000,"pullOffset":1}' in reply.body


async def test_topics_that_live_members_do_not_subscribe_to_are_left_out(rig: BrokerRig) -> None:
    rig.broker.offsets.commit("g", "orders", 0, 2, "c")
    await rig.heart_beat("g", [subscription("other")])
    reply = await rig.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g", "topic": "orders"})
    assert reply.body == b'{"consumeTps":0.0,"offsetTable":{}}'


async def test_consume_stats_of_the_broker(rig: BrokerRig) -> None:
    await rig.send("orders")
    await rig.broker.groups.find_or_create("g")
    rig.broker.offsets.commit("g", "orders", 0, 0, "c")
    for is_order, diff in ((False, 1), (True, 0)):
        body = fastjson.loads((await rig.ask(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": is_order})).body)
        assert (body["brokerAddr"], body["totalDiff"]) == ("127.0.0.1:10911", diff)
        rows = {group: stats for entry in body["consumeStatsList"] for group, stats in entry.items()}
        assert len(rows["g"]) == diff
        assert rows["TOOLS_CONSUMER"] == []


async def test_the_consume_time_span(rig: BrokerRig) -> None:
    for _ in range(3):
        await rig.send("orders")
        rig.clock.advance(1000)
    rig.broker.offsets.commit("g", "orders", 0, 2, "c")
    reply = await rig.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "orders", "group": "g"})
    first, second = fastjson.loads(reply.body)["consumeTimeSpanSet"]
    assert (first["minTimeStamp"], first["maxTimeStamp"], first["consumeTimeStamp"], first["delayTime"]) == (
        START_MS, START_MS + 2000, START_MS + 1000, 1000,
    )  # fmt: skip
    assert first["messageQueue"] == {"brokerName": "broker-a", "queueId": 0, "topic": "orders"}
    assert (second["minTimeStamp"], second["delayTime"]) == (-1, rig.clock() + 1)
    assert (await rig.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "none", "group": "g"})).code == 17


async def test_offsets_are_cloned_for_a_topic(rig: BrokerRig) -> None:
    rig.broker.offsets.commit("a", "orders", 0, 7, "c")
    rig.broker.offsets.commit("b", "orders", 1, 9, "c")
    ext = {"srcGroup": "a", "destGroup": "b", "topic": "orders", "offline": False}
    await rig.heart_beat("a", [subscription("other")])
    await rig.ask(RequestCode.CLONE_GROUP_OFFSET, ext)
    assert await rig.broker.offsets.queues("b", "orders") == {1: 9}
    assert (await rig.ask(RequestCode.CLONE_GROUP_OFFSET, ext | {"offline": True})).code == 0
    assert await rig.broker.offsets.queues("b", "orders") == {0: 7}


async def test_correction_offsets_are_the_lowest_and_cost_nobody_an_offset(rig: BrokerRig) -> None:
    for _ in range(5):
        await rig.send("orders")
    rig.store.drop_before("orders", 0, 2)
    for group, offset in (("gone", 1), ("low", 3), ("high", 4), ("filtered", 2)):
        rig.broker.offsets.commit(group, "orders", 0, offset, "c")
    ext = {"topic": "orders", "compareGroup": "low", "filterGroups": "filtered"}
    reply = await rig.ask(RequestCode.QUERY_CORRECTION_OFFSET, ext)
    assert reply.body == b'{"correctionOffsets":{0:3}}'
    assert rig.broker.offsets.query("filtered", "orders", 0) == 2


# Calls that go on to clients.


def reset_ext(timestamp: int = -1, is_force: bool = True) -> dict[str, object]:
    return {"topic": "orders", "group": "g", "timestamp": timestamp, "isForce": is_force}


async def consuming(rig: BrokerRig, version: int = MQVersion.V4_9_8) -> MemoryChannel:
    """Three messages in queue 0, a member online, offsets committed for both queues."""
    for _ in range(3):
        await rig.send("orders")
        rig.clock.advance(1000)
    channel = MemoryChannel()
    await rig.heart_beat("g", [subscription("orders")], channel=channel, version=version)
    channel.sent.clear()
    rig.broker.offsets.commit("g", "orders", 0, 1, "c")
    rig.broker.offsets.commit("g", "orders", 1, 0, "c")
    return channel


async def test_a_reset_is_pushed_to_members_and_told_to_the_caller(rig: BrokerRig) -> None:
    channel = await consuming(rig)
    reply = await rig.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset_ext())
    table = (
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:3,'
        b'{"brokerName":"broker-a","queueId":1,"topic":"orders"}:0}}'
    )
    assert (reply.code, reply.remark, reply.body) == (0, NOT_SET, table)
    (push,) = channel.sent
    assert (push.code, push.is_oneway, push.body) == (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, True, table)
    assert push.ext_fields == {"topic": "orders", "group": "g", "timestamp": "-1", "isForce": "false"}
    assert rig.broker.offsets.query("g", "orders", 0) == 1


async def test_a_reset_without_force_never_goes_forward(rig: BrokerRig) -> None:
    await consuming(rig)
    reply = await rig.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset_ext(is_force=False))
    assert b'"queueId":0,"topic":"orders"}:1' in reply.body
    reply = await rig.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset_ext(START_MS, is_force=False))
    assert b'"queueId":0,"topic":"orders"}:0' in reply.body


async def test_a_cpp_caller_makes_the_push_a_list(rig: BrokerRig) -> None:
    channel = await consuming(rig)
    await rig.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset_ext(), language=LanguageCode.CPP)
    assert channel.sent[0].body == (
        b'{"offsetTable":[{"brokerName":"broker-a","offset":3,"queueId":0,"topic":"orders"},'
        b'{"brokerName":"broker-a","offset":0,"queueId":1,"topic":"orders"}]}'
    )


def one_queue(queue_id: int, offset: int | None, timestamp: int = 0) -> dict[str, object]:
    return reset_ext(timestamp) | {"queueId": queue_id} | ({} if offset is None else {"offset": offset})


@pytest.mark.parametrize(("offset", "timestamp", "wanted"), [(2, 0, 2), (0, 0, 0), (None, -1, 3), (-1, START_MS, 0)])
async def test_one_queue_is_reset_alone(rig: BrokerRig, offset: int | None, timestamp: int, wanted: int) -> None:
    channel = await consuming(rig)
    rig.broker.offsets.commit("g", "orders", 1, 0, "c")
    reply = await rig.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, one_queue(0, offset, timestamp))
    table = b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:%d}}' % wanted
    assert (reply.code, reply.body) == (0, table)
    assert [push.body for push in channel.sent] == [table]
    assert [rig.broker.offsets.query("g", "orders", queue_id) for queue_id in (0, 1)] == [wanted, 0]


async def test_one_queue_is_reset_without_members_too(rig: BrokerRig) -> None:
    rig.core.on_channel_closed(await consuming(rig))
    assert (await rig.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, one_queue(0, 2))).code == 0
    assert rig.broker.offsets.query("g", "orders", 0) == 2


@pytest.mark.parametrize("offset", [0, 5, -7])
async def test_one_queue_is_not_reset_to_where_it_has_nothing(rig: BrokerRig, offset: int) -> None:
    await consuming(rig)
    rig.store.drop_before("orders", 0, 1)
    reply = await rig.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, one_queue(0, offset))
    assert (reply.code, reply.remark) == (1, f"Target offset {offset} not in consume queue range [1-3]")
    assert rig.broker.offsets.query("g", "orders", 0) == 1


async def test_all_queues_are_meant_by_a_queue_below_zero(rig: BrokerRig) -> None:
    await consuming(rig)
    reply = await rig.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, one_queue(-1, -1, -1))
    assert reply.body.count(b"queueId") == 2


async def test_resets_that_cannot_be(rig: BrokerRig) -> None:
    reply = await rig.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset_ext() | {"topic": "none"})
    assert (reply.code, "no topic in this broker" in (reply.remark or "")) == (1, True)
    reply = await rig.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset_ext())
    assert (reply.code, reply.remark) == (1, "THe consumer group <g> not exist")
    channel = await consuming(rig, MQVersion.V3_0_7_SNAPSHOT - 1)
    reply = await rig.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset_ext())
    assert (reply.code, reply.remark) == (1, "the client does not support this feature. version=27")
    rig.core.on_channel_closed(channel)
    reply = await rig.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset_ext())
    assert (reply.code, reply.remark) == (
        206, "Consumer not online, so can not reset offset, Group: g Topic: orders Timestamp: -1",
    )  # fmt: skip


async def test_consumer_status_collects_the_members_answers(rig: BrokerRig) -> None:
    channel = await consuming(rig)
    ask = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    channel.answers[ask] = RemotingCommand(0, body=GetConsumerStatusBody({QUEUE: 5}).encode())
    await rig.heart_beat("g", [subscription("orders")], channel=MemoryChannel(), client_id="mute")
    ext = {"topic": "orders", "group": "g", "clientAddr": ""}
    reply = await rig.ask(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ext)
    assert (reply.code, reply.remark) == (0, NOT_SET)
    assert reply.body == (
        b'{"consumerTable":{"client-1":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:5}},'
        b'"messageQueueTable":{}}'
    )
    assert channel.asked[0].ext_fields == {"topic": "orders", "group": "g"}
    reply = await rig.ask(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ext | {"clientAddr": "mute"})
    assert reply.body == b'{"consumerTable":{},"messageQueueTable":{}}'
    reply = await rig.ask(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ext | {"group": "none"})
    assert (reply.code, reply.remark) == (1, "No Any Consumer online in the consumer group: [none]")


async def test_running_info_is_passed_on_as_it_comes(rig: BrokerRig) -> None:
    channel = await consuming(rig)
    code = RequestCode.GET_CONSUMER_RUNNING_INFO
    channel.answers[code] = RemotingCommand(0, opaque=5, remark=NOT_SET, body=b'{"properties":{}}')
    ext = {"consumerGroup": "g", "clientId": "client-1", "jstackEnable": False}
    reply = await rig.ask(code, ext)
    assert (reply.code, reply.remark, reply.ext_fields, reply.body) == (0, NOT_SET, None, b'{"properties":{}}')
    assert channel.asked[0].ext_fields == {"consumerGroup": "g", "clientId": "client-1", "jstackEnable": "false"}
    reply = await rig.ask(code, ext | {"clientId": "none"})
    assert (reply.code, reply.remark) == (1, "The Consumer <g> <none> not online")
    channel.answers.clear()
    reply = await rig.ask(code, ext)
    assert (reply.code, (reply.remark or "").startswith("consumer <g> <client-1> Timeout: ")) == (207, True)
    channel.close()
    assert (await rig.ask(code, ext)).code == 1


async def test_an_old_client_is_not_asked(rig: BrokerRig) -> None:
    await consuming(rig, MQVersion.V3_1_8_SNAPSHOT - 1)
    ext = {"consumerGroup": "g", "clientId": "client-1", "jstackEnable": False}
    reply = await rig.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, ext)
    assert (reply.code, reply.remark) == (
        1, "The Consumer <client-1> Version <V3_1_7> too low to finish, please upgrade it to V3_1_8_SNAPSHOT",
    )  # fmt: skip


async def test_a_message_to_consume_directly_goes_with_its_record(rig: BrokerRig) -> None:
    channel = await consuming(rig)
    code = RequestCode.CONSUME_MESSAGE_DIRECTLY
    channel.answers[code] = RemotingCommand(0, body=b"{}")
    message = rig.store.messages("orders")[1]
    ext = {"consumerGroup": "g", "clientId": "client-1", "msgId": message.offset_msg_id}
    assert (await rig.ask(code, ext)).body == b"{}"
    (question,) = channel.asked
    assert question.body == rig.store.records[message.physical_offset]
    assert (question.ext_fields or {})["brokerName"] == "broker-a"
    reply = await rig.ask(code, ext | {"msgId": "7F00000100002A9F00000000000FFFFF"})
    assert reply.code == 1
    assert (await rig.ask(code, ext | {"msgId": "no id"})).code == 1


# Settings.


async def test_settings_are_shown_with_their_version(rig: BrokerRig) -> None:
    reply = await rig.ask(RequestCode.GET_BROKER_CONFIG)
    assert reply.ext_fields == {"version": f'{{"counter":0,"timestamp":{START_MS}}}'}
    assert b"brokerName=broker-a\n" in reply.body
    await rig.ask(RequestCode.UPDATE_BROKER_CONFIG, None, b"traceOn=false\n")
    reply = await rig.ask(RequestCode.GET_BROKER_CONFIG)
    assert b"traceOn=false\n" in reply.body
    assert (reply.ext_fields or {})["version"].startswith('{"counter":1,')


@pytest.mark.parametrize(
    "key", ["brokerConfigPath", "configBlackList", "rocketmqHome", "storePathRootDir", "listenPort"]
)
async def test_settings_that_may_not_be_changed_from_outside(rig: BrokerRig, key: str) -> None:
    body = f"traceOn=false\n{key}=x\n".encode()
    reply = await rig.ask(RequestCode.UPDATE_BROKER_CONFIG, None, body)
    assert reply.code == 16
    is_ours = key in ("storePathRootDir", "listenPort")
    named = f" Not changeable while it runs: {key}" if is_ours else ""
    assert reply.remark == f"Can not update config in black list.{named}"
    assert rig.broker.settings.broker.trace_on is True
    assert not rig.config_path.exists()


async def test_unknown_settings_are_ignored_and_bad_values_refused(rig: BrokerRig) -> None:
    assert (await rig.ask(RequestCode.UPDATE_BROKER_CONFIG, None, b"noSuchKey=1\ntraceOn=false\n")).code == 0
    assert rig.broker.settings.broker.trace_on is False
    reply = await rig.ask(RequestCode.UPDATE_BROKER_CONFIG, None, b"traceOn=true\nmaxMessageSize=many\n")
    assert reply.code == 1
    assert "maxMessageSize" in (reply.remark or "")
    assert rig.broker.settings.broker.trace_on is False
    assert (await rig.ask(RequestCode.UPDATE_BROKER_CONFIG)).code == 0


async def test_a_setting_that_topics_do_not_show_leaves_the_topic_board_alone(rig: BrokerRig) -> None:
    rig.board.topics.clear()
    epoch = rig.board.common_epoch
    await rig.ask(RequestCode.UPDATE_BROKER_CONFIG, None, b"longPollingEnable=false\n")
    assert rig.board.common_epoch > epoch, "pulls would go by what was found before"
    assert rig.board.topics == {}
    await rig.ask(RequestCode.UPDATE_BROKER_CONFIG, None, b"brokerPermission=4\n")
    assert set(rig.board.topics) == set(rig.broker.topics.names)


async def test_a_changed_permission_gives_the_topics_a_new_version(rig: BrokerRig) -> None:
    before = rig.broker.topics.version.counter
    await rig.ask(RequestCode.UPDATE_BROKER_CONFIG, None, b"brokerPermission=4\n")
    assert rig.broker.topics.version.counter == before + 1


# Queues and messages.


async def test_queue_offsets(rig: BrokerRig) -> None:
    for _ in range(3):
        await rig.send("orders")
        rig.clock.advance(1000)
    rig.store.drop_before("orders", 0, 1)
    queue = {"topic": "orders", "queueId": 0}
    answers = [
        (await rig.ask(code, ext)).ext_fields
        for code, ext in (
            (RequestCode.GET_MAX_OFFSET, queue),
            (RequestCode.GET_MIN_OFFSET, queue),
            (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queue | {"timestamp": START_MS + 1500}),
            (RequestCode.GET_EARLIEST_MSG_STORETIME, queue),
        )
    ]
    assert answers == [{"offset": "3"}, {"offset": "1"}, {"offset": "2"}, {"timestamp": str(START_MS + 1000)}]


async def test_queue_offsets_of_a_queue_that_does_not_exist(rig: BrokerRig) -> None:
    queue = {"topic": "none", "queueId": 5}
    answers = [
        (await rig.ask(code, ext)).ext_fields
        for code, ext in (
            (RequestCode.GET_MAX_OFFSET, queue),
            (RequestCode.GET_MIN_OFFSET, queue),
            (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queue | {"timestamp": 1}),
            (RequestCode.GET_EARLIEST_MSG_STORETIME, queue),
        )
    ]
    assert answers == [{"offset": "0"}, {"offset": "-1"}, {"offset": "0"}, {"timestamp": "-1"}]


def query_ext(key: str = "k1", **changes: object) -> dict[str, object]:
    ext = {"topic": "orders", "key": key, "maxNum": 5, "beginTimestamp": 0, "endTimestamp": 2**63 - 1}
    return ext | {"_UNIQUE_KEY_QUERY": "false"} | changes


async def test_messages_are_found_by_key(rig: BrokerRig) -> None:
    for _ in range(2):
        await rig.send("orders")
    reply = await rig.ask(RequestCode.QUERY_MESSAGE, query_ext())
    assert reply.code == 0
    assert reply.body == b"".join(rig.store.records.values())
    assert reply.ext_fields == {
        "indexLastUpdateTimestamp": str(START_MS),
        "indexLastUpdatePhyoffset": str(rig.store.end),
    }
    reply = await rig.ask(RequestCode.QUERY_MESSAGE, query_ext("none"))
    assert (reply.code, reply.remark) == (22, "can not find message, maybe time range not correct")
    assert reply.ext_fields == {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}


async def test_a_query_by_unique_key_has_the_brokers_limit(rig: BrokerRig) -> None:
    await rig.ask(RequestCode.QUERY_MESSAGE, query_ext())
    await rig.ask(RequestCode.QUERY_MESSAGE, query_ext(_UNIQUE_KEY_QUERY="true"))
    assert rig.store.orders == [("query", 5), ("query", 32)]


async def test_no_query_finds_more_than_the_broker_allows(rig: BrokerRig) -> None:
    await rig.ask(RequestCode.QUERY_MESSAGE, query_ext(maxNum=1000))
    await rig.ask(RequestCode.UPDATE_BROKER_CONFIG, None, b"maxMsgsNumBatch=7\n")
    await rig.ask(RequestCode.QUERY_MESSAGE, query_ext(maxNum=1000))
    await rig.ask(RequestCode.QUERY_MESSAGE, query_ext(maxNum=3))
    assert rig.store.orders == [("query", 64), ("query", 7), ("query", 3)]


async def test_a_message_is_viewed_by_its_offset(rig: BrokerRig) -> None:
    await rig.send("orders")
    reply = await rig.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": 0})
    assert (reply.code, reply.ext_fields, reply.body) == (0, None, rig.store.records[0])
    reply = await rig.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": 9})
    assert (reply.code, reply.remark) == (1, "can not find message by the offset, 9")


async def test_consume_queue_units_are_shown(rig: BrokerRig) -> None:
    for tag in ("a", "b"):
        await rig.send("orders", i=f"TAGS\x01{tag}")
    await rig.heart_beat("g", [subscription("orders", "a")])
    ext: dict[str, object] = {"topic": "orders", "queueId": 0, "index": 0, "count": 10}
    reply = await rig.ask(RequestCode.QUERY_CONSUME_QUEUE, ext | {"consumerGroup": "g"})
    assert (reply.code, reply.remark, reply.ext_fields) == (0, NOT_SET, None)
    body = fastjson.loads(reply.body)
    size = len(rig.store.records[0])
    assert body["queueData"] == [
        {"eval": False, "physicOffset": 0, "physicSize": size, "tagsCode": java_string_hash("a")},
        {"eval": False, "physicOffset": size, "physicSize": size, "tagsCode": java_string_hash("b")},
    ]
    assert (body["maxQueueIndex"], body["minQueueIndex"], body["filterData"]) == (2, 0, "null")
    assert body["subscriptionData"]["subString"] == "a"
    reply = await rig.ask(RequestCode.QUERY_CONSUME_QUEUE, ext | {"consumerGroup": "none", "count": 1})
    assert fastjson.loads(reply.body)["filterData"] == "none@orders is not online!"
    assert len(fastjson.loads(reply.body)["queueData"]) == 1
    reply = await rig.ask(RequestCode.QUERY_CONSUME_QUEUE, ext | {"index": 2})
    assert (reply.code, reply.remark, reply.body) == (0, "Index 2 of 0@orders is not exist!", b"")
    reply = await rig.ask(RequestCode.QUERY_CONSUME_QUEUE, ext | {"queueId": 7})
    assert (reply.code, reply.remark) == (1, "7@orders is not exist!")


async def test_consume_queue_units_are_shown_with_what_their_ext_units_hold(rig: BrokerRig) -> None:
    await rig.heart_beat("g", [subscription("orders", "a")])
    code = java_string_hash("a")
    rig.store.queues["orders", 0] = [
        QueueUnit(0, 0, 100, ext_address(0), ExtUnit(code, 77, b"")),
        QueueUnit(1, 100, 100, ext_address(20), ExtUnit(-5, 77, bytes([1, 2, 255]))),
        QueueUnit(2, 200, 100, ext_address(43)),
    ]
    reply = await rig.ask(
        RequestCode.QUERY_CONSUME_QUEUE,
        {"topic": "orders", "queueId": 0, "index": 0, "count": 10, "consumerGroup": "g"},
    )
    first, second, third = fastjson.loads(reply.body)["queueData"]
    assert first == {
        "eval": True, "extendDataJson": f'{{"msgStoreTime":77,"size":20,"tagsCode":{code}}}',
        "physicOffset": 0, "physicSize": 100, "tagsCode": ext_address(0),
    }  # fmt: skip
    assert second["extendDataJson"] == '{"filterBitMap":"AQL/","msgStoreTime":77,"size":23,"tagsCode":-5}'
    assert (second["bitMap"], second["eval"]) == ("111111110000001000000001\n", False)
    assert (third["msg"], third["eval"]) == (f"Cq extend not exist!addr: {ext_address(43)}", False)
    assert "extendDataJson" not in third


async def test_consume_queue_units_are_shown_with_what_their_bitmaps_say(rig: BrokerRig) -> None:
    await rig.heart_beat("g", [subscription("orders", "a > 1", kind="SQL92")])
    entry = rig.broker.filters.by_topic["orders"]["g"]
    rig.broker.filters.bits_known_from("orders", [entry], 100)
    all_bits, none = bytearray(14), bytes(14)
    for bit in entry.bits:
        all_bits[bit >> 3] |= 1 << (bit & 7)
    rig.store.queues["orders", 0] = [
        QueueUnit(number, number * 100, 100, ext_address(number * 34), ExtUnit(0, 77, bitmap))
        for number, bitmap in enumerate([none, none, bytes(all_bits), b"", none])
    ]
    reply = await rig.ask(
        RequestCode.QUERY_CONSUME_QUEUE,
        {"topic": "orders", "queueId": 0, "index": 0, "count": 10, "consumerGroup": "g"},
    )
    body = fastjson.loads(reply.body)
    # The first was stored before the bitmaps had the group's bits; the fourth has no bitmap.
    assert [unit["eval"] for unit in body["queueData"]] == [True, False, True, True, False]
    assert fastjson.loads(body["filterData"])["expression"] == "a > 1"


@pytest.mark.parametrize(
    ("code", "order"),
    [
        (RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, "clean expired"),
        (RequestCode.CLEAN_UNUSED_TOPIC, "clean unused"),
        (RequestCode.DELETE_EXPIRED_COMMITLOG, "delete expired"),
    ],
)
async def test_orders_to_clean_up_reach_the_store(rig: BrokerRig, code: RequestCode, order: str) -> None:
    reply = await rig.ask(code)
    assert (reply.code, reply.remark, reply.ext_fields) == (0, None, None)
    assert rig.store.orders[-1][0] == order
    if order == "clean unused":
        assert "orders" in rig.store.orders[-1][1]


# Replicas


async def test_a_broker_that_knows_no_replicas_says_so(rig: BrokerRig) -> None:
    reply = await rig.ask(RequestCode.GET_BROKER_HA_STATUS)
    assert (reply.code, reply.remark) == (ResponseCode.SYSTEM_ERROR, "this broker knows no replicas")
