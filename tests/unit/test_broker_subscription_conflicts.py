"""Members of a group that subscribe differently: found after a while, logged, counted, shown, and told."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from broker_ports import BrokerRig, MemoryChannel, subscription

from mqcore.broker.client_housekeeping import CHANNEL_EXPIRED_MS
from mqcore.codes import RequestCode, ResponseCode
from mqcore.protocol import fastjson, headers
from mqcore.protocol.bodies import ConsumerConnection, SubscriptionConflict, SubscriptionData

LIMIT_MS = 90_000
CONFLICT = SubscriptionConflict("g", "orders", "a", "TAG *", "b", "TAG TagA")
WORDS = "the members of group [g] subscribe differently: of topic [orders] [a] wants [TAG *] and [b] wants [TAG TagA]"


@pytest.fixture
async def rig(tmp_path: Path) -> BrokerRig:
    rig = BrokerRig(tmp_path)
    await rig.create_topic("orders", 1)
    return rig


class Group:
    """Members by name, each with a connection of its own."""

    def __init__(self, rig: BrokerRig) -> None:
        self.rig = rig
        self.channels: dict[str, MemoryChannel] = {}
        self._version = 0

    async def beat(self, name: str, *subscriptions: SubscriptionData, group: str = "g") -> str | None:
        """Let a member say what it wants; gives what the broker has to say."""
        channel = self.channels.setdefault(name, MemoryChannel())
        reply = await self.rig.heart_beat(group, subscriptions, channel=channel, client_id=name)
        assert reply.code == ResponseCode.SUCCESS
        return reply.remark

    def leave(self, name: str) -> None:
        self.rig.core.on_channel_closed(self.channels.pop(name))


@pytest.fixture
def group(rig: BrokerRig) -> Group:
    return Group(rig)


def found(rig: BrokerRig) -> SubscriptionConflict | None:
    return rig.broker.consumers.conflicts.of("g")


async def differ(group: Group) -> None:
    """Two members want different tags, for as long as makes it a conflict."""
    await group.beat("a", subscription("orders"))
    await group.beat("c", subscription("orders"))
    await group.beat("b", subscription("orders", "TagA", 2))
    group.rig.clock.advance(LIMIT_MS)
    await group.beat("a", subscription("orders"))


async def test_a_difference_that_stands_is_logged_once_with_both_clients(
    rig: BrokerRig, group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "mqcore.broker.subscription_conflicts"):
        await differ(group)
        for _ in range(5):
            rig.clock.advance(30_000)
            await group.beat("b", subscription("orders", "TagA", 2))
            await group.beat("a", subscription("orders"))
            await group.beat("c", subscription("orders"))
    assert found(rig) == CONFLICT
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert record.getMessage().endswith("group=g topic=orders client=a wants=TAG * other=b wants=TAG TagA")


async def test_a_change_of_a_group_member_by_member_is_no_conflict(rig: BrokerRig, group: Group) -> None:
    for name in "abc":
        await group.beat(name, subscription("orders"))
    for name in "abc":
        rig.clock.advance(29_000)
        assert await group.beat(name, subscription("orders", "TagA", 2)) is None
    rig.clock.advance(LIMIT_MS)
    rig.broker.housekeeping.scan()
    assert (found(rig), rig.broker.consumers.conflicts.total) == (None, 0)


async def test_silence_makes_it_a_conflict_too(rig: BrokerRig, group: Group) -> None:
    await group.beat("a", subscription("orders"))
    await group.beat("b", subscription("orders", "TagA"))
    rig.clock.advance(LIMIT_MS)
    assert found(rig) is None
    rig.broker.housekeeping.scan()
    assert found(rig) is not None


async def test_it_ends_when_the_members_agree_or_one_leaves_and_is_counted_again(rig: BrokerRig, group: Group) -> None:
    await differ(group)
    group.leave("b")
    assert (found(rig), rig.broker.consumers.conflicts.total) == (None, 1)
    await group.beat("b", subscription("orders", "TagA", 3))
    rig.clock.advance(LIMIT_MS)
    await group.beat("c", subscription("orders"))
    assert (found(rig) is not None, rig.broker.consumers.conflicts.total) == (True, 2)
    assert await group.beat("b", subscription("orders", "*", 4)) is None
    assert found(rig) is None
    for name in "abc":
        group.leave(name)
    assert rig.broker.consumers.conflicts.groups == []


async def test_a_member_that_fell_silent_is_no_member(rig: BrokerRig, group: Group) -> None:
    await differ(group)
    rig.clock.advance(CHANNEL_EXPIRED_MS - LIMIT_MS + 1)
    await group.beat("a", subscription("orders"))
    rig.broker.housekeeping.scan()
    assert found(rig) is None


async def test_a_client_that_comes_back_on_another_connection_does_not_contradict_itself(
    rig: BrokerRig, group: Group
) -> None:
    await group.beat("a", subscription("orders"))
    group.channels["a"] = MemoryChannel()
    await group.beat("a", subscription("orders", "TagA", 2))
    rig.clock.advance(LIMIT_MS)
    rig.broker.housekeeping.scan()
    assert found(rig) is None


SQL = "a > 1"
SAME = [
    pytest.param([subscription("orders", "A || B")], [subscription("orders", "B||A", 2)], id="tags in another order"),
    pytest.param([subscription("orders")], [SubscriptionData("orders", "")], id="all, written in two ways"),
    pytest.param([subscription("orders"), subscription("%RETRY%g")], [subscription("orders")], id="the retry topic"),
    pytest.param(
        [subscription("orders", "a > 1", 1, "SQL92")], [subscription("orders", " a > 1", 2, "SQL92")], id="sql"
    ),
]
OTHER = [
    pytest.param([subscription("orders", "A")], [subscription("orders", "B")], "TAG A", "TAG B", id="other tags"),
    pytest.param([subscription("orders", "a", 1, "SQL92")], [subscription("orders")], "SQL92 a", "TAG *", id="type"),
    pytest.param([subscription("orders")], [], "TAG *", "nothing", id="another topic"),
]  # fmt: skip


@pytest.mark.parametrize(("mine", "theirs"), SAME)
async def test_what_means_the_same_is_the_same(
    rig: BrokerRig, group: Group, mine: list[SubscriptionData], theirs: list[SubscriptionData]
) -> None:
    await group.beat("a", *mine)
    await group.beat("b", *theirs)
    rig.clock.advance(LIMIT_MS)
    rig.broker.housekeeping.scan()
    assert found(rig) is None


@pytest.mark.parametrize(("mine", "theirs", "first", "second"), OTHER)
async def test_topics_tags_and_kinds_of_expression_may_differ(
    rig: BrokerRig,
    group: Group,
    mine: list[SubscriptionData],
    theirs: list[SubscriptionData],
    first: str,
    second: str,
) -> None:
    await group.beat("a", *mine)
    await group.beat("b", *theirs)
    rig.clock.advance(LIMIT_MS)
    rig.broker.housekeeping.scan()
    conflict = found(rig)
    assert conflict is not None
    assert conflict.topic == "orders"
    wanted = {"a": first, "b": second}
    assert {conflict.first_client: conflict.first, conflict.second_client: conflict.second} == wanted


async def test_clients_hear_of_it_in_answers_to_heart_beats(rig: BrokerRig, group: Group) -> None:
    await differ(group)
    for name in "ac":
        assert await group.beat(name, subscription("orders")) == WORDS
    assert await group.beat("z", subscription("orders"), group="h") is None


async def test_who_lost_its_topic_hears_why_when_it_pulls(rig: BrokerRig, group: Group) -> None:
    await group.beat("a", subscription("orders"))
    await group.beat("b", subscription("others"))
    values = {
        "consumer_group": "g", "topic": "orders", "queue_id": 0, "queue_offset": 0, "max_msg_nums": 32, "sys_flag": 0,
        "commit_offset": 0, "suspend_timeout_millis": 0, "sub_version": 1,
    }  # fmt: skip
    fields = headers.encode_request(RequestCode.PULL_MESSAGE, **values)
    plain = await rig.ask(RequestCode.PULL_MESSAGE, fields)
    help_text = "\nSee docs/errors.md#subscription-is-not-known for further details."
    assert (plain.code, plain.remark) == (24, f"the consumer's subscription not exist{help_text}")
    rig.clock.advance(LIMIT_MS)
    await group.beat("b", subscription("others"))
    told = await rig.ask(RequestCode.PULL_MESSAGE, fields)
    assert (told.code, told.remark) == (24, f"the consumer's subscription not exist, {found(rig)}{help_text}")
    assert all(words in (told.remark or "") for words in ("[a] wants [TAG *]", "[b] wants [nothing]"))


async def test_operators_see_it_in_the_tables(rig: BrokerRig, group: Group) -> None:
    async def runtime() -> dict[str, str]:
        reply = await rig.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        return dict(fastjson.loads(reply.body)["table"])

    async def connection() -> bytes:
        return (await rig.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g"})).body

    await group.beat("a", subscription("orders"))
    assert not [key for key in await runtime() if key.startswith("subscription")]
    assert b"subscriptionConflict" not in await connection()
    await differ(group)
    table = await runtime()
    assert (table["subscriptionConflictTotal"], table["subscriptionConflictGroups"]) == ("1", "g")
    assert ConsumerConnection.decode(await connection()).subscription_conflict == CONFLICT
    group.leave("b")
    table = await runtime()
    assert (table["subscriptionConflictTotal"], table["subscriptionConflictGroups"]) == ("1", "")


async def test_how_long_may_be_set_while_the_broker_runs(rig: BrokerRig, group: Group) -> None:
    assert (await rig.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"subscriptionConflictMillis=0")).code == 0
    await group.beat("a", subscription("orders"))
    assert await group.beat("b", subscription("orders", "TagA")) is not None


async def test_a_group_that_keeps_changing_its_mind_is_logged_now_and_then_and_always_counted(
    rig: BrokerRig, group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "mqcore.broker.subscription_conflicts"):
        for version in range(3):
            await differ(group)
            await group.beat("b", subscription("orders", "*", 10 * version + 5))
            group.leave("b")
        assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1
        rig.clock.advance(600_000)
        await differ(group)
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 2
    assert rig.broker.consumers.conflicts.total == 4
