"""A store that Apache's broker wrote, byte for byte: read, answered from, recovered and rebuilt by ours."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from mqcore._fast.log import record as fast_record
from mqcore._fast.queues.dispatch import Dispatcher as FastDispatcher
from mqcore.layout import BLANK_MAGIC, INDEX_ENTRY
from mqcore.store.abort_file import AbortFile
from mqcore.store.checkpoint import Checkpoint
from mqcore.store.geometry import StoreGeometry
from mqcore.store.log import record as plain_record
from mqcore.store.log.record import DecodeStatus, Record
from mqcore.store.message_store import MessageStoreReader
from mqcore.store.paths import StorePaths
from mqcore.store.queues.dispatch import Dispatcher as PlainDispatcher
from mqcore.store.queues.index_file import IndexGeometry
from mqcore.store.recovery import Recovery, RecoveryResult
from tests.compat.make_apache_store import ARCHIVE, GEOMETRY

pytestmark = pytest.mark.compat

OURS = StoreGeometry(
    commit_log_file_size=int(GEOMETRY["mappedFileSizeCommitLog"]),
    consume_queue_file_size=int(GEOMETRY["mappedFileSizeConsumeQueue"]),
    index=IndexGeometry(int(GEOMETRY["maxHashSlotNum"]), int(GEOMETRY["maxIndexNum"])),
)
FAR_FUTURE = 1 << 60
twins = pytest.mark.parametrize("twin", [plain_record, fast_record], ids=["python", "cython"])
dispatchers = pytest.mark.parametrize("make", [PlainDispatcher, FastDispatcher], ids=["python", "cython"])


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("apache")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(directory, filter="data")
    return directory


@pytest.fixture(scope="module")
def answers(unpacked: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((unpacked / "answers.json").read_text())
    return value


@pytest.fixture
def clean(unpacked: Path, tmp_path: Path) -> StorePaths:
    return StorePaths.at(shutil.copytree(unpacked / "clean", tmp_path / "clean"))


@pytest.fixture
def killed(unpacked: Path, tmp_path: Path) -> StorePaths:
    return StorePaths.at(shutil.copytree(unpacked / "killed", tmp_path / "killed"))


def recover(paths: StorePaths, **options: Any) -> RecoveryResult:
    return Recovery(paths, OURS, **options).run()


def raw_records(paths: StorePaths) -> list[tuple[int, bytes]]:
    """Every record of the log with its place, found by its sizes alone."""
    found = []
    for path in sorted(paths.commit_log.iterdir()):
        data, at = path.read_bytes(), 0
        while (size := int.from_bytes(data[at : at + 4], "big")) and data[at + 4 : at + 8] == b"\xda\xa3\x20\xa7":
            found.append((int(path.name) + at, data[at : at + size]))
            at += size
    return found


def split_queue(name: str) -> tuple[str, int]:
    topic, _, queue_id = name.rpartition("/")
    return topic, int(queue_id)


def tree(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@twins
def test_every_record_decodes_and_encodes_to_the_same_bytes(clean, answers, twin):
    records = raw_records(clean)
    assert set(answers["clean_offsets"]) <= {offset for offset, _ in records}
    for offset, data in records:
        record = twin.decode(data, offset)
        assert record.physical_offset == offset
        assert twin.encode(record) == data


@twins
def test_a_scan_of_each_file_ends_where_apache_ended_it(clean, twin):
    paths = sorted(clean.commit_log.iterdir())
    for path in paths:
        data = path.read_bytes()
        outcome = twin.scan(data, int(path.name))
        if path == paths[-1]:
            assert outcome.status == DecodeStatus.BAD_MAGIC
            assert not any(data[outcome.valid_size :])
        else:
            assert outcome.status == DecodeStatus.BLANK
            filler = data[outcome.valid_size : outcome.valid_size + 8]
            assert filler == (len(data) - outcome.valid_size).to_bytes(4, "big") + BLANK_MAGIC.to_bytes(
                4, "big", signed=True
            )


def test_a_clean_store_is_recovered_without_a_change(clean, answers):
    before = {path: data for path, data in tree(clean.root).items() if "config/" not in path}
    result = recover(clean)
    assert not result.after_crash
    assert {path: data for path, data in tree(clean.root).items() if "config/" not in path} == before
    records = raw_records(clean)
    assert result.commit_log_end == records[-1][0] + len(records[-1][1])
    bounds = {f"{queue.topic}/{queue.queue_id}": [queue.min_offset, queue.max_offset] for queue in result.queues}
    assert bounds == answers["bounds"]


def test_our_reader_answers_as_apache_does(clean, answers):
    reader = MessageStoreReader(clean, OURS, recover(clean).watermarks())
    for name, moments in answers["times"].items():
        topic, queue_id = split_queue(name)
        ours = [[moment, reader.offset_by_time(topic, queue_id, moment)] for moment, _ in moments]
        assert (name, ours) == (name, moments)
    for name, offsets in answers["keys"].items():
        topic, _, key = name.partition("#")
        found = reader.query_message(topic, key, 32, 0, FAR_FUTURE).records
        assert [int.from_bytes(record[28:36], "big") for record in found] == offsets
    assert len(answers["keys"]) > 100


def test_checkpoint_and_lock_are_read_as_written(clean, killed):
    records = [plain_record.decode(data, offset) for offset, data in raw_records(clean)]
    checkpoint = Checkpoint.read(clean.checkpoint)
    newest = max(record.store_timestamp for record in records)
    # It knows of no flush of the log in the few seconds that it lived; the consume queues are flushed on a stop.
    assert checkpoint.physic_timestamp <= newest
    assert checkpoint.logics_timestamp == newest
    assert 0 < checkpoint.index_timestamp <= newest
    assert clean.checkpoint.stat().st_size == 4096
    assert clean.lock.read_bytes() == b"lock"
    assert killed.abort.stat().st_size == 0


def rebuild(paths: StorePaths, make: type) -> RecoveryResult:
    """Throw away everything but the log, and build it anew."""
    shutil.rmtree(paths.consume_queue)
    shutil.rmtree(paths.index)
    paths.checkpoint.unlink()
    AbortFile(paths.abort).create()
    return recover(paths, make_dispatcher=make)


@dispatchers
def test_consume_queues_rebuilt_from_the_log_are_those_of_apache(clean, make):
    before = tree(clean.consume_queue)
    assert len(before) >= 7
    rebuild(clean, make)
    assert tree(clean.consume_queue) == before


@dispatchers
def test_index_files_rebuilt_from_the_log_are_those_of_apache(clean, make):
    before = [data for _, data in sorted(tree(clean.index).items())]
    assert len(before) >= 4
    rebuild(clean, make)
    after = [data for _, data in sorted(tree(clean.index).items())]
    assert len(after) == len(before)
    head = OURS.index.entry_position(1)
    for ours, theirs in zip(after, before, strict=True):
        assert ours[:head] == theirs[:head]
        entries = zip(INDEX_ENTRY.struct.iter_unpack(ours[head:]), INDEX_ENTRY.struct.iter_unpack(theirs[head:]),
                      strict=True)  # fmt: skip
        assert all(one == other for one, other in entries)


def expected_queues(records: list[Record]) -> dict[tuple[str, int], int]:
    """Messages of each queue; in a store of Apache's broker prepared messages lie in a topic of their own."""
    counts: dict[tuple[str, int], int] = {}
    for record in records:
        queue = (record.topic.decode(), record.queue_id)
        counts[queue] = max(counts.get(queue, 0), record.queue_offset + 1)
    return counts


@pytest.mark.parametrize("index_safe", [False, True])
def test_nothing_acknowledged_is_lost_from_a_killed_broker(killed, answers, index_safe):
    result = recover(killed, index_safe=index_safe)
    assert result.after_crash
    assert result.damaged == ()
    offsets = {offset for offset, _ in raw_records(killed)}
    assert set(answers["clean_offsets"]) | set(answers["killed_offsets"]) <= offsets
    reader = MessageStoreReader(killed, OURS, result.watermarks())
    records = [reader.read_message(offset) for offset in sorted(offsets)]
    assert all(record is not None for record in records)
    counts = expected_queues([record for record in records if record is not None])
    assert {(queue.topic, queue.queue_id): queue.max_offset for queue in result.queues} == counts
    for record in records:
        assert record is not None
        where = reader.physical_offset(record.topic.decode(), record.queue_id, record.queue_offset)
        assert where == record.physical_offset


def test_a_killed_store_keeps_apaches_consume_queues(killed, unpacked):
    recover(killed)
    assert tree(killed.consume_queue) == tree(unpacked / "killed" / "consumequeue")
