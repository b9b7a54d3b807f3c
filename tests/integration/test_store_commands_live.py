"""``mqcore store`` beside a broker that works: nothing of it is disturbed, and nothing is found that is none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from mqcore.admin.output import message_json
from mqcore.client.model.messages import Message
from mqcore.client.plain.client import Client
from tests.integration.backup_rig import DEADLINE_S, QUEUES, TOPIC, assert_holds, grow, mqcore, served, stored, talking
from tests.rigs import MqcoreBroker, wire

FILE_SIZE = 1 << 20
SETTINGS = {"mappedFileSizeCommitLog": str(FILE_SIZE), "mappedFileSizeConsumeQueue": "2000"}
ADDED = ("MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME")
"""Properties that a consumer adds to what is stored."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[MqcoreBroker]:
    with MqcoreBroker(tmp_path / "store", SETTINGS) as broker:
        wire.create_topic(broker.broker_address, TOPIC, queues=QUEUES)
        yield broker


def names(root: Path) -> set[Path]:
    return {path.relative_to(root) for path in root.rglob("*") if path.suffix not in (".making", ".tmp")}


def export(store: Path) -> dict[tuple[int, int], bytes]:
    """What an export of the topic has: body by (queue, offset)."""
    code, out, err = mqcore("store", "export", store, "--topic", TOPIC, "--quiet")
    assert code == 0, err
    lines = [json.loads(line) for line in out.splitlines()]
    found = {(line["queueId"], line["offset"]): line["body"].encode() for line in lines}
    assert len(found) == len(lines)
    return found


def test_a_store_in_use_is_checked_and_exported_while_messages_come(broker):
    with talking(broker) as talker:
        grow(talker, 200)
        for wanted in (300, 300, 300):
            grow(talker, wanted)
            acknowledged = talker.so_far()
            code, out, err = mqcore("store", "check", broker.store_dir, "--output", "json", "--all")
            result = json.loads(out)
            assert (code, result["damage"]) == (0, []), err
            assert result["state"] == "in use"
            assert result["messages"] >= len(acknowledged)
            assert_holds(export(broker.store_dir), acknowledged)
    assert_holds(served(broker, TOPIC, QUEUES), talker.so_far())
    assert_holds(stored(broker.store_dir), talker.so_far())
    exported = export(broker.store_dir)
    assert exported == served(broker, TOPIC, QUEUES)
    before = names(broker.store_dir)
    assert mqcore("store", "check", broker.store_dir, "--quiet")[0] == 0
    assert names(broker.store_dir) == before


def test_an_export_equals_what_a_consumer_receives(broker):
    with Client(broker.name_server) as mq:
        with mq.producer("export-producer") as producer:
            for number in range(60):
                body = bytes([number, 255, number]) if number % 2 else f"äöü {number}".encode()
                properties = {"number": str(number)}
                producer.send(
                    Message(TOPIC, body, tag=f"T{number % 3}", keys=["all", f"k{number}"], properties=properties)
                )
        code, out, err = mqcore("store", "export", broker.store_dir, "--topic", TOPIC, "--quiet")
        assert code == 0, err
        exported = {line["msgId"]: line for line in map(json.loads, out.splitlines())}
        received = {}
        with mq.consumer("export-group", TOPIC, from_where="earliest") as consumer:
            while len(received) < 60:
                for message in consumer.receive(timeout_s=DEADLINE_S):
                    received[message.msg_id] = json.loads(orjson.dumps(message_json(message)))
                    message.ack()
    assert exported.keys() == received.keys()
    for msg_id, line in exported.items():
        for name in ADDED:
            received[msg_id]["properties"].pop(name, None)
        common = line.keys() & received[msg_id].keys()
        assert common >= {"topic", "queueId", "offset", "tag", "keys", "properties", "bornTimestamp", "storeTimestamp"}
        assert {name: line[name] for name in common} == {name: received[msg_id][name] for name in common}
        assert "body" in common or "bodyBase64" in common
