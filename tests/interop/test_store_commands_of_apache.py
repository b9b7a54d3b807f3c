"""``mqcore store`` over stores of Apache's broker: while it works, when it was killed, and under ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.backup_rig import QUEUES, TOPIC, assert_holds, grow, mqcore, served, talking
from tests.rigs import ApacheServer, MqcoreBroker, maven, wire

pytestmark = [
    pytest.mark.compat,
    pytest.mark.skipif(bool(maven.missing_tools()), reason=f"Apache's broker cannot run here: {maven.missing_tools()}"),
]

RELEASE = "4.9.8"
SMALL = {"mappedFileSizeCommitLog": str(1 << 20), "maxHashSlotNum": "500", "maxIndexNum": "700"}


def check(store: Path) -> Any:
    code, out, err = mqcore("store", "check", store, "--output", "json", "--all")
    result = json.loads(out)
    assert (code, result["damage"]) == (0, []), err
    return result


def export(store: Path) -> dict[tuple[int, int], bytes]:
    code, out, err = mqcore("store", "export", store, "--topic", TOPIC, "--quiet")
    assert code == 0, err
    lines = map(json.loads, out.splitlines())
    return {(line["queueId"], line["offset"]): line["body"].encode() for line in lines}


@pytest.mark.slow
def test_a_store_of_apaches_broker_is_checked_and_exported_beside_it_and_after(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with ApacheServer(RELEASE, store, SMALL) as apache:
        wire.create_topic(apache.broker_address, TOPIC, queues=QUEUES)
        with talking(apache) as talker:
            for _ in range(2):
                grow(talker, 400)
                acknowledged = talker.so_far()
                assert check(store)["state"] == "in use"
                assert_holds(export(store), acknowledged)
        assert served(apache, TOPIC, QUEUES) == export(store)
        assert_holds(export(store), talker.so_far())
    # It was killed: that is how the rig ends it, and an orderly stop is in tests/compat.
    result = check(store)
    assert result["state"] == "crashed"
    assert result["messages"] >= len(talker.acknowledged)
    assert_holds(export(store), talker.so_far())
    # Ours takes it over as it was left.
    with MqcoreBroker(store, SMALL) as ours:
        assert check(store)["state"] == "in use"
        assert served(ours, TOPIC, QUEUES) == export(store)
        ours.stop()
        assert check(store)["state"] == "stopped"
