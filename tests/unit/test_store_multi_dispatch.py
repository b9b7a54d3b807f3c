"""A message that lists further queues: units in each, at the offsets that it was given; the same for both twins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_builder import GEOMETRY, StoreBuilder, memory_directory

from mqcore._fast.queues import dispatch as fast
from mqcore.codes import SysFlag
from mqcore.layout import CONSUME_QUEUE_UNIT, PRE_FILL_SIZE
from mqcore.store.geometry import StoreGeometry
from mqcore.store.log.record import Record, string_hash
from mqcore.store.queues import dispatch as plain
from mqcore.store.queues.dispatch import java_split, parse_offset
from mqcore.store.queues.ext import is_ext_address
from mqcore.store.queues.units import Unit
from mqcore.store.recovery import Recovery

DISPATCHERS = [pytest.param(plain.Dispatcher, id="python"), pytest.param(fast.Dispatcher, id="cython")]
twins = pytest.mark.parametrize("make", DISPATCHERS)
LIGHT = replace(GEOMETRY, multi_dispatch_enabled=True, lmq_enabled=True)
A, B = "%LMQ%a", "%LMQ%b"


@pytest.fixture
def store(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "store", LIGHT)


def append(store: StoreBuilder, names: str, offsets: str, **options: object) -> Record:
    listed = {"INNER_MULTI_DISPATCH": names, "INNER_MULTI_QUEUE_OFFSET": offsets}
    return store.append(**{"queue_id": 3, "TAGS": "T", **listed, **options})  # type: ignore[arg-type]


def dispatch_all(store: StoreBuilder, make=fast.Dispatcher, geometry: StoreGeometry = LIGHT):
    dispatcher = make(store.paths, geometry)
    for offset, data in store.runs():
        assert dispatcher.dispatch(data, offset).consumed == len(data)
    dispatcher.flush()
    dispatcher.close()
    return dispatcher


def units_of(store: StoreBuilder, topic: str, queue_id: int = 0) -> list[Unit]:
    directory = store.paths.queue(topic, queue_id)
    if not directory.exists():
        return []
    data = b"".join(path.read_bytes() for path in sorted(directory.iterdir()))
    return [Unit(*unit) for unit in CONSUME_QUEUE_UNIT.struct.iter_unpack(data) if unit != (0, 0, 0)]


def unit_of(record: Record) -> Unit:
    return Unit(record.physical_offset, record.total_size, string_hash(b"T"))


@twins
def test_every_listed_queue_gets_a_unit(store, make):
    first = append(store, f"{A},{B}", "0,0")
    second = append(store, A, "1")
    third = append(store, f"{B},Second", "1,0")
    dispatcher = dispatch_all(store, make)
    assert units_of(store, "TopicA", 3) == [unit_of(first), unit_of(second), unit_of(third)]
    assert units_of(store, A) == [unit_of(first), unit_of(second)]
    assert units_of(store, B) == [unit_of(first), unit_of(third)]
    # A name that is not that of a light queue has the number of the message's own queue.
    assert units_of(store, "Second", 3) == [unit_of(third)]
    assert (dispatcher.unit_count, dispatcher.record_count, dispatcher.order_error_count) == (8, 3, 0)


@twins
def test_light_names_are_ordinary_ones_where_they_are_not_enabled(store, make):
    record = append(store, A, "0")
    dispatch_all(store, make, replace(LIGHT, lmq_enabled=False))
    assert (units_of(store, A), units_of(store, A, 3)) == ([], [unit_of(record)])


@twins
def test_without_the_setting_a_list_means_nothing(store, make):
    record = append(store, A, "0")
    dispatch_all(store, make, GEOMETRY)
    assert units_of(store, "TopicA", 3) == [unit_of(record)]
    assert not store.paths.queue(A, 0).exists()


@twins
@pytest.mark.parametrize("kind", [SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK])
def test_a_half_message_goes_nowhere(store, make, kind):
    append(store, A, "0", sys_flag=int(kind))
    dispatch_all(store, make)
    assert units_of(store, A) == []


@twins
@pytest.mark.parametrize(
    ("names", "offsets", "skipped"),
    [
        (f"{A},{B}", "0", 1),
        (A, "0,0", 1),
        (A, "x", 1),
        (A, "-1", 1),
        (A, "9" * 18, 1),
        (A, "9" * 40, 1),
        (f"{A},", "0,,", 0),
        (",", "0", 1),
        ("..", "0", 1),
        (f"a/b,{A}", "0,0", 1),
        (f",{A}", "0,0", 1),
    ],
)
def test_a_list_that_cannot_be_is_counted_and_harms_nothing(store, make, names, offsets, skipped):
    record = append(store, names, offsets)
    after = append(store, B, "0")
    dispatcher = dispatch_all(store, make)
    assert dispatcher.skipped_count == skipped
    assert units_of(store, "TopicA", 3) == [unit_of(record), unit_of(after)]
    assert units_of(store, B) == [unit_of(after)]
    assert sorted(path.name for path in store.paths.consume_queue.iterdir()) in ([A, B, "TopicA"], [B, "TopicA"])


@twins
def test_a_queue_that_is_listed_twice_or_is_its_own_gets_one_unit(store, make):
    record = append(store, f"{A},{A},TopicA", "0,0,0")
    dispatch_all(store, make)
    assert units_of(store, A) == units_of(store, "TopicA", 3) == [unit_of(record)]


@twins
def test_dispatching_again_completes_what_a_death_left_out(store, make):
    records = [append(store, f"{A},{B}", f"{number},{number}") for number in range(25)]
    dispatch_all(store, make)
    for path in sorted(store.paths.queue(B, 0).iterdir())[1:]:
        path.unlink()
    dispatch_all(store, make)
    assert units_of(store, A) == units_of(store, B) == [unit_of(record) for record in records]


@twins
@pytest.mark.parametrize("crashes", [True, False])
def test_recovery_brings_every_listed_queue_up_to_the_log(store, make, crashes):
    records = [append(store, f"{A},{B}", f"{number},{number}") for number in range(25)]
    dispatch_all(store, make)
    records += [append(store, f"{A},{B}", f"{number},{number}") for number in range(25, 30)]
    if crashes:
        store.crash()
    result = Recovery(store.paths, LIGHT, make_dispatcher=make).run()
    bounds = {(queue.topic, queue.queue_id): queue.max_offset for queue in result.queues}
    assert bounds == {("TopicA", 3): 30, (A, 0): 30, (B, 0): 30}
    assert units_of(store, A) == units_of(store, B) == [unit_of(record) for record in records]


@twins
def test_an_offset_that_was_left_out_keeps_its_place_in_recovery(store, make):
    append(store, A, "0")
    after = append(store, A, "2")
    store.crash()
    Recovery(store.paths, LIGHT, make_dispatcher=make).run()
    assert units_of(store, A)[1:] == [Unit(0, PRE_FILL_SIZE, 0), unit_of(after)]


@twins
def test_listed_queues_have_no_ext_units(store, make):
    append(store, A, "0")
    dispatch_all(store, make, replace(LIGHT, ext_enabled=True, ext_file_size=100))
    assert is_ext_address(units_of(store, "TopicA", 3)[0].tags_code)
    assert units_of(store, A)[0].tags_code == string_hash(b"T")
    assert not store.paths.queue_ext(A, 0).exists()


@given(
    names=st.lists(st.sampled_from([A, B, "C", "", "a/b", ".", "%LMQ%"]), max_size=5),
    offsets=st.lists(st.sampled_from(["0", "1", "7", "", "x", "99999999999999999999"]), max_size=5),
)
def test_both_twins_make_the_same_queues_of_any_list(names, offsets):
    contents = []
    for make in (plain.Dispatcher, fast.Dispatcher):
        with memory_directory() as directory:
            store = StoreBuilder(directory / "store", LIGHT)
            append(store, ",".join(names), ",".join(offsets))
            append(store, A, "1")
            dispatcher = dispatch_all(store, make)
            files = {path: data for path, data in store.files().items() if path.startswith("consumequeue")}
            contents.append((files, dispatcher.skipped_count, dispatcher.unit_count))
    assert contents[0] == contents[1]


def test_lists_are_split_as_java_splits_them():
    assert java_split(b"a,b") == [b"a", b"b"]
    assert java_split(b"a,,b,,") == [b"a", b"", b"b"]
    assert java_split(b",") == []
    assert parse_offset(b"12") == 12
    assert parse_offset(b"+12") == parse_offset(b"") == parse_offset(b"1" * 19) == -1
