"""A broadcasting member keeps its offsets in the file that Apache's Java client would keep them in."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqcore.client.consume.offsets import FileOffsets, MemoryOffsets
from mqcore.errors import StoreError
from mqcore.protocol.message import MessageQueue

FIRST = MessageQueue("T", "broker-a", 0)
SECOND = MessageQueue("T", "broker-a", 1)

# Written by client 4.9.8.
JAVA_FILE = """{
\t"offsetTable":{{
\t\t\t"brokerName":"broker-a",
\t\t\t"queueId":1,
\t\t\t"topic":"T"
\t\t}:12345678901,{
\t\t\t"brokerName":"broker-a",
\t\t\t"queueId":0,
\t\t\t"topic":"T"
\t\t}:7
\t}
}"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "10.0.0.1@DEFAULT" / "G" / "offsets.json"


@pytest.fixture
def offsets(tmp_path: Path) -> FileOffsets:
    return FileOffsets(tmp_path, "10.0.0.1@DEFAULT", "G")


async def test_the_file_of_a_java_client_is_read(offsets: FileOffsets, path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(JAVA_FILE)
    await offsets.load()
    assert await offsets.stored(SECOND) == 12345678901
    assert await offsets.stored(FIRST) == offsets.known(FIRST) == 7


async def test_the_file_is_written_as_a_java_client_writes_it(offsets: FileOffsets, path: Path) -> None:
    offsets.update(SECOND, 12345678901, increase_only=True)
    offsets.update(FIRST, 7, increase_only=True)
    await offsets.persist([SECOND, FIRST])
    assert path.read_text() == JAVA_FILE


async def test_offsets_of_queues_that_are_not_held_stay_in_the_file(offsets: FileOffsets, tmp_path: Path) -> None:
    offsets.update(FIRST, 7, increase_only=True)
    await offsets.persist([FIRST])
    later = FileOffsets(tmp_path, "10.0.0.1@DEFAULT", "G")
    later.update(SECOND, 9, increase_only=True)
    await later.persist([SECOND])
    assert (await later.stored(FIRST), await later.stored(SECOND)) == (7, 9)


async def test_a_torn_file_is_replaced_by_its_backup(offsets: FileOffsets, path: Path) -> None:
    offsets.update(FIRST, 7, increase_only=True)
    await offsets.persist([FIRST])
    offsets.update(FIRST, 8, increase_only=True)
    await offsets.persist([FIRST])
    path.write_bytes(path.read_bytes()[:40])
    await offsets.load()
    assert await offsets.stored(FIRST) == 7


async def test_a_start_fails_when_neither_file_can_be_read(offsets: FileOffsets, path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("{")
    path.with_name("offsets.json.bak").write_text("nonsense")
    with pytest.raises(StoreError, match="cannot read offsets from"):
        await offsets.load()


async def test_without_a_file_nothing_is_stored(offsets: FileOffsets, path: Path) -> None:
    await offsets.load()
    assert await offsets.stored(FIRST) is None
    await offsets.persist([FIRST])
    assert not path.exists()


def test_an_offset_moves_backwards_only_when_told_to() -> None:
    offsets = MemoryOffsets()
    offsets.update(FIRST, 7, increase_only=True)
    offsets.update(FIRST, 5, increase_only=True)
    assert offsets.known(FIRST) == 7
    offsets.update(FIRST, 5, increase_only=False)
    assert offsets.known(FIRST) == 5
    offsets.forget(FIRST)
    assert offsets.known(FIRST) is None
