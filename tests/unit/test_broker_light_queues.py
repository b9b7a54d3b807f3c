"""Light queues in the broker's tables: topics and groups that nobody configured, and offsets in a file of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_ports import BrokerRig
from fast_rig import shared_segment

from mqcore.broker.ports import GetCount, InnerMessage
from mqcore.broker.segment.multi_dispatch import LightQueues, MultiDispatch, text_for_offsets
from mqcore.broker.statistics import StatsName
from mqcore.codes import RequestCode
from mqcore.config import load
from mqcore.errors import StoreError
from mqcore.protocol import fastjson
from mqcore.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from mqcore.protocol.message_id import HostAddress
from mqcore.protocol.properties import decode_properties, encode_properties

LIGHT = {"enableLmq": "true", "enableMultiDispatch": "true", "maxLmqConsumeQueueNum": "3"}
TOPIC, GROUP = "%LMQ%room", "%LMQ%reader"
PULL: dict[str, object] = {
    "consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4,
    "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0, "expressionType": "TAG",
}  # fmt: skip
HOST = HostAddress("127.0.0.1", 1)


@pytest.fixture
async def rig(tmp_path: Path) -> BrokerRig:
    return BrokerRig(tmp_path, **LIGHT)


def message(listed: str, queue_id: int = 2) -> InnerMessage:
    properties = {"TAGS": "a", "INNER_MULTI_DISPATCH": listed, "INNER_MULTI_QUEUE_OFFSET": "7"}
    return InnerMessage("orders", queue_id, b"x", 1, HOST, HOST, properties=properties,
                        properties_text=encode_properties(properties))  # fmt: skip


async def test_every_light_name_is_a_topic_and_a_group(rig: BrokerRig) -> None:
    assert rig.broker.topics.find(TOPIC) == TopicConfig(TOPIC, 1, 1, 6)
    assert rig.broker.groups.find(GROUP) == SubscriptionGroupConfig(group_name=GROUP)
    assert await rig.broker.groups.find_or_create(GROUP) == SubscriptionGroupConfig(group_name=GROUP)
    await rig.broker.topics.update(TopicConfig(TOPIC, 8, 8, 2))
    await rig.broker.groups.update(SubscriptionGroupConfig(group_name=GROUP, consume_enable=False))
    assert rig.broker.topics.find(TOPIC) == TopicConfig(TOPIC, 1, 1, 6)
    assert TOPIC not in rig.broker.topics.names
    assert GROUP not in rig.broker.groups.wrapper.subscription_group_table


async def test_without_the_setting_a_light_name_is_any_name(tmp_path: Path) -> None:
    rig = BrokerRig(tmp_path)
    assert (rig.broker.topics.find(TOPIC), rig.broker.groups.find(GROUP)) == (None, None)
    await rig.broker.topics.update(TopicConfig(TOPIC, 8, 8, 2))
    assert rig.broker.topics.find(TOPIC) == TopicConfig(TOPIC, 8, 8, 2)


async def test_a_message_may_be_sent_to_a_light_queue_itself(rig: BrokerRig) -> None:
    assert (await rig.send(TOPIC, b"hello")).code == 0
    assert [found.body for found in rig.store.messages(TOPIC)] == [b"hello"]


@pytest.mark.parametrize(("count", "queue_id", "code"), [(3, 0, None), (4, 0, 1), (3, 1, 1)])
async def test_a_light_queue_is_read_while_there_are_not_too_many(
    rig: BrokerRig, count: int, queue_id: int, code: int | None
) -> None:
    rig.store.light_queues = count
    reply = await rig.tell(RequestCode.PULL_MESSAGE, PULL | {"queueId": queue_id})
    assert (None if reply is None else reply.code) == code
    if reply is not None and queue_id == 0:
        assert reply.remark == "store getMessage return null"


async def test_offsets_of_light_groups_stand_in_their_own_table(rig: BrokerRig) -> None:
    for group, topic, queue_id, offset in ((GROUP, TOPIC, 0, 5), ("g", TOPIC, 0, 6), ("g", "orders", 3, 7)):
        rig.broker.offsets.commit(group, topic, queue_id, offset, "c")
    await rig.broker.offsets.persist()
    assert fastjson.loads(rig.config_text("lmqConsumerOffset.json")) == {
        "lmqOffsetTable": {f"{TOPIC}@{GROUP}": 5},
        "offsetTable": {f"{TOPIC}@g": {"0": 6}, "orders@g": {"3": 7}},
    }
    assert not (rig.root / "store" / "config" / "consumerOffset.json").exists()
    rig.reopen()
    offsets = rig.broker.offsets
    assert (offsets.query(GROUP, TOPIC, 0), offsets.query("g", TOPIC, 0), offsets.query("g", "orders", 3)) == (5, 6, 7)


async def test_a_deleted_light_queue_is_dropped_alone(rig: BrokerRig) -> None:
    assert (await rig.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC})).code == 0
    assert rig.store.orders == [("drop light queue", TOPIC)]


@pytest.mark.parametrize(
    ("listed", "queues"),
    [
        ("%LMQ%a,Second", [("%LMQ%a", 0), ("Second", 2)]),
        ("%LMQ%a,,", [("%LMQ%a", 0)]),
        ("", []),
        ("  ", []),
        (",", []),
    ],
)
def test_which_queues_a_message_lists(listed: str, queues: list[tuple[str, int]]) -> None:
    settings = load(overrides={"bindAddress": "127.0.0.1", **LIGHT}, environment={})
    assert MultiDispatch(settings, LightQueues()).queues_of(message(listed)) == queues
    off = load(overrides={"bindAddress": "127.0.0.1"}, environment={})
    assert MultiDispatch(off, LightQueues()).queues_of(message(listed)) == []


@pytest.mark.parametrize("listed", [",a", "a,,b", "a b", "../x", "%LMQ%" + "x" * 123])
def test_a_name_that_no_queue_can_have_is_refused(listed: str) -> None:
    settings = load(overrides={"bindAddress": "127.0.0.1", **LIGHT}, environment={})
    with pytest.raises(StoreError, match="wanted the name of a topic"):
        MultiDispatch(settings, LightQueues()).queues_of(message(listed))


def test_the_bound_counts_queues_and_not_messages() -> None:
    settings = load(overrides={"bindAddress": "127.0.0.1", **LIGHT}, environment={})
    dispatch = MultiDispatch(settings, light := LightQueues(["%LMQ%a"]))
    first = [("%LMQ%a", 0), ("%LMQ%b", 0), ("Second", 1), ("%LMQ%c", 0)]
    assert dispatch.admits(first)
    dispatch.note(first)
    assert light.count == 3
    assert dispatch.admits(first)
    assert not dispatch.admits([("%LMQ%a", 0), ("%LMQ%d", 0)])
    light.forget("%LMQ%b")
    assert dispatch.admits([("%LMQ%d", 0)])


def test_queues_of_a_recovered_store_are_counted() -> None:
    with shared_segment() as segment:
        for topic, next_offset in ((b"%LMQ%a", 3), (b"%LMQ%b", 0), (b"orders", 9)):
            segment.set_queue_word(segment.queue_row(topic, 0, True), "next_offset", next_offset)
        assert LightQueues.on_board(segment).count == 1


def test_the_text_ends_where_the_offsets_follow() -> None:
    text = text_for_offsets(message("%LMQ%a"))
    assert text.endswith("\x02INNER_MULTI_QUEUE_OFFSET\x01")
    assert decode_properties(text + "4,5") == {
        "TAGS": "a", "INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "4,5",
    }  # fmt: skip


async def test_gets_of_light_names_are_counted_together(rig: BrokerRig) -> None:
    rig.counters.get_counts = [
        GetCount(TOPIC, GROUP, 0, 3, 30, 1), GetCount("%LMQ%other", "%LMQ%g", 0, 4, 40, 1),
        GetCount(TOPIC, "g", 0, 5, 50, 1), GetCount("orders", "g", 0, 6, 60, 1),
    ]  # fmt: skip
    await rig.broker.statistics.sample_minutes()
    names = ("%LMQ%@%LMQ%", "%LMQ%@g", "orders@g", f"{TOPIC}@g")
    spans = [rig.broker.statistics.view(StatsName.GROUP_GET_NUMS, name) for name in names]
    assert [None if span is None else span[0].sum for span in spans] == [7, 5, 6, None]
