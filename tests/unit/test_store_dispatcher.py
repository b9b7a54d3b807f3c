"""From the commit log to consume queues and index: the same files from both twins, whatever happened before."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest
from store_builder import GEOMETRY, STEP_MS, StoreBuilder

from mqcore._fast.queues import dispatch as fast
from mqcore.codes import SysFlag
from mqcore.errors import ConfigError, StoreError
from mqcore.layout import CONSUME_QUEUE_UNIT, INDEX_HEADER, PRE_FILL_SIZE
from mqcore.store.log.record import DecodeStatus, string_hash
from mqcore.store.paths import file_name
from mqcore.store.queues import dispatch as plain
from mqcore.store.queues.dispatch import DispatchStatus
from mqcore.store.queues.index_file import IndexHeader, key_hash, query
from mqcore.store.queues.units import Unit

DISPATCHERS = [pytest.param(plain.Dispatcher, id="python"), pytest.param(fast.Dispatcher, id="cython")]
twins = pytest.mark.parametrize("make", DISPATCHERS)

PER_FILE = GEOMETRY.consume_queue_file_size // 20
PRE_FILL = Unit(0, PRE_FILL_SIZE, 0)


@pytest.fixture
def store(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "store")


def dispatch_all(store: StoreBuilder, make, **options):
    dispatcher = make(store.paths, store.geometry, **options)
    for offset, data in store.runs():
        outcome = dispatcher.dispatch(data, offset)
        assert outcome == (len(data), DispatchStatus.ALL, DecodeStatus.OK)
    return dispatcher


def queue_units(store: StoreBuilder, topic: str = "TopicA", queue_id: int = 0) -> list[Unit]:
    """All units of a queue's files that are not zero; the files must be whole and follow each other."""
    paths = sorted(store.paths.queue(topic, queue_id).iterdir())
    assert [path.stat().st_size for path in paths] == [GEOMETRY.consume_queue_file_size] * len(paths)
    units = [Unit(*unit) for path in paths for unit in CONSUME_QUEUE_UNIT.struct.iter_unpack(path.read_bytes())]
    while units and units[-1] == (0, 0, 0):
        units.pop()
    return units


def index_files(store: StoreBuilder) -> list[bytes]:
    return [path.read_bytes() for path in sorted(store.paths.index.iterdir())]


@twins
def test_every_record_gets_its_unit_in_its_queue(store, make):
    records = store.append_many(25)
    dispatcher = dispatch_all(store, make)
    for queue_id in (0, 1):
        own = [record for record in records if record.queue_id == queue_id]
        hashes = [string_hash(b"T%d" % (number % 3)) for number in range(queue_id, 25, 2)]
        assert queue_units(store, queue_id=queue_id) == [
            Unit(record.physical_offset, record.total_size, code) for record, code in zip(own, hashes, strict=True)
        ]
    assert (dispatcher.record_count, dispatcher.unit_count, dispatcher.order_error_count) == (25, 25, 0)
    assert dispatcher.queue_end(b"TopicA", 0) == (13, records[-1].physical_offset + records[-1].total_size)
    assert dispatcher.store_timestamp == dispatcher.logics_timestamp == records[-1].store_timestamp
    dispatcher.close()


@twins
def test_a_message_without_a_tag_has_code_zero_and_a_negative_hash_is_sign_extended(store, make):
    store.append()
    store.append(TAGS="polygenelubricants")
    store.append(TAGS="標籤")
    dispatch_all(store, make).close()
    assert [unit.tags_code for unit in queue_units(store)] == [0, -(1 << 31), 873835]


@twins
def test_files_of_a_queue_are_named_by_their_offset(store, make):
    for _ in range(PER_FILE + 1):
        store.append()
    dispatch_all(store, make).close()
    names = sorted(path.name for path in store.paths.queue("TopicA", 0).iterdir())
    assert names == [file_name(0), file_name(200)]


def test_both_twins_make_the_same_files(tmp_path):
    contents = []
    for name, make in (("python", plain.Dispatcher), ("cython", fast.Dispatcher)):
        store = StoreBuilder(tmp_path / name)
        store.append_many(60)
        store.append("SCHEDULE_TOPIC_XXXX", 3, DELAY="4", KEYS="a b  c ")
        store.append("%RETRY%group_1-x", 0, queue_offset=33)
        dispatcher = dispatch_all(store, make)
        dispatcher.flush()
        dispatcher.close()
        files = {path: data for path, data in store.files().items() if not path.startswith("index/")}
        contents.append((files, index_files(store)))
    assert contents[0] == contents[1]


@twins
def test_dispatching_again_changes_nothing(store, make):
    store.append_many(30)
    dispatch_all(store, make).close()
    before = store.files()
    again = dispatch_all(store, make)
    assert (again.record_count, again.unit_count) == (30, 0)
    again.close()
    after = store.files()
    # The newest record's keys are indexed once more: its writer may have died between them.
    assert {path for path in before if before[path] != after[path]} <= {max(path for path in before if "index" in path)}
    assert {path for path in before if "index" not in path} == {path for path in after if "index" not in path}


@twins
@pytest.mark.parametrize("first", [1, 7, 29, 30])
def test_a_dispatcher_goes_on_where_the_last_one_ended(store, make, first):
    records = store.append_many(30)
    whole = dict(store.runs())
    dispatcher = make(store.paths, store.geometry)
    split = records[first - 1].physical_offset + records[first - 1].total_size
    for offset, data in whole.items():
        if offset < split:
            dispatcher.dispatch(data[: max(0, split - offset)], offset)
    dispatcher.close()
    dispatch_all(store, make).close()
    assert len(queue_units(store, queue_id=0)) + len(queue_units(store, queue_id=1)) == 30


@twins
def test_a_queue_whose_first_message_is_not_number_zero_is_pre_filled(store, make):
    record = store.append(queue_offset=13)
    dispatcher = dispatch_all(store, make)
    assert [path.name for path in store.paths.queue("TopicA", 0).iterdir()] == [file_name(200)]
    assert queue_units(store) == [PRE_FILL] * 3 + [Unit(record.physical_offset, record.total_size, 0)]
    assert dispatcher.queue_end(b"TopicA", 0)[0] == 14
    dispatcher.close()


@twins
@pytest.mark.parametrize("done", [0, 1, 4, 5])
def test_a_pre_fill_that_was_interrupted_is_completed(store, make, done):
    store.append(queue_offset=5)
    directory = store.paths.queue("TopicA", 0)
    directory.mkdir(parents=True)
    units = CONSUME_QUEUE_UNIT.struct.pack(*PRE_FILL) * done
    (directory / file_name(0)).write_bytes(units.ljust(GEOMETRY.consume_queue_file_size, b"\0"))
    dispatcher = dispatch_all(store, make)
    assert dispatcher.order_error_count == 0
    dispatcher.close()
    assert [unit.is_pre_fill for unit in queue_units(store)] == [True] * 5 + [False]


@twins
def test_a_first_message_on_a_file_boundary_needs_no_pre_fill(store, make):
    store.append(queue_offset=PER_FILE)
    dispatch_all(store, make).close()
    assert [path.name for path in store.paths.queue("TopicA", 0).iterdir()] == [file_name(200)]
    assert len(queue_units(store)) == 1


@twins
def test_a_record_out_of_order_gets_the_next_place_and_is_counted(store, make):
    store.append()
    store.append(queue_offset=4)
    store.append(queue_offset=5)
    dispatcher = dispatch_all(store, make)
    assert dispatcher.order_error_count == 2
    assert len(queue_units(store)) == 3
    dispatcher.close()


@twins
@pytest.mark.parametrize("gap", [2, PER_FILE - 1, PER_FILE, 3 * PER_FILE + 4])
def test_gaps_are_filled_on_demand_also_across_files(store, make, gap):
    store.append()
    store.append(queue_offset=gap)
    dispatcher = make(store.paths, store.geometry)
    dispatcher.fill_gaps = True
    for offset, data in store.runs():
        dispatcher.dispatch(data, offset)
    assert dispatcher.order_error_count == 0
    assert dispatcher.queue_end(b"TopicA", 0)[0] == gap + 1
    dispatcher.close()
    units = queue_units(store)
    assert [unit.is_pre_fill for unit in units] == [False] + [True] * (gap - 1) + [False]


@twins
def test_a_gap_that_cannot_be_is_not_filled(store, make):
    store.append()
    store.append(queue_offset=1 << 40)
    dispatcher = make(store.paths, store.geometry)
    dispatcher.fill_gaps = True
    for offset, data in store.runs():
        dispatcher.dispatch(data, offset)
    assert dispatcher.order_error_count == 1
    dispatcher.close()


@twins
def test_a_record_behind_the_end_of_its_queue_is_taken_for_there(store, make):
    store.append()
    store.append()
    store.append(queue_offset=1)
    dispatcher = dispatch_all(store, make)
    assert (dispatcher.unit_count, dispatcher.order_error_count) == (2, 0)
    dispatcher.close()


@twins
@pytest.mark.parametrize(
    ("flag", "units", "entries"),
    [
        (SysFlag.TRANSACTION_PREPARED, 0, 1),
        (SysFlag.TRANSACTION_COMMIT, 1, 1),
        (SysFlag.TRANSACTION_ROLLBACK, 0, 0),
    ],
)
def test_what_a_transaction_state_means_for_queue_and_index(store, make, flag, units, entries):
    store.append(sys_flag=int(flag), KEYS="k")
    dispatcher = dispatch_all(store, make)
    assert dispatcher.unit_count == units
    dispatcher.close()
    found = [query(data, GEOMETRY.index, key_hash(b"TopicA", b"k"), 0, 1 << 60, 9) for data in index_files(store)]
    assert sum(map(len, found)) == entries


@twins
@pytest.mark.parametrize(
    ("level", "delay_ms"),
    [("1", 1000), ("18", 7_200_000), ("19", 7_200_000), ("+3", 10_000), ("999999999", 7_200_000)],
)
def test_a_delayed_messages_code_is_its_delivery_time(store, make, level, delay_ms):
    record = store.append("SCHEDULE_TOPIC_XXXX", 2, DELAY=level, TAGS="T")
    dispatch_all(store, make).close()
    assert queue_units(store, "SCHEDULE_TOPIC_XXXX", 2)[0].tags_code == record.store_timestamp + delay_ms


@twins
@pytest.mark.parametrize("level", ["0", "-1", "x", "1x", "+", "99999999999"])
def test_what_is_no_delay_level_leaves_the_tag(store, make, level):
    store.append("SCHEDULE_TOPIC_XXXX", 2, DELAY=level, TAGS="T")
    dispatch_all(store, make).close()
    assert queue_units(store, "SCHEDULE_TOPIC_XXXX", 2)[0].tags_code == 84


@twins
def test_a_delay_outside_the_schedule_topic_is_not_looked_at(store, make):
    store.append(DELAY="3", TAGS="T")
    dispatch_all(store, make).close()
    assert queue_units(store)[0].tags_code == 84


@twins
@pytest.mark.parametrize("topic", ["../../evil", "a/b", ".", "..", "a b", "a.b", "tópico", "a\x00b"])
def test_a_topic_that_is_no_directory_name_is_passed_over(store, make, topic):
    store.append(topic)
    store.append("good")
    before = {path for path in store.paths.root.parent.rglob("*") if "consumequeue" not in str(path)}
    dispatcher = dispatch_all(store, make)
    assert (dispatcher.skipped_count, dispatcher.unit_count, dispatcher.record_count) == (1, 1, 2)
    dispatcher.close()
    assert [path.name for path in store.paths.consume_queue.iterdir()] == ["good"]
    assert {path for path in store.paths.root.parent.rglob("*") if "consumequeue" not in str(path)} == before


@twins
def test_a_negative_queue_or_offset_is_passed_over(store, make):
    store.append(queue_id=-1)
    store.append(queue_offset=-1)
    store.append(queue_offset=1 << 62)
    dispatcher = dispatch_all(store, make)
    assert (dispatcher.skipped_count, dispatcher.unit_count) == (3, 0)
    dispatcher.close()


@twins
def test_keys_and_unique_key_lead_to_the_record(store, make):
    record = store.append(KEYS="one two  three", UNIQ_KEY="U1")
    dispatch_all(store, make).close()
    (data,) = index_files(store)
    for key in (b"U1", b"one", b"two", b"three"):
        assert query(data, GEOMETRY.index, key_hash(b"TopicA", key), 0, 1 << 60, 9) == [record.physical_offset]
    header = IndexHeader.read(data)
    assert (header.index_count, header.begin_physical_offset, header.end_timestamp) == (5, 0, record.store_timestamp)


@twins
def test_without_keys_no_index_file_is_made(store, make):
    store.append(TAGS="T")
    dispatch_all(store, make).close()
    assert index_files(store) == []


@twins
def test_the_index_can_be_off(store, make):
    store.append(KEYS="k")
    dispatcher = make(store.paths, replace(GEOMETRY, index_enabled=False))
    for offset, data in store.runs():
        dispatcher.dispatch(data, offset)
    dispatcher.close()
    assert index_files(store) == []


@twins
def test_a_full_index_file_is_followed_by_one_that_inherits_its_end(store, make):
    records = store.append_many(30)  # two keys each, 39 entries a file
    dispatcher = dispatch_all(store, make)
    assert dispatcher.index_timestamp == 0
    dispatcher.flush_index(full_only=True)
    first, second = map(IndexHeader.read, index_files(store))
    assert first.index_count == 40
    assert dispatcher.index_timestamp == first.end_timestamp
    assert second.begin_timestamp == first.end_timestamp + 0
    assert first.index_count + second.index_count - 2 == 60
    assert second.end_physical_offset == records[-1].physical_offset
    dispatcher.close()


@twins
def test_an_index_file_of_another_geometry_is_left_alone(store, make):
    strange = store.paths.index / "99990101000000000"
    strange.write_bytes(b"x" * 100)
    store.append(KEYS="k")
    dispatch_all(store, make).close()
    assert strange.read_bytes() == b"x" * 100
    names = sorted(path.name for path in store.paths.index.iterdir())
    assert names == ["99990101000000000", "99990101000000001"]


@twins
def test_the_newest_record_is_indexed_again_since_its_writer_may_have_died(store, make):
    store.append(KEYS="a")
    store.append(KEYS="b")
    dispatch_all(store, make).close()
    dispatch_all(store, make).close()
    (data,) = index_files(store)
    counts = [len(query(data, GEOMETRY.index, key_hash(b"TopicA", key), 0, 1 << 60, 9)) for key in (b"a", b"b")]
    assert counts == [1, 2]


@twins
@pytest.mark.parametrize(
    ("tail", "status", "decode_status"),
    [
        (bytes(20), DispatchStatus.INVALID, DecodeStatus.BAD_MAGIC),
        (bytes(5), DispatchStatus.SHORT, DecodeStatus.SHORT),
        (struct.pack(">ii", 100, 0xCBD43194 - (1 << 32)), DispatchStatus.BLANK, DecodeStatus.BLANK),
        (struct.pack(">ii", 20, 0xDAA320A7 - (1 << 32)), DispatchStatus.INVALID, DecodeStatus.BAD_SIZE),
    ],
)
def test_dispatching_stops_before_what_is_no_record(store, make, tail, status, decode_status):
    store.append()
    ((offset, data),) = store.runs()
    dispatcher = make(store.paths, store.geometry)
    assert dispatcher.dispatch(data + tail, offset) == (len(data), status, decode_status)
    assert dispatcher.unit_count == 1
    dispatcher.close()


@twins
def test_a_record_that_says_it_belongs_elsewhere_is_not_dispatched(store, make):
    store.append()
    ((offset, data),) = store.runs()
    dispatcher = make(store.paths, store.geometry)
    assert dispatcher.dispatch(data, offset + 1) == (0, DispatchStatus.INVALID, DecodeStatus.OK)
    assert dispatcher.dispatch(b"", 0) == (0, DispatchStatus.ALL, DecodeStatus.OK)
    dispatcher.close()


@twins
def test_the_body_is_not_checked(store, make):
    store.append()
    store.flip(90)
    dispatcher = dispatch_all(store, make)
    assert dispatcher.unit_count == 1
    dispatcher.close()


@twins
def test_a_queue_file_of_another_length_is_an_error_that_names_it(store, make):
    store.append()
    directory = store.paths.queue("TopicA", 0)
    directory.mkdir(parents=True)
    (directory / file_name(0)).write_bytes(b"short")
    dispatcher = make(store.paths, store.geometry)
    ((offset, data),) = store.runs()
    with pytest.raises(StoreError, match=rf"{directory / file_name(0)}: Structure needs cleaning") as caught:
        dispatcher.dispatch(data, offset)
    assert isinstance(caught.value.__cause__, OSError)
    (directory / file_name(0)).unlink()
    assert dispatcher.dispatch(data, offset).status == DispatchStatus.ALL
    dispatcher.close()


@twins
def test_a_queue_directory_that_cannot_be_made_is_an_error_and_the_call_can_be_repeated(store, make):
    store.append()
    blocker = store.paths.consume_queue / "TopicA"
    blocker.write_bytes(b"")
    dispatcher = make(store.paths, store.geometry)
    ((offset, data),) = store.runs()
    with pytest.raises(StoreError, match="cannot write"):
        dispatcher.dispatch(data, offset)
    blocker.unlink()
    assert dispatcher.dispatch(data, offset).consumed == len(data)
    dispatcher.close()
    assert len(queue_units(store)) == 1


@twins
def test_more_queues_than_mappings_are_written_all_the_same(store, make):
    for number in range(60):
        store.append(f"Topic{number % 12}", number % 3)
    dispatcher = dispatch_all(store, make, mapped_count_max=3)
    assert dispatcher.mapped_count <= 3
    assert dispatcher.flush() == 12
    dispatcher.close()
    assert sum(len(queue_units(store, f"Topic{number}", number % 3)) for number in range(12)) == 60


@twins
def test_many_queues_are_all_found_again(store, make):
    for number in range(700):
        store.append("T", number)
    dispatcher = dispatch_all(store, make)
    assert [dispatcher.queue_end(b"T", number)[0] for number in range(700)] == [1] * 700
    dispatcher.close()


@twins
def test_flush_syncs_each_file_once_until_it_grows(store, make):
    store.append_many(25)
    dispatcher = dispatch_all(store, make)
    assert dispatcher.flush() == 4
    assert dispatcher.flush() == 0
    store.append_many(1)
    offset, data = list(store.runs())[-1]
    dispatcher.dispatch(data, offset)
    assert dispatcher.flush() == 1
    dispatcher.close()


@twins
def test_a_queue_that_was_dropped_is_read_from_disk_again(store, make):
    store.append_many(5)
    store.append("Other")
    dispatcher = dispatch_all(store, make)
    for path in store.paths.consume_queue.glob("TopicA/*/*"):
        path.unlink()
    dispatcher.bear(b"TopicA", 0, store.end)
    assert dispatcher.queue_end(b"TopicA", 0) == (0, -1)
    assert dispatcher.queue_end(b"Other", 0)[0] == 1
    dispatcher.close()


@twins
def test_records_from_before_a_queue_was_born_are_passed_over(store, make):
    store.append_many(4, queue_count=2)
    born = store.end
    store.next_offsets[("TopicA", 0)] = 0
    store.append(queue_id=0)
    store.append(queue_id=1)
    dispatcher = make(store.paths, store.geometry)
    dispatcher.bear(b"TopicA", 0, born)
    for offset, data in store.runs():
        assert dispatcher.dispatch(data, offset).status == DispatchStatus.ALL
    assert dispatcher.dead_count == 2
    assert dispatcher.queue_end(b"TopicA", 0)[0] == 1
    assert dispatcher.queue_end(b"TopicA", 1)[0] == 3
    assert dispatcher.order_error_count == 0
    dispatcher.close()


@twins
def test_listed_queues_have_births_of_their_own(store, make):
    geometry = replace(store.geometry, multi_dispatch_enabled=True)
    listed = {"INNER_MULTI_DISPATCH": "ListedA", "INNER_MULTI_QUEUE_OFFSET": "0"}
    store.append(**listed)
    born = store.end
    store.append(**listed)
    dispatcher = make(store.paths, geometry)
    dispatcher.bear(b"ListedA", 0, born)
    for offset, data in store.runs():
        dispatcher.dispatch(data, offset)
    assert dispatcher.queue_end(b"ListedA", 0)[0] == 1
    assert dispatcher.queue_end(b"TopicA", 0)[0] == 2
    assert dispatcher.dead_count == 1
    dispatcher.close()


@twins
def test_a_closed_dispatcher_refuses_work(store, make):
    store.append()
    dispatcher = make(store.paths, store.geometry)
    dispatcher.close()
    ((offset, data),) = store.runs()
    with pytest.raises(StoreError, match="Bad file descriptor"):
        dispatcher.dispatch(data, offset)
    with pytest.raises(ValueError, match="open dispatcher"):
        dispatcher.queue_end(b"TopicA", 0)
    dispatcher.close()


@twins
@pytest.mark.parametrize(("topic", "queue_id"), [(b"a/b", 0), (b"", 0), (b"a", -1)])
def test_the_end_of_a_queue_that_cannot_be_is_refused(store, make, topic, queue_id):
    dispatcher = make(store.paths, store.geometry)
    with pytest.raises(ValueError, match="wanted a topic"):
        dispatcher.queue_end(topic, queue_id)
    dispatcher.close()


def test_paths_and_levels_beyond_the_limits_are_refused(store):
    with pytest.raises(ConfigError, match="longer than"):
        fast.Dispatcher(replace(store.paths, root=Path("/" + "x" * 1100)), GEOMETRY)
    with pytest.raises(ConfigError, match="129 levels"):
        fast.Dispatcher(store.paths, replace(GEOMETRY, delay_levels_ms=(1,) * 129))


class Listener(plain.Dispatcher):
    """Writes down what it is told."""

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.heard: list[tuple[bytes, int, int, int, int]] = []

    def on_unit(self, *arguments) -> None:
        self.heard.append(arguments)


def test_the_hook_hears_of_every_unit_also_of_one_that_was_there(store):
    record = store.append(TAGS="T")
    store.append(sys_flag=int(SysFlag.TRANSACTION_PREPARED))
    wanted = [(b"TopicA", 0, 0, 84, record.store_timestamp)]
    for _ in range(2):
        listener = dispatch_all(store, Listener)
        assert listener.heard == wanted
        assert listener.record_end == record.total_size
        listener.close()


@twins
def test_logics_timestamp_is_the_latest_although_clocks_go_back(store, make):
    first = store.append()
    store.append(store_timestamp=first.store_timestamp - 10 * STEP_MS)
    dispatcher = dispatch_all(store, make)
    assert dispatcher.logics_timestamp == first.store_timestamp
    dispatcher.close()


@twins
def test_new_files_have_their_full_length_and_blocks_for_what_comes_next(store, make):
    store.append(KEYS="k")
    dispatch_all(store, make).close()
    (index,) = store.paths.index.iterdir()
    (queue,) = store.paths.queue("TopicA", 0).iterdir()
    assert index.stat().st_size == GEOMETRY.index.file_size
    assert queue.stat().st_size == GEOMETRY.consume_queue_file_size
    assert index.stat().st_blocks > 0
    assert queue.stat().st_blocks > 0
    assert IndexHeader.read(index.read_bytes()[: INDEX_HEADER.size]).index_count == 2
