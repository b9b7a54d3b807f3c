"""The name server's key-value table and its file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mqcore.errors import CorruptFileError
from mqcore.namesrv import kv_config as module
from mqcore.namesrv.kv_config import KVConfig


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "namesrv" / "kvConfig.json"


def reopened(path: Path) -> KVConfig:
    table = KVConfig(path)
    table.load()
    return table


async def test_values_are_on_disk_when_put_returns(path: Path) -> None:
    table = reopened(path)
    await table.put("N", "k", "v")
    await table.put("N", "l", "w")
    await table.put("M", "k", "x")
    assert reopened(path).namespace("N") == {"k": "v", "l": "w"}
    assert reopened(path).get("M", "k") == "x"
    assert path.read_bytes() == b'{"configTable":{"N":{"k":"v","l":"w"},"M":{"k":"x"}}}'


async def test_a_deleted_key_is_gone_from_the_disk(path: Path) -> None:
    table = reopened(path)
    await table.put("N", "k", "v")
    await table.delete("N", "k")
    assert table.get("N", "k") is None
    assert reopened(path).namespace("N") == {}


async def test_deleting_nothing_writes_nothing(path: Path) -> None:
    await reopened(path).delete("N", "k")
    assert not path.exists()


async def test_unknown_namespaces_are_none(path: Path) -> None:
    table = reopened(path)
    assert table.namespace("N") is None
    assert table.get("N", "k") is None


async def test_changes_at_the_same_time_are_all_kept(path: Path) -> None:
    table = reopened(path)
    await asyncio.gather(*(table.put("N", str(number), "v") for number in range(20)))
    assert reopened(path).namespace("N") == {str(number): "v" for number in range(20)}


async def test_a_change_that_cannot_be_written_is_not_made(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = reopened(path)
    await table.put("N", "k", "old")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(module, "write_atomically", fail)
    with pytest.raises(OSError, match="disk full"):
        await table.put("N", "k", "new")
    assert table.get("N", "k") == "old"
    assert reopened(path).get("N", "k") == "old"


async def test_a_broken_file_gives_way_to_its_backup(path: Path) -> None:
    table = reopened(path)
    await table.put("N", "k", "first")
    await table.put("N", "k", "second")
    for broken in (b"", b"\n", b"{", b"[]"):
        path.write_bytes(broken)
        assert reopened(path).get("N", "k") == "first"
    path.unlink()
    assert reopened(path).get("N", "k") == "first"


async def test_a_broken_file_without_a_sound_backup_stops_the_start(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"{")
    with pytest.raises(CorruptFileError, match=r"kvConfig\.json"):
        reopened(path)
    path.with_name("kvConfig.json.bak").write_bytes(b"{]")
    with pytest.raises(CorruptFileError):
        reopened(path)


async def test_a_file_of_java_is_read(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b'{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"broker-a:4;broker-b:4"}}}')
    assert reopened(path).get("ORDER_TOPIC_CONFIG", "T") == "broker-a:4;broker-b:4"
