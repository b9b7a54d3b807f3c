"""What mqcore explain makes of what brokers and members say."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from mqcore.admin.explain_checks import CHECKS, explain
from mqcore.admin.explain_facts import ConsumptionFacts, Standing
from mqcore.admin.findings import Health
from mqcore.client.errors import RemotingTimeoutError
from mqcore.codes import PermName
from mqcore.protocol.admin_bodies import (
    PAUSED_QUEUES,
    ConsumerRunningInfo,
    ConsumeStatus,
    OffsetWrapper,
    ProcessQueueInfo,
    TopicOffset,
    paused_text,
)
from mqcore.protocol.bodies import ClientConnection
from mqcore.protocol.connection_bodies import ConsumerConnection, SubscriptionConflict
from mqcore.protocol.heartbeat import MessageModel, SubscriptionData
from mqcore.protocol.message import MessageQueue
from mqcore.protocol.topic_config import SubscriptionGroupConfig, TopicConfig

NOW_MS = 1_000_000_000
QUEUES = tuple(MessageQueue("T", "a", number) for number in range(2))
RETRY = MessageQueue("%RETRY%G", "a", 0)
DEAD = MessageQueue("%DLQ%G", "a", 0)
Change = Callable[[ConsumptionFacts], object]


def member(*queues: MessageQueue, expression: str = "*", **row: int) -> ConsumerRunningInfo:
    held = ProcessQueueInfo(**{"commit_offset": 10, "last_pull_timestamp": NOW_MS, "locked": True, **row})  # type: ignore[arg-type]
    return ConsumerRunningInfo(
        properties={"PROP_CONSUMEORDERLY": "false"},
        subscription_set=[SubscriptionData.build("T", expression)],
        mq_table=dict.fromkeys(queues, held),
    )


def paused(info: ConsumerRunningInfo, *queues: MessageQueue) -> ConsumerRunningInfo:
    info.properties[PAUSED_QUEUES] = paused_text(queues)
    return info


def well() -> ConsumptionFacts:
    """A group of two members that has consumed everything."""
    subscriptions = {topic: SubscriptionData.build(topic, "*") for topic in ("T", "%RETRY%G")}
    return ConsumptionFacts(
        group="G",
        topics=("T",),
        now_ms=NOW_MS,
        configs={"a": SubscriptionGroupConfig("G")},
        permissions={"a": PermName.READ | PermName.WRITE},
        topic_configs={"T": {"a": TopicConfig("T", 2, 2)}},
        bounds={queue: TopicOffset(5, 10) for queue in QUEUES},
        positions={queue: OffsetWrapper(10, 10, NOW_MS - 1000) for queue in QUEUES},
        connection=ConsumerConnection(
            connection_set=[ClientConnection("one"), ClientConnection("two")],
            subscription_table=subscriptions,
            message_model=MessageModel.CLUSTERING,
        ),
        members={"one": member(QUEUES[0]), "two": member(QUEUES[1])},
    )


def bound(low: int, high: int, *queues: MessageQueue) -> Change:
    return lambda facts: facts.bounds.update(dict.fromkeys(queues or QUEUES, TopicOffset(low, high)))


def position(offset: int, *queues: MessageQueue) -> Change:
    return lambda facts: facts.positions.update(dict.fromkeys(queues or QUEUES, OffsetWrapper(10, offset, 1)))


def put(subject: object, values: Mapping[str, object]) -> None:
    for name, value in values.items():
        setattr(subject, name, value)


def given(**values: object) -> Change:
    return lambda facts: put(facts, values)


def of_connection(**values: object) -> Change:
    return lambda facts: put(facts.connection, values)


def orderly_without_lock(facts: ConsumptionFacts) -> None:
    info = member(QUEUES[0], locked=0)
    info.properties["PROP_CONSUMEORDERLY"] = "true"
    facts.members["one"] = info


def failing(facts: ConsumptionFacts) -> None:
    facts.answers["one"].status_table["T"] = ConsumeStatus(consume_failed_msgs=4)


STOOD = given(before=Standing(at_ms=NOW_MS - 2000, offsets=dict.fromkeys(QUEUES, 10)))

CASES: dict[str, tuple[list[Change], str, Health, str]] = {
    "no such topic": ([given(topic_configs={"T": {}})], "topic", Health.ERROR, "no broker has it"),
    "nothing at all": ([given(topics=())], "topic", Health.ERROR, "subscribes to nothing"),
    "topic unreadable": (
        [given(topic_configs={"T": {"a": TopicConfig("T", 2, 2, PermName.WRITE)}})],
        "read permission", Health.ERROR, "its permission is -W-",
    ),
    "queues unread": (
        [given(topic_configs={"T": {"a": TopicConfig("T", 2, 4)}})],
        "read queues", Health.WARNING, "writes 4 queues and has 2 read",
    ),
    "broker unreadable": ([given(permissions={"a": PermName.WRITE})], "read permission", Health.ERROR, "is -W-"),
    "group unknown": ([given(configs={})], "group", Health.WARNING, "a does not have it"),
    "group disabled": (
        [given(configs={"a": SubscriptionGroupConfig("G", False)})],
        "consume enabled", Health.ERROR, "refuses its pulls",
    ),
    "no retries": (
        [given(configs={"a": SubscriptionGroupConfig("G", retry_max_times=0)})],
        "retries", Health.WARNING, "retryMaxTimes is 0",
    ),
    "no member": ([given(connection=None, members={})], "members", Health.ERROR, "no member is online"),
    "silent member": (
        [lambda facts: facts.members.update(two=RemotingTimeoutError("no answer"))],
        "members", Health.WARNING, "two is online and does not answer",
    ),
    "broadcast": (
        [of_connection(message_model=MessageModel.BROADCASTING)], "broadcast", Health.WARNING, "keeps its offsets",
    ),
    "broadcast refused": (
        [
            of_connection(message_model=MessageModel.BROADCASTING),
            given(configs={"a": SubscriptionGroupConfig("G", consume_broadcast_enable=False)}),
        ],
        "broadcast", Health.ERROR, "a refuses that",
    ),
    "not subscribed": (
        [
            of_connection(subscription_table={"t": SubscriptionData.build("t", "*")}),
            given(members={"one": ConsumerRunningInfo()}),
        ],
        "subscription", Health.ERROR, "they subscribe to t",
    ),
    "conflict told": (
        [of_connection(subscription_conflict=SubscriptionConflict("G", "T", "one", "TAG a", "two", "nothing"))],
        "subscription", Health.ERROR, "[two] wants [nothing]",
    ),
    "conflict seen": (
        [lambda facts: facts.members.update(two=member(QUEUES[1], expression="a || b"))],
        "subscription", Health.ERROR, "one wants TAG *; two wants TAG a || b",
    ),
    "queue not held": (
        [lambda facts: facts.members.pop("two")], "queues", Health.ERROR, "no member holds it",
    ),
    "idle member": (
        [given(members={"one": member(*QUEUES), "two": member()})],
        "queues", Health.WARNING, "two holds no queue: there are more members than queues",
    ),
    "never committed": ([given(positions={})], "offset", Health.WARNING, "never committed there; it has 5 messages"),
    "ahead": ([position(11)], "offset", Health.ERROR, "at 11, ahead of the queue, which ends at 10"),
    "expired": ([position(2)], "offset", Health.WARNING, "3 messages expired"),
    "no lock": ([orderly_without_lock, bound(5, 12)], "progress", Health.ERROR, "has not got the queue's lock"),
    "silent": (
        [given(members={"one": member(*QUEUES, last_pull_timestamp=NOW_MS - 200_000)}), bound(5, 12)],
        "progress", Health.ERROR, "pulled last 200 s ago: it is paused or stuck; 2 messages wait",
    ),
    "silent and not paused": (
        [given(members={"one": paused(member(*QUEUES, last_pull_timestamp=NOW_MS - 200_000))}), bound(5, 12)],
        "progress", Health.ERROR, "pulled last 200 s ago: it is stuck; 2 messages wait",
    ),
    "paused": (
        [given(members={"one": paused(member(*QUEUES, cached_msg_count=2), QUEUES[1])}), bound(5, 12), STOOD],
        "progress", Health.ERROR, "one is paused in the program: it pulls nothing; 2 messages wait",
    ),
    "stands": ([bound(5, 12), STOOD], "progress", Health.ERROR, "did not move in 2 s; 2 wait"),
    "handler hangs": (
        [given(members={"one": member(*QUEUES, cached_msg_count=2)}), bound(5, 12), STOOD],
        "progress", Health.WARNING, "has 2 messages of it and finished none in 2 s",
    ),
    "handler slow": (
        [
            given(members={"one": member(*QUEUES, cached_msg_count=2, last_consume_timestamp=NOW_MS - 70_000)}),
            bound(5, 12),
        ],
        "progress", Health.WARNING, "began the last one 70 s ago",
    ),
    "behind": ([bound(5, 12)], "lag", Health.WARNING, "behind by 4 messages; it is at messages of 1 s ago"),
    "failures": ([failing], "failures", Health.WARNING, "one failed with 4 messages"),
    "retries": (
        [bound(0, 3, RETRY), position(1, RETRY), given(retry_times=2)],
        "retries", Health.WARNING, "2 failed messages wait to be tried again, the next one for the 2. time",
    ),
    "dead letters": ([bound(0, 3, DEAD)], "dead letters", Health.WARNING, "3 messages were given up"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_keeps_a_group_from_consuming_is_found(name: str) -> None:
    changes, check, state, said = CASES[name]
    facts = well()
    for change in changes:
        change(facts)
    found = explain(facts)
    matching = [row for row in found if row.check == check and row.state is state and said in row.found]
    assert matching, [(row.check, row.state, row.found) for row in found if row.state is not Health.OK]
    assert all(row.mend for row in matching), "what is not well comes with what to do"


def test_a_queue_is_paused_or_its_handler_slow_and_only_who_does_not_tell_may_be_either() -> None:
    def progress(info: ConsumerRunningInfo) -> dict[str, str]:
        facts = well()
        for change in (given(members={"one": info}), bound(5, 12), STOOD):
            change(facts)
        return {row.subject: f"{row.found}: {row.mend}" for row in explain(facts) if row.check == "progress"}

    told = progress(paused(member(*QUEUES, cached_msg_count=2), QUEUES[1]))
    assert "its handler is slow or hangs, see where" in told["T a/0"]
    assert "resume it" in told["T a/1"]
    untold = progress(member(*QUEUES, cached_msg_count=2))
    assert "slow or hangs, or it is paused in the program, see" in untold["T a/0"]


@pytest.mark.parametrize("text", ["", "{", "1", '[["T"]]', '[["T", "a", "x"]]', "null"])
def test_what_cannot_be_read_as_queues_is_not_told(text: str) -> None:
    assert ConsumerRunningInfo(properties={PAUSED_QUEUES: text}).paused_queues is None


def test_a_group_that_is_well_has_nothing_to_mend_and_each_check_says_something() -> None:
    found = explain(well())
    assert {row.state for row in found} == {Health.OK}
    silent = {"check_broadcast", "check_offsets", "check_progress"}
    for check in CHECKS:
        assert bool(list(check(well()))) is (check.__name__ not in silent)
