"""Consume queue ext files: units, addresses, writing, cutting back and cleaning; the same for both twins."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_builder import GEOMETRY, StoreBuilder

from mqcore._fast.queues import dispatch as fast_dispatch
from mqcore._fast.queues import ext as fast
from mqcore._fast.queues import units as fast_scan
from mqcore.errors import CorruptFileError
from mqcore.layout import CONSUME_QUEUE_EXT_UNIT, CONSUME_QUEUE_UNIT, EXT_FILE_FULL
from mqcore.store.log.record import string_hash
from mqcore.store.message_store import MessageStoreReader
from mqcore.store.paths import file_name
from mqcore.store.queues import dispatch as plain_dispatch
from mqcore.store.queues import ext as plain
from mqcore.store.queues import units as plain_scan
from mqcore.store.queues.consume_queue import ConsumeQueue
from mqcore.store.queues.ext import ExtUnit, ext_address, ext_offset, is_ext_address
from mqcore.store.queues.units import ScanLimits, Unit
from mqcore.store.reader import StoreReader
from mqcore.store.recovery import Recovery
from mqcore.store.retention import clean_consume_queues
from tests.rows import walked

twins = pytest.mark.parametrize("twin", [pytest.param(plain, id="python"), pytest.param(fast, id="cython")])
scans = pytest.mark.parametrize("scan", [pytest.param(plain_scan, id="python"), pytest.param(fast_scan, id="cython")])
DISPATCHERS = [
    pytest.param(plain_dispatch.Dispatcher, id="python"),
    pytest.param(fast_dispatch.Dispatcher, id="cython"),
]
makers = pytest.mark.parametrize("make", DISPATCHERS)

# Four units in a file: the fifth would leave less than the four bytes that must stay behind it.
EXT_FILE_SIZE = 100
PER_EXT_FILE = 4
WITH_EXT = replace(GEOMETRY, ext_enabled=True, ext_file_size=EXT_FILE_SIZE)
LIMITS = ScanLimits(
    count_max=32, commit_log_min=0, commit_log_max=1 << 40, commit_log_file_size=1 << 30, in_memory_bytes_max=1 << 40
)
GOLDEN = bytes.fromhex("0017 FFFFFFFF80000000 0000018BCFE56800 0003 0102FF")


@pytest.fixture
def store(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "store", WITH_EXT)


def dispatch_all(store: StoreBuilder, make=fast_dispatch.Dispatcher, geometry=None):
    dispatcher = make(store.paths, geometry or store.geometry)
    for offset, data in store.runs():
        assert dispatcher.dispatch(data, offset).consumed == len(data)
    dispatcher.flush()
    return dispatcher


def queue_of(store: StoreBuilder) -> ConsumeQueue:
    return ConsumeQueue(store.paths, "TopicA", 0, store.geometry.consume_queue_file_size, EXT_FILE_SIZE)


def units_of(store: StoreBuilder) -> list[Unit]:
    paths = sorted(store.paths.queue("TopicA", 0).iterdir())
    units = [Unit(*unit) for path in paths for unit in CONSUME_QUEUE_UNIT.struct.iter_unpack(path.read_bytes())]
    while units and units[-1] == (0, 0, 0):
        units.pop()
    return units


def ext_names(store: StoreBuilder) -> list[str]:
    return sorted(path.name for path in store.paths.queue_ext("TopicA", 0).iterdir())


def real_codes(store: StoreBuilder) -> list[int]:
    """What the queue's units say of tags, through the ext files where they hold addresses."""
    queue = queue_of(store)
    codes = []
    for unit in units_of(store):
        ext = queue.ext.look_up(unit.tags_code)
        codes.append(unit.tags_code if ext is None else ext.tags_code)
    queue.close()
    return codes


def wanted_codes(store: StoreBuilder) -> list[int]:
    return [string_hash(b"T%d" % number) for number in range(len(store.records))]


def fill(store: StoreBuilder, count: int) -> None:
    for _ in range(count):
        store.append(TAGS=f"T{len(store.records)}")


# Units


@twins
def test_golden_bytes_of_an_ext_unit(twin):
    assert twin.encode_ext_unit(-(1 << 31), 1_700_000_000_000, b"\x01\x02\xff") == GOLDEN
    assert twin.decode_ext_unit(GOLDEN) == ExtUnit(-(1 << 31), 1_700_000_000_000, b"\x01\x02\xff")
    assert twin.encode_ext_unit(7, 8) == bytes.fromhex("0014 0000000000000007 0000000000000008 0000")


@twins
def test_a_bitmap_that_no_size_can_say_is_refused(twin):
    longest = bytes(0x7FFF - CONSUME_QUEUE_EXT_UNIT.size)
    assert twin.decode_ext_unit(twin.encode_ext_unit(1, 2, longest)) == ExtUnit(1, 2, longest)
    with pytest.raises(ValueError, match="wanted at most 32747"):
        twin.encode_ext_unit(1, 2, longest + b"\0")


@twins
@walked("cut", range(len(GOLDEN)))
def test_an_ext_unit_that_is_cut_short_is_none(twin, cut):
    assert twin.decode_ext_unit(GOLDEN[:cut]) is None
    assert twin.ext_end(GOLDEN[:cut]) == 0


@twins
@pytest.mark.parametrize("position", [-1, -23, 4, 23, 24, 1 << 40])
def test_no_ext_unit_is_read_from_outside(twin, position):
    assert twin.decode_ext_unit(GOLDEN, position) is None


@given(st.binary(max_size=90), st.integers(-5, 95))
def test_both_twins_read_any_bytes_alike(data, position):
    assert plain.decode_ext_unit(data, position) == fast.decode_ext_unit(data, position)
    assert plain.ext_end(data) == fast.ext_end(data)


@given(st.lists(st.binary(max_size=30), max_size=8), st.integers(0, 400), st.integers(1, 255))
def test_both_twins_read_damaged_units_alike(bitmaps, place, bits):
    data = bytearray(b"".join(plain.encode_ext_unit(-n, n, bitmap) for n, bitmap in enumerate(bitmaps)) + bytes(30))
    assert plain.ext_end(data) == fast.ext_end(data) == len(data) - 30
    data[place % len(data)] ^= bits
    assert plain.ext_end(data) == fast.ext_end(data)
    for position in range(len(data)):
        assert plain.decode_ext_unit(data, position) == fast.decode_ext_unit(data, position)


def test_an_address_is_never_the_hash_of_a_tag():
    assert ext_address(0) == -(1 << 63)
    assert is_ext_address(ext_address(plain.EXT_OFFSET_MAX))
    assert not is_ext_address(ext_address(plain.EXT_OFFSET_MAX) + 1)
    assert not is_ext_address(-(1 << 31))
    assert ext_offset(ext_address(12345)) == 12345


# Scans


@scans
@pytest.mark.parametrize("start", [0, 4000])
def test_a_scan_goes_by_the_codes_in_the_ext_units(scan, start):
    ext = plain.encode_ext_unit(5, 1) + plain.encode_ext_unit(-7, 2, b"\1\2") + plain.encode_ext_unit(1 << 40 | 5, 3)
    units = b"".join(
        CONSUME_QUEUE_UNIT.struct.pack(number * 10, 10, code)
        for number, code in enumerate(
            [ext_address(start), ext_address(start + 20), 5, ext_address(start + 42), -7, ext_address(start + 20)]
        )
    )
    five = scan.choose(units, LIMITS, [5], ext, start)
    assert five.ranges == ((0, 10), (20, 10), (30, 10))
    assert scan.choose(units, LIMITS, [-7], ext, start).ranges == ((10, 10), (40, 10), (50, 10))
    assert scan.choose(units, LIMITS, [6], ext, start).ranges == ()
    assert len(scan.choose(units, LIMITS, (), ext, start).ranges) == 6


@scans
@pytest.mark.parametrize(
    "address", [ext_address(0), ext_address(1), ext_address(100), ext_address(plain.EXT_OFFSET_MAX)]
)
def test_a_message_whose_ext_unit_cannot_be_read_is_not_hidden(scan, address):
    unit = CONSUME_QUEUE_UNIT.struct.pack(0, 10, address)
    assert scan.choose(unit, LIMITS, [6], plain.encode_ext_unit(5, 1)[:19]).ranges == ((0, 10),)
    assert scan.choose(unit, LIMITS, [6]).ranges == ((0, 10),)


# Writing


@makers
def test_units_hold_addresses_and_ext_files_the_rest(store, make):
    fill(store, 11)
    dispatcher = dispatch_all(store, make)
    dispatcher.close()
    places = [number // PER_EXT_FILE * EXT_FILE_SIZE + number % PER_EXT_FILE * 20 for number in range(11)]
    assert [ext_offset(unit.tags_code) for unit in units_of(store)] == places
    queue = queue_of(store)
    assert [queue.ext.look_up(ext_address(place)) for place in places] == [
        ExtUnit(code, record.store_timestamp, b"")
        for code, record in zip(wanted_codes(store), store.records, strict=True)
    ]
    assert ext_names(store) == [file_name(start) for start in (0, 100, 200)]
    full = store.paths.queue_ext("TopicA", 0) / file_name(0)
    assert full.read_bytes()[80:82] == EXT_FILE_FULL.to_bytes(2, "big", signed=True)
    assert dispatcher.ext_failed_count == 0


def test_both_twins_make_the_same_ext_files(tmp_path):
    contents = []
    for name, make in (("python", plain_dispatch.Dispatcher), ("cython", fast_dispatch.Dispatcher)):
        store = StoreBuilder(tmp_path / name, WITH_EXT)
        store.append_many(25)
        store.append("SCHEDULE_TOPIC_XXXX", 3, DELAY="4")
        dispatch_all(store, make).close()
        contents.append({path: data for path, data in store.files().items() if path.startswith("consumequeue")})
    assert contents[0] == contents[1]
    assert any(path.startswith("consumequeue_ext/SCHEDULE_TOPIC_XXXX/3") for path in contents[0])


@makers
def test_a_writer_goes_on_behind_what_is_there(store, make):
    for _ in range(9):
        fill(store, 1)
        dispatch_all(store, make).close()
    assert real_codes(store) == wanted_codes(store)
    assert ext_names(store) == [file_name(start) for start in (0, 100, 200)]


@makers
def test_a_writer_goes_on_behind_a_bitmap(store, make):
    fill(store, 1)
    dispatch_all(store, make).close()
    path = store.paths.queue_ext("TopicA", 0) / file_name(0)
    path.write_bytes(plain.encode_ext_unit(wanted_codes(store)[0], 1, b"\xaa" * 14).ljust(EXT_FILE_SIZE, b"\0"))
    fill(store, 1)
    dispatch_all(store, make).close()
    assert [ext_offset(unit.tags_code) for unit in units_of(store)] == [0, 34]
    assert real_codes(store) == wanted_codes(store)


@makers
def test_a_writer_never_overwrites_a_unit_that_the_queue_names(store, make):
    fill(store, 3)
    dispatch_all(store, make).close()
    path = store.paths.queue_ext("TopicA", 0) / file_name(0)
    path.write_bytes(bytes(20) + path.read_bytes()[20:])
    fill(store, 1)
    dispatch_all(store, make).close()
    assert real_codes(store)[1:] == wanted_codes(store)[1:]


@makers
def test_plain_codes_and_addresses_stand_in_one_queue(store, make):
    for enabled in (False, True, False, True):
        fill(store, 3)
        dispatch_all(store, make, replace(WITH_EXT, ext_enabled=enabled)).close()
    kinds = [is_ext_address(unit.tags_code) for unit in units_of(store)]
    assert kinds == [False] * 3 + [True] * 3 + [False] * 3 + [True] * 3
    assert real_codes(store) == wanted_codes(store)


@makers
def test_dispatching_again_writes_no_ext_unit_twice(store, make):
    fill(store, 6)
    dispatch_all(store, make).close()
    before = {path: data for path, data in store.files().items() if "ext" in path}
    dispatch_all(store, make).close()
    assert {path: data for path, data in store.files().items() if "ext" in path} == before


@makers
def test_what_no_ext_file_can_take_stays_in_the_unit(store, make):
    foreign = store.paths.queue_ext("TopicA", 0)
    foreign.mkdir(parents=True)
    (foreign / file_name(0)).write_bytes(b"not of this length")
    fill(store, 2)
    dispatcher = dispatch_all(store, make)
    assert dispatcher.ext_failed_count == 2
    dispatcher.close()
    assert [unit.tags_code for unit in units_of(store)] == wanted_codes(store)


@makers
def test_few_mappings_are_enough_for_many_queues(store, make):
    for number in range(40):
        store.append(queue_id=number % 5, TAGS=f"T{number}")
    dispatcher = make(store.paths, store.geometry, 2)
    for offset, data in store.runs():
        assert dispatcher.dispatch(data, offset).consumed == len(data)
    assert dispatcher.mapped_count == 2
    dispatcher.close()
    assert real_codes(store) == [string_hash(b"T%d" % number) for number in range(0, 40, 5)]


# Recovery


def recover(store: StoreBuilder, geometry=WITH_EXT, make=fast_dispatch.Dispatcher):
    return Recovery(store.paths, geometry, make_dispatcher=make).run()


def ext_bytes(store: StoreBuilder) -> bytes:
    directory = store.paths.queue_ext("TopicA", 0)
    return b"".join((directory / name).read_bytes() for name in ext_names(store))


@makers
@pytest.mark.parametrize("enabled", [True, False])
def test_ext_units_behind_the_newest_address_are_dropped_at_a_start(store, make, enabled):
    fill(store, 6)
    dispatch_all(store, make).close()
    kept = ext_bytes(store)
    directory = store.paths.queue_ext("TopicA", 0)
    orphan = plain.encode_ext_unit(99, 99)
    data = bytearray((directory / file_name(100)).read_bytes())
    data[40:60] = orphan
    (directory / file_name(100)).write_bytes(data)
    (directory / file_name(200)).write_bytes(orphan.ljust(EXT_FILE_SIZE, b"\0"))
    recover(store, replace(WITH_EXT, ext_enabled=enabled), make)
    assert ext_bytes(store) == kept
    assert real_codes(store) == wanted_codes(store)


@makers
@pytest.mark.parametrize("enabled", [True, False])
def test_after_a_crash_queue_and_ext_files_are_made_anew(store, make, enabled):
    fill(store, 10)
    dispatch_all(store, make).close()
    before = ext_bytes(store)
    store.crash()
    recover(store, replace(WITH_EXT, ext_enabled=enabled), make)
    assert real_codes(store) == wanted_codes(store)
    if enabled:
        assert ext_bytes(store) == before
    else:
        assert not any(map(is_ext_address, (unit.tags_code for unit in units_of(store))))


@makers
def test_ext_units_that_a_power_cut_took_are_written_again(store, make):
    fill(store, 10)
    dispatch_all(store, make).close()
    for name in ext_names(store):
        (store.paths.queue_ext("TopicA", 0) / name).write_bytes(bytes(EXT_FILE_SIZE))
    store.crash()
    recover(store, make=make)
    assert real_codes(store) == wanted_codes(store)


@makers
def test_a_queue_whose_tail_is_cut_takes_its_ext_units_with_it(store, make):
    fill(store, 7)
    dispatch_all(store, make).close()
    torn = store.records[-2]
    store.flip(torn.physical_offset + 4)
    recover(store, make=make)
    assert real_codes(store) == wanted_codes(store)[:5]
    assert ext_bytes(store)[100 + 20 :] == bytes(80)
    del store.records[5:]
    store.end = torn.physical_offset
    store.next_offsets[("TopicA", 0)] = 5
    fill(store, 3)
    dispatch_all(store, make).close()
    assert real_codes(store) == wanted_codes(store)


def test_an_ext_file_of_another_length_stops_the_start_only_when_such_files_are_written(store):
    fill(store, 2)
    dispatch_all(store).close()
    os.truncate(store.paths.queue_ext("TopicA", 0) / file_name(0), 77)
    with pytest.raises(CorruptFileError, match="77 bytes, wanted 100"):
        recover(store)
    recover(store, replace(WITH_EXT, ext_enabled=False))
    assert real_codes(store) == [unit.tags_code for unit in units_of(store)]


def test_a_lost_commit_log_takes_the_ext_files_with_it(store):
    fill(store, 6)
    dispatch_all(store).close()
    for path in store.paths.commit_log.iterdir():
        path.unlink()
    recover(store)
    assert ext_names(store) == []


# Cleaning and reading


def test_ext_files_go_with_the_units_that_name_them(store):
    fill(store, 30)
    dispatch_all(store).close()
    queue = queue_of(store)
    kept = store.records[13].physical_offset
    assert clean_consume_queues([queue], kept) == {("TopicA", 0): 13}
    queue.close()
    assert ext_names(store) == [file_name(start) for start in range(300, 800, 100)]
    after = queue_of(store)
    assert [after.ext.look_up(unit.tags_code).tags_code for unit in units_of(store)[3:]] == wanted_codes(store)[13:]
    clean_consume_queues([after], store.end)
    after.close()
    assert ext_names(store)[-1] == file_name(700)


def test_readers_see_the_codes_behind_the_addresses(store):
    fill(store, 3)
    dispatch_all(store, geometry=replace(WITH_EXT, ext_enabled=False)).close()
    fill(store, 7)
    dispatch_all(store).close()
    result = recover(store, replace(WITH_EXT, ext_enabled=False))
    reader = MessageStoreReader(store.paths, WITH_EXT, result.watermarks())
    units = [Unit(*row.item()) for row in reader.read_units("TopicA", 0, 0, 10)]
    assert [
        unit.tags_code if (ext := reader.ext_unit("TopicA", 0, unit.tags_code)) is None else ext.tags_code
        for unit in units
    ] == wanted_codes(store)
    reader.close()
    with StoreReader(store.paths.root) as public:
        queue = public.queue("TopicA", 0)
        assert queue.tags_codes(queue.units()).tolist() == wanted_codes(store)
        (batch,) = public.batches(["queue_offset"], tags=["T8"])
        assert batch.to_dict()["queue_offset"].tolist() == [8]
    for name in ext_names(store):
        (store.paths.queue_ext("TopicA", 0) / name).unlink()
    with StoreReader(store.paths.root) as public:
        queue = public.queue("TopicA", 0)
        codes = queue.tags_codes(queue.units()).tolist()
        assert codes[:3] == wanted_codes(store)[:3]
        assert all(map(is_ext_address, codes[3:]))
