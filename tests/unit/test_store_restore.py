"""Stores made from backups: what a broker's recovery finds in them, where consumers stand, and what is refused."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest

from mqcore.errors import BackupError, CorruptFileError
from mqcore.store.backup.directory import BackupDirectory
from mqcore.store.backup.making import make_backup
from mqcore.store.backup.restoring import WORK_NAME, RestoreOptions, RestoreResult, restore
from mqcore.store.checkpoint import Checkpoint
from mqcore.store.codec import Dispatcher
from mqcore.store.incarnations import Birth, Incarnations, anchors_at
from mqcore.store.log.mapped_file_queue import MappedFileQueue
from mqcore.store.message_store import MessageStoreReader
from mqcore.store.paths import StorePaths
from mqcore.store.recovery import Recovery, RecoveryResult
from tests.unit.store_builder import GEOMETRY, StoreBuilder


@pytest.fixture
def store(tmp_path: Path) -> StoreBuilder:
    store = StoreBuilder(tmp_path / "store")
    store.append_many(100)
    return store


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "backup"


def recovered(root: Path) -> RecoveryResult:
    return Recovery(StorePaths.at(root), GEOMETRY).run()


def bodies(root: Path, topic: str = "TopicA", queue_id: int = 0) -> list[bytes]:
    """What a consumer of the queue gets from a broker on the store at *root*."""
    reader = MessageStoreReader(StorePaths.at(root), GEOMETRY, recovered(root).watermarks())
    low, high = reader.min_offset(topic, queue_id), reader.max_offset(topic, queue_id)
    found = []
    while low < high:
        units = reader.read_units(topic, queue_id, low, 32)
        found += [reader.read_message(int(unit["physical_offset"])).body for unit in units]
        low += len(units)
    reader.close()
    return found


def stored_bodies(store: StoreBuilder, count: int, queue_id: int = 0) -> list[bytes]:
    return [record.body for record in store.records[:count] if record.queue_id == queue_id]


def put_offsets(store: StoreBuilder, table: dict[str, dict[str, int]], name: str = "consumerOffset.json") -> None:
    (store.paths.config / name).write_text(json.dumps({"offsetTable": table}))


def offsets(root: Path, name: str = "consumerOffset.json") -> Any:
    return orjson.loads((root / "config" / name).read_bytes())["offsetTable"]


def restored(target: Path, root: Path, **options: Any) -> RestoreResult:
    return restore(target, root, options=RestoreOptions(**options))


def drop(store: StoreBuilder, topic: str, queue_id: int) -> None:
    """Drop a queue at the end of the log, as our broker writes it down."""
    log = MappedFileQueue(store.paths.log, GEOMETRY.commit_log_file_size)
    log.load()
    Incarnations.read(store.paths.incarnations).add([Birth(topic, queue_id, store.end, anchors_at(log, store.end))])
    store.next_offsets[(topic, queue_id)] = 0


# Everything


def test_a_restored_store_is_the_store(store, target, tmp_path):
    make_backup(store.paths.root, target)
    store.append_many(40)
    make_backup(store.paths.root, target)
    result = restored(target, tmp_path / "new")
    assert (result.end, result.record_count, result.queue_count) == (store.end, 140, 2)
    assert result.last_timestamp == store.records[-1].store_timestamp
    for path in store.paths.commit_log.iterdir():
        copy = tmp_path / "new" / "commitlog" / path.name
        size = min(4096, store.end - int(path.name))
        assert copy.stat().st_size == 4096
        assert copy.read_bytes()[: size - 200] == path.read_bytes()[: size - 200]
    assert bodies(tmp_path / "new", queue_id=0) == stored_bodies(store, 140, 0)
    assert bodies(tmp_path / "new", queue_id=1) == stored_bodies(store, 140, 1)
    assert sorted(path.name for path in (tmp_path / "new").iterdir() if path.is_dir()) == [
        "commitlog", "config", "consumequeue", "index"
    ]  # fmt: skip


def test_files_keep_the_times_by_which_they_expire(store, target, tmp_path):
    make_backup(store.paths.root, target)
    restored(target, tmp_path / "new")
    for path in sorted(store.paths.commit_log.iterdir())[:-1]:
        copy = tmp_path / "new" / "commitlog" / path.name
        assert copy.stat().st_mtime_ns // 1_000_000 == path.stat().st_mtime_ns // 1_000_000


def test_an_empty_backup_makes_an_empty_store(tmp_path, target):
    store = StoreBuilder(tmp_path / "store")
    (store.paths.config / "topics.json").write_text("{}")
    make_backup(store.paths.root, target)
    assert restored(target, tmp_path / "new").end == 0
    assert recovered(tmp_path / "new").commit_log_end == 0
    assert (tmp_path / "new" / "config" / "topics.json").exists()


def test_the_log_may_be_put_elsewhere(store, target, tmp_path):
    make_backup(store.paths.root, target)
    (tmp_path / "log").mkdir()
    restore(target, tmp_path / "new", tmp_path / "log")
    result = Recovery(StorePaths.at(tmp_path / "new", tmp_path / "log"), GEOMETRY).run()
    assert (result.commit_log_end, result.record_count) == (store.end, 100)


# A part


def test_the_log_may_be_cut_at_any_offset_and_ends_with_a_whole_record(store, target, tmp_path, chance):
    make_backup(store.paths.root, target)
    ends = [record.physical_offset + record.total_size for record in store.records]
    for number in range(12):
        offset = chance.choice([chance.randrange(ends[0], store.end), chance.choice(ends), 4096, 4095])
        count = sum(end <= offset for end in ends)
        result = restored(target, tmp_path / "new", until_offset=offset)
        assert result.record_count == count, offset
        assert result.end <= offset
        assert result.last_timestamp == store.records[count - 1].store_timestamp
        assert bodies(tmp_path / "new") == stored_bodies(store, count), number
        shutil.rmtree(tmp_path / "new")


def test_the_log_may_be_cut_at_any_time(store, target, tmp_path, chance: random.Random):
    make_backup(store.paths.root, target)
    for _ in range(8):
        count = chance.randrange(1, 100)
        until = store.records[count].store_timestamp - chance.randrange(1000)
        result = restored(target, tmp_path / "new", until=until)
        assert (result.record_count, result.is_earlier) == (count, True)
        assert bodies(tmp_path / "new") == stored_bodies(store, count)
        shutil.rmtree(tmp_path / "new")
    assert restored(target, tmp_path / "new", until=store.timestamp).end == store.end


def test_a_cut_before_or_behind_the_backup_is_refused(store, target, tmp_path):
    make_backup(store.paths.root, target)
    for options in ({"until": store.records[0].store_timestamp}, {"until_offset": 10}):
        with pytest.raises(BackupError, match="nothing is left"):
            restored(target, tmp_path / "new", **options)
    with pytest.raises(BackupError, match="behind the end"):
        restored(target, tmp_path / "new", until_offset=store.end + 1)
    assert not (tmp_path / "new").exists()


def test_the_tables_are_the_newest_that_are_not_ahead_of_the_log(store, target, tmp_path):
    ends = []
    for number in range(3):
        (store.paths.config / "topics.json").write_text(json.dumps({"run": number}))
        make_backup(store.paths.root, target)
        ends.append(store.end)
        store.append_many(20)
    for cut, run in ((ends[0], 0), (ends[1] - 1, 0), (ends[1], 1), (ends[2], 2), (200, 0)):
        result = restored(target, tmp_path / "new", until_offset=cut)
        assert orjson.loads((tmp_path / "new" / "config" / "topics.json").read_bytes()) == {"run": run}
        assert result.is_earlier == (cut == 200)
        shutil.rmtree(tmp_path / "new")


# Where consumers stand


def test_offsets_ahead_of_their_queues_are_put_back_and_what_waits_is_told(store, target, tmp_path):
    table = {"TopicA@G": {"0": 10, "1": 50}, "TopicA@Ahead": {"0": 51}, "Gone@G": {"0": 4}, "odd": {"x": 1}}
    put_offsets(store, table)
    make_backup(store.paths.root, target)
    result = restored(target, tmp_path / "new")
    assert offsets(tmp_path / "new") == {
        "TopicA@G": {"0": 10, "1": 50}, "TopicA@Ahead": {"0": 50}, "Gone@G": {"0": 0}, "odd": {"x": 1}
    }  # fmt: skip
    assert (result.moved, result.dropped, result.behind) == (2, 0, {"G": {"TopicA": 40}})


def test_offsets_that_fit_keep_their_bytes(store, target, tmp_path):
    text = '{\n\t"offsetTable":{\n\t\t"TopicA@G":{0:3,1:4\n\t\t}\n\t}\n}'
    (store.paths.config / "consumerOffset.json").write_text(text)
    make_backup(store.paths.root, target)
    restored(target, tmp_path / "new")
    assert (tmp_path / "new" / "config" / "consumerOffset.json").read_text() == text


def test_a_cut_before_the_first_backup_puts_offsets_back_and_forgets_those_of_transactions(store, target, tmp_path):
    put_offsets(store, {"TopicA@G": {"0": 40, "1": 3}, "TopicA@CID_RMQ_SYS_TRANS": {"0": 2}})
    make_backup(store.paths.root, target)
    result = restored(target, tmp_path / "new", until_offset=store.records[20].physical_offset)
    assert offsets(tmp_path / "new") == {"TopicA@G": {"0": 10, "1": 3}}
    assert (result.moved, result.dropped) == (1, 1)


def test_delayed_messages_that_were_not_due_at_the_cut_are_delivered_again(store, target, tmp_path):
    """Level 14 waits ten minutes, as long as the slack: what was stored in the last twenty before the cut counts."""
    for _ in range(3000):
        store.append("SCHEDULE_TOPIC_XXXX", 13, body=b"", DELAY="14")
    put_offsets(store, {"14": 2990, "1": 5}, "delayOffset.json")
    make_backup(store.paths.root, target)
    restored(target, tmp_path / "latest")
    assert offsets(tmp_path / "latest", "delayOffset.json") == {"14": 2990, "1": 0}
    restored(target, tmp_path / "new", until_offset=store.records[100 + 2000].physical_offset)
    assert offsets(tmp_path / "new", "delayOffset.json") == {"14": 2000 - 1200, "1": 0}
    restored(
        target, tmp_path / "late", until_offset=store.records[100 + 2000].physical_offset, delays_late_ms=1_200_000
    )
    assert offsets(tmp_path / "late", "delayOffset.json") == {"14": 2000 - 1800, "1": 0}, "the broker was twenty behind"


def test_a_queue_that_was_dropped_stays_so_and_its_offsets_go(store, target, tmp_path):
    put_offsets(store, {"TopicA@G": {"0": 40, "1": 40}})
    make_backup(store.paths.root, target)
    before = store.end
    drop(store, "TopicA", 0)
    for number in range(60):
        store.append("TopicA", 0, body=b"new %d" % number)
    put_offsets(store, {"TopicA@G": {"0": 2, "1": 40}})
    make_backup(store.paths.root, target)
    after = store.end
    drop(store, "TopicA", 0)
    store.append("TopicA", 0, body=b"newest")
    put_offsets(store, {"TopicA@G": {"1": 40}})
    make_backup(store.paths.root, target)
    # As it is, and as it was before each time; the store may forget what was dropped by then.
    for options, wanted, found in (
        ({}, [b"newest"], {"1": 40}),
        ({"until_offset": after}, [b"new %d" % number for number in range(60)], {"0": 2, "1": 40}),
        ({"until_offset": after - 1}, [b"new %d" % number for number in range(59)], {"1": 40}),
        ({"until_offset": before}, stored_bodies(store, 100), {"0": 40, "1": 40}),
    ):
        restored(target, tmp_path / "new", **options)
        assert offsets(tmp_path / "new") == {"TopicA@G": found}
        assert bodies(tmp_path / "new") == wanted
        shutil.rmtree(tmp_path / "new")


def test_a_queue_whose_messages_have_expired_goes_on_where_it_was(tmp_path, target):
    store = StoreBuilder(tmp_path / "store")
    for _ in range(25):
        store.append("Old", 3)
    store.append_many(100)
    dispatcher = Dispatcher(store.paths, GEOMETRY)
    for offset, data in store.runs():
        dispatcher.dispatch(data, offset)
    dispatcher.flush()
    dispatcher.close()
    Checkpoint(store.timestamp, store.timestamp, 0).write(store.paths.checkpoint)
    put_offsets(store, {"Old@G": {"3": 25}})
    for path in sorted(store.paths.commit_log.iterdir())[:2]:
        path.unlink()
    make_backup(store.paths.root, target)
    result = restored(target, tmp_path / "new")
    assert (result.moved, result.queue_count) == (0, 3)
    state = {(queue.topic, queue.queue_id): queue for queue in recovered(tmp_path / "new").queues}["Old", 3]
    assert (state.min_offset, state.max_offset) == (25, 25)
    wanted = {
        (queue.topic, queue.queue_id): (queue.min_offset, queue.max_offset)
        for queue in recovered(store.paths.root).queues
    }
    found = {
        (queue.topic, queue.queue_id): (queue.min_offset, queue.max_offset)
        for queue in recovered(tmp_path / "new").queues
    }
    assert found == wanted


# Damage


def test_damage_in_the_store_is_passed_over_by_the_restored_one(store, target, tmp_path):
    damaged = store.records[40]
    store.flip(damaged.physical_offset + 86)
    Checkpoint(store.timestamp, store.timestamp, 0).write(store.paths.checkpoint)
    make_backup(store.paths.root, target)
    result = restored(target, tmp_path / "new")
    assert result.damaged == [(damaged.physical_offset, damaged.physical_offset + damaged.total_size)]
    found = recovered(tmp_path / "new")
    assert (found.commit_log_end, found.record_count) == (store.end, 99)
    assert found.damaged == tuple(result.damaged)


def test_a_damaged_backup_is_an_error_unless_it_is_taken_as_it_is(store, target, tmp_path):
    make_backup(store.paths.root, target)
    path = BackupDirectory(target).log_file(4096)
    data = bytearray(path.read_bytes())
    data[2000] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptFileError, match=f"{path.name}: checksum"):
        restored(target, tmp_path / "new")
    assert not (tmp_path / "new" / "commitlog").exists()
    result = restored(target, tmp_path / "new", take_damaged=True)
    assert [path.name in problem for problem in result.problems] == [True]
    assert recovered(tmp_path / "new").record_count >= 99
    path.unlink()
    with pytest.raises(CorruptFileError, match="missing"):
        restored(target, tmp_path / "other", take_damaged=True)


# Refused, and broken off


def test_a_directory_with_something_in_it_is_refused_and_left_alone(store, target, tmp_path):
    make_backup(store.paths.root, target)
    before = store.files()
    with pytest.raises(BackupError, match="not empty"):
        restored(target, store.paths.root)
    assert store.files() == before
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "letters.txt").write_text("dear")
    with pytest.raises(BackupError, match=r"letters\.txt"):
        restore(target, tmp_path / "new", tmp_path / "log")
    with pytest.raises(BackupError, match="within"):
        restored(target, target / "new")
    with pytest.raises(BackupError, match="no backup"):
        restored(tmp_path / "log", tmp_path / "new")


def test_a_restore_that_is_broken_off_is_no_store_and_can_be_begun_again(store, target, tmp_path):
    make_backup(store.paths.root, target)
    steps = [0]

    def break_off(done: int, total: int) -> None:
        steps[0] += 1
        if steps[0] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restore(target, tmp_path / "new", on_progress=break_off)
    assert not (tmp_path / "new" / "commitlog").exists()
    restored(target, tmp_path / "new")
    assert not (tmp_path / "new" / WORK_NAME).exists()
    assert bodies(tmp_path / "new") == stored_bodies(store, 100)


def test_a_broker_that_was_started_on_a_restore_that_was_broken_off_keeps_its_files(store, target, tmp_path):
    make_backup(store.paths.root, target)
    (tmp_path / "new" / WORK_NAME).mkdir(parents=True)
    (tmp_path / "new" / "lock").touch()
    with pytest.raises(BackupError, match="lock"):
        restored(target, tmp_path / "new")


def test_a_backup_that_was_never_complete_is_refused(store, target, tmp_path):
    make_backup(store.paths.root, target)
    directory = BackupDirectory(target)
    manifest = directory.load()
    manifest.runs.clear()
    manifest.write(directory.manifest)
    with pytest.raises(BackupError, match="never completed"):
        restored(target, tmp_path / "new")
