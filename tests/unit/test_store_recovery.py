"""After any stop the store comes back: whole records, consume queues equal to the log, nothing promised is lost."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from store_builder import FIRST_TIMESTAMP, GEOMETRY, STEP_MS, StoreBuilder, memory_directory

from mqcore.codes import TRANSACTION_MASK, SysFlag
from mqcore.errors import CorruptFileError
from mqcore.layout import CONSUME_QUEUE_UNIT
from mqcore.store.checkpoint import Checkpoint
from mqcore.store.codec import Dispatcher
from mqcore.store.incarnations import Birth
from mqcore.store.log.record import Record
from mqcore.store.message_store import MessageStoreReader
from mqcore.store.paths import file_name
from mqcore.store.queues import dispatch as plain
from mqcore.store.queues.consume_queue import ConsumeQueue
from mqcore.store.queues.index_file import IndexHeader
from mqcore.store.queues.index_service import IndexService
from mqcore.store.recovery import Recovery, RecoveryResult

SIZE = GEOMETRY.commit_log_file_size
FAR = 1 << 50


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory in memory: nothing here cuts the power, and a sync to a disk costs 10 ms."""
    with memory_directory() as path:
        yield path


@pytest.fixture
def store(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "store")


def recover(store: StoreBuilder, **options) -> RecoveryResult:
    return Recovery(store.paths, store.geometry, **options).run()


def dispatch(store: StoreBuilder, births: Iterable[Birth] = ()) -> None:
    """Bring consume queues and index up to date, as the reput worker does."""
    dispatcher = Dispatcher(store.paths, store.geometry)
    for birth in births:
        dispatcher.bear(birth.topic.encode(), birth.queue_id, birth.born)
    for offset, data in store.runs():
        assert dispatcher.dispatch(data, offset).consumed == len(data)
    dispatcher.flush()
    dispatcher.close()


def stop(store: StoreBuilder, births: Iterable[Birth] = ()) -> None:
    """Stop cleanly: everything is dispatched and the checkpoint says so."""
    dispatch(store, births)
    newest = store.records[-1].store_timestamp
    Checkpoint(newest, newest, 0).write(store.paths.checkpoint)


def units_of(store: StoreBuilder, result: RecoveryResult) -> dict[tuple[str, int], dict[int, tuple[int, int]]]:
    """Every unit of every queue by queue offset, pre-filled places left out."""
    found = {}
    for state in result.queues:
        queue = ConsumeQueue(store.paths, state.topic, state.queue_id, store.geometry.consume_queue_file_size)
        units = {}
        for offset in range(queue.files.min_offset // 20, state.max_offset):
            unit = queue.unit_at(offset, (0, state.max_offset))
            if not unit.is_pre_fill:
                units[offset] = (unit.physical_offset, unit.record_size)
        found[(state.topic, state.queue_id)] = units
    return found


def expected_units(records: list[Record]) -> dict[tuple[str, int], dict[int, tuple[int, int]]]:
    wanted: dict[tuple[str, int], dict[int, tuple[int, int]]] = {}
    for record in records:
        if record.sys_flag & TRANSACTION_MASK in (0, SysFlag.TRANSACTION_COMMIT):
            queue = wanted.setdefault((record.topic.decode(), record.queue_id), {})
            queue[record.queue_offset] = (record.physical_offset, record.total_size)
    return wanted


def assert_whole(store: StoreBuilder, result: RecoveryResult, records: list[Record]) -> None:
    """The log holds *records* and ends with the last, and the consume queues say the same."""
    end = result.commit_log_end
    last = records[-1].physical_offset + records[-1].total_size
    assert end in (last, last + -last % SIZE)  # a filler may follow, and a file
    assert units_of(store, result) == expected_units(records)
    for state in result.queues:
        own = expected_units(records).get((state.topic, state.queue_id), {})
        assert state.max_offset == max(own, default=-1) + 1
        assert state.max_physical == max((sum(place) for place in own.values()), default=-1)
    reader = MessageStoreReader(store.paths, store.geometry, result.watermarks())
    assert [reader.read_message(record.physical_offset) for record in records] == records
    assert reader.look_message(end) is None
    reader.close()
    files = sorted(store.paths.commit_log.iterdir())
    assert all(path.stat().st_size == SIZE for path in files)
    assert b"".join(path.read_bytes() for path in files)[end - result.commit_log_min :].count(0) == (
        result.commit_log_min + len(files) * SIZE - end
    )


# ------------------------------------------------------------------------------------------------------ clean stops


def test_an_empty_store_recovers_to_nothing(store):
    result = recover(store)
    assert (result.commit_log_min, result.commit_log_end, result.queues) == (0, 0, ())
    assert not result.after_crash


@pytest.mark.parametrize("count", [1, 20, 30, 31, 60, 150])
def test_a_store_that_was_stopped_cleanly_comes_back_unchanged(store, count):
    records = store.append_many(count)
    stop(store)
    before = store.files()
    result = recover(store)
    assert store.files() == before
    assert_whole(store, result, records)
    assert not result.after_crash
    assert not store.paths.abort.exists()
    assert result.store_timestamp == records[-1].store_timestamp


def test_a_store_that_was_stopped_cleanly_is_walked_from_its_third_last_file(store):
    store.append_many(150)
    stop(store)
    result = recover(store)
    files = sorted(int(path.name) for path in store.paths.commit_log.iterdir())
    assert len(files) > 4
    assert result.walked_from == files[-3]


def test_expired_files_leave_a_store_that_starts_later(tmp_path):
    store = StoreBuilder(tmp_path / "store")
    store.append_many(100)
    stop(store)
    store.log_file(0).unlink()
    store.log_file(SIZE).unlink()
    result = recover(store)
    kept = [record for record in store.records if record.physical_offset >= 2 * SIZE]
    assert (result.commit_log_min, result.commit_log_end) == (2 * SIZE, store.end)
    for state in result.queues:
        assert state.min_offset == min(record.queue_offset for record in kept if record.queue_id == state.queue_id)
        assert state.max_offset == store.next_offsets[(state.topic, state.queue_id)]


def test_a_queue_all_of_whose_records_expired_goes_on_counting(store):
    store.append("Old", 0)
    store.append_many(60)
    stop(store)
    store.log_file(0).unlink()
    state = next(state for state in recover(store).queues if state.topic == "Old")
    assert (state.min_offset, state.max_offset) == (1, 1)


def test_a_file_made_ahead_of_need_is_removed(store, caplog):
    records = store.append_many(10)
    (store.paths.commit_log / file_name(SIZE)).write_bytes(bytes(SIZE))
    stop(store)
    assert_whole(store, recover(store), records)
    assert [path.name for path in store.paths.commit_log.iterdir()] == [file_name(0)]
    assert caplog.text == ""  # no warning of what is no loss


def test_an_empty_file_right_where_the_log_ends_is_kept(store):
    records = store.append_many(10)
    free = SIZE - store.end
    store.write(store.end, (free).to_bytes(4, "big") + bytes.fromhex("CBD43194"))
    (store.paths.commit_log / file_name(SIZE)).write_bytes(bytes(SIZE))
    stop(store)
    result = recover(store)
    assert result.commit_log_end == SIZE
    assert (store.paths.commit_log / file_name(SIZE)).exists()
    assert units_of(store, result) == expected_units(records)


def test_a_filler_without_a_next_file_does_not_count(store):
    records = store.append_many(10)
    store.write(store.end, (SIZE - store.end).to_bytes(4, "big") + bytes.fromhex("CBD43194"))
    stop(store)
    assert_whole(store, recover(store), records)


def test_what_stands_behind_a_filler_is_not_looked_at(store):
    records = store.append_many(60)
    last = max(record.physical_offset for record in records if record.physical_offset < SIZE)
    end = last + next(record.total_size for record in records if record.physical_offset == last)
    store.write(end + 8, b"\xaa" * (SIZE - end - 8))
    stop(store)
    result = recover(store)
    assert result.commit_log_end == store.end
    assert units_of(store, result) == expected_units(records)


def test_removed_consume_queues_are_rebuilt_although_the_stop_was_clean(store):
    records = store.append_many(100)
    stop(store)
    shutil.rmtree(store.paths.consume_queue)
    known = Checkpoint.read(store.paths.checkpoint)
    assert_whole(store, recover(store), records)
    assert Checkpoint.read(store.paths.checkpoint) == known
    # Had it died meanwhile, the next start would have had to know.
    assert store.paths.abort.exists()


def test_a_tail_that_was_not_dispatched_before_the_stop_is_dispatched(store):
    store.append_many(40)
    stop(store)
    records = store.records + store.append_many(40)
    assert_whole(store, recover(store), records)


def test_consume_queues_ahead_of_the_log_are_cut(store):
    store.append_many(60)
    stop(store)
    kept = store.records[:47]
    end = store.records[47].physical_offset
    for start in range(end - end % SIZE, store.end, SIZE):
        store.log_file(start).write_bytes(store.log_file(start).read_bytes()[: max(0, end - start)].ljust(SIZE, b"\0"))
    Checkpoint(kept[-1].store_timestamp, FAR, 0).write(store.paths.checkpoint)
    assert_whole(store, recover(store), kept)


# ---------------------------------------------------------------------------------------------------------- crashes


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("cut", [0, 1, 4, 7, 8, 50, 84, 88, 97, 98])
def test_a_record_cut_short_at_the_end_of_the_log_is_dropped(store, crashed, cut):
    records = store.append_many(45)
    stop(store)
    torn = store.append(body=b"x" * 10)
    store.write(torn.physical_offset + cut, bytes(torn.total_size - cut))
    if crashed:
        store.crash()
    assert_whole(store, recover(store), records)


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("missing", [1, 2, 3, 7, 20, 30])
def test_a_record_copied_but_for_its_last_bytes_is_dropped(store, crashed, missing):
    """A slave gets records byte by byte: who dies within the last one's properties has its body, and no more."""
    records = store.append_many(45)
    stop(store)
    torn = store.append(body=b"x" * 10, UNIQ_KEY="0123456789ABCDEF", KEYS="a b")
    store.write(torn.physical_offset + torn.total_size - missing, bytes(missing))
    if crashed:
        store.crash()
    assert_whole(store, recover(store), records)


@pytest.mark.parametrize("number", range(45, 53))
def test_a_record_whose_last_sector_did_not_reach_the_disk_is_dropped(store, number):
    """Also when body and lengths did: nothing else guards topic and properties."""
    records = store.append_many(45)
    stop(store)
    store.append_many(15, X="x" * 200)
    torn = store.records[number]
    end = torn.physical_offset + torn.total_size
    boundary = (end - 1) // 512 * 512
    if boundary > torn.physical_offset:
        store.write(boundary, bytes(end - boundary))
        records = store.records[:number]
    else:
        records = store.records
    store.crash()
    assert_whole(store, recover(store), records)


@pytest.mark.parametrize("crashed", [False, True])
def test_a_wrong_crc_ends_the_log_unless_it_is_not_checked(tmp_path, crashed):
    store = StoreBuilder(tmp_path / "store")
    records = store.append_many(10)
    stop(store)
    records += store.append_many(2)
    store.flip(store.records[10].physical_offset + 90)
    if crashed:
        store.crash()
    other = store.copy_to(tmp_path / "other")
    assert_whole(store, recover(store), records[:10])
    assert recover(other, check_crc=False).commit_log_end == store.end


def test_everything_is_rebuilt_after_a_crash_without_a_checkpoint(store):
    records = store.append_many(100)
    store.crash()
    result = recover(store)
    assert result.after_crash
    assert result.walked_from == 0
    assert_whole(store, result, records)
    newest = records[-1].store_timestamp
    assert Checkpoint.read(store.paths.checkpoint) == Checkpoint(newest, newest, 0)


def test_after_a_crash_only_what_was_not_on_disk_is_walked(store):
    records = store.append_many(100)
    dispatch(store)
    third = next(record for record in records if record.physical_offset == 2 * SIZE)
    Checkpoint(third.store_timestamp + 3000, FAR, 0).write(store.paths.checkpoint)
    store.crash()
    result = recover(store)
    assert result.walked_from == 2 * SIZE
    assert_whole(store, result, records)


@pytest.mark.parametrize(("margin_ms", "files_back"), [(2999, 1), (3000, 0)])
def test_the_safety_margin_of_the_checkpoint_is_three_seconds(store, margin_ms, files_back):
    records = store.append_many(100)
    dispatch(store)
    third = next(record for record in records if record.physical_offset == 2 * SIZE)
    Checkpoint(third.store_timestamp + margin_ms, FAR, 0).write(store.paths.checkpoint)
    store.crash()
    assert recover(store).walked_from == (2 - files_back) * SIZE


def test_with_a_safe_index_the_walk_begins_where_the_index_was_on_disk(store):
    store.append_many(100)
    dispatch(store)
    Checkpoint(FAR, FAR, 0).write(store.paths.checkpoint)
    store.crash()
    assert recover(store, index_safe=True).walked_from == 0


def test_stale_units_behind_a_crash_are_replaced(store):
    store.append_many(60)
    dispatch(store)
    for path in store.paths.consume_queue.glob("TopicA/0/*"):
        data = bytearray(path.read_bytes())
        units = np.frombuffer(data, dtype=CONSUME_QUEUE_UNIT.dtype)
        units["physical_offset"] += np.where(units["record_size"] > 0, 1, 0)
        path.write_bytes(data)
    store.crash()
    assert_whole(store, recover(store), store.records)


@pytest.mark.parametrize("keep", range(20))
def test_a_unit_torn_at_any_byte_is_replaced(store, keep):
    records = store.append_many(60)
    dispatch(store)
    # All up to here is on disk; the first unit behind it was torn, the ones after it were written.
    start = next(record for record in records if record.physical_offset == SIZE)
    Checkpoint(start.store_timestamp + 3000, FAR, 0).write(store.paths.checkpoint)
    position = 20 * next(r.queue_offset for r in records if r.queue_id == 0 and r.physical_offset >= SIZE)
    path = store.paths.queue("TopicA", 0) / file_name(position - position % GEOMETRY.consume_queue_file_size)
    data = bytearray(path.read_bytes())
    at = position % GEOMETRY.consume_queue_file_size
    data[at : at + keep] = bytes(keep)
    path.write_bytes(data)
    store.crash()
    result = recover(store)
    assert result.walked_from == SIZE
    assert_whole(store, result, records)


def test_a_hole_in_a_consume_queue_after_a_power_cut_is_filled(store):
    records = store.append_many(120)
    dispatch(store)
    for path in store.paths.consume_queue.glob("TopicA/1/*"):
        path.write_bytes(path.read_bytes()[:60].ljust(GEOMETRY.consume_queue_file_size, b"\0"))
    store.crash()
    assert_whole(store, recover(store), records)


def test_prepared_and_rolled_back_messages_take_no_place_in_a_queue(store):
    for flag in (0, 4, 8, 12, 0, 4):
        store.append(sys_flag=flag)
    store.crash()
    assert_whole(store, recover(store), store.records)


def test_an_old_record_behind_the_end_is_not_taken_for_a_new_one(store):
    """A record of an earlier life stands exactly where the new one ends: zeros behind the cut are what stops it."""
    records = store.append_many(10)
    stop(store)
    torn = store.append(body=b"a" * 10)
    stale = store.append(body=b"b" * 10)
    store.flip(torn.physical_offset + 90)
    store.crash()
    assert_whole(store, recover(store), records)
    store.end = torn.physical_offset
    store.records = records
    replacement = store.append(body=b"c" * 10, queue_offset=torn.queue_offset)
    assert replacement.physical_offset + replacement.total_size == stale.physical_offset
    assert_whole(store, recover(store), [*records, replacement])


def test_a_record_of_another_place_ends_the_log(store):
    records = store.append_many(10)
    stop(store)
    first = records[0]
    store.write(store.end, store.log_bytes(0, first.total_size))
    store.crash()
    assert_whole(store, recover(store), records)


def test_later_files_are_deleted_when_the_log_ends_before_them(store):
    store.append_many(100)
    broken = store.records[35]
    store.flip(broken.physical_offset + 5)
    store.crash()
    result = recover(store)
    assert_whole(store, result, store.records[:35])
    assert len(list(store.paths.commit_log.iterdir())) == broken.physical_offset // SIZE + 1


@pytest.mark.parametrize("crashed", [False, True])
def test_a_damaged_record_that_was_known_to_be_on_disk_does_not_take_the_rest_with_it(store, crashed, caplog):
    records = store.append_many(100)
    stop(store)
    lost = records[85]
    store.flip(lost.physical_offset + 90)
    if crashed:
        Checkpoint(records[-1].store_timestamp, 0, 0).write(store.paths.checkpoint)
        store.crash()
    result = recover(store)
    assert result.damaged == ((lost.physical_offset, lost.physical_offset + lost.total_size),)
    assert "commit log damaged" in caplog.text
    assert result.commit_log_end == store.end
    kept = expected_units([record for record in records if record is not lost])
    found = units_of(store, result)
    for queue, units in kept.items():
        assert units.items() <= found[queue].items()


def test_a_damaged_end_of_a_file_does_not_take_the_next_file_with_it(store):
    records = store.append_many(100)
    stop(store)
    lost = [record for record in records if record.physical_offset < SIZE][-2:]
    for record in lost:
        store.flip(record.physical_offset + 4)
    store.crash()
    Checkpoint(records[-1].store_timestamp, 0, 0).write(store.paths.checkpoint)
    result = recover(store)
    assert result.damaged == ((lost[0].physical_offset, SIZE),)
    assert units_of(store, result) == expected_units([record for record in records if record not in lost])


def test_damage_behind_what_was_on_disk_ends_the_log(store):
    records = store.append_many(50)
    stop(store)
    store.append_many(50)
    store.flip(store.records[50].physical_offset + 90)
    store.crash()
    result = recover(store)
    assert_whole(store, result, records)
    assert result.damaged == ()


def test_stale_records_behind_a_damaged_one_are_not_brought_back(store):
    """They are whole, and where they say; but they are older than the record before them."""
    old = store.append_many(30)
    stop(store)
    position = old[20].physical_offset
    store.end = position
    newest = store.append(body=b"new" * 5, store_timestamp=old[-1].store_timestamp + 50, queue_offset=10)
    stop(store)
    Checkpoint(FAR, FAR, 0).write(store.paths.checkpoint)
    result = recover(store)
    assert result.commit_log_end == newest.physical_offset + newest.total_size
    assert result.damaged == ()


def test_without_a_commit_log_the_consume_queues_go(store):
    store.append_many(10)
    stop(store)
    store.log_file(0).unlink()
    result = recover(store)
    assert result.commit_log_end == 0
    assert [(state.max_offset, state.max_physical) for state in result.queues] == [(0, -1), (0, -1)]


def test_index_entries_behind_the_end_do_not_hide_new_messages(store):
    store.append_many(10)
    stop(store)
    end = store.records[5].physical_offset
    store.write(end, bytes(SIZE - end))
    Checkpoint(store.records[4].store_timestamp, FAR, 0).write(store.paths.checkpoint)
    recover(store)
    store.records, store.end = store.records[:5], end
    record = store.append(KEYS="fresh", queue_offset=store.records[-1].queue_offset)
    dispatch(store)
    index = IndexService(store.paths.index, store.geometry.index)
    assert record.physical_offset in index.query("TopicA", "fresh", 9, 0, 1 << 60).offsets


def test_after_a_crash_index_files_that_were_not_on_disk_are_made_anew(store):
    store.append_many(30)
    dispatch(store)
    full, unfinished = sorted(store.paths.index.iterdir())
    before = full.read_bytes()
    end_timestamp = IndexService(store.paths.index, store.geometry.index).header(full.name).end_timestamp
    Checkpoint(0, 0, end_timestamp).write(store.paths.checkpoint)
    index_header_of_the_future(unfinished)
    store.crash()
    recover(store)
    assert full.read_bytes() == before
    index = IndexService(store.paths.index, store.geometry.index)
    for number, record in enumerate(store.records):
        assert index.query("TopicA", f"k{number}", 9, 0, 1 << 60).offsets == (record.physical_offset,)


def index_header_of_the_future(path: Path) -> None:
    """Let the file claim entries that it does not have, as one that reached the disk in parts does."""
    data = bytearray(path.read_bytes())
    IndexHeader(1, 1 << 50, 0, 1 << 50, 30, 39).write(data)
    path.write_bytes(data)


# -------------------------------------------------------------------------------------- directories that cannot be


@pytest.mark.parametrize("where", ["commitlog", "consumequeue/TopicA/0"])
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (file_name(40960), b"short", "5 bytes, wanted"),
        ("notes.txt", b"", "not a file of the store"),
        (file_name(40960) + "0", b"", "not a file of the store"),
    ],
)
def test_a_foreign_file_stops_the_start_and_is_named(store, where, name, content, message):
    store.append_many(20)
    stop(store)
    path = store.paths.root / where / name
    path.write_bytes(content or b"x")
    with pytest.raises(CorruptFileError, match=rf"{message}.*path={path}"):
        recover(store)


def test_a_directory_in_the_commit_log_stops_the_start(store):
    store.append_many(20)
    (store.paths.commit_log / file_name(SIZE)).mkdir()
    with pytest.raises(CorruptFileError, match="not a file of the store"):
        recover(store)


def test_a_missing_file_between_others_stops_the_start_and_is_named(store):
    store.append_many(100)
    stop(store)
    store.log_file(SIZE).unlink()
    with pytest.raises(CorruptFileError, match=rf"file is missing.*path={store.log_file(SIZE)}"):
        recover(store)


@pytest.mark.parametrize("where", ["commitlog", "consumequeue/TopicA/0"])
def test_a_last_file_of_length_zero_is_removed(store, where):
    records = store.append_many(20)
    stop(store)
    files = sorted((store.paths.root / where).iterdir())
    size = files[0].stat().st_size
    empty = store.paths.root / where / file_name(int(files[-1].name) + size)
    empty.touch()
    assert_whole(store, recover(store), records)
    assert not empty.exists()


def test_entries_that_are_no_queues_are_passed_over(store):
    records = store.append_many(20)
    stop(store)
    (store.paths.consume_queue / "TopicA" / "0.making").write_bytes(b"x")
    (store.paths.consume_queue / "TopicA" / "007").mkdir()
    (store.paths.consume_queue / "not a topic").mkdir()
    (store.paths.consume_queue / "file").touch()
    (store.paths.consume_queue / "Empty" / "3").mkdir(parents=True)
    result = recover(store)
    assert {(state.topic, state.queue_id) for state in result.queues} == {("TopicA", 0), ("TopicA", 1), ("Empty", 3)}
    assert result.commit_log_end == records[-1].physical_offset + records[-1].total_size


# ------------------------------------------------------------------------------------------ crashes during recovery


class PowerCut(BaseException):
    """The process ends here."""


class Fuse:
    """Ends the process at operation number *last*; operations are writes, syncs, links and unlinks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.last = 1 << 60
        for name in ("fsync", "pwrite", "unlink", "link", "ftruncate", "rmdir"):
            monkeypatch.setattr(os, name, self._guarded(getattr(os, name)))

    def burn(self) -> None:
        self.count += 1
        if self.count > self.last:
            raise PowerCut

    def _guarded(self, call):
        def guarded(*arguments, **options):
            self.burn()
            return call(*arguments, **options)

        return guarded

    def reset(self, last: int) -> None:
        self.count, self.last = 0, last


@pytest.fixture
def fuse(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fuse]:
    fuse = Fuse(monkeypatch)
    yield fuse
    fuse.reset(1 << 60)


def fused_dispatcher(fuse: Fuse):
    class FusedDispatcher(plain.Dispatcher):
        def on_unit(self, *_: object) -> None:
            fuse.burn()

    return FusedDispatcher


def damaged_after_crash(store: StoreBuilder) -> list[Record]:
    store.append_many(45)
    dispatch(store)
    start = next(record for record in store.records if record.physical_offset == SIZE)
    Checkpoint(start.store_timestamp + 3000, FAR, 0).write(store.paths.checkpoint)
    store.append_many(20)
    store.flip(store.records[55].physical_offset + 90)
    for path in store.paths.consume_queue.glob("TopicA/1/*"):
        path.write_bytes(path.read_bytes()[:140].ljust(GEOMETRY.consume_queue_file_size, b"\0"))
    store.crash()
    return store.records[:55]


def ahead_after_stop(store: StoreBuilder) -> list[Record]:
    store.append_many(45)
    stop(store)
    kept = store.records[:33]
    Checkpoint(kept[-1].store_timestamp, FAR, 0).write(store.paths.checkpoint)
    store.flip(store.records[33].physical_offset + 90)
    return kept


def behind_after_stop(store: StoreBuilder) -> list[Record]:
    store.append_many(25)
    stop(store)
    return store.records + store.append_many(20)


@pytest.mark.parametrize("prepare", [damaged_after_crash, ahead_after_stop, behind_after_stop])
def test_a_crash_at_any_point_of_recovery_leaves_a_store_that_recovers_to_the_same(tmp_path, fuse, prepare):
    store = StoreBuilder(tmp_path / "store")
    records = prepare(store)
    make = fused_dispatcher(fuse)
    whole = store.copy_to(tmp_path / "whole")
    fuse.reset(1 << 60)
    wanted = recover(whole, make_dispatcher=make, index_safe=True)
    operations = fuse.count
    assert operations > 10
    assert_whole(whole, wanted, records)
    for last in range(operations):
        fuse.reset(1 << 60)
        torn = store.copy_to(tmp_path / f"torn{last}")
        fuse.reset(last)
        with pytest.raises(PowerCut):
            recover(torn, make_dispatcher=make, index_safe=True)
        fuse.reset(1 << 60)
        result = recover(torn, index_safe=True)
        assert_whole(torn, result, records)
        assert result.queues == wanted.queues
        index = IndexService(torn.paths.index, torn.geometry.index)
        for record, number in zip(records, range(len(records)), strict=True):
            found = index.query("TopicA", f"k{number}", 64, 0, 1 << 60).offsets
            assert (record.physical_offset in found) or not wanted.after_crash
        index.close()
        shutil.rmtree(torn.paths.root)


def test_recovering_twice_gives_the_same(store):
    damaged_after_crash(store)
    first = recover(store)
    second = recover(store)
    assert (first.commit_log_end, first.queues) == (second.commit_log_end, second.queues)


@pytest.mark.parametrize("_round", range(100))
def test_any_mix_of_missing_sectors_behind_the_flushed_end_recovers_to_a_prefix(tmp_path, _round, chance):
    """Sectors reach the disk in any order: each one behind what was flushed is as written or zero."""
    store = StoreBuilder(tmp_path / "store")
    flushed = store.append_many(20)
    stop(store)
    store.append_many(30)
    dispatch(store)
    flushed_end = flushed[-1].physical_offset + flushed[-1].total_size
    for offset in range(flushed_end - flushed_end % 512, store.end, 512):
        start = max(offset, flushed_end)
        if chance.randrange(3) == 0:
            store.write(start, bytes(offset + 512 - start))
    store.crash()
    result = recover(store)
    kept = [record for record in store.records if record.physical_offset < result.commit_log_end]
    assert kept[: len(flushed)] == flushed
    assert_whole(store, result, kept)


def test_the_builder_writes_what_it_says(store):
    record = store.append()
    assert record.store_timestamp == FIRST_TIMESTAMP
    assert store.append().store_timestamp == FIRST_TIMESTAMP + STEP_MS
