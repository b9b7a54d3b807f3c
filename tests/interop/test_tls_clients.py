"""Apache's Java clients and mqadmin with -Dtls.enable=true, through ports that let nothing else in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rigs import JavaDriver, gather
from tests.rigs.certificates import trusting
from tests.rigs.deliveries import check_each_exactly_once, check_intact, sent_by_key
from tests.rigs.mqadmin import Mqadmin
from tests.rigs.mqcore_broker import MqcoreBroker
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


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_java_clients_send_and_receive_with_tls(enforcing: MqcoreBroker, tmp_path: Path, version: str) -> None:
    java = JavaDriver(version, tmp_path, options=TLS)
    topic = f"Sealed{version.replace('.', '_')}"
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
