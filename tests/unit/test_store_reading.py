"""Reading a store that others write: mapped files, consume queues by offset and time, keys, and the reader over all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from store_builder import FIRST_TIMESTAMP, GEOMETRY, STEP_MS, StoreBuilder, memory_directory

from mqcore.errors import CorruptFileError, CorruptRecordError, OffsetOutOfRangeError
from mqcore.store.codec import Dispatcher
from mqcore.store.log.mapped_file_queue import MappedFileQueue
from mqcore.store.message_store import MessageStoreReader
from mqcore.store.paths import file_name
from mqcore.store.queues.consume_queue import ConsumeQueue, list_queues
from mqcore.store.queues.index_service import IndexService
from mqcore.store.recovery import Recovery
from mqcore.store.watermarks import FixedWatermarks

SIZE = GEOMETRY.commit_log_file_size
QUEUE_FILE = GEOMETRY.consume_queue_file_size


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with memory_directory() as path:
        yield path


@pytest.fixture
def store(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "store")


def dispatch(store: StoreBuilder) -> None:
    dispatcher = Dispatcher(store.paths, store.geometry)
    for offset, data in store.runs():
        dispatcher.dispatch(data, offset)
    dispatcher.close()


def open_reader(store: StoreBuilder) -> MessageStoreReader:
    dispatch(store)
    return MessageStoreReader(store.paths, store.geometry, Recovery(store.paths, store.geometry).run().watermarks())


# -------------------------------------------------------------------------------------------------------- mapped files


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for number in range(3):
        (tmp_path / file_name(100 + 10 * number)).write_bytes(bytes([number] * 10))
    return tmp_path


def test_bytes_are_found_by_offset_over_files(directory):
    queue = MappedFileQueue(directory, 10)
    queue.load()
    assert (queue.min_offset, queue.end_offset) == (100, 130)
    assert bytes(queue.view(100, 10)) == bytes(10)
    assert bytes(queue.view(119, 1)) == b"\1"
    assert bytes(queue.view(120, 3)) == b"\2\2\2"
    assert queue.view(105, 0) == b""


@pytest.mark.parametrize(("offset", "size"), [(99, 1), (0, 1), (130, 1), (109, 2), (100, 11), (105, -1), (-1, 1)])
def test_bytes_outside_or_across_files_are_refused(directory, offset, size):
    queue = MappedFileQueue(directory, 10)
    queue.load()
    with pytest.raises(OffsetOutOfRangeError):
        queue.view(offset, size)


def test_files_that_appear_are_found_without_being_told(directory):
    queue = MappedFileQueue(directory, 10)
    queue.load()
    (directory / file_name(130)).write_bytes(b"n" * 10)
    assert bytes(queue.view(135, 1)) == b"n"
    assert queue.end_offset == 140


def test_a_deleted_files_bytes_stay_with_who_has_them(directory):
    queue = MappedFileQueue(directory, 10)
    queue.load()
    view = queue.view(100, 10)
    queue.delete(100)
    assert bytes(view) == bytes(10)
    assert queue.min_offset == 110
    with pytest.raises(OffsetOutOfRangeError):
        queue.view(100, 1)


def test_a_file_that_vanishes_is_out_of_range(directory):
    queue = MappedFileQueue(directory, 10)
    queue.load()
    (directory / file_name(110)).unlink()
    with pytest.raises(OffsetOutOfRangeError):
        queue.view(110, 1)


def test_a_file_cut_short_is_not_mapped(directory):
    queue = MappedFileQueue(directory, 10)
    queue.load()
    (directory / file_name(110)).write_bytes(b"x")
    with pytest.raises(CorruptFileError, match="1 bytes, wanted 10"):
        queue.view(110, 1)


def test_only_so_many_files_are_mapped_at_once(directory):
    queue = MappedFileQueue(directory, 10, mapped_files_max=2)
    queue.load()
    views = [queue.view(offset, 1) for offset in (100, 110, 120, 100)]
    assert [bytes(view) for view in views] == [b"\0", b"\1", b"\2", b"\0"]
    maps = Path("/proc/self/maps").read_text().count(str(directory))
    del views
    assert Path("/proc/self/maps").read_text().count(str(directory)) <= 2 < maps
    queue.close()
    assert str(directory) not in Path("/proc/self/maps").read_text()


def test_an_empty_or_missing_directory_has_no_files(tmp_path):
    for path in (tmp_path, tmp_path / "missing"):
        queue = MappedFileQueue(path, 10)
        queue.load()
        assert (queue.starts, queue.min_offset, queue.end_offset) == ((), 0, 0)


def test_refresh_leaves_foreign_files_out(directory):
    (directory / "x").touch()
    (directory / file_name(130)).touch()
    queue = MappedFileQueue(directory, 10)
    queue.refresh()
    assert queue.starts == (100, 110, 120)


# -------------------------------------------------------------------------------------------------------- consume queue


@pytest.fixture
def queue(store: StoreBuilder) -> ConsumeQueue:
    for _ in range(25):
        store.append()
    dispatch(store)
    return ConsumeQueue(store.paths, "TopicA", 0, QUEUE_FILE)


def test_units_come_as_an_array_up_to_the_end_of_a_file(store, queue):
    units = queue.units(3, 100, (0, 25))
    assert list(units["physical_offset"]) == [record.physical_offset for record in store.records[3:10]]
    assert len(queue.units(10, 4, (0, 25))) == 4
    assert len(queue.units(20, 100, (0, 23))) == 3
    assert len(queue.units(25, 1, (0, 25))) == 0
    assert not units.flags.writeable


@pytest.mark.parametrize("first", [-1, 2, 24])
def test_units_outside_the_bounds_are_refused(queue, first):
    with pytest.raises(OffsetOutOfRangeError):
        queue.units(first, 1, (3, 23))


def test_one_unit_is_read_inside_the_bounds_only(store, queue):
    assert queue.unit_at(24, (0, 25)).physical_offset == store.records[24].physical_offset
    with pytest.raises(OffsetOutOfRangeError):
        queue.unit_at(24, (0, 24))


def set_modified(store: StoreBuilder) -> None:
    """Let every file look modified when its last message was stored, as it is in a store that grew by itself."""
    for path in store.paths.queue("TopicA", 0).iterdir():
        last = min(int(path.name) // 20 + 10, len(store.records)) - 1
        modified = store.records[last].store_timestamp / 1000
        os.utime(path, (modified, modified))


@pytest.mark.parametrize(
    ("seconds", "offset"),
    [(-100.0, 0), (0.0, 0), (3.0, 3), (3.4, 3), (3.5, 3), (3.6, 4), (9.0, 9), (9.4, 10), (24.0, 24), (1000.0, 24)],
)
def test_the_message_stored_nearest_to_a_time_is_found(store, queue, seconds, offset):
    set_modified(store)
    reader = open_reader(store)
    set_modified(store)
    assert reader.offset_by_time("TopicA", 0, FIRST_TIMESTAMP + int(seconds * STEP_MS)) == offset


def test_expired_messages_are_older_than_any_time(store, queue):
    set_modified(store)
    log_min = store.records[7].physical_offset
    times = {record.physical_offset: record.store_timestamp for record in store.records}
    find = queue.offset_by_time
    assert find(FIRST_TIMESTAMP, (0, 25), times.__getitem__, log_min) == 7
    assert find(FIRST_TIMESTAMP + 8 * STEP_MS, (0, 25), times.__getitem__, log_min) == 8


def test_a_record_that_cannot_be_read_gives_offset_zero(queue):
    def unreadable(offset: int) -> int:
        raise CorruptRecordError("gone", offset)

    assert queue.offset_by_time(1 << 50, (0, 25), unreadable, 0) == 0


def test_by_time_a_queue_without_files_or_units_gives_its_start(store):
    empty = ConsumeQueue(store.paths, "Empty", 0, QUEUE_FILE)
    assert empty.offset_by_time(5, (0, 0), lambda _: 0, 0) == 0


def test_expired_files_of_a_queue_are_deleted_but_never_the_last(store, queue):
    assert queue.delete_expired(store.records[9].physical_offset) == 0
    assert queue.delete_expired(store.records[9].physical_offset + 1) == 1
    assert queue.find_min_offset(store.records[12].physical_offset) == 12
    assert queue.delete_expired(1 << 60) == 1
    assert queue.delete_expired(1 << 60) == 0
    assert [path.name for path in store.paths.queue("TopicA", 0).iterdir()] == [file_name(400)]
    assert queue.find_min_offset(1 << 60) == 25


@pytest.mark.parametrize("kept", [0, 1, 9, 10, 11, 20, 24, 25])
def test_truncation_drops_what_lies_behind_and_makes_it_zero(store, queue, kept):
    end = store.records[kept].physical_offset if kept < 25 else store.end
    queue.truncate(end)
    queue = ConsumeQueue(store.paths, "TopicA", 0, QUEUE_FILE)
    assert queue.recover(0).max_offset == kept
    files = sorted(store.paths.queue("TopicA", 0).iterdir())
    assert len(files) == max(1, -(-kept // 10))
    assert b"".join(path.read_bytes() for path in files)[20 * kept :].count(0) == len(files) * QUEUE_FILE - 20 * kept


def test_truncation_tests_the_first_unit_too(store):
    directory = store.paths.queue("TopicA", 0)
    directory.mkdir(parents=True)
    (directory / file_name(0)).write_bytes(bytes(QUEUE_FILE))
    queue = ConsumeQueue(store.paths, "TopicA", 0, QUEUE_FILE)
    queue.truncate(1000)
    assert queue.recover(0).max_offset == 0


def test_the_end_of_the_last_record_ignores_empty_files(store, queue):
    assert queue.last_record_end() == store.end
    (store.paths.queue("TopicA", 0) / file_name(600)).write_bytes(bytes(QUEUE_FILE))
    again = ConsumeQueue(store.paths, "TopicA", 0, QUEUE_FILE)
    assert again.last_record_end() == store.end
    assert ConsumeQueue(store.paths, "None", 0, QUEUE_FILE).last_record_end() == -1


def test_queues_are_listed_in_order(store):
    for topic, queue_id in (("b", 10), ("b", 9), ("a", 0)):
        store.append(topic, queue_id)
    dispatch(store)
    found = [(queue.topic, queue.queue_id) for queue in list_queues(store.paths, QUEUE_FILE)]
    assert found == [("a", 0), ("b", 9), ("b", 10)]


# --------------------------------------------------------------------------------------------------------------- reader


def test_records_are_read_by_offset(store):
    records = store.append_many(60)
    reader = open_reader(store)
    assert [reader.read_message(record.physical_offset) for record in records] == records
    first = records[0]
    assert reader.look_message(0) == store.log_bytes(0, first.total_size)
    for offset in (-1, 1, store.end, store.end - 1, 1 << 60):
        assert reader.look_message(offset) is None
        assert reader.read_message(offset) is None


def test_the_filler_is_no_record(store):
    records = store.append_many(60)
    reader = open_reader(store)
    last = max((record for record in records if record.physical_offset < SIZE), key=lambda r: r.physical_offset)
    assert reader.look_message(last.physical_offset + last.total_size) is None


def test_nothing_behind_the_readable_end_is_given(store):
    records = store.append_many(10)
    dispatch(store)
    end = records[5].physical_offset + records[5].total_size
    reader = MessageStoreReader(store.paths, store.geometry, FixedWatermarks(0, end, {("TopicA", 0): (0, 3)}))
    assert reader.look_message(records[5].physical_offset) is not None
    assert reader.look_message(records[6].physical_offset) is None
    assert reader.message_store_time("TopicA", 0, 2) == records[4].store_timestamp
    assert reader.message_store_time("TopicA", 0, 3) == -1
    torn = MessageStoreReader(store.paths, store.geometry, FixedWatermarks(0, end - 1))
    assert torn.look_message(records[5].physical_offset) is None


def test_bounds_and_times_of_queues(store):
    store.append_many(40)
    reader = open_reader(store)
    assert (reader.min_offset("TopicA", 1), reader.max_offset("TopicA", 1)) == (0, 20)
    assert (reader.min_offset("None", 0), reader.max_offset("None", 0)) == (0, 0)
    assert reader.message_store_time("TopicA", 1, 3) == FIRST_TIMESTAMP + 7 * STEP_MS
    assert reader.earliest_message_time("TopicA", 1) == FIRST_TIMESTAMP + STEP_MS
    assert reader.earliest_message_time("None", 0) == -1
    assert reader.earliest_store_timestamp() == FIRST_TIMESTAMP
    assert reader.physical_offset("TopicA", 1, 3) == store.records[7].physical_offset
    assert reader.physical_offset("TopicA", 1, 20) == -1
    assert reader.physical_offset("None", 1, 0) == -1
    assert reader.offset_by_time("None", 1, 0) == 0


def test_units_of_the_reader_are_those_of_its_queue(store):
    store.append_many(40)
    reader = open_reader(store)
    assert list(reader.read_units("TopicA", 1, 3, 2)["physical_offset"]) == [
        store.records[7].physical_offset,
        store.records[9].physical_offset,
    ]


def test_an_empty_store_has_no_times(store):
    reader = open_reader(store)
    assert reader.earliest_store_timestamp() == -1


def test_store_times_of_ipv6_records_are_found(store):
    record = store.append()
    raw = replace(record, born_host=replace(record.born_host, address=bytes(16)))
    store.records.clear()
    store.end = 0
    store._write(raw)
    reader = open_reader(store)
    assert reader.earliest_store_timestamp() == record.store_timestamp


def test_records_of_a_key_come_in_log_order(store):
    for number in range(30):
        store.append(queue_id=number % 2, KEYS="odd" if number % 2 else "even", UNIQ_KEY=f"U{number}")
    reader = open_reader(store)
    answer = reader.query_message("TopicA", "odd", 32, 0, 1 << 60)
    odd = [record for number, record in enumerate(store.records) if number % 2]
    assert list(answer.records) == [store.log_bytes(r.physical_offset, r.physical_offset + r.total_size) for r in odd]
    assert answer.index_last_update_physical_offset == store.records[-1].physical_offset
    assert answer.index_last_update_timestamp == store.records[-1].store_timestamp
    newest = reader.query_message("TopicA", "odd", 4, 0, 1 << 60)
    assert list(newest.records) == list(answer.records)[-4:]
    assert reader.query_message("TopicA", "none", 32, 0, 1 << 60).records == ()
    assert len(reader.query_message("TopicA", "U7", 32, 0, 1 << 60).records) == 1


def test_records_of_a_key_are_bounded_by_time(store):
    for _ in range(30):
        store.append(KEYS="k")
    reader = open_reader(store)
    begin, end = FIRST_TIMESTAMP + 5 * STEP_MS, FIRST_TIMESTAMP + 8 * STEP_MS
    assert len(reader.query_message("TopicA", "k", 64, begin, end).records) == 4
    assert len(reader.query_message("TopicA", "k", 64, 0, FIRST_TIMESTAMP - 1).records) == 0


def test_no_more_records_are_given_than_are_asked_for(store):
    for _ in range(100):
        store.append(KEYS="k")
    reader = open_reader(store)
    assert len(reader.query_message("TopicA", "k", 1000, 0, 1 << 60).records) == 100
    assert len(reader.query_message("TopicA", "k", 70, 0, 1 << 60).records) == 70


def test_index_entries_that_lead_nowhere_are_passed_over(store):
    records = store.append_many(20)
    dispatch(store)
    reader = MessageStoreReader(store.paths, store.geometry, FixedWatermarks(0, records[10].physical_offset))
    assert len(reader.query_message("TopicA", "k9", 32, 0, 1 << 60).records) == 1
    assert reader.query_message("TopicA", "k10", 32, 0, 1 << 60).records == ()


def test_expired_index_files_are_deleted_but_never_the_newest(store):
    store.append_many(60)
    dispatch(store)
    index = IndexService(store.paths.index, store.geometry.index)
    names = index.names()
    assert len(names) == 4
    assert index.total_size() == 4 * GEOMETRY.index.file_size
    assert index.delete_expired(index.header(names[1]).end_physical_offset + 1) == 2
    assert index.delete_expired(1 << 60) == 1
    assert index.names() == names[3:]
    index.delete_all()
    assert index.names() == []
    assert index.query("TopicA", "k1", 9, 0, 1 << 60).offsets == ()


def test_a_missing_index_directory_finds_nothing(tmp_path):
    assert IndexService(tmp_path / "none", GEOMETRY.index).query("a", "b", 1, 0, 1).offsets == ()
