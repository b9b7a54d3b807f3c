"""Every command of mqadmin 4.9.8 prints for our broker what it prints for Apache's 4.9.8 broker in the same state.

Both brokers get the same little workload: a topic, messages placed by hand, a consumer that is online and has consumed
them, a second group that is half-way and offline. Then the same commands run against both, one after the other. What
can never be equal is blanked by tests.rigs.normalised; what differs for a reason stands in mqadmin_differences.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.mqadmin_differences import DIFFERENCES, reasons
from tests.interop.mqadmin_scene import MESSAGES, PROPERTIES, Scene, scenes
from tests.interop.mqadmin_script import ELSEWHERE, EVERYDAY, ONLINE_GROUP, TOPIC
from tests.rigs import ApacheServer, Corpus, JavaDriver, Mqadmin, RunningBroker, start_broker_under_test, wire
from tests.rigs.normal import TIMER_STATUS

pytestmark = pytest.mark.compat

VIEW_BROKER_STATS_DATA = 315


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheServer]:
    """The referee: Apache's own name server and broker."""
    with ApacheServer(
        "4.9.8", tmp_path_factory.mktemp("apache") / "store", PROPERTIES, alters_name_server=True
    ) as server:
        yield server


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """The broker under test, with nothing on it but the workload."""
    with start_broker_under_test(tmp_path_factory.mktemp("mq") / "store", PROPERTIES) as broker:
        yield broker


@pytest.fixture(scope="module")
def pair(
    ours: RunningBroker, apache: ApacheServer, java_4_9_8: JavaDriver, corpus: Corpus, mqadmin_4_9_8: Mqadmin
) -> Iterator[tuple[Scene, Scene]]:
    """Our broker and Apache's after the same workload and the same commands."""
    with scenes((ours, apache), java_4_9_8, corpus, mqadmin_4_9_8, EVERYDAY) as (here, there):
        yield here, there


@pytest.mark.parametrize("name", [step.name for step in EVERYDAY])
def test_mqadmin_4_9_8_prints_what_it_prints_for_apaches_broker(pair: tuple[Scene, Scene], name: str) -> None:
    ours, apache = (scene.printed[name] for scene in pair)
    assert ours or not apache
    assert reasons(name, ours, apache, DIFFERENCES)[0] == []


def test_each_difference_that_is_listed_is_there(pair: tuple[Scene, Scene]) -> None:
    ours, apache = pair
    met = {
        row
        for step in EVERYDAY
        for row in reasons(step.name, ours.printed[step.name], apache.printed[step.name], DIFFERENCES)[1]
    }
    assert [row for row in DIFFERENCES if row not in met] == []


def test_each_command_of_mqadmin_is_compared(mqadmin_4_9_8: Mqadmin) -> None:
    with mqadmin_4_9_8.session("127.0.0.1:1") as session:
        commands = session.commands()
    assert len(commands) > 50
    assert sorted({step.command for step in EVERYDAY} | set(ELSEWHERE)) == sorted(commands)


def test_the_runtime_table_has_the_keys_of_apaches_broker(pair: tuple[Scene, Scene]) -> None:
    def keys(scene: Scene) -> set[str]:
        broker = scene.broker
        table = wire.call(broker.broker_address, wire.GET_BROKER_RUNTIME_INFO).json()["table"]
        return {key.replace(str(broker.store_dir), "<store>") for key in table}

    ours, referee = pair
    assert keys(ours) - TIMER_STATUS == keys(referee) - TIMER_STATUS


STATS_KEYS = {
    "TOPIC_PUT_NUMS": TOPIC, "TOPIC_PUT_SIZE": TOPIC, "GROUP_GET_NUMS": f"{TOPIC}@{ONLINE_GROUP}",
    "GROUP_GET_SIZE": f"{TOPIC}@{ONLINE_GROUP}", "GROUP_GET_LATENCY": f"0@{TOPIC}@{ONLINE_GROUP}",
    "SNDBCK_PUT_NUMS": f"{TOPIC}@{ONLINE_GROUP}", "BROKER_PUT_NUMS": "DefaultCluster",
    "BROKER_GET_NUMS": "DefaultCluster", "QUEUE_PUT_NUMS": f"{TOPIC}@0", "QUEUE_PUT_SIZE": f"{TOPIC}@0",
    "GROUP_GET_FROM_DISK_NUMS": f"{TOPIC}@{ONLINE_GROUP}", "GROUP_GET_FROM_DISK_SIZE": f"{TOPIC}@{ONLINE_GROUP}",
    "BROKER_GET_FROM_DISK_NUMS": "DefaultCluster", "BROKER_GET_FROM_DISK_SIZE": "DefaultCluster",
    "GROUP_GET_FALL_SIZE": f"0@{TOPIC}@{ONLINE_GROUP}", "GROUP_GET_FALL_TIME": f"0@{TOPIC}@{ONLINE_GROUP}",
    "COMMERCIAL_SEND_TIMES": f"null@{TOPIC}@{ONLINE_GROUP}@x", "COMMERCIAL_RCV_SIZE": f"null@{TOPIC}@g@x",
    "NO_SUCH_NAME": TOPIC,
}  # fmt: skip


def test_each_statistic_is_there_if_apaches_broker_has_it(pair: tuple[Scene, Scene]) -> None:
    def codes(scene: Scene) -> dict[str, tuple[int, str | None]]:
        found = {}
        for name, key in STATS_KEYS.items():
            fields = {"statsName": name, "statsKey": key}
            answer = wire.call(scene.broker.broker_address, VIEW_BROKER_STATS_DATA, fields)
            found[name] = (answer.code, answer.remark)
        return found

    ours, referee = pair
    assert codes(ours) == codes(referee)
    assert codes(ours)["GROUP_GET_LATENCY"][0] == wire.SUCCESS


def test_the_workload_is_visible_in_what_is_compared(pair: tuple[Scene, Scene]) -> None:
    """The comparison would mean nothing if both brokers were empty or both failed."""
    for scene in pair:
        printed = scene.printed
        assert f"msgPutTotalTodayNow:{MESSAGES}" in printed["brokerStatus"]
        assert f"{TOPIC} broker-a 1 5 1 4 <time>" in printed["consumerProgress of an offline group"]
        assert f"{TOPIC} broker-a 3 5 5 0 <time>" in printed["consumerProgress of an online group"]
        assert any(line.startswith("<client> <address> JAVA V4_9_8") for line in printed["consumerConnection"])
        assert len(printed["getBrokerConfig"]) > 150
        failed = [name for name, lines in printed.items() if any("Exception" in line for line in lines)]
        assert len(failed) < len(printed) / 4, failed
