"""The topic and group tables: what is built in, what use and administrators create, and what survives a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from broker_ports import START_MS, BrokerRig

from mqcore.codes import PermName, RequestCode, ResponseCode
from mqcore.errors import ProtocolError
from mqcore.protocol import fastjson
from mqcore.protocol.bodies import SubscriptionGroupConfig, TopicConfig, TopicFilterType

ORDERS_ENTRY = """\t\t"orders":{
\t\t\t"order":false,
\t\t\t"perm":6,
\t\t\t"readQueueNums":4,
\t\t\t"topicFilterType":"SINGLE_TAG",
\t\t\t"topicName":"orders",
\t\t\t"topicSysFlag":0,
\t\t\t"writeQueueNums":4
\t\t}"""


@pytest.fixture
def rig(tmp_path: Path) -> BrokerRig:
    return BrokerRig(tmp_path)


@pytest.mark.parametrize(
    ("topic", "queues", "perm"),
    [
        ("SELF_TEST_TOPIC", 1, 6),
        ("TBW102", 8, 7),
        ("BenchmarkTest", 1024, 6),
        ("DefaultCluster", 16, 7),
        ("broker-a", 1, 7),
        ("OFFSET_MOVED_EVENT", 1, 6),
        ("SCHEDULE_TOPIC_XXXX", 18, 6),
        ("DefaultCluster_REPLY_TOPIC", 1, 6),
    ],
)
async def test_built_in_topics(rig: BrokerRig, topic: str, queues: int, perm: int) -> None:
    config = rig.broker.topics.find(topic)
    assert config == TopicConfig(topic, queues, queues, perm)
    assert rig.board.topics[topic][0] == config


async def test_the_default_topic_and_trace_topic_follow_the_settings(tmp_path: Path) -> None:
    rig = BrokerRig(tmp_path, autoCreateTopicEnable="false", traceTopicEnable="true", brokerTopicEnable="false")
    assert rig.broker.topics.find("TBW102") is None
    assert rig.broker.topics.find("RMQ_SYS_TRACE_TOPIC") == TopicConfig("RMQ_SYS_TRACE_TOPIC", 1, 1, 6)
    broker_topic = rig.broker.topics.find("broker-a")
    assert broker_topic is not None
    assert broker_topic.perm == 1


async def test_the_topics_file_is_in_fastjsons_pretty_form(rig: BrokerRig) -> None:
    await rig.create_topic("orders")
    text = rig.config_text("topics.json")
    assert text.startswith(
        f'{{\n\t"dataVersion":{{\n\t\t"counter":1,\n\t\t"timestamp":{START_MS}\n\t}},\n\t"topicConfigTable":{{\n\t\t"'
    )
    assert ORDERS_ENTRY in text
    assert text.endswith("}\n\t}\n}")


async def test_topics_and_their_version_survive_a_kill(rig: BrokerRig) -> None:
    await rig.create_topic("orders", 3, perm=4, topic_filter_type=TopicFilterType.MULTI_TAG, topic_sys_flag=1)
    await rig.create_topic("more")
    rig.reopen()
    assert rig.broker.topics.find("orders") == TopicConfig("orders", 3, 3, 4, TopicFilterType.MULTI_TAG, 1)
    assert rig.broker.topics.version.counter == 2
    assert rig.board.topics["orders"][1:] == (True, True)


async def test_attributes_of_a_topic_survive_a_kill_and_changes_that_do_not_name_them(rig: BrokerRig) -> None:
    await rig.broker.topics.update(TopicConfig("typed", 4, 4, attributes={"+message.type": "FIFO"}))
    await rig.broker.topics.update(TopicConfig("typed", 8, 8))
    rig.reopen()
    assert rig.broker.topics.find("typed") == TopicConfig("typed", 8, 8, attributes={"message.type": "FIFO"})


async def test_of_several_topics_one_that_cannot_be_changed_leaves_all_as_they_were(rig: BrokerRig) -> None:
    topics = rig.broker.topics
    version = topics.version
    with pytest.raises(ProtocolError, match="unsupported key: odd"):
        await topics.update(TopicConfig("one"), TopicConfig("two", attributes={"+odd": "1"}))
    assert topics.find("one") is None
    assert topics.version == version


async def test_file_entries_win_over_built_in_ones(rig: BrokerRig) -> None:
    await rig.create_topic("BenchmarkTest", 2)
    rig.reopen()
    config = rig.broker.topics.find("BenchmarkTest")
    assert config is not None
    assert config.read_queue_nums == 2


async def test_a_topics_file_of_apache_with_unknown_members_loads(rig: BrokerRig) -> None:
    path = rig.root / "store" / "config" / "topics.json"
    path.parent.mkdir(parents=True)
    path.write_text(
        '{"dataVersion":{"counter":7,"stateVersion":0,"timestamp":5},"topicConfigTable":{"t":{"attributes":{},"order":true,'
        '"perm":6,"readQueueNums":2,"topicFilterType":"SINGLE_TAG","topicName":"t","topicSysFlag":0,"writeQueueNums":2}}}'
    )
    rig.reopen()
    config = rig.broker.topics.find("t")
    assert config is not None
    assert (config.order, config.read_queue_nums, rig.broker.topics.version.counter) == (True, 2, 7)


async def test_the_first_message_creates_its_topic_like_the_template(rig: BrokerRig) -> None:
    reply = await rig.send("fresh", d=3)
    assert reply.code == ResponseCode.SUCCESS
    assert rig.broker.topics.find("fresh") == TopicConfig("fresh", 3, 3, 6)
    assert '"fresh"' in rig.config_text("topics.json")
    assert rig.board.topics["fresh"][1] is True


async def test_a_first_message_cannot_get_more_queues_than_the_template(rig: BrokerRig) -> None:
    await rig.send("fresh", d=400)
    await rig.send("none", d=-1, e=-1)
    fresh, none = rig.broker.topics.find("fresh"), rig.broker.topics.find("none")
    assert fresh is not None
    assert none is not None
    assert (fresh.write_queue_nums, none.write_queue_nums) == (8, 0)


async def test_first_messages_at_the_same_time_create_one_topic(rig: BrokerRig) -> None:
    replies = await asyncio.gather(*(rig.send("fresh") for _ in range(20)))
    assert {reply.code for reply in replies} == {0}
    assert rig.broker.topics.version.counter == 1


async def test_a_template_left_by_an_earlier_run_is_not_inherited_from(tmp_path: Path) -> None:
    rig = BrokerRig(tmp_path)
    await rig.create_topic("orders")
    rig.properties["autoCreateTopicEnable"] = "false"
    rig.reopen()
    assert rig.broker.topics.find("TBW102") is not None
    reply = await rig.send("fresh")
    assert reply.code == ResponseCode.TOPIC_NOT_EXIST
    template = rig.broker.topics.find("TBW102")
    assert template is not None
    assert template.perm == 6


async def test_a_topic_without_the_inherit_bit_is_no_template(rig: BrokerRig) -> None:
    await rig.create_topic("orders")
    assert (await rig.send("fresh", c="orders")).code == ResponseCode.TOPIC_NOT_EXIST
    assert (await rig.send("fresh", c="no-such-topic")).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_topic_that_cannot_be_written_is_not_created(rig: BrokerRig) -> None:
    (rig.root / "store").mkdir()
    (rig.root / "store" / "config").write_text("in the way")
    reply = await rig.send("fresh")
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert rig.broker.topics.find("fresh") is None
    assert "fresh" not in rig.board.topics
    assert rig.store.puts == []


@pytest.mark.parametrize(
    ("topic", "sendable"),
    [
        ("orders", True),
        ("%RETRY%g", False),
        ("%DLQ%g", False),
        ("SCHEDULE_TOPIC_XXXX", False),
        ("OFFSET_MOVED_EVENT", False),
        ("RMQ_SYS_TRANS_HALF_TOPIC", False),
        ("BenchmarkTest", True),
    ],
)
async def test_the_board_shows_what_the_send_worker_may_take(rig: BrokerRig, topic: str, sendable: bool) -> None:
    await rig.create_topic(topic)
    assert rig.board.topics[topic][1] is sendable


async def test_an_order_topic_is_not_sendable_while_the_broker_is_not_writeable(rig: BrokerRig) -> None:
    await rig.create_topic("orders", order=True)
    await rig.create_topic("plain")
    await rig.broker.settings.update({"brokerPermission": "4"})
    assert rig.board.topics["orders"][1] is False
    assert rig.board.topics["plain"][1] is True
    await rig.broker.settings.update({"brokerPermission": "6"})
    assert rig.board.topics["orders"][1] is True


async def test_order_flags_follow_the_name_servers_table(rig: BrokerRig) -> None:
    await rig.create_topic("orders")
    await rig.create_topic("other", order=True)
    before = rig.broker.topics.version.counter
    await rig.broker.topics.update_order(["orders"])
    assert rig.broker.topics.is_order("orders")
    assert not rig.broker.topics.is_order("other")
    assert rig.broker.topics.version.counter == before + 1
    await rig.broker.topics.update_order(["orders"])
    assert rig.broker.topics.version.counter == before + 1


async def test_every_topic_change_makes_pull_bindings_stale(rig: BrokerRig) -> None:
    epoch = rig.board.epoch("orders")
    await rig.create_topic("orders")
    assert rig.board.epoch("orders") > epoch
    epoch = rig.board.epoch("orders")
    await rig.broker.topics.delete("orders")
    assert rig.board.epoch("orders") > epoch
    assert "orders" not in rig.board.topics


async def test_built_in_groups(rig: BrokerRig) -> None:
    for name in (
        "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER",
    ):  # fmt: skip
        assert rig.broker.groups.find(name) is not None


async def test_a_group_is_created_by_use_and_survives_a_kill(rig: BrokerRig) -> None:
    config = await rig.broker.groups.find_or_create("g")
    assert config == SubscriptionGroupConfig(group_name="g")
    rig.reopen()
    assert rig.broker.groups.find("g") == config
    table = fastjson.loads(rig.config_text("subscriptionGroup.json"))
    assert table["subscriptionGroupTable"]["g"] == {
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "groupName": "g",
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 16,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    }
    assert table["dataVersion"]["counter"] == 1


async def test_groups_are_not_created_when_the_settings_say_no(tmp_path: Path) -> None:
    rig = BrokerRig(tmp_path, autoCreateSubscriptionGroup="false")
    assert await rig.broker.groups.find_or_create("g") is None
    assert await rig.broker.groups.find_or_create("CID_RMQ_SYS_TRANS") is not None


@pytest.mark.parametrize("name", ["", "a@b", "x" * 256, "blank name", "ü"])
async def test_a_group_name_that_would_break_the_offset_file_is_not_created(rig: BrokerRig, name: str) -> None:
    assert await rig.broker.groups.find_or_create(name) is None


async def test_creation_by_the_first_message_may_be_forbidden_and_allowed_again(rig: BrokerRig) -> None:
    async def creates(topic: str) -> bool:
        return await rig.broker.topics.create_by_template(topic, "TBW102", 4, 0) is not None

    assert await creates("first")
    await rig.ask(RequestCode.UPDATE_BROKER_CONFIG, None, b"autoCreateTopicEnable=false\n")
    assert not await creates("second")
    await rig.ask(RequestCode.UPDATE_BROKER_CONFIG, None, b"autoCreateTopicEnable=true\ndefaultTopicQueueNums=3\n")
    assert await creates("third")
    created = rig.broker.topics.find("third")
    assert created is not None
    assert created.write_queue_nums == 3


async def test_creation_that_was_forbidden_at_the_start_may_be_allowed(tmp_path: Path) -> None:
    rig = BrokerRig(tmp_path, autoCreateTopicEnable="false")
    assert rig.broker.topics.find("TBW102") is None
    await rig.ask(RequestCode.UPDATE_BROKER_CONFIG, None, b"autoCreateTopicEnable=true\n")
    assert await rig.broker.topics.create_by_template("first", "TBW102", 4, 0) is not None
    assert "TBW102" in rig.board.topics, "and it is registered, or clients would find no route"


async def test_sends_may_be_put_off_while_the_broker_runs_and_come_back_by_themselves(tmp_path: Path) -> None:
    rig = BrokerRig(tmp_path)
    await rig.create_topic("orders")
    assert rig.board.topics["orders"][1]
    later = rig.clock() + 20
    await rig.ask(RequestCode.UPDATE_BROKER_CONFIG, None, b"startAcceptSendRequestTimeStamp=%d\n" % later)
    assert not rig.board.topics["orders"][1], "the send workers leave it to the broker process, which refuses"
    rig.clock.advance(20)
    try:
        async with asyncio.timeout(60):
            while not rig.board.topics["orders"][1]:
                await asyncio.sleep(0.001)
    finally:
        await rig.core.shutdown()


async def test_settings_changes_are_on_disk_before_they_hold(rig: BrokerRig) -> None:
    rig.config_path.write_text("# mine\nbrokerName=broker-a\n")
    reply = await rig.ask(RequestCode.UPDATE_BROKER_CONFIG, None, b"brokerPermission=4\n")
    assert reply.code == ResponseCode.SUCCESS
    assert "brokerPermission=4" in rig.config_path.read_text()
    assert "# mine" in rig.config_path.read_text()
    assert rig.broker.settings.broker.broker_permission == PermName.READ
