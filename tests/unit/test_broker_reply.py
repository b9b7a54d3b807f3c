"""Answers of request-reply: pushed to who asked, kept in the reply topic, and what the answerer hears of both."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_ports import START_MS, BrokerRig, MemoryChannel

from mqcore.broker.ports import PutStatus
from mqcore.codes import RequestCode, ResponseCode
from mqcore.protocol import headers
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.message_id import encode_offset_message_id
from mqcore.protocol.properties import decode_properties

TOPIC = "DefaultCluster_REPLY_TOPIC"
ASKER = "192.0.2.1@asker"
PUSH = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
PLACE = {"msgId", "queueId", "queueOffset"}
TEXT = f"CORRELATION_ID\x01id-1\x02REPLY_TO_CLIENT\x01{ASKER}\x02MSG_TYPE\x01reply\x02TTL\x013000\x02WAIT\x01true"


@pytest.fixture
def rig(tmp_path: Path) -> BrokerRig:
    return BrokerRig(tmp_path)


async def asker(rig: BrokerRig, code: int = ResponseCode.SUCCESS) -> MemoryChannel:
    """A producer that takes answers, or refuses them with *code*."""
    channel = MemoryChannel("192.0.2.1", 40_009)
    channel.answers[PUSH] = RemotingCommand(code, remark="why not")
    await rig.heart_beat("", channel=channel, client_id=ASKER, producers=["askers"])
    return channel


async def answer(
    rig: BrokerRig, properties: str | None = TEXT, body: bytes = b"re", **changes: object
) -> RemotingCommand:
    fields = headers.encode_request(
        RequestCode.SEND_REPLY_MESSAGE_V2,
        **{
            "producer_group": "answerers", "topic": TOPIC, "default_topic": "TBW102", "default_topic_queue_nums": 4,
            "queue_id": 0, "sys_flag": 1, "born_timestamp": START_MS - 5, "flag": 9, "properties": properties,
            "reconsume_times": 2, "unit_mode": False, "batch": False,
        } | changes,
    )  # fmt: skip
    return await rig.ask(RequestCode.SEND_REPLY_MESSAGE_V2, fields, body)


def pushed(channel: MemoryChannel) -> tuple[dict[str, object], bytes]:
    (command,) = channel.asked
    assert command.code == PUSH
    return headers.decode_request(PUSH, command.ext_fields), command.body


async def test_an_answer_is_pushed_to_who_asked_as_it_came(rig: BrokerRig) -> None:
    channel = await asker(rig)
    assert (await answer(rig)).code == ResponseCode.SUCCESS
    values, body = pushed(channel)
    properties = decode_properties(str(values.pop("properties")))
    assert properties == decode_properties(TEXT) | {"PUSH_REPLY_TIME": str(START_MS)}
    assert body == b"re"
    assert values == {
        "producer_group": "answerers", "topic": TOPIC, "default_topic": "TBW102", "default_topic_queue_nums": 4,
        "queue_id": 0, "sys_flag": 1, "born_timestamp": START_MS - 5, "flag": 9, "reconsume_times": 2,
        "unit_mode": False, "born_host": "192.0.2.7:40001", "store_host": "127.0.0.1:10911",
        "store_timestamp": START_MS,
    }  # fmt: skip


async def test_the_first_version_of_the_code_is_answered_alike(rig: BrokerRig) -> None:
    channel = await asker(rig)
    fields = headers.encode_request(
        RequestCode.SEND_REPLY_MESSAGE,
        producer_group="answerers", topic=TOPIC, default_topic="TBW102", default_topic_queue_nums=4, queue_id=0,
        sys_flag=0, born_timestamp=START_MS, flag=0, properties=TEXT,
    )  # fmt: skip
    reply = await rig.ask(RequestCode.SEND_REPLY_MESSAGE, fields, b"old")
    assert reply.code == ResponseCode.SUCCESS
    assert pushed(channel)[1] == b"old"


async def test_an_answer_is_kept_with_the_text_that_came(rig: BrokerRig) -> None:
    await asker(rig)
    reply = await answer(rig)
    (message,) = rig.store.puts
    assert (message.properties_text, message.sys_flag, message.flag) == (TEXT, 0, 9)
    assert (message.reconsume_times, message.born_timestamp, message.body) == (2, START_MS - 5, b"re")
    (stored,) = rig.store.messages(TOPIC)
    place = encode_offset_message_id(stored.store_host, stored.physical_offset)
    assert reply.ext_fields == {
        "MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "msgId": place, "queueId": "0", "queueOffset": "0",
    }  # fmt: skip
    assert rig.broker.statistics.view("TOPIC_PUT_NUMS", TOPIC) is not None


async def test_answers_are_not_kept_where_that_is_switched_off(tmp_path: Path) -> None:
    rig = BrokerRig(tmp_path, storeReplyMessageEnable="false")
    channel = await asker(rig)
    reply = await answer(rig, queue_id=-1)
    assert (reply.code, rig.store.puts, len(channel.asked)) == (0, [], 1)
    assert reply.ext_fields is not None
    assert {name: reply.ext_fields[name] for name in PLACE} == {"msgId": "0", "queueId": "0", "queueOffset": "0"}
    assert pushed(channel)[0]["queue_id"] == -1


@pytest.mark.parametrize("keep", ["true", "false"])
@pytest.mark.parametrize(
    ("properties", "code", "remark"),
    [
        pytest.param(None, 0, "reply message properties[REPLY_TO_CLIENT] is null", id="nobody is named"),
        pytest.param(
            "REPLY_TO_CLIENT\x01gone", 0, "push reply message fail, channel of <gone> not found.", id="who is not there"
        ),
        pytest.param(TEXT, 1, f"push reply message to {ASKER}fail.", id="who does not take it"),
        pytest.param(TEXT, None, f"push reply message to {ASKER}fail.", id="who does not say a word"),
    ],
)
async def test_an_answer_that_nobody_took_is_an_error_and_kept_all_the_same(
    tmp_path: Path, keep: str, properties: str | None, code: int | None, remark: str
) -> None:
    rig = BrokerRig(tmp_path, storeReplyMessageEnable=keep)
    channel = await asker(rig, code or 0)
    if code is None:
        channel.answers.clear()
    reply = await answer(rig, properties)
    assert (reply.code, reply.remark) == (1, remark)
    assert (set(reply.ext_fields or {}) >= PLACE) is (keep == "true")
    assert len(rig.store.messages(TOPIC)) == (keep == "true")


async def test_an_answer_that_cannot_be_kept_counts_all_the_same(rig: BrokerRig) -> None:
    channel = await asker(rig)
    rig.store.outcome = PutStatus.SERVICE_NOT_AVAILABLE
    reply = await answer(rig)
    assert (reply.code, len(channel.asked)) == (0, 1)
    assert (reply.ext_fields or {})["msgId"] == "0"
    assert rig.broker.statistics.view("TOPIC_PUT_NUMS", TOPIC) is None


async def test_answers_follow_the_client_to_its_newest_connection(rig: BrokerRig) -> None:
    first, second = await asker(rig), await asker(rig)
    await answer(rig)
    rig.core.on_channel_closed(second)
    failed = await answer(rig)
    assert (len(first.asked), len(second.asked)) == (0, 1)
    assert failed.remark == f"push reply message fail, channel of <{ASKER}> not found."


@pytest.mark.parametrize(
    ("changes", "code"),
    [({"topic": "SCHEDULE_TOPIC_XXXX"}, 16), ({"topic": "a b"}, 1), ({"queue_id": 1}, 1), ({"default_topic": "x"}, 17)],
)
async def test_an_answer_passes_the_checks_of_any_send(rig: BrokerRig, changes: dict[str, object], code: int) -> None:
    channel = await asker(rig)
    changes = {"topic": "Elsewhere"} | changes if code == 17 else changes
    reply = await answer(rig, **changes)
    assert (reply.code, channel.asked, rig.store.puts) == (code, [], [])
    assert set(reply.ext_fields or {}) == {"MSG_REGION", "TRACE_ON"}


async def test_the_reply_topic_is_there_from_the_start(tmp_path: Path) -> None:
    rig = BrokerRig(tmp_path, brokerClusterName="c2")
    config = rig.broker.topics.find("c2_REPLY_TOPIC")
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)


async def test_whether_answers_are_kept_may_change_while_the_broker_runs(rig: BrokerRig) -> None:
    await asker(rig)
    assert (await rig.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"storeReplyMessageEnable=false")).code == 0
    await answer(rig)
    assert rig.store.puts == []


async def test_answers_to_who_has_taken_one_need_not_come_here_any_more(rig: BrokerRig) -> None:
    refusing = await asker(rig, ResponseCode.SYSTEM_ERROR)
    await answer(rig)
    assert refusing.takes_answers_of == ""
    channel = await asker(rig)
    await answer(rig)
    assert (refusing.takes_answers_of, channel.takes_answers_of) == ("", ASKER)


async def test_answers_come_here_again_when_the_asker_has_another_connection_or_leaves(rig: BrokerRig) -> None:
    first = await asker(rig)
    await answer(rig)
    second = await asker(rig)
    assert (first.takes_answers_of, second.takes_answers_of) == ("", "")
    await answer(rig)
    assert (first.takes_answers_of, second.takes_answers_of) == ("", ASKER)
    rig.broker.producers.unregister("askers", second)
    assert second.takes_answers_of == ""


async def test_a_connection_of_two_askers_takes_the_answers_of_the_last_one(rig: BrokerRig) -> None:
    channel = await asker(rig)
    await rig.heart_beat("", channel=channel, client_id="other", producers=["others"])
    await answer(rig)
    await answer(rig, "REPLY_TO_CLIENT\x01other")
    assert channel.takes_answers_of == "other"
    rig.broker.producers.unregister("askers", channel)
    assert channel.takes_answers_of == "other"
    rig.broker.producers.unregister("others", channel)
    assert channel.takes_answers_of == ""
