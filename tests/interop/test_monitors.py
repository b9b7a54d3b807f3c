"""What rocketmq-exporter and RocketMQ Dashboard ask, our broker answers as Apache's 4.9.8 does in the same state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from mqcore.codes import RequestCode
from tests.interop.monitor_calls import CALLS, OF_GROUP, Call
from tests.interop.mqadmin_differences import DIFFERENCES, reasons
from tests.interop.mqadmin_scene import DEADLINE_S, MESSAGES, PROPERTIES, Scene, greet, scenes
from tests.interop.mqadmin_script import LOOKS, TOPIC
from tests.rigs import ApacheServer, Corpus, JavaDriver, Mqadmin, start_broker_under_test, wire
from tests.rigs.admin_calls import AdminCalls, lines_of
from tests.waiting import wait_until

# The same workload as mqadmin's commands have, but a state of its own: the figures of one that has been busy depend on
# how long it was.
pytestmark = [pytest.mark.compat, pytest.mark.slow]

Answers = dict[str, tuple[list[str], list[str]]]


@pytest.fixture(scope="module")
def played(
    java_4_9_8: JavaDriver, corpus: Corpus, mqadmin_4_9_8: Mqadmin, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Scene]]:
    """Our broker and Apache's after the same workload, which is in their statistics; the consumer's name is known."""
    steps = [step for step in LOOKS if step.learns is not None]
    with ExitStack() as running:
        home = tmp_path_factory.mktemp
        ours = running.enter_context(start_broker_under_test(home("mq") / "store", PROPERTIES))
        apache = ApacheServer("4.9.8", home("apache") / "store", PROPERTIES, alters_name_server=True)
        brokers = (ours, running.enter_context(apache))
        made = running.enter_context(scenes(brokers, java_4_9_8, corpus, mqadmin_4_9_8, steps))
        for scene in made:
            wait_until(lambda scene=scene: has_sums(scene), DEADLINE_S, "the statistics are made up")
        yield made


def has_sums(scene: Scene) -> bool:
    """Whether all that was sent and consumed is in the statistics of the last minute."""
    return all(
        minute_sum(scene, name, key) == MESSAGES
        for name, key in (("TOPIC_PUT_NUMS", TOPIC), ("GROUP_GET_NUMS", OF_GROUP))
    )


def minute_sum(scene: Scene, name: str, key: str) -> int:
    greet(scene.sender)
    fields = {"statsName": name, "statsKey": key}
    answer = wire.call(scene.broker.broker_address, RequestCode.VIEW_BROKER_STATS_DATA, fields)
    return int(answer.json()["statsMinute"]["sum"]) if answer.code == wire.SUCCESS else 0


@pytest.fixture(scope="module")
def answers(played: list[Scene], tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """What ours and Apache's answer to each call, in their order."""
    with AdminCalls("4.9.8", tmp_path_factory.mktemp("calls")) as calls:
        return {f"{call.name}, call {number}": both(calls, call, played) for number, call in enumerate(CALLS)}


def both(calls: AdminCalls, call: Call, played: Sequence[Scene]) -> tuple[list[str], list[str]]:
    ours, apaches = (lines_of(call.method, made(calls, call, scene)) for scene in played)
    return ours, apaches


def made(calls: AdminCalls, call: Call, scene: Scene) -> dict[str, Any]:
    words = {**scene.words, "name_server": scene.broker.name_server}
    return calls.call(scene.broker.name_server, call.target, call.method, filled(call.arguments, words))


def filled(value: Any, words: dict[str, str]) -> Any:
    """Return *value* with the words in its texts, however deep."""
    if isinstance(value, str):
        return value.format(**words) if value.startswith("{") else value
    if isinstance(value, list | tuple):
        return [filled(member, words) for member in value]
    return value


def test_each_is_answered_as_by_apaches_broker(answers: Answers) -> None:
    unexplained = [
        f"{name}: {line}"
        for name, (ours, apaches) in answers.items()
        for line in reasons(name, ours, apaches, DIFFERENCES)[0]
    ]
    assert not unexplained, "\n".join(unexplained)


def test_what_is_compared_is_more_than_refusals(answers: Answers) -> None:
    """The comparison would mean nothing if both were empty, or knew nothing of what is asked."""
    refused = {name for name, (ours, _) in answers.items() if "Exception" in ours[0]}
    assert len(refused) < len(answers) / 3
    whole = {name.partition(" ")[0]: "\n".join(ours) for name, (ours, _) in answers.items() if name not in refused}
    assert "offsetTable.MessageQueue [topic=Orders, brokerName=broker-a, queueId=3].maxOffset = 5" in "\n".join(
        line for name, (ours, _) in answers.items() if name.startswith("examineTopicStats") for line in ours
    )
    assert f"msgPutTotalTodayNow:{MESSAGES + 1}" in whole["fetchBrokerRuntimeStats"], "and one about a moved offset"
    assert ".properties.consumerGroup = Billing" in whole["getConsumerRunningInfo"]
    assert "trackType" in whole["messageTrackDetail"]
