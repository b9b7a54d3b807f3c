"""Clients with keys through ports that let nothing in but TLS: Java 4.9.8 and 5.3.3, and Python."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from mqcore.client import Client, Message
from tests.interop.conftest import RELEASES
from tests.rigs import Corpus, JavaDriver
from tests.rigs.certificates import trusting
from tests.rigs.deliveries import check_each_exactly_once, check_intact, sent_by_key
from tests.rigs.mqcore_broker import MqcoreBroker
from tests.waiting import wait_until

pytestmark = pytest.mark.compat

ACCOUNTS = [
    {"accessKey": "operator", "secretKey": "operator-secret", "admin": True},
    {
        "accessKey": "member-1",
        "secretKey": "member-secret",
        "defaultTopicPerm": "PUB|SUB",
        "defaultGroupPerm": "SUB",
        "topicPerms": ["ReadOnly=SUB"],
    },
]
KEYS = {"access_key": "member-1", "secret_key": "member-secret"}
TLS = ("-Dtls.enable=true",)
COUNT = 300
DEADLINE_S = 120.0


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreBroker]:
    directory = tmp_path_factory.mktemp("sealed")
    (directory / "conf").mkdir()
    (directory / "conf" / "plain_acl.yml").write_text(yaml.safe_dump({"accounts": ACCOUNTS}))
    properties = {"aclEnable": "true", "rocketmqHome": str(directory), "tls.server.mode": "enforcing"}
    with MqcoreBroker(directory / "store", properties, tls=trusting()) as broker:
        make_topic(broker, "ReadOnly")
        yield broker


def make_topic(broker: MqcoreBroker, topic: str) -> str:
    with Client(f"rmq://operator:operator-secret@{broker.name_server}", tls=trusting()) as mq:
        assert all(error is None for error in mq.admin.create_topic(topic, read_queues=4).values())
    return topic


@pytest.fixture
def topic(sealed: MqcoreBroker, request: pytest.FixtureRequest) -> str:
    """A new topic named after the test."""
    return make_topic(sealed, re.sub(r"\W", "_", request.node.name))


@pytest.fixture(params=["either", *(pytest.param(release, marks=pytest.mark.slow) for release in RELEASES)])
def java(request: pytest.FixtureRequest, chance: random.Random, tmp_path: Path) -> JavaDriver:
    """With TLS, in long runs each release, otherwise the one that chance takes."""
    release = chance.choice(RELEASES) if request.param == "either" else request.param
    return JavaDriver(release, tmp_path, options=TLS)


def test_java_sends_and_receives_with_keys_and_tls(
    sealed: MqcoreBroker, topic: str, corpus: Corpus, java: JavaDriver
) -> None:
    server = sealed.name_server
    with java.consumer(server, topic, f"readers-{topic}", **KEYS) as consumer:
        wait_until(lambda: len(consumer.queues()) == 4, DEADLINE_S, "the consumer has its queues")
        produced = java.produce(server, topic, corpus.path, count=COUNT, **KEYS)
        wait_until(lambda: consumer.count() >= COUNT, DEADLINE_S, "all messages came")
        received = consumer.stop()
    sent = sent_by_key(produced)
    received = [message for message in received if message.key in sent]
    check_each_exactly_once(sent, received)
    check_intact(corpus.lines(), sent, received)


def test_java_with_a_wrong_secret_is_refused_through_tls(
    sealed: MqcoreBroker, corpus: Corpus, java: JavaDriver
) -> None:
    wrong = {**KEYS, "secret_key": "another-secret"}
    produced = java.produce(sealed.name_server, "ReadOnly", corpus.path, count=1, mode="async", **wrong)
    assert [message.status for message in produced.sent if "Check signature failed" not in message.status] == []
    assert produced.failures == 1


def test_python_sends_and_receives_with_keys_and_tls(sealed: MqcoreBroker, topic: str) -> None:
    with Client(f"rmq://member-1:member-secret@{sealed.name_server}", tls=trusting()) as mq:
        with mq.producer("python-senders") as producer:
            for number in range(COUNT):
                producer.send(Message(topic, b"%d" % number))
        got: list[bytes] = []
        with mq.consumer("python-readers", topic, from_where="earliest") as consumer:
            while len(got) < COUNT:
                for message in consumer.receive(timeout_s=60):
                    got.append(message.body)
                    message.ack()
    assert sorted(got) == sorted(b"%d" % number for number in range(COUNT))
