"""What rocketmq-exporter and RocketMQ Dashboard ask, our broker answers as Apache's 4.9.8 does in the same state."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

import pytest

from mqcore.codes import RequestCode
from tests.interop.monitor_calls import CALLS, OF_GROUP, OF_RELEASE_5, Call
from tests.interop.mqadmin_differences import DIFFERENCES, LineDifference, reasons
from tests.interop.mqadmin_scene import DEADLINE_S, MESSAGES, PROPERTIES, Scene, greet, scenes
from tests.interop.mqadmin_script import LOOKS, TOPIC
from tests.rigs import ApacheServer, Corpus, JavaDriver, Mqadmin, start_broker_under_test, wire
from tests.rigs.admin_calls import JavaCalls, lines_of
from tests.waiting import wait_until

# The same workload as mqadmin's commands have, but a state of its own: the figures of one that has been busy depend on
# how long it was.
pytestmark = [pytest.mark.compat, pytest.mark.slow]

REFEREES: Final = {"4.9.8": ("4.9.8",), "5.3.3": ("4.9.8", "5.3.3")}
"""The brokers of Apache's that are asked as ours is, by the release of the client: ours answers as one of them does."""

BY_HEARTBEAT: Final = frozenset({"getAllProducerInfo"})
"""Whether a broker knows the tool that asks for a producer yet goes by when it was last heard."""
HEARD_S: Final = 60.0
"""Java clients are heard every 30 s."""

ROWS: Final = (*DIFFERENCES, *OF_RELEASE_5)
Answers = dict[str, list[list[str]]]
Home = pytest.TempPathFactory


@pytest.fixture(scope="module", params=REFEREES)
def release(request: pytest.FixtureRequest) -> str:
    """Of the client that asks: the exporter and the Dashboard 1.0.0 have one of 4.9, the Dashboard 2.0.0 one of 5."""
    return str(request.param)


@pytest.fixture(scope="module")
def played(
    release: str, java_4_9_8: JavaDriver, corpus: Corpus, mqadmin_4_9_8: Mqadmin, tmp_path_factory: Home
) -> Iterator[list[Scene]]:
    """Our broker and Apache's after the same workload, which is in their statistics; the consumer's name is known."""
    steps = [step for step in LOOKS if step.learns is not None]
    home = tmp_path_factory.mktemp
    with ExitStack() as running:
        brokers = [running.enter_context(start_broker_under_test(home("mq") / "store", PROPERTIES))]
        for version in REFEREES[release]:
            apache = ApacheServer(version, home("apache") / "store", PROPERTIES, alters_name_server=True)
            brokers.append(running.enter_context(apache))
        made = running.enter_context(scenes(brokers, java_4_9_8, corpus, mqadmin_4_9_8, steps))
        for scene in made:
            wait_until(functools.partial(has_sums, scene), DEADLINE_S, "the statistics are made up")
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
def answers(played: list[Scene], release: str, tmp_path_factory: Home) -> Answers:
    """What ours and Apache's answer to each call, in their order."""
    with JavaCalls(release, tmp_path_factory.mktemp("calls")) as calls:
        return {
            (name := f"{call.name}, call {number}"): settled(name, calls, call, played)
            for number, call in enumerate(CALLS)
        }


def settled(name: str, calls: JavaCalls, call: Call, played: list[Scene]) -> list[list[str]]:
    """What each says to *call*; again, where that goes by the tool's next heart-beat, until they say the same."""
    deadline = time.monotonic() + (HEARD_S if call.method in BY_HEARTBEAT else 0)
    while True:
        answered = [lines_of(call.method, made(calls, call, scene)) for scene in played]
        if time.monotonic() >= deadline or not unexplained(name, answered)[0]:
            return answered
        time.sleep(1)


def made(calls: JavaCalls, call: Call, scene: Scene) -> dict[str, Any]:
    words = {**scene.words, "name_server": scene.broker.name_server}
    return calls.call(scene.broker.name_server, call.target, call.method, filled(call.arguments, words))


def filled(value: Any, words: dict[str, str]) -> Any:
    """Return *value* with the words in its texts, however deep."""
    if isinstance(value, str):
        return value.format(**words) if value.startswith("{") else value
    if isinstance(value, list | tuple):
        return [filled(member, words) for member in value]
    return value


def unexplained(name: str, answered: list[list[str]]) -> tuple[list[str], set[LineDifference]]:
    """What differs from the broker of Apache's that answers more of the same, and the rows that explain the rest."""
    ours, *others = answered
    return min((reasons(name, ours, apaches, ROWS) for apaches in others), key=lambda result: len(result[0]))


def test_each_is_answered_as_by_apaches_broker(answers: Answers) -> None:
    lines = [f"{name}: {line}" for name, answered in answers.items() for line in unexplained(name, answered)[0]]
    assert not lines, "\n".join(lines)


def test_each_difference_of_release_5_is_there(answers: Answers, release: str) -> None:
    met = {row for name, answered in answers.items() for row in unexplained(name, answered)[1]}
    assert met >= (set(OF_RELEASE_5) if release == "5.3.3" else set())
    assert release == "5.3.3" or not met & set(OF_RELEASE_5)


def test_what_is_compared_is_more_than_refusals(answers: Answers) -> None:
    """The comparison would mean nothing if all were empty, or knew nothing of what is asked."""
    refused = {name for name, (ours, *_) in answers.items() if "Exception" in ours[0]}
    assert len(refused) < len(answers) / 3

    def said(method: str) -> str:
        return "\n".join(line for name, (ours, *_) in answers.items() if name.startswith(method) for line in ours)

    assert "[topic=Orders, brokerName=broker-a, queueId=3].maxOffset = 5" in said("examineTopicStats")
    assert "[topic=Orders, brokerName=broker-a, queueId=1].consumerOffset = 5" in said("examineConsumeStats")
    # The last one is about an offset that was asked for, and is none.
    assert f"msgPutTotalTodayNow:{MESSAGES + 1}" in said("fetchBrokerRuntimeStats")
    assert ".properties.consumerGroup = Billing" in said("getConsumerRunningInfo")
    assert "trackType" in said("messageTrackDetail")
