"""Members of a group that subscribe differently, in three languages: who is told, and what operators see."""

from __future__ import annotations

import json
import logging

import pytest
from click.testing import CliRunner

from mqcore.admin.command_line import cli
from mqcore.client import Client
from tests.interop.test_request_reply import brokers_of
from tests.rigs import GoClient, JavaDriver, Mqadmin, RunningBroker, StartBroker, wire
from tests.waiting import wait_until

pytestmark = pytest.mark.compat

TOPIC = "Orders"
GROUP = "Quarrel"


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    """Differences count from their first moment."""
    broker = start_broker({"subscriptionConflictMillis": "0"})
    wire.create_topic(broker.broker_address, TOPIC, queues=2)
    wait_until(lambda: brokers_of(broker.name_server, TOPIC) == 1, describe="route")
    return broker


def shown(broker: RunningBroker) -> list[dict[str, object]]:
    """What the command line says of the topic."""
    command = ["-n", broker.name_server, "group", "subscription", GROUP, "--output", "json"]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 0, result.output
    (record,) = [record for record in json.loads(result.stdout) if record["topic"] == TOPIC]
    conflict = record["conflict"]
    assert ("subscribe differently" in result.stderr) == (conflict is not None)
    return conflict or []


def test_members_in_conflict_are_named_to_operators_and_to_python(
    broker: RunningBroker,
    java_4_9_8: JavaDriver,
    go_client: GoClient,
    mqadmin_4_9_8: Mqadmin,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with java_4_9_8.consumer(broker.name_server, TOPIC, GROUP, tags="*") as java:
        with Client(broker.name_server) as mq, mq.consumer(GROUP, TOPIC, handler=lambda _: None):
            assert shown(broker) == []
        with (
            caplog.at_level(logging.WARNING, "mqcore.client"),
            Client(broker.name_server) as mq,
            mq.consumer(GROUP, {TOPIC: "TagA"}, handler=lambda _: None),
        ):
            wanted = {java.client_id: "TAG *", mq.client_id: "TAG TagA"}
            assert {str(side["clientId"]): side["wants"] for side in shown(broker)} == wanted
            told = [
                text for text in map(logging.LogRecord.getMessage, caplog.records) if "subscribe differently" in text
            ]
            assert told
            assert all(f"[{name}] wants [{wish}]" in told[0] for name, wish in wanted.items())
            # RocketMQ's tool knows nothing of it, and prints what it always does.
            printed = mqadmin_4_9_8.run(broker.name_server, "consumerConnection", "-g", GROUP).text
            assert all(word in printed for word in ("JAVA", TOPIC, "ConsumeType: CONSUME_PASSIVELY"))
        wait_until(lambda: shown(broker) == [], describe="agreement")
        with go_client.consumer(broker.name_server, TOPIC, GROUP, tags="TagB"):
            wait_until(lambda: shown(broker) != [], describe="the next conflict")
            assert {side["wants"] for side in shown(broker)} == {"TAG *", "TAG TagB"}
        table = wire.call(broker.broker_address, wire.GET_BROKER_RUNTIME_INFO).json()["table"]
        assert table["subscriptionConflictTotal"] == "2"
        java.stop()
