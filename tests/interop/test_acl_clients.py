"""Others' clients with keys at our broker: Java 4.9.8 and 5.3.3 and Go send, receive, and are refused by name."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from mqcore.client import Client
from tests.rigs import Corpus, GoClient, JavaDriver
from tests.rigs.deliveries import check_each_exactly_once, sent_by_key
from tests.rigs.mqcore_broker import MqcoreBroker
from tests.waiting import wait_until

pytestmark = pytest.mark.compat

OPERATOR = {"accessKey": "operator", "secretKey": "operator-secret", "admin": True}
MEMBER = {
    "accessKey": "member-1",
    "secretKey": "member/secret=",
    "defaultTopicPerm": "PUB|SUB",
    "defaultGroupPerm": "SUB",
    "topicPerms": ["ReadOnly=SUB"],
}
KEYS = {"access_key": "member-1", "secret_key": "member/secret="}
COUNT = 300
DEADLINE_S = 120.0


def put(home: Path, *accounts: dict[str, object]) -> None:
    file = home / "conf" / "plain_acl.yml"
    fresh = file.with_suffix(".fresh")
    fresh.write_text(yaml.safe_dump({"accounts": [*accounts]}))
    fresh.replace(file)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    (home / "conf").mkdir()
    put(home, OPERATOR, MEMBER)
    return home


@pytest.fixture(scope="module")
def guarded(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreBroker]:
    store = tmp_path_factory.mktemp("guarded") / "store"
    with MqcoreBroker(store, {"aclEnable": "true", "rocketmqHome": str(home)}) as broker:
        make_topic(broker, "ReadOnly")
        yield broker


@pytest.fixture
def topic(guarded: MqcoreBroker, request: pytest.FixtureRequest) -> str:
    return make_topic(guarded, re.sub(r"\W", "_", request.node.name))


def make_topic(broker: MqcoreBroker, topic: str) -> str:
    with Client(f"rmq://operator:operator-secret@{broker.name_server}") as mq:
        assert all(error is None for error in mq.admin.create_topic(topic, read_queues=4).values())
    return topic


@pytest.mark.parametrize("mode", ["async", "batch"])
def test_java_sends_and_receives_with_keys(
    guarded: MqcoreBroker, topic: str, corpus: Corpus, java: JavaDriver, mode: str
) -> None:
    server, group = guarded.name_server, f"readers-of-{topic}"
    with java.consumer(server, topic, group, **{"from": "CONSUME_FROM_FIRST_OFFSET"}, **KEYS) as consumer:
        sent = sent_by_key(java.produce(server, topic, corpus.path, count=COUNT, mode=mode, **KEYS))
        wait_until(lambda: consumer.count() >= COUNT, DEADLINE_S, "all messages came")
        received = [message for message in consumer.stop() if message.key in sent]
    check_each_exactly_once(sent, received)


def test_go_sends_and_receives_with_keys(
    guarded: MqcoreBroker, topic: str, corpus: Corpus, go_client: GoClient
) -> None:
    server = guarded.name_server
    sent = sent_by_key(go_client.produce(server, topic, corpus.path, count=COUNT, **KEYS))
    with go_client.consumer(server, topic, "go-readers", **KEYS) as consumer:
        wait_until(lambda: consumer.count() >= COUNT, DEADLINE_S, "all messages came")
        received = consumer.stop()
    check_each_exactly_once(sent, received)


@pytest.mark.parametrize(
    ("place", "keys", "words"),
    [
        ("ReadOnly", KEYS, "No default permission for topic:ReadOnly"),
        ("ReadOnly", {**KEYS, "secret_key": "another-secret"}, "Check signature failed for accessKey=member-1"),
        ("ReadOnly", {}, "No accessKey is configured"),
    ],
)
def test_java_is_refused_with_rocketmqs_words(
    guarded: MqcoreBroker, corpus: Corpus, java: JavaDriver, place: str, keys: dict[str, str], words: str
) -> None:
    produced = java.produce(guarded.name_server, place, corpus.path, count=2, mode="async", **keys)
    assert produced.failures == 2
    assert all(words in message.status for message in produced.sent), produced.sent


def test_go_is_refused_with_rocketmqs_words(guarded: MqcoreBroker, corpus: Corpus, go_client: GoClient) -> None:
    produced = go_client.produce(guarded.name_server, "ReadOnly", corpus.path, count=2, **KEYS)
    assert all("No default permission for topic:ReadOnly" in message.status for message in produced.sent)


def test_no_send_is_lost_while_the_files_change_under_load(
    guarded: MqcoreBroker, home: Path, topic: str, corpus: Corpus, java: JavaDriver
) -> None:
    is_over = threading.Event()

    def change() -> None:
        number = 0
        while not is_over.wait(0.2):
            number += 1
            put(home, OPERATOR, MEMBER, {"accessKey": f"other-{number}", "secretKey": "other-secret"})

    changing = threading.Thread(target=change)
    changing.start()
    try:
        produced = java.produce(guarded.name_server, topic, corpus.path, count=20_000, in_flight=64, **KEYS)
    finally:
        is_over.set()
        changing.join()
        put(home, OPERATOR, MEMBER)
    assert produced.failures == 0
    assert guarded.child.log.read_text().count("access control read again") >= 1
