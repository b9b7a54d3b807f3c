"""``mqcore store`` beside a broker that works: nothing of it is disturbed, and nothing is found that is none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.backup_rig import QUEUES, TOPIC, assert_holds, grow, mqcore, served, stored, talking
from tests.rigs import MqcoreBroker, wire

FILE_SIZE = 1 << 20
SETTINGS = {"mappedFileSizeCommitLog": str(FILE_SIZE), "mappedFileSizeConsumeQueue": "2000"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[MqcoreBroker]:
    with MqcoreBroker(tmp_path / "store", SETTINGS) as broker:
        wire.create_topic(broker.broker_address, TOPIC, queues=QUEUES)
        yield broker


def names(root: Path) -> set[Path]:
    return {path.relative_to(root) for path in root.rglob("*") if path.suffix not in (".making", ".tmp")}


def test_a_store_in_use_is_checked_while_messages_come(broker):
    with talking(broker) as talker:
        grow(talker, 200)
        for wanted in (400, 400, 400):
            grow(talker, wanted)
            acknowledged = talker.so_far()
            code, out, err = mqcore("store", "check", broker.store_dir, "--output", "json", "--all")
            result = json.loads(out)
            assert (code, result["damage"]) == (0, []), err
            assert result["state"] == "in use"
            assert result["messages"] >= len(acknowledged)
    assert_holds(served(broker, TOPIC, QUEUES), talker.so_far())
    assert_holds(stored(broker.store_dir), talker.so_far())
    before = names(broker.store_dir)
    assert mqcore("store", "check", broker.store_dir, "--quiet")[0] == 0
    assert names(broker.store_dir) == before
