"""Sends that reach the broker process: every check in its order, and what is stored."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from broker_ports import SEND, START_MS, BrokerRig, MemoryChannel

from mqcore import layout
from mqcore.broker.ports import PutStatus
from mqcore.codes import MQVersion, RequestCode, ResponseCode, SysFlag
from mqcore.protocol.batch import encode_batch
from mqcore.protocol.bodies import TopicFilterType
from mqcore.protocol.message import Message
from mqcore.protocol.message_id import HostAddress
from mqcore.protocol.names import dlq_topic, retry_topic
from mqcore.store.facts import causes_in

FLAGS = layout.constants("StoreFlag")
ILLEGAL = (
    "the message is illegal, maybe msg body or properties length not matched. msg body length limit 4194304B, "
    "msg properties length limit 32KB."
)
NOT_AVAILABLE = (
    "service not available now. It may be caused by one of the following reasons: the broker's disk is full "
    "[CL:  0.50 CQ:  0.50 INDEX:  0.50], messages are put to the slave, message store has been shut down, etc."
)
BROKER_EXT = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


@pytest.fixture
async def rig(tmp_path: Path) -> BrokerRig:
    rig = BrokerRig(tmp_path)
    await rig.create_topic("orders")
    return rig


async def test_a_message_is_stored_as_sent_but_for_cluster_and_wait(rig: BrokerRig) -> None:
    reply = await rig.send("orders", e=2)
    assert reply.code == ResponseCode.SUCCESS
    assert reply.remark is None
    assert reply.ext_fields == {
        **BROKER_EXT,
        "msgId": "7F00000100002A9F0000000000000000",
        "queueId": "2",
        "queueOffset": "0",
    }
    (message,) = rig.store.messages("orders", 2)
    assert message.body == b"hello"
    assert message.flag == 9
    assert message.properties == {"TAGS": "TagA", "KEYS": "k1", "CLUSTER": "DefaultCluster"}
    assert message.born_timestamp == START_MS - 5
    assert message.born_host == HostAddress("192.0.2.7", 40_001)
    assert message.store_host == HostAddress("127.0.0.1", 10911)
    assert rig.store.puts[0].wait_store_ok is True


async def test_the_long_header_means_the_same(rig: BrokerRig) -> None:
    ext = {
        "producerGroup": "pg", "topic": "orders", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 1,
        "sysFlag": 1, "bornTimestamp": START_MS, "flag": 0, "properties": "WAIT\x01false", "unitMode": False,
    }  # fmt: skip
    reply = await rig.ask(RequestCode.SEND_MESSAGE, ext, b"x")
    assert reply.code == ResponseCode.SUCCESS
    assert rig.store.puts[0].sys_flag == SysFlag.COMPRESSED
    assert rig.store.puts[0].wait_store_ok is False
    assert rig.store.puts[0].properties_text == "CLUSTER\x01DefaultCluster"


async def test_a_negative_queue_is_any_write_queue(rig: BrokerRig) -> None:
    replies = [await rig.send("orders", e=-1) for _ in range(40)]
    queues = {int((reply.ext_fields or {})["queueId"]) for reply in replies}
    assert queues <= {0, 1, 2, 3}
    assert len(queues) > 1


@pytest.mark.parametrize(
    ("topic", "code", "remark"),
    [
        (" ", 1, "The specified topic is blank."),
        ("a b", 1, "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("t" * 128, 1, "The specified topic is longer than topic max length."),
        ("SCHEDULE_TOPIC_XXXX", 16, "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden."),
        ("RMQ_SYS_TRANS_HALF_TOPIC", 16, "Sending message to topic[RMQ_SYS_TRANS_HALF_TOPIC] is forbidden."),
        ("SELF_TEST_TOPIC", 16, "Sending message to topic[SELF_TEST_TOPIC] is forbidden."),
        ("OFFSET_MOVED_EVENT", 16, "Sending message to topic[OFFSET_MOVED_EVENT] is forbidden."),
    ],
)
async def test_topics_that_nobody_may_send_to(rig: BrokerRig, topic: str, code: int, remark: str) -> None:
    reply = await rig.send(topic)
    assert (reply.code, reply.remark) == (code, remark)
    assert reply.ext_fields == BROKER_EXT
    assert rig.store.puts == []


async def test_an_unknown_topic_is_refused_when_it_may_not_be_created(tmp_path: Path) -> None:
    rig = BrokerRig(tmp_path, autoCreateTopicEnable="false")
    reply = await rig.send("fresh")
    assert reply.code == ResponseCode.TOPIC_NOT_EXIST
    assert (reply.remark or "").startswith("topic[fresh] not exist, apply first please!\nSee docs/errors.md#")


async def test_a_queue_beyond_the_topic_is_illegal(rig: BrokerRig) -> None:
    reply = await rig.send("orders", e=4)
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert reply.remark == (
        "request queueId[4] is illegal, TopicConfig [topicName=orders, readQueueNums=4, writeQueueNums=4, perm=RW-, "
        "topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false] Producer: 192.0.2.7:40001"
    )


async def test_sends_before_the_given_time_are_refused(tmp_path: Path) -> None:
    rig = BrokerRig(tmp_path, startAcceptSendRequestTimeStamp=str(START_MS + 1000))
    await rig.create_topic("orders")
    reply = await rig.send("orders")
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert (reply.remark or "").startswith("broker unable to service, until 2023-11-1")
    assert rig.board.topics["orders"][1] is False
    rig.clock.advance(1000)
    assert (await rig.send("orders")).code == ResponseCode.SUCCESS


async def test_only_order_topics_feel_that_the_broker_is_not_writeable(rig: BrokerRig) -> None:
    await rig.create_topic("ordered", order=True)
    await rig.create_topic("read-only", perm=4)
    await rig.broker.settings.update({"brokerPermission": "4"})
    reply = await rig.send("ordered")
    assert (reply.code, reply.remark) == (16, "the broker[127.0.0.1] sending message is forbidden")
    assert (await rig.send("orders")).code == ResponseCode.SUCCESS
    assert (await rig.send("read-only")).code == ResponseCode.SUCCESS


async def test_a_multi_tag_topic_marks_its_messages(rig: BrokerRig) -> None:
    await rig.create_topic("many", topic_filter_type=TopicFilterType.MULTI_TAG)
    await rig.send("many")
    assert rig.store.puts[0].sys_flag & SysFlag.MULTI_TAGS


@pytest.mark.parametrize(
    ("status", "code", "remark"),
    [
        (PutStatus.FLUSH_DISK_TIMEOUT, 10, None),
        (PutStatus.CREATE_MAPEDFILE_FAILED, 1, "create mapped file failed, server is busy or broken."),
        (PutStatus.MESSAGE_ILLEGAL, 13, ILLEGAL),
        (PutStatus.PROPERTIES_SIZE_EXCEEDED, 13, ILLEGAL),
        (PutStatus.SERVICE_NOT_AVAILABLE, 14, NOT_AVAILABLE),
        (PutStatus.OS_PAGECACHE_BUSY, 1, "[PC_SYNCHRONIZED]broker busy, start flow control for a while"),
        (PutStatus.UNKNOWN_ERROR, 1, "UNKNOWN_ERROR"),
    ],
)
async def test_each_put_status_has_its_answer(rig: BrokerRig, status: PutStatus, code: int, remark: str | None) -> None:
    rig.store.outcome = status
    reply = await rig.send("orders")
    assert (reply.code, reply.remark) == (code, remark)
    assert ("msgId" in (reply.ext_fields or {})) == (remark is None)


async def test_a_store_that_takes_nothing_says_why(rig: BrokerRig) -> None:
    rig.store.outcome = PutStatus.SERVICE_NOT_AVAILABLE
    rig.store.refusal_causes = causes_in(FLAGS["SLAVE"] | FLAGS["DISK_FULL"])
    reply = await rig.send("orders")
    assert reply.remark == NOT_AVAILABLE + ", cause: disk, the commit log's or the consume queues' is too full for more"


def test_whatever_closes_the_store_has_words() -> None:
    for name, bit in FLAGS.items():
        assert bool(bit & layout.REFUSING_FLAGS) <= bool(causes_in(bit)), name
    assert causes_in(0) == causes_in(FLAGS["NOT_READABLE"]) == ()


async def test_every_put_status_is_mapped(rig: BrokerRig) -> None:
    for status in PutStatus:
        rig.store.outcome = status
        reply = await rig.send("orders")
        assert not (reply.remark or "").startswith("KeyError")


async def test_a_busy_page_cache_rejects_before_anything_is_read(rig: BrokerRig) -> None:
    rig.store.is_page_cache_busy = True
    reply = await rig.ask(RequestCode.SEND_MESSAGE_V2, {})
    words = "[REJECTREQUEST]system busy, start flow control for a while, cause: disk, "
    assert (reply.code, (reply.remark or "")[: len(words)]) == (ResponseCode.SYSTEM_BUSY, words)
    assert await rig.tell(RequestCode.SEND_MESSAGE_V2, {}, oneway=True) is not None
    assert (await rig.ask(RequestCode.GET_ALL_TOPIC_CONFIG)).code == ResponseCode.SUCCESS


async def test_a_store_that_is_no_longer_busy_takes_sends_again(rig: BrokerRig) -> None:
    rig.store.is_page_cache_busy = True
    assert (await rig.send("orders")).code == ResponseCode.SYSTEM_BUSY
    rig.store.is_page_cache_busy = False
    async with asyncio.timeout(60):
        while (await rig.send("orders")).code != ResponseCode.SUCCESS:
            await asyncio.sleep(0.002)


async def test_a_header_without_a_required_field_is_an_error_without_region(rig: BrokerRig) -> None:
    reply = await rig.send("orders", a=None)
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "header field a" in (reply.remark or "")
    assert reply.ext_fields is None


async def test_a_oneway_send_gets_no_answer(rig: BrokerRig) -> None:
    assert await rig.tell(RequestCode.SEND_MESSAGE_V2, SEND | {"b": "orders"}, b"x", oneway=True) is None
    assert await rig.tell(RequestCode.SEND_MESSAGE_V2, SEND | {"b": " "}, b"x", oneway=True) is None
    assert len(rig.store.puts) == 1


async def test_a_batch_is_handed_over_whole_and_keeps_wait(rig: BrokerRig) -> None:
    body = encode_batch([Message("orders", b"1", tags="a"), Message("orders", b"2")])
    reply = await rig.send("orders", body, m=True, i="WAIT\x01true")
    assert reply.code == ResponseCode.SUCCESS
    ids = (reply.ext_fields or {})["msgId"].split(",")
    assert len(ids) == 2
    assert rig.store.puts[0].properties_text == "WAIT\x01true\x02CLUSTER\x01DefaultCluster"
    assert [message.properties["WAIT"] for message in rig.store.messages("orders")] == ["true", "true"]
    assert rig.broker.statistics.view("TOPIC_PUT_NUMS", "orders") is not None


async def test_the_flag_and_not_the_code_makes_a_batch(rig: BrokerRig) -> None:
    reply = await rig.ask(RequestCode.SEND_BATCH_MESSAGE, _send("orders", m=False), b"plain")
    assert reply.code == ResponseCode.SUCCESS
    assert rig.store.messages("orders")[0].body == b"plain"


async def test_a_delayed_message_waits_in_the_schedule_topic(rig: BrokerRig) -> None:
    reply = await rig.send("orders", e=3, i="DELAY\x012\x02WAIT\x01true")
    assert (reply.ext_fields or {})["queueId"] == "3"
    assert rig.store.messages("orders", 3) == []
    (message,) = rig.store.messages("SCHEDULE_TOPIC_XXXX", 1)
    assert message.properties == {
        "DELAY": "2",
        "WAIT": "true",
        "CLUSTER": "DefaultCluster",
        "REAL_TOPIC": "orders",
        "REAL_QID": "3",
    }


async def test_a_level_above_the_highest_becomes_the_highest(rig: BrokerRig) -> None:
    await rig.send("orders", i="DELAY\x0199")
    (message,) = rig.store.messages("SCHEDULE_TOPIC_XXXX", 3)
    assert message.properties["DELAY"] == "4"


async def test_a_delay_that_is_no_number_is_an_error(rig: BrokerRig) -> None:
    reply = await rig.send("orders", i="DELAY\x01soon")
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert rig.store.puts == []


async def test_transactions_are_refused_where_the_setting_says_so(rig: BrokerRig) -> None:
    rig.properties["rejectTransactionMessage"] = "true"
    rig.reopen()
    reply = await rig.send("orders", i="TRAN_MSG\x01true")
    assert (reply.code, reply.remark) == (16, "the broker[127.0.0.1] sending transaction message is forbidden")


async def test_a_retry_below_its_limit_goes_to_the_retry_topic(rig: BrokerRig) -> None:
    reply = await rig.send(retry_topic("g"), j=3, i="DELAY\x013")
    assert reply.code == ResponseCode.SUCCESS
    (message,) = rig.store.messages("SCHEDULE_TOPIC_XXXX", 2)
    assert message.properties["REAL_TOPIC"] == "%RETRY%g"
    assert message.reconsume_times == 3


@pytest.mark.parametrize(
    ("times", "limit", "version", "is_dead"),
    [
        (15, None, MQVersion.V4_9_8, False),
        (16, None, MQVersion.V4_9_8, True),
        (2, 2, MQVersion.V4_9_8, True),
        (2, 2, MQVersion.V3_4_9 - 1, False),
        (16, 99, MQVersion.V4_9_8, False),
    ],
)
async def test_a_retry_at_its_limit_is_a_dead_letter(
    rig: BrokerRig, times: int, limit: int | None, version: int, is_dead: bool
) -> None:
    ext = _send(retry_topic("g"), j=times, i="KEYS\x01k", **({} if limit is None else {"l": limit}))
    reply = await rig.ask(RequestCode.SEND_MESSAGE_V2, ext, b"x", version=version)
    assert reply.code == ResponseCode.SUCCESS
    assert len(rig.store.messages(dlq_topic("g"))) == is_dead
    assert len(rig.store.messages(retry_topic("g"))) == (not is_dead)


async def test_a_dead_letter_with_a_delay_property_passes_the_schedule_topic(rig: BrokerRig) -> None:
    await rig.send(retry_topic("g"), j=16, i="DELAY\x011")
    (message,) = rig.store.messages("SCHEDULE_TOPIC_XXXX", 0)
    assert message.properties["REAL_TOPIC"] == "%DLQ%g"
    assert rig.broker.topics.find("%DLQ%g") is not None


async def test_a_retry_of_an_unknown_group_is_refused(rig: BrokerRig) -> None:
    rig.properties["autoCreateSubscriptionGroup"] = "false"
    rig.reopen()
    reply = await rig.send(retry_topic("g"))
    assert (reply.code, reply.remark) == (26, "subscription group not exist, g")


async def test_stored_sends_are_counted_and_refused_ones_are_not(rig: BrokerRig) -> None:
    await rig.send("orders")
    rig.store.outcome = PutStatus.UNKNOWN_ERROR
    await rig.send("orders")
    await rig.broker.statistics.sample_minutes()
    spans = rig.broker.statistics.view("TOPIC_PUT_NUMS", "orders")
    assert spans is not None
    assert spans[0].sum == 1
    assert rig.broker.statistics.view("BROKER_PUT_NUMS", "DefaultCluster") is not None


async def test_a_send_over_the_fast_port_is_served(rig: BrokerRig) -> None:
    channel = MemoryChannel(is_vip=True)
    reply = await rig.ask(RequestCode.SEND_MESSAGE_V2, _send("orders"), b"x", channel=channel)
    assert reply.code == ResponseCode.SUCCESS


def _send(topic: str, **changes: object) -> dict[str, object]:
    return SEND | {"b": topic} | changes
