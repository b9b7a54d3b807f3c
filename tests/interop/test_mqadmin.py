"""mqadmin, 4.9.8 and 5.3.3, prints for our broker what it prints for Apache's 4.9.8 broker in the same state.

Both brokers get the same little workload: a topic, messages placed by hand, a consumer that is online and has consumed
them, a second group that is half-way and offline. Then every command runs against both. What can never be equal is
blanked by tests.rigs.normalised.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from operator import methodcaller

import pytest

from tests.rigs import (
    ApacheServer,
    Corpus,
    JavaConsumer,
    JavaDriver,
    Mqadmin,
    RunningBroker,
    SentMessage,
    normalised,
    start_broker_under_test,
    wire,
)
from tests.rigs.deliveries import sent_by_key
from tests.rigs.normal import TIMER_STATUS
from tests.waiting import wait_until

pytestmark = pytest.mark.compat

TOPIC = "Orders"
ONLINE_GROUP = "Billing"
OFFLINE_GROUP = "Archive"
QUEUES = 4
MESSAGES = 20

# By a name of ours; {address}, {offset_id} and {unique_id} are the broker's address and the ids of one message.
COMMANDS: dict[str, tuple[str, ...]] = {
    "clusterList": ("clusterList",),
    "brokerStatus": ("brokerStatus", "-b", "{address}"),
    "topicStatus": ("topicStatus", "-t", TOPIC),
    "topicRoute": ("topicRoute", "-t", TOPIC),
    "topicRoute of an unknown topic": ("topicRoute", "-t", "Nowhere"),
    "topicList": ("topicList",),
    "topicClusterList": ("topicClusterList", "-t", TOPIC),
    "consumerProgress of an online group": ("consumerProgress", "-g", ONLINE_GROUP),
    "consumerProgress of an offline group": ("consumerProgress", "-g", OFFLINE_GROUP),
    "consumerProgress of all groups": ("consumerProgress",),
    "consumerConnection": ("consumerConnection", "-g", ONLINE_GROUP),
    "consumerConnection of an offline group": ("consumerConnection", "-g", OFFLINE_GROUP),
    "queryMsgByKey": ("queryMsgByKey", "-t", TOPIC, "-k", "L5"),
    "statsAll": ("statsAll", "-t", TOPIC),
    "getConsumerConfig": ("getConsumerConfig", "-g", ONLINE_GROUP),
    "queryMsgById": ("queryMsgById", "-i", "{offset_id}"),
    "queryMsgByUniqueKey": ("queryMsgByUniqueKey", "-t", TOPIC, "-i", "{unique_id}"),
    "queryMsgByOffset": ("queryMsgByOffset", "-t", TOPIC, "-b", "broker-a", "-i", "1", "-o", "2"),
    "updateBrokerConfig": ("updateBrokerConfig", "-b", "{address}", "-k", "fileReservedTime", "-v", "71"),
}
CONFIG = "getBrokerConfig"
VIEW_BROKER_STATS_DATA = 315
# What is also run by release 5.3.3.
FOR_5_3_3 = (
    "clusterList",
    "brokerStatus",
    "topicStatus",
    "topicRoute",
    "consumerProgress of an online group",
    "consumerProgress of an offline group",
    "consumerProgress of all groups",
    "queryMsgByKey",
    "queryMsgById",
)
NEED_351 = (
    "topicStatus",
    "consumerProgress of an online group",
    "consumerProgress of an offline group",
    "consumerProgress of all groups",
    "queryMsgById",
)
# The numbers of brokerStatus count pulls, and getBrokerConfig shows settings: these run when the others have ended.
LAST = ("queryMsgByOffset", "updateBrokerConfig")


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheServer]:
    """The referee: Apache's own name server and broker."""
    with ApacheServer("4.9.8", tmp_path_factory.mktemp("apache") / "store") as server:
        yield server


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """The broker under test, with nothing on it but the workload."""
    with start_broker_under_test(tmp_path_factory.mktemp("mq") / "store") as broker:
        yield broker


@dataclass
class Scene:
    """A broker with the workload on it, and what mqadmin printed, by its release and the name of the command."""

    broker: RunningBroker
    consumer: JavaConsumer
    sent: dict[str, SentMessage]
    printed: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def command(self, version: str, name: str) -> tuple[str, ...]:
        message = self.sent["L5"]
        ids = {"offset_id": message.offset_message_id, "unique_id": message.message_id}
        command = (CONFIG, "-b", "{address}") if name == CONFIG else COMMANDS[name]
        words = [word.format(address=self.broker.broker_address, **ids) for word in command]
        if name == "queryMsgById" and version == "5.3.3":
            words += ["-t", TOPIC]
        return tuple(words)

    def run(self, mqadmin: Mqadmin) -> None:
        """Run every command of one release."""
        wanted = FOR_5_3_3 if mqadmin.version == "5.3.3" else (*COMMANDS, CONFIG)
        first = [name for name in wanted if name not in LAST]
        last = [name for name in wanted if name in LAST]
        for names in (first, last):
            commands = [self.command(mqadmin.version, name) for name in names]
            for name, printed in zip(names, mqadmin.run_all(self.broker.name_server, commands), strict=True):
                self.printed[mqadmin.version, name] = normalised(printed.command[0], printed.text)


def set_up(broker: RunningBroker, java: JavaDriver, corpus: Corpus) -> Scene:
    """Give a broker the workload; the consumer stays online."""
    wire.create_topic(broker.broker_address, TOPIC, queues=QUEUES)
    wire.create_topic(broker.broker_address, f"%RETRY%{OFFLINE_GROUP}", queues=1)
    wait_until(lambda: wire.has_route(broker.name_server, TOPIC), describe="the topic has a route")
    for queue_id in range(QUEUES):
        # Of a group's first commits, when they come at once, Apache's 4.9 broker may forget all but one.
        wire.commit_offset(broker.broker_address, ONLINE_GROUP, TOPIC, queue_id, 0)
        wire.commit_offset(broker.broker_address, OFFLINE_GROUP, TOPIC, queue_id, queue_id)
    sent = java.produce(
        broker.name_server, TOPIC, corpus.path, count=MESSAGES, mode="sync", shards=QUEUES, tags="TagA,TagB"
    )
    consumer = java.consumer(broker.name_server, TOPIC, ONLINE_GROUP)
    return Scene(broker, consumer, sent_by_key(sent))


def settle(scene: Scene) -> None:
    """Wait until the consumer has consumed everything, and commit its offsets."""
    broker = scene.broker.broker_address
    wait_until(lambda: scene.consumer.count() == MESSAGES, deadline_s=120, describe="all messages consumed")
    # The consumer does this as well, but not in its first ten seconds.
    for queue_id in range(QUEUES):
        wire.commit_offset(broker, ONLINE_GROUP, TOPIC, queue_id, MESSAGES // QUEUES)
    wire.commit_offset(broker, ONLINE_GROUP, f"%RETRY%{ONLINE_GROUP}", 0, 0)


@pytest.fixture(scope="module")
def scenes(
    ours: RunningBroker,
    apache: ApacheServer,
    java_4_9_8: JavaDriver,
    mqadmin_4_9_8: Mqadmin,
    mqadmin_5_3_3: Mqadmin,
    corpus: Corpus,
) -> Iterator[tuple[Scene, Scene]]:
    """Our broker and Apache's after the same workload and the same commands."""
    # Side by side: each step waits for a JVM, and some commands of release 5 sleep for seconds.
    with ExitStack() as running, ThreadPoolExecutor() as both:
        pair = list(both.map(lambda broker: set_up(broker, java_4_9_8, corpus), (ours, apache)))
        for scene in pair:
            running.enter_context(scene.consumer)
        list(both.map(settle, pair))
        for mqadmin in (mqadmin_4_9_8, mqadmin_5_3_3):
            list(both.map(methodcaller("run", mqadmin), pair))
        yield pair[0], pair[1]


@pytest.mark.parametrize("name", COMMANDS)
def test_mqadmin_4_9_8_prints_what_it_prints_for_apaches_broker(scenes: tuple[Scene, Scene], name: str) -> None:
    ours, referee = scenes
    assert ours.printed["4.9.8", name] == referee.printed["4.9.8", name]


# There are no plug-ins and no home directory.
ONLY_APACHES = ("messageStorePlugIn", "rocketmqHome")
# Filters by SQL92, and their bitmaps where there are ext files: off by default there, where their evaluation is dear.
ON_HERE = ("enableCalcFilterBitMap", "enablePropertyFilter")


def test_our_configuration_has_every_setting_of_apaches_broker(scenes: tuple[Scene, Scene]) -> None:
    """The same names with the same values; settings of our own may come on top."""
    ours, referee = scenes
    here, there = (scene.printed["4.9.8", CONFIG] for scene in (ours, referee))
    missing = [line.partition(" =")[0] for line in there if line not in here]
    assert [name for name in missing if name not in (*ONLY_APACHES, *ON_HERE)] == []
    assert {line.partition(" =")[0] for line in here}.issuperset(ON_HERE)


@pytest.mark.parametrize("name", FOR_5_3_3)
def test_mqadmin_5_3_3_prints_what_it_prints_for_apaches_broker(scenes: tuple[Scene, Scene], name: str) -> None:
    """Some 5.x commands ask for what a 4.9.8 broker does not know (request code 351) and fail; ours may know it."""
    ours, referee = scenes
    printed = ours.printed["5.3.3", name]
    if name in NEED_351 and printed != referee.printed["5.3.3", name]:
        assert printed == as_if_351_were_answered(referee, name)
    else:
        assert printed == referee.printed["5.3.3", name]


def as_if_351_were_answered(referee: Scene, name: str) -> list[str]:
    """What mqadmin 5.3.3 would print for Apache's 4.9.8 broker, put together from what both releases do print."""
    lines = referee.printed["4.9.8", name]
    if name == "topicStatus":
        return [*lines, "Topic Put TPS: <n>"]
    if name == "queryMsgById":
        unknown, known = (f"trackType={fate}, exceptionDesc=null" for fate in ("UNKNOWN", "CONSUMED"))
        return [line.replace(unknown, known) for line in referee.printed["5.3.3", name]]
    if name == "consumerProgress of all groups":
        return lines
    heading, *rows, rate, total = lines
    # The consumer that is online has committed all that it pulled, and the other has never pulled.
    with_inflight = [" ".join([*words[:6], "0", *words[6:]]) for words in map(str.split, rows)]
    return [
        heading.replace("#Diff", "#Diff #Inflight"),
        *with_inflight,
        rate,
        total.replace("Diff Total", "Consume Diff Total"),
        "Consume Inflight Total: 0",
    ]


def test_the_runtime_table_has_the_keys_of_apaches_broker(scenes: tuple[Scene, Scene]) -> None:
    def keys(scene: Scene) -> set[str]:
        broker = scene.broker
        table = wire.call(broker.broker_address, wire.GET_BROKER_RUNTIME_INFO).json()["table"]
        return {key.replace(str(broker.store_dir), "<store>") for key in table}

    ours, referee = scenes
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


def test_each_statistic_is_there_if_apaches_broker_has_it(scenes: tuple[Scene, Scene]) -> None:
    def codes(scene: Scene) -> dict[str, tuple[int, str | None]]:
        found = {}
        for name, key in STATS_KEYS.items():
            fields = {"statsName": name, "statsKey": key}
            answer = wire.call(scene.broker.broker_address, VIEW_BROKER_STATS_DATA, fields)
            found[name] = (answer.code, answer.remark)
        return found

    ours, referee = scenes
    assert codes(ours) == codes(referee)
    assert codes(ours)["GROUP_GET_LATENCY"][0] == wire.SUCCESS


def test_the_workload_is_visible_in_what_is_compared(scenes: tuple[Scene, Scene]) -> None:
    """The comparison would mean nothing if both brokers were empty or both failed."""
    for scene in scenes:
        printed = scene.printed
        assert f"msgPutTotalTodayNow:{MESSAGES}" in printed["4.9.8", "brokerStatus"]
        assert f"{TOPIC} broker-a 1 5 1 4 <time>" in printed["4.9.8", "consumerProgress of an offline group"]
        assert f"{TOPIC} broker-a 3 5 5 0 <time>" in printed["4.9.8", "consumerProgress of an online group"]
        assert "Keys: [L5]" in printed["5.3.3", "queryMsgById"]
        assert any("<unique id> 1 1" in line for line in printed["5.3.3", "queryMsgByKey"])
        assert any(line.startswith("<client> <address> JAVA V4_9_8") for line in printed["4.9.8", "consumerConnection"])
        assert len(printed["4.9.8", CONFIG]) > 150
