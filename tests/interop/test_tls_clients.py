"""Apache's Java clients and mqadmin with -Dtls.enable=true, through ports that let nothing else in."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.conftest import RELEASES
from tests.rigs import JavaDriver, gather
from tests.rigs.apache import SMALL, ApacheBroker, ApacheNamesrv
from tests.rigs.certificates import trusting
from tests.rigs.deliveries import check_each_exactly_once, check_intact, sent_by_key
from tests.rigs.mqadmin import Mqadmin
from tests.rigs.mqcore_broker import MqcoreBroker
from tests.rigs.wire import GET_BROKER_CLUSTER_INFO, SUCCESS, call, registered_brokers
from tests.waiting import wait_until

pytestmark = pytest.mark.compat

TLS = ("-Dtls.enable=true",)
ARRIVAL_DEADLINE_S = 120.0


@pytest.fixture(scope="module")
def enforcing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreBroker]:
    """With the certificate that it makes for itself, as RocketMQ's test mode."""
    store = tmp_path_factory.mktemp("enforcing") / "store"
    with MqcoreBroker(store, {"tls.server.mode": "enforcing"}, tls=trusting()) as broker:
        yield broker


@pytest.mark.parametrize(
    "release", ["either", *(pytest.param(release, marks=pytest.mark.slow) for release in RELEASES)]
)
def test_java_clients_send_and_receive_with_tls(
    enforcing: MqcoreBroker, tmp_path: Path, release: str, chance: random.Random
) -> None:
    version = chance.choice(RELEASES) if release == "either" else release
    java = JavaDriver(version, tmp_path, options=TLS)
    topic = f"Sealed{release.replace('.', '_')}"
    corpus = gather(tmp_path / "corpus.txt", 500)
    printed = Mqadmin(version, tmp_path, options=TLS).run(
        enforcing.name_server, "updateTopic", "-t", topic, "-b", enforcing.broker_address, "-r", "4", "-w", "4"
    )
    assert "success" in printed.text
    with java.consumer(enforcing.name_server, topic, f"G_{topic}") as consumer:
        wait_until(lambda: len(consumer.queues()) == 4, ARRIVAL_DEADLINE_S, "the consumer has its queues")
        produced = java.produce(enforcing.name_server, topic, corpus.path)
        assert produced.messages == corpus.count
        wait_until(lambda: consumer.count() >= corpus.count, ARRIVAL_DEADLINE_S, "all have arrived")
        received = consumer.stop()
    sent = sent_by_key(produced)
    check_each_exactly_once(sent, received)
    check_intact(corpus.lines(), sent, received)


ENFORCING = (*SMALL, "-Dtls.server.mode=enforcing")
SIDES = ("apache", "mqcore")


@pytest.fixture(params=["either", *(pytest.param(side, marks=pytest.mark.slow) for side in SIDES)])
def side(request: pytest.FixtureRequest, chance: random.Random) -> str:
    """Whose name server enforces TLS: in long runs each, otherwise the one that chance takes. Apache's make keys."""
    return chance.choice(SIDES) if request.param == "either" else str(request.param)


def test_a_broker_registers_with_an_enforcing_name_server_of_the_other(
    side: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if side == "apache":
        our_broker_registers_with_apaches(tmp_path)
    else:
        apaches_broker_registers_with_ours(request.getfixturevalue("enforcing"), tmp_path)


def our_broker_registers_with_apaches(tmp_path: Path) -> None:
    namesrv = ApacheNamesrv("4.9.8", tmp_path / "namesrv", jvm_options=ENFORCING)
    try:
        wait_until(lambda: answers(namesrv.address), 60, "Apache's name server answers")
        with pytest.raises(ConnectionError):
            call(namesrv.address, GET_BROKER_CLUSTER_INFO)
        properties = {"namesrvAddr": namesrv.address, "tls.server.mode": "enforcing"}
        with MqcoreBroker(tmp_path / "store", properties, tls=trusting()) as broker:
            addresses = registered_brokers(namesrv.address, trusting())
            assert addresses["broker-a"]["0"] == broker.broker_address
    finally:
        namesrv.kill()


def apaches_broker_registers_with_ours(enforcing: MqcoreBroker, tmp_path: Path) -> None:
    properties = {"brokerName": "broker-of-apache"}
    apache = ApacheBroker("4.9.8", tmp_path / "store", enforcing.name_server, properties, jvm_options=ENFORCING)
    try:
        wait_until(
            lambda: "broker-of-apache" in registered_brokers(enforcing.name_server, trusting()),
            ARRIVAL_DEADLINE_S,
            "Apache's broker is registered",
        )
    finally:
        apache.kill()


def answers(name_server: str) -> bool:
    try:
        return call(name_server, GET_BROKER_CLUSTER_INFO, tls=trusting()).code == SUCCESS
    except OSError:
        return False
