"""A store that is backed up while transactions are open in it: under whatever broker it is restored, each ends once."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqcore.protocol import fastjson
from mqcore.protocol.names import TRANS_CONSUMER_GROUP, TRANS_HALF_TOPIC
from mqcore.store.backup.restoring import restore
from tests.compat.test_open_transactions import (
    COMMIT,
    DEADLINE_S,
    PROPERTIES,
    ROLLBACK,
    TOPIC,
    UNKNOWN,
    Producer,
    StartOne,
    apache,
    await_ops,
    ours,
)
from tests.integration.backup_rig import back_up
from tests.integration.client_helpers import eventually
from tests.rigs import ApacheServer, maven, wire

NEEDS_APACHE = [
    pytest.mark.compat,
    pytest.mark.skipif(bool(maven.missing_tools()), reason=f"Apache's broker cannot run here: {maven.missing_tools()}"),
]


FIRST = {
    "committed": COMMIT,
    "rolled_back": ROLLBACK,
    "asked": UNKNOWN,
    "open_commit": UNKNOWN,
    "open_rollback": UNKNOWN,
}


def position(store: Path) -> int:
    """From which half message on the store's broker looks for transactions, as its files say."""
    file = store / "config" / "consumerOffset.json"
    table = fastjson.loads(file.read_bytes())["offsetTable"] if file.exists() else {}
    return int(dict(table.get(f"{TRANS_HALF_TOPIC}@{TRANS_CONSUMER_GROUP}") or {}).get("0", 0))


async def play(first: StartOne, store: Path, backup: Path) -> None:
    """Leave transactions open, some asked about already, and back up beside the broker, which goes on for a while."""
    with first() as broker:
        wire.create_topic(broker.broker_address, TOPIC, queues=2)
        producer = Producer(broker, {b"asked": COMMIT})
        await producer.open(**FIRST)
        await producer.answer("asked", "open_commit", "open_rollback")
        await producer.delivered("committed", "asked")
        await await_ops(broker, "committed", "rolled_back", "asked")
        await producer.open(fresh=UNKNOWN, fresh_committed=COMMIT)
        await producer.delivered("committed", "asked", "fresh_committed")
        await await_ops(broker, "fresh_committed")
        if broker.apache_version:
            # It writes no op message for a half message that it puts again: its position alone says that it has.
            await eventually(lambda: position(store) >= len(FIRST), "the position is on disk", DEADLINE_S)
        back_up(backup, store)
        # What the broker is told from now on is not in the backup: there these are open.
        producer.answers = {b"fresh": COMMIT, b"open_commit": COMMIT, b"open_rollback": COMMIT}
        await producer.answer()


async def finish(second: StartOne) -> None:
    with second() as broker:
        wire.create_topic(broker.broker_address, TOPIC, queues=2)
        producer = Producer(broker, {b"open_commit": COMMIT, b"open_rollback": ROLLBACK, b"fresh": COMMIT})
        await producer.answer()
        await producer.delivered("committed", "asked", "fresh_committed", "open_commit", "fresh")
        assert set(producer.asked) == {b"open_commit", b"open_rollback", b"fresh"}


async def play_and_finish(first: StartOne, second: StartOne, tmp_path: Path) -> None:
    await play(first, tmp_path / "store", tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "new")
    await finish(second)


async def test_transactions_that_were_open_at_a_backup_end_once_in_the_restored_store(tmp_path: Path) -> None:
    await play_and_finish(ours(tmp_path / "store"), ours(tmp_path / "new"), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("version", [pytest.param(name, marks=NEEDS_APACHE) for name in ("4.9.8", "5.3.3")])
async def test_transactions_that_were_open_at_a_backup_end_once_in_apaches_broker(tmp_path: Path, version: str) -> None:
    await play_and_finish(ours(tmp_path / "store"), apache(tmp_path / "new", version), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("version", [pytest.param(name, marks=NEEDS_APACHE) for name in ("4.9.8", "5.3.3")])
async def test_open_transactions_of_apaches_store_end_once_where_it_is_restored(tmp_path: Path, version: str) -> None:
    soon = PROPERTIES | {"transactionOpBatchInterval": "100", "flushConsumerOffsetInterval": "200"}
    store = tmp_path / "store"
    await play_and_finish(lambda: ApacheServer(version, store, soon), ours(tmp_path / "new"), tmp_path)
