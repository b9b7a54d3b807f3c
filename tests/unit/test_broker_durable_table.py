"""Configuration tables: a change counts when it is on disk, and not before."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from broker_ports import START_MS, FakeClock

from mqcore import files
from mqcore.broker import config_file
from mqcore.broker.config_file import ConfigFile
from mqcore.broker.durable_table import DurableTable
from mqcore.errors import CorruptFileError
from mqcore.protocol import fastjson
from mqcore.protocol.bodies import DataVersion


class Numbers:
    """What the file says."""

    def __init__(self) -> None:
        self.threads: set[int] = set()

    def render(self, table: Mapping[str, int], version: DataVersion) -> bytes:
        self.threads.add(threading.get_ident())
        return fastjson.dumps({"table": dict(table)}, pretty=True)


class Table:
    """A durable table of numbers, and what its listener was told."""

    def __init__(self, path: Path) -> None:
        self.file = ConfigFile(path)
        self.shown: list[list[str]] = []
        self.text = Numbers()
        self.table = DurableTable[int](self.file, self.text, self.note, FakeClock())

    def note(self, names: Iterable[str]) -> None:
        self.shown.append(list(names))

    def on_disk(self) -> Any:
        return fastjson.loads(self.file.path.read_bytes())["table"]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "config" / "numbers.json")


async def test_a_change_is_on_disk_when_it_returns(table: Table) -> None:
    await table.table.change(lambda draft: draft.put("one", 1))
    assert table.on_disk() == {"one": 1}
    assert table.table.records == {"one": 1}
    assert table.shown == [["one"]]
    assert (table.table.version.counter, table.table.version.timestamp) == (1, START_MS)


async def test_the_file_is_rendered_beside_the_event_loop(table: Table) -> None:
    await table.table.change(lambda draft: draft.put("one", 1))
    assert table.text.threads
    assert threading.get_ident() not in table.text.threads


async def test_what_is_only_shown_is_written_with_the_next_change(table: Table) -> None:
    await table.table.change(lambda draft: draft.put("one", 1))
    await table.table.change(lambda draft: draft.show("one", 2))
    assert (table.table.records, table.on_disk()) == ({"one": 2}, {"one": 1})
    assert (table.table.version.counter, table.shown[-1]) == (2, ["one"])
    await table.table.change(lambda draft: draft.put("two", 3))
    assert table.on_disk() == {"one": 2, "two": 3}


async def test_changes_that_wait_together_share_writes(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[Path] = []
    real = files.write_atomically

    def counted(path: Path, data: bytes) -> None:
        writes.append(path)
        real(path, data)

    monkeypatch.setattr(config_file, "write_atomically", counted)

    async def put(number: int) -> None:
        await table.table.change(lambda draft: draft.put(f"n{number}", number))

    await asyncio.gather(*map(put, range(100)))
    assert len(table.on_disk()) == 100
    assert table.table.version.counter == 100
    assert len(writes) <= 2


async def test_a_later_change_sees_an_earlier_one_of_the_same_write(table: Table) -> None:
    def ensure(draft: Any) -> int:
        if "one" not in draft.table:
            draft.put("one", 1)
        return int(draft.table["one"])

    assert list(await asyncio.gather(table.table.change(ensure), table.table.change(ensure))) == [1, 1]
    assert table.table.version.counter == 1


async def test_a_change_that_cannot_be_written_is_not_made(table: Table, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("a file where the directory should be")
    with pytest.raises(OSError):
        await table.table.change(lambda draft: draft.put("one", 1))
    assert table.table.records == {}
    assert table.table.version.counter == 0
    assert table.shown == []


async def test_a_change_that_raises_fails_alone(table: Table) -> None:
    def bad(draft: Any) -> None:
        raise ValueError("no")

    outcomes = await asyncio.gather(
        table.table.change(bad), table.table.change(lambda draft: draft.put("one", 1)), return_exceptions=True
    )
    assert isinstance(outcomes[0], ValueError)
    assert table.on_disk() == {"one": 1}


async def test_nobody_sees_a_change_before_it_is_written(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, int]] = []
    real = files.write_atomically

    def spying(path: Path, data: bytes) -> None:
        seen.append(dict(table.table.records))
        real(path, data)

    monkeypatch.setattr(config_file, "write_atomically", spying)
    await table.table.change(lambda draft: draft.put("one", 1))
    assert seen == [{}]


async def test_a_waiter_that_gives_up_takes_nothing_from_the_others(table: Table) -> None:
    first = asyncio.create_task(table.table.change(lambda draft: draft.put("one", 1)))
    second = asyncio.create_task(table.table.change(lambda draft: draft.put("two", 2)))
    await asyncio.sleep(0)
    first.cancel()
    await second
    await table.table.close()
    assert table.on_disk() == {"one": 1, "two": 2}


@pytest.mark.parametrize("broken", [None, b"", b"{ half a"])
def test_the_backup_is_read_when_the_file_is_missing_empty_or_broken(tmp_path: Path, broken: bytes | None) -> None:
    path = tmp_path / "x.json"
    if broken is not None:
        path.write_bytes(broken)
    path.with_name("x.json.bak").write_bytes(b'{"offsetTable":{1:2}}')
    assert ConfigFile(path).load() == {"offsetTable": {"1": 2}}


def test_a_missing_pair_is_an_empty_state(tmp_path: Path) -> None:
    assert ConfigFile(tmp_path / "x.json").load() is None


def test_a_broken_backup_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(b"{ half a")
    (tmp_path / "x.json.bak").write_bytes(b"{ half b")
    with pytest.raises(CorruptFileError, match=r"x\.json\.bak"):
        ConfigFile(tmp_path / "x.json").load()


async def test_an_unchanged_value_is_not_written_again(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "x.json")
    await file.write({"a": 1})
    before = file.path.stat().st_ino
    await file.write({"a": 1})
    assert file.path.stat().st_ino == before
    await file.write({"a": 2})
    assert fastjson.loads(file.path.read_bytes()) == {"a": 2}
