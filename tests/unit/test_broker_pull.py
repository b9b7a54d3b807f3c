"""The checks of a pull, in their order, and the binding that they end in."""

from __future__ import annotations

import itertools
import random
from collections.abc import Awaitable, Callable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest
from broker_ports import BrokerRig, MemoryChannel, subscription

from mqcore import layout
from mqcore._fast.filter.program import LoadedProgram
from mqcore.broker.ports import PullBinding
from mqcore.broker.processors.pull import pull_header
from mqcore.broker.server import read_pull_request
from mqcore.codes import RequestCode, SerializeType
from mqcore.filter.sql import compile_sql
from mqcore.protocol import fastjson
from mqcore.protocol.bodies import MessageModel, SubscriptionData, SubscriptionGroupConfig
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.hashing import java_string_hash

ACTS = 400
PULL: dict[str, object] = {
    "consumerGroup": "g",
    "topic": "orders",
    "queueId": 0,
    "queueOffset": 0,
    "maxMsgNums": 32,
    "sysFlag": 2,
    "commitOffset": 0,
    "suspendTimeoutMillis": 15_000,
    "subscription": "*",
    "subVersion": 0,
    "expressionType": "TAG",
}


@pytest.fixture
async def rig(tmp_path: Path) -> BrokerRig:
    rig = BrokerRig(tmp_path)
    await rig.create_topic("orders")
    return rig


async def refusal(rig: BrokerRig, **changes: object) -> tuple[int, str | None]:
    """Pull, and return code and remark of the refusal; its ext fields are an empty object."""
    reply = await rig.ask(RequestCode.PULL_MESSAGE, PULL | changes)
    assert reply.ext_fields == {}
    assert rig.pulls.dispatched == []
    return reply.code, reply.remark


async def binding(rig: BrokerRig, code: RequestCode = RequestCode.PULL_MESSAGE, **changes: object) -> PullBinding:
    """Pull, and return what the pull worker was given."""
    assert await rig.tell(code, PULL | changes) is None
    return rig.pulls.dispatched.pop()[1]


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
async def test_a_registered_member_gets_a_binding(rig: BrokerRig, code: RequestCode) -> None:
    await rig.heart_beat("g", [subscription("orders", "a || b", 5)])
    found = await binding(rig, code, subVersion=5)
    assert found == PullBinding(
        group="g",
        topic="orders",
        queue_count=4,
        match_all=False,
        tag_codes=tuple(sorted(map(java_string_hash, "ab"))),
        suspend_limit_ms=None,
        suspend_max_ms=60_000,
        broker_id=0,
        slow_broker_id=0,
        sub_version=5,
        expression=None,
    )


async def test_a_pull_with_its_own_expression_needs_no_heart_beat(rig: BrokerRig) -> None:
    found = await binding(rig, sysFlag=6, subscription="x", subVersion=9)
    assert (found.match_all, found.tag_codes, found.expression) == (False, (java_string_hash("x"),), "x")
    assert (await binding(rig, sysFlag=6, subscription="*")).match_all


async def test_class_filter_mode_matches_everything(rig: BrokerRig) -> None:
    await rig.heart_beat("g", [SubscriptionData("orders", "Some.class", class_filter_mode=True)])
    assert (await binding(rig)).match_all


async def test_long_polling_off_limits_the_hold(rig: BrokerRig) -> None:
    await rig.heart_beat("g", [subscription("orders")])
    await rig.broker.settings.update({"longPollingEnable": "false", "shortPollingTimeMills": "700"})
    assert (await binding(rig)).suspend_limit_ms == 700


async def test_slave_reads_suggest_the_groups_brokers(rig: BrokerRig) -> None:
    await rig.heart_beat("g", [subscription("orders")])
    await rig.broker.groups.update(SubscriptionGroupConfig("g", broker_id=0, which_broker_when_consume_slowly=3))
    await rig.broker.settings.update({"slaveReadEnable": "true"})
    assert (await binding(rig)).slow_broker_id == 3


@pytest.mark.parametrize(("setting", "wanted"), [("true", (2, 3)), ("false", (0, 0))])
async def test_without_slave_reads_everybody_is_told_to_ask_the_master(
    rig: BrokerRig, setting: str, wanted: tuple[int, int]
) -> None:
    await rig.heart_beat("g", [subscription("orders")])
    await rig.broker.groups.update(SubscriptionGroupConfig("g", broker_id=2, which_broker_when_consume_slowly=3))
    await rig.broker.settings.update({"slaveReadEnable": setting})
    found = await binding(rig)
    assert (found.broker_id, found.slow_broker_id) == wanted


async def test_refusals_in_their_order(rig: BrokerRig) -> None:
    await rig.broker.settings.update({"brokerPermission": "2", "autoCreateSubscriptionGroup": "false"})
    assert await refusal(rig, topic="none") == (16, "the broker[127.0.0.1] pulling message is forbidden")
    await rig.broker.settings.update({"brokerPermission": "6"})
    code, remark = await refusal(rig, topic="none")
    assert code == 26
    assert (remark or "").startswith("subscription group [g] does not exist, ")
    await rig.broker.groups.update(SubscriptionGroupConfig("g", consume_enable=False, consume_broadcast_enable=False))
    assert await refusal(rig, topic="none") == (16, "subscription group no permission, g")
    await rig.broker.groups.update(SubscriptionGroupConfig("g", consume_broadcast_enable=False))
    code, remark = await refusal(rig, topic="none")
    assert code == 17
    assert (remark or "").startswith("topic[none] not exist, apply first please!")
    await rig.create_topic("write-only", perm=2)
    assert await refusal(rig, topic="write-only", queueId=9) == (
        16, "the topic[write-only] pulling message is forbidden",
    )  # fmt: skip
    for queue_id in (4, -1):
        assert await refusal(rig, queueId=queue_id) == (
            1,
            f"queueId[{queue_id}] is illegal, topic:[orders] topicConfig.readQueueNums:[4] consumer:[/192.0.2.7:40001]",
        )
    code, remark = await refusal(rig)
    assert code == 24
    assert (remark or "").startswith("the consumer's group info not exist")
    await rig.heart_beat("g", [subscription("other")], model=MessageModel.BROADCASTING)
    assert await refusal(rig) == (16, "the consumer group[g] can not consume by broadcast way")
    await rig.heart_beat("g", [subscription("other")])
    code, remark = await refusal(rig)
    assert code == 24
    assert (remark or "").startswith("the consumer's subscription not exist")
    await rig.heart_beat("g", [subscription("orders", version=5)])
    assert await refusal(rig, subVersion=6) == (25, "the consumer's subscription not latest")
    assert (await binding(rig, subVersion=4)).sub_version == 5


async def test_an_expression_that_does_not_parse_is_refused(rig: BrokerRig) -> None:
    assert await refusal(rig, sysFlag=6, subscription="||") == (23, "parse the consumer's subscription failed")


SQL = {"subscription": "a > 1", "expressionType": "SQL92"}


@pytest.mark.parametrize("flag", [2, 6])
async def test_sql_is_refused_where_it_is_switched_off(rig: BrokerRig, flag: int) -> None:
    await rig.broker.settings.update({"enablePropertyFilter": "false"})
    await rig.heart_beat("g", [subscription("orders", "a > 1", kind="SQL92")])
    assert await refusal(rig, sysFlag=flag, subscription="a > 1", expressionType="SQL92") == (
        1, "The broker does not support consumer to filter message by SQL92",
    )  # fmt: skip


async def test_a_filter_that_was_registered_goes_with_the_binding(rig: BrokerRig) -> None:
    await rig.heart_beat("g", [subscription("orders", "a > 1", 5, kind="SQL92")])
    found = await binding(rig, **SQL, subVersion=5)
    assert (found.match_all, found.tag_codes, found.expression) == (True, (), None)
    assert found.program == compile_sql("a > 1").program
    assert (len(found.bits), found.bitmap_bits, found.bitmap_from) == (3, 112, -1)


async def test_a_pull_may_bring_its_own_filter(rig: BrokerRig) -> None:
    found = await binding(rig, **SQL, sysFlag=6)
    assert (found.match_all, found.program, found.bits) == (True, compile_sql("a > 1").program, ())
    assert found.expression == "a > 1"
    # Apache's broker would let everything through.
    assert await refusal(rig, **SQL | {"subscription": "a >"}, sysFlag=6) == (
        23, "parse the consumer's subscription failed",
    )  # fmt: skip


async def test_a_filter_that_was_not_understood_is_not_there(rig: BrokerRig) -> None:
    await rig.heart_beat("g", [subscription("orders", "a >", kind="SQL92")])
    assert await refusal(rig, **SQL) == (
        27, "The broker's consumer filter data is not exist!Your expression may be wrong!",
    )  # fmt: skip


async def test_a_filter_older_than_the_pull_is_not_used(rig: BrokerRig) -> None:
    await rig.heart_beat("g", [subscription("orders", "a > 1", 5, kind="SQL92")])
    # The subscription is newer by then, the filter is not: what it became is not understood.
    filters = rig.broker.filters.by_topic["orders"]
    filters["g"] = replace(filters["g"], client_version=4)
    assert await refusal(rig, **SQL, subVersion=5) == (28, "the consumer's consumer filter data not latest")


async def test_a_retry_topic_is_filtered_by_what_its_messages_are_from(tmp_path: Path) -> None:
    rig = BrokerRig(tmp_path, filterSupportRetry="true")
    await rig.create_topic("orders")
    await rig.heart_beat("g", [
        subscription("orders", "a > 1", kind="SQL92"), subscription("bills", "a < 1", kind="SQL92"),
        subscription("%RETRY%g", "a = 1", kind="SQL92"),
    ])  # fmt: skip
    found = await binding(rig, topic="%RETRY%g", **SQL)
    program = LoadedProgram(found.program)
    for text, wanted in (
        (b"RETRY_TOPIC\x01orders\x02a\x012", True),
        (b"RETRY_TOPIC\x01orders\x02a\x010", False),
        (b"RETRY_TOPIC\x01bills\x02a\x010", True),
        (b"RETRY_TOPIC\x01bills", None),
        (b"RETRY_TOPIC\x01others\x02a\x012", True),
        (b"a\x012", True),
    ):
        assert program.run(text) is wanted, text


async def test_a_pull_over_the_fast_port_is_not_supported(rig: BrokerRig) -> None:
    reply = await rig.ask(RequestCode.PULL_MESSAGE, PULL, channel=MemoryChannel(is_vip=True))
    assert (reply.code, reply.remark) == (3, " request type 11 not supported")


async def test_a_pull_without_a_required_field_is_an_error(rig: BrokerRig) -> None:
    reply = await rig.ask(RequestCode.PULL_MESSAGE, {"topic": "orders"})
    assert reply.code == 1


# Epochs ---------------------------------------------------------------------------------------------------------------


async def join(rig: BrokerRig, group: str, *subscriptions: SubscriptionData, **changes: Any) -> MemoryChannel:
    channel = MemoryChannel()
    await rig.heart_beat(group, subscriptions, channel=channel, client_id=f"{group}-{channel.channel_id}", **changes)
    return channel


GROUPS, TOPICS = ("g", "other"), ("orders", "elsewhere")
PAIRS = tuple(itertools.product(TOPICS, GROUPS))
GROUP_CHANGES: dict[str, Callable[[BrokerRig, MemoryChannel], Awaitable[object]]] = {
    "another subscription": lambda rig, _: join(rig, "g", subscription("orders", version=1), subscription("elsewhere")),
    "a newer subscription": lambda rig, _: join(rig, "g", subscription("orders", "tag", version=2)),
    "a topic less": lambda rig, _: join(rig, "g", subscription("elsewhere", version=1)),
    "another message model": lambda rig, _: join(
        rig, "g", subscription("orders", version=1), model=MessageModel.BROADCASTING
    ),
    "the last member's good-bye": lambda rig, member: rig.ask(
        RequestCode.UNREGISTER_CLIENT, {"clientID": "c", "consumerGroup": "g"}, channel=member
    ),
    "the last member's end": lambda rig, member: later(rig.core.on_channel_closed, member),
    "the last member's silence": lambda rig, _: later(silence, rig, "g"),
    "a group that may not consume": lambda rig, _: rig.broker.groups.update(
        SubscriptionGroupConfig("g", consume_enable=False)
    ),
    "a group that reads elsewhere": lambda rig, _: rig.broker.groups.update(SubscriptionGroupConfig("g", broker_id=3)),
    "the group's deletion": lambda rig, _: rig.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g"}),
}
TOPIC_CHANGES: dict[str, Callable[[BrokerRig, MemoryChannel], Awaitable[object]]] = {
    "fewer queues": lambda rig, _: rig.create_topic("orders", 1),
    "another permission": lambda rig, _: rig.create_topic("orders", perm=2),
    "another order": lambda rig, _: rig.broker.topics.update_order(["orders"]),
    "the topic's deletion": lambda rig, _: rig.broker.topics.delete("orders"),
}
SETTINGS = {"brokerPermission": "2", "longPollingEnable": "false", "slaveReadEnable": "true"}


async def later(act: Callable[..., object], *arguments: object) -> None:
    act(*arguments)


def silence(rig: BrokerRig, group: str) -> None:
    """The members of *group* have been silent for too long, the others not."""
    for name, info in rig.broker.consumers.groups.items():
        for member in info.channels.values():
            member.updated = rig.clock() - (300_000 if name == group else 0)
    rig.broker.consumers.remove_silent(120_000)


@pytest.fixture
async def crowd(rig: BrokerRig) -> tuple[BrokerRig, MemoryChannel]:
    """Two groups that read one topic, a second topic, and the member of the first."""
    await rig.create_topic("elsewhere")
    member = await join(rig, "g", subscription("orders", version=1))
    await join(rig, "other", subscription("orders", version=1), subscription("elsewhere", version=1))
    return rig, member


def epochs(rig: BrokerRig) -> dict[tuple[str, str], int]:
    return {pair: rig.board.epoch(*pair) for pair in PAIRS}


@pytest.mark.parametrize("change", GROUP_CHANGES)
async def test_a_groups_change_makes_its_bindings_stale_and_no_others(
    crowd: tuple[BrokerRig, MemoryChannel], change: str
) -> None:
    rig, member = crowd
    before = epochs(rig)
    await GROUP_CHANGES[change](rig, member)
    assert {pair for pair, epoch in epochs(rig).items() if epoch > before[pair]} == {(topic, "g") for topic in TOPICS}


@pytest.mark.parametrize("change", TOPIC_CHANGES)
async def test_a_topics_change_makes_its_bindings_stale_and_no_others(
    crowd: tuple[BrokerRig, MemoryChannel], change: str
) -> None:
    rig, member = crowd
    before = epochs(rig)
    await TOPIC_CHANGES[change](rig, member)
    stale = {pair for pair, epoch in epochs(rig).items() if epoch > before[pair]}
    assert stale == {("orders", group) for group in GROUPS}


@pytest.mark.parametrize("name", SETTINGS)
async def test_a_setting_makes_all_bindings_stale(crowd: tuple[BrokerRig, MemoryChannel], name: str) -> None:
    rig, _ = crowd
    before = epochs(rig)
    await rig.broker.settings.update({name: SETTINGS[name]})
    assert all(epoch > before[pair] for pair, epoch in epochs(rig).items())


async def test_a_heart_beat_with_nothing_new_leaves_bindings_alone(crowd: tuple[BrokerRig, MemoryChannel]) -> None:
    rig, member = crowd
    before = epochs(rig)
    await rig.heart_beat("g", [subscription("orders", version=1)], channel=member, client_id="g")
    await join(rig, "g", subscription("orders", version=1))
    rig.core.on_channel_closed(member)
    await rig.broker.topics.create("new", 4, 6, 0)
    await rig.broker.groups.update(SubscriptionGroupConfig("new"))
    assert epochs(rig) == before


async def outcomes(rig: BrokerRig) -> dict[tuple[str, str], object]:
    """What every pull of the crowd's pairs is told now."""
    found: dict[tuple[str, str], object] = {}
    for topic, group in PAIRS:
        request = RemotingCommand(
            RequestCode.PULL_MESSAGE,
            ext_fields={k: str(v) for k, v in (PULL | {"topic": topic, "consumerGroup": group, "queueId": 1}).items()},
        )
        answer = await rig.core.resolve_pull(rig.client, pull_header(request), request)
        found[topic, group] = (answer.code, answer.remark) if isinstance(answer, RemotingCommand) else answer
    return found


async def test_whatever_changes_an_answer_makes_it_stale(
    crowd: tuple[BrokerRig, MemoryChannel], chance: random.Random
) -> None:
    rig, member = crowd
    acts = [*GROUP_CHANGES.values(), *TOPIC_CHANGES.values()]
    acts += [lambda rig, _, change=change: rig.broker.settings.update(change) for change in (
        *({name: value} for name, value in SETTINGS.items()), {"brokerPermission": "6"}, {"longPollingEnable": "true"},
    )]  # fmt: skip
    acts += [
        lambda rig, _: rig.create_topic("orders"),
        lambda rig, _: rig.broker.groups.update(SubscriptionGroupConfig("g")),
        lambda rig, _: rig.broker.settings.update({"autoCreateSubscriptionGroup": "false"}),
        lambda rig, _: join(rig, "g", subscription("orders", version=chance.randrange(9))),
    ]
    changed = 0
    for _ in range(ACTS):
        told = await outcomes(rig)
        # The questions themselves may create a group, which is not what is looked at here.
        before = epochs(rig)
        await chance.choice(acts)(rig, member)
        rig.clock.advance(1)
        after = epochs(rig)
        for pair, outcome in (await outcomes(rig)).items():
            if outcome != told[pair]:
                changed += 1
                assert after[pair] > before[pair], f"{pair}: {told[pair]} became {outcome}"
    assert changed > ACTS // 10, "hardly anything changed"


async def test_the_pull_worker_can_ask_directly(rig: BrokerRig) -> None:
    request = RemotingCommand(RequestCode.PULL_MESSAGE, opaque=5, ext_fields={k: str(v) for k, v in PULL.items()})
    header = pull_header(request)
    refused = await rig.core.resolve_pull(rig.client, header, RemotingCommand(RequestCode.PULL_MESSAGE, opaque=5))
    assert isinstance(refused, RemotingCommand)
    assert (refused.code, refused.opaque) == (24, 5)
    await rig.heart_beat("g", [subscription("orders")])
    assert isinstance(await rig.core.resolve_pull(rig.client, header, request), PullBinding)


async def test_a_moved_offset_leaves_an_event_message(rig: BrokerRig) -> None:
    await rig.core.on_offset_moved("g", "orders", 3, 100, 7)
    (message,) = rig.store.messages("OFFSET_MOVED_EVENT")
    assert list(message.properties.items()) == [("KEYS", "g"), ("DELAY", "0"), ("TAGS", "g")]
    assert message.body == (
        b'{"consumerGroup":"g","messageQueue":{"brokerName":"broker-a","queueId":3,"topic":"orders"},'
        b'"offsetNew":7,"offsetRequest":100}'
    )
    assert fastjson.loads(message.body)["offsetNew"] == 7


def test_a_pull_worker_asks_about_the_pull_as_it_came() -> None:
    numbers = {field.name: 10 + index for index, field in enumerate(layout.PULL_REQUEST.fields)}
    texts = {"topic": "orders", "group": "gr\u00fcn", "subscription": "", "expression_type": None}
    sizes = {f"{name}_size": -1 if text is None else len(text.encode()) for name, text in texts.items()}
    values = {**numbers, **sizes, "serialize_type": int(SerializeType.ROCKETMQ)}
    strings = "".join(text or "" for text in texts.values()).encode()
    header, opaque, serialize_type, code = read_pull_request(
        layout.PULL_REQUEST.struct.pack(*values.values()) + strings
    )
    assert {field.name: getattr(header, field.name) for field in fields(header)} == {
        **texts, **{name: numbers[name] for name in asdict(header).keys() - texts.keys()}
    }  # fmt: skip
    assert (opaque, serialize_type, code) == (numbers["opaque"], SerializeType.ROCKETMQ, numbers["code"])
