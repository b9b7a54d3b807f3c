"""Backups of a store at rest: what is copied, what is refused, and what is said of damage."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from mqcore import clock
from mqcore.errors import BackupError, CorruptFileError, StoreLockedError
from mqcore.store.backup.checking import check_backup
from mqcore.store.backup.directory import BackupDirectory
from mqcore.store.backup.log_copy import add_to_cells
from mqcore.store.backup.making import BackupResult, Options, make_backup
from mqcore.store.backup.manifest import CELL_SIZE, LogFile, Manifest
from mqcore.store.backup.streams import Pace
from mqcore.store.checkpoint import Checkpoint
from mqcore.store.reader import StoreReader
from tests.page_cache import evict, keeps_pages, resident_share
from tests.unit.store_builder import FIRST_TIMESTAMP, GEOMETRY, StoreBuilder


@pytest.fixture
def store(tmp_path: Path) -> StoreBuilder:
    store = StoreBuilder(tmp_path / "store")
    store.append_many(100)
    return store


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "backup"


def back_up(store: StoreBuilder, target: Path, **options: int) -> BackupResult:
    return make_backup(store.paths.root, target, options=Options(**options))


def queue_offsets(root: Path) -> list[int]:
    with StoreReader(root) as reader:
        return [int(offset) for batch in reader.batches() for offset in batch.to_dict()["queue_offset"]]


def problems(target: Path) -> list[str]:
    return check_backup(BackupDirectory(target)).problems


# What is copied


def test_a_backup_holds_the_bytes_of_the_log_and_only_new_ones_are_copied_again(store, target):
    first = back_up(store, target)
    assert (first.number, first.start, first.end, first.record_count) == (1, 0, store.end, 100)
    store.append_many(50)
    second = back_up(store, target)
    assert (second.number, second.end, second.record_count) == (2, store.end, 50)
    assert second.copied_bytes < first.copied_bytes
    nothing = back_up(store, target)
    assert (nothing.number, nothing.copied_bytes, nothing.end) == (3, 0, store.end)
    for path in sorted((target / "commitlog").iterdir()):
        copied = path.read_bytes()
        assert copied == (store.paths.commit_log / path.name).read_bytes()[: len(copied)]
    assert problems(target) == []


def test_a_backup_can_be_read_as_a_store(store, target):
    back_up(store, target)
    assert queue_offsets(target) == [record.queue_offset for record in store.records]


def test_an_empty_store_is_backed_up_and_what_comes_later_is_added(tmp_path, target):
    store = StoreBuilder(tmp_path / "store")
    assert back_up(store, target).end == 0
    store.append_many(10)
    assert back_up(store, target).record_count == 10


def test_what_lies_behind_the_end_of_the_log_is_not_copied(store, target):
    torn = store.append()
    store.flip(torn.physical_offset + 90)
    store.crash()
    assert back_up(store, target).end == torn.physical_offset


def test_a_log_that_lies_elsewhere_in_two_directories(store, target, tmp_path):
    others = [tmp_path / "one", tmp_path / "two"]
    for number, path in enumerate(sorted(store.paths.commit_log.iterdir())):
        others[number % 2].mkdir(exist_ok=True)
        path.rename(others[number % 2] / path.name)
    result = make_backup(store.paths.root, target, others)
    assert (result.end, result.record_count) == (store.end, 100)


def test_tables_are_copied_and_a_broken_one_is_taken_from_its_backup(store, target):
    config = store.paths.config
    (config / "topics.json").write_text('{"a":1}')
    (config / "consumerOffset.json").write_text('{"offsetTable":{"A@G":{0:1')
    (config / "consumerOffset.json.bak").write_text('{"offsetTable":{"A@G":{0:1}}}')
    (config / "delayOffset.json").write_text("")
    back_up(store, target)
    tables = target / "tables" / "00000001"
    assert {path.name: path.read_text() for path in tables.iterdir()} == {
        "topics.json": '{"a":1}',
        "consumerOffset.json": '{"offsetTable":{"A@G":{0:1}}}',
    }


def test_a_table_that_nobody_can_read_is_an_error_that_names_it(store, target):
    (store.paths.config / "topics.json").write_text("{")
    with pytest.raises(CorruptFileError, match=r"topics\.json"):
        back_up(store, target)


def test_old_files_stay_when_the_store_has_deleted_them(store, target):
    back_up(store, target)
    store.append_many(30)
    oldest = min(store.paths.commit_log.iterdir())
    oldest.unlink()
    assert back_up(store, target).start == 0
    assert queue_offsets(target) == [record.queue_offset for record in store.records]


def test_keep_drops_whole_files_and_tables_that_are_older(store, target):
    back_up(store, target)
    newest_ms = store.records[-1].store_timestamp
    age_ms = clock.now_ms() - newest_ms
    result = back_up(store, target, keep_ms=age_ms + 40_000)
    assert result.removed_files == 2
    manifest = BackupDirectory(target).load()
    assert manifest.start == result.start == 8192
    assert {path.name for path in (target / "commitlog").iterdir()} == {f"{8192:020d}", f"{12288:020d}"}
    assert problems(target) == []
    # All messages of the last file are too old as well, and it stays: the next run goes on there.
    assert back_up(store, target, keep_ms=1).start == 12288
    assert back_up(store, target).end == store.end


# What is refused


def test_a_backup_of_another_store_is_refused(store, target, tmp_path):
    back_up(store, target)
    other = StoreBuilder(tmp_path / "other")
    other.timestamp += 1
    other.append_many(120)
    with pytest.raises(BackupError, match="another one"):
        back_up(other, target)
    assert back_up(store, target).number == 2


def test_a_store_that_has_gone_its_own_way_is_refused_and_the_place_is_named(store, target):
    back_up(store, target)
    last = store.records[-1]
    store.flip(last.physical_offset + 86)
    with pytest.raises(BackupError, match=str(last.physical_offset + 86)):
        back_up(store, target)


def test_a_store_that_has_lost_its_end_is_refused(store, target):
    back_up(store, target)
    max(store.paths.commit_log.iterdir()).unlink()
    with pytest.raises(BackupError, match="lost its end"):
        back_up(store, target)


def test_a_store_that_has_deleted_what_the_backup_lacks_is_refused(store, target):
    back_up(store, target)
    store.append_many(100)
    for path in sorted(store.paths.commit_log.iterdir())[:5]:
        path.unlink()
    with pytest.raises(BackupError, match="expired"):
        back_up(store, target)


def test_a_log_with_a_gap_is_refused(store, target):
    sorted(store.paths.commit_log.iterdir())[1].unlink()
    with pytest.raises(CorruptFileError, match="missing between"):
        back_up(store, target)


def test_a_directory_of_somebody_else_is_refused_and_left_alone(store, target, tmp_path):
    target.mkdir()
    (target / "letters.txt").write_text("dear")
    with pytest.raises(BackupError, match=r"letters\.txt"):
        back_up(store, target)
    assert [path.name for path in target.iterdir()] == ["letters.txt"]
    for within in (store.paths.root / "backup", tmp_path):
        with pytest.raises(BackupError, match="within"):
            back_up(store, within)
    with pytest.raises(BackupError, match="no store"):
        make_backup(tmp_path / "nothing", target)


def test_two_at_once_are_refused(store, target):
    back_up(store, target)
    with (
        BackupDirectory(target).locked(exclusive=True),
        pytest.raises(StoreLockedError, match="another process"),
    ):
        back_up(store, target)


# Damage


def test_damage_in_the_store_is_named_and_everything_else_is_copied(store, target):
    damaged = store.records[40]
    store.flip(damaged.physical_offset + 86)
    Checkpoint(store.timestamp, store.timestamp, 0).write(store.paths.checkpoint)
    result = back_up(store, target)
    assert result.damaged == [(damaged.physical_offset, damaged.physical_offset + damaged.total_size)]
    assert (result.end, result.record_count) == (store.end, 99)
    assert problems(target) == []
    assert BackupDirectory(target).load().damaged == result.damaged


def test_damage_up_to_the_end_of_a_file_is_named(store, target):
    in_file = [record for record in store.records if record.physical_offset < 4096]
    damaged = in_file[-1]
    store.write(damaged.physical_offset, bytes(4096 - damaged.physical_offset))
    Checkpoint(store.timestamp, store.timestamp, 0).write(store.paths.checkpoint)
    result = back_up(store, target)
    assert result.damaged == [(damaged.physical_offset, 4096)]
    assert (result.end, result.record_count) == (store.end, 99)


def test_a_file_that_was_cut_short_is_an_error(store, target):
    path = sorted(store.paths.commit_log.iterdir())[0]
    os.truncate(path, 1000)
    with pytest.raises(CorruptFileError, match=path.name):
        back_up(store, target)


def test_verify_finds_any_byte_that_changed_and_names_the_file(store, target):
    (store.paths.config / "topics.json").write_text("{}")
    back_up(store, target)
    claims = {target / "tables" / "00000001" / "topics.json": 2}
    directory = BackupDirectory(target)
    claims |= {directory.log_file(file.start): file.size for file in directory.load().files}
    for path, size in claims.items():
        whole = path.read_bytes()
        for at in {0, size // 2, size - 1}:
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            assert [path.name in problem for problem in problems(target)] == [True], at
        path.write_bytes(whole[: size - 1])
        assert [path.name in problem for problem in problems(target)] == [True]
        path.unlink()
        assert [path.name in problem for problem in problems(target)] == [True]
        path.write_bytes(whole)
    assert problems(target) == []


@pytest.mark.parametrize("name", ["format", "version", "fileSize", "end", "files", "damaged", "births", "runs", "crc"])
def test_a_manifest_that_lies_is_refused_and_the_member_named(store, target, name):
    back_up(store, target)
    path = target / "manifest.json"
    value = orjson.loads(path.read_bytes())
    for wrong in (None, -1, "x", [{}], [[1]]):
        path.write_bytes(orjson.dumps({**value, name: wrong}))
        with pytest.raises(CorruptFileError, match=r"manifest\.json"):
            BackupDirectory(target).load()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m.files[0].cells.append(1), "cells"),
        (lambda m: setattr(m.files[1], "start", 5), "one behind the other"),
        (lambda m: setattr(m, "end", 1 << 50), "end"),
        (lambda m: setattr(m.files[0], "size", 5000), "size"),
        (lambda m: m.runs.append(replace(m.runs[0], end=1 << 50)), "runs"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(store, target, change, said):
    back_up(store, target)
    directory = BackupDirectory(target)
    manifest = directory.load()
    change(manifest)
    manifest.write(directory.manifest)
    with pytest.raises(CorruptFileError, match=said):
        directory.load()


def test_a_manifest_cut_at_any_byte_is_refused(store, target):
    back_up(store, target)
    path = target / "manifest.json"
    whole = path.read_bytes()
    for size in range(0, len(whole) - 2, 7):
        path.write_bytes(whole[:size])
        with pytest.raises(CorruptFileError):
            BackupDirectory(target).load()


# Broken off


class BrokenOffError(Exception):
    pass


def break_off_at(count: int):
    """A progress that ends the run at the *count*-th step."""
    left = [count]

    def on_progress(done: int, total: int) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise BrokenOffError

    return on_progress


def test_a_run_that_is_broken_off_anywhere_leaves_the_last_one_and_is_gone_on_with(store, target):
    back_up(store, target)
    end = store.end
    store.append_many(100)
    for step in range(1, 5):
        with pytest.raises(BrokenOffError):
            make_backup(store.paths.root, target, options=Options(commit_step=1), on_progress=break_off_at(step))
        assert problems(target) == []
        assert [run.end for run in BackupDirectory(target).load().runs] == [end]
    result = back_up(store, target)
    assert (result.number, result.end) == (2, store.end)
    assert result.copied_bytes < store.end - end
    assert queue_offsets(target) == [record.queue_offset for record in store.records]


def test_a_first_run_that_was_broken_off_begins_anew_when_the_store_has_moved_on(store, target):
    with pytest.raises(BrokenOffError):
        make_backup(store.paths.root, target, options=Options(commit_step=1), on_progress=break_off_at(3))
    sorted(store.paths.commit_log.iterdir())[0].unlink()
    sorted(store.paths.commit_log.iterdir())[0].unlink()
    result = back_up(store, target)
    assert (result.start, result.end) == (8192, store.end)
    assert problems(target) == []


@pytest.mark.parametrize("point", ["sync", "rename", "tables", "files"])
def test_a_first_run_that_ends_while_the_manifest_is_written_is_gone_on_with(store, target, monkeypatch, point):
    """At the first sync, before the manifest has its name, before the tables, or before old files are removed."""

    def end(*arguments: object) -> None:
        raise BrokenOffError

    with monkeypatch.context() as patch:
        if point == "sync":
            patch.setattr("mqcore.files.os.fsync", end)
        elif point == "rename":
            patch.setattr(Path, "replace", end)
        elif point == "tables":
            patch.setattr(BackupDirectory, "write_tables", end)
        else:
            patch.setattr(BackupDirectory, "remove_unknown", end)
        with pytest.raises(BrokenOffError):
            back_up(store, target)
    assert back_up(store, target).end == store.end
    assert problems(target) == []
    assert queue_offsets(target) == [record.queue_offset for record in store.records]


def test_files_that_are_deleted_while_the_first_run_copies_are_left_out(store, target):
    paths = sorted(store.paths.commit_log.iterdir())

    def delete(done: int, total: int) -> None:
        for path in paths[:3]:
            path.unlink(missing_ok=True)

    result = make_backup(store.paths.root, target, on_progress=delete)
    assert (result.start, result.end) == (12288, store.end)
    assert problems(target) == []
    shutil.rmtree(target)


# Beside a broker that works


def test_pages_that_were_not_in_memory_leave_it_again_and_those_that_were_stay(tmp_path, target):
    if keeps_pages(tmp_path):
        pytest.skip(f"{tmp_path} lies in memory")
    geometry = replace(GEOMETRY, commit_log_file_size=1 << 20)
    store = StoreBuilder(tmp_path / "store", geometry)
    for _ in range(40):
        store.append(body=os.urandom(100_000))
    cold, warm, *_, last = sorted(store.paths.commit_log.iterdir())
    for path in (cold, warm):
        evict(path)
    warm.read_bytes()
    back_up(store, target)
    assert last.exists()
    assert resident_share(cold) < 0.1
    assert resident_share(warm) > 0.9
    directory = BackupDirectory(target)
    assert max(resident_share(directory.log_file(file.start)) for file in directory.load().files[:-1]) < 0.1


def test_zeros_behind_the_end_are_not_searched_when_nothing_is_missing(store, target, monkeypatch):
    Checkpoint(store.records[-1].store_timestamp, store.records[-1].store_timestamp, 0).write(store.paths.checkpoint)
    store.crash()
    back_up(store, target)
    store.append_many(3)
    monkeypatch.setattr("mqcore.store.log.walk.next_record", lambda *_: pytest.fail("searched"))
    assert back_up(store, target).record_count == 3
    assert back_up(store, target).record_count == 0


# The parts


def test_checksums_go_on_over_any_parts():
    data = bytes(range(256)) * 10
    one, many = LogFile(0), LogFile(0)
    add_to_cells(one, memoryview(data))
    for at in range(0, len(data), 100):
        add_to_cells(many, memoryview(data[at : at + 100]))
    assert one == many
    full = LogFile(0)
    add_to_cells(full, memoryview(bytes(CELL_SIZE + 1)))
    assert (full.size, len(full.cells)) == (CELL_SIZE + 1, 2)


def test_the_rate_is_kept():
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    pace = Pace(1_000_000, lambda: now[0], sleep)
    for _ in range(100):
        pace.spend(pace.chunk_size())
    assert 100 * pace.chunk_size() / 1_000_000 == pytest.approx(now[0] - 100, rel=0.05)
    Pace(0, sleep=lambda seconds: pytest.fail("waits")).spend(1 << 40)


def test_the_manifest_says_the_same_when_it_is_written_and_read(store, target):
    back_up(store, target)
    directory = BackupDirectory(target)
    manifest = directory.load()
    manifest.write(directory.manifest)
    assert Manifest.read(directory.manifest) == manifest
    assert manifest.files[0].first_timestamp == FIRST_TIMESTAMP
    assert json.loads(directory.manifest.read_text())["version"] == 1
