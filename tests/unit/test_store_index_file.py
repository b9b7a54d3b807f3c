"""One index file: what is put under a key is found again; damaged files are survived. The same for both twins."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcore._fast.queues import index_file as fast
from mqcore.layout import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT
from mqcore.store.queues import index_file as plain
from mqcore.store.queues.index_file import IndexGeometry, IndexHeader
from tests.rows import walked

TWINS = [pytest.param(plain, id="python"), pytest.param(fast, id="cython")]
twins = pytest.mark.parametrize("twin", TWINS)

SMALL = IndexGeometry(slot_count=5, entry_count=20)
DAY = 86_400_000


def entry(data: bytes | bytearray, number: int) -> tuple[int, ...]:
    return INDEX_ENTRY.struct.unpack_from(data, SMALL.entry_position(number))


def slot(data: bytes | bytearray, key_hash: int) -> int:
    return INDEX_SLOT.struct.unpack_from(data, SMALL.slot_position(key_hash))[0]


@pytest.fixture
def data() -> bytearray:
    return bytearray(SMALL.file_size)


def test_the_default_file_has_420_000_040_bytes():
    assert IndexGeometry().file_size == 420_000_040


@twins
@pytest.mark.parametrize(
    ("topic", "key", "value"),
    [(b"TopicA", b"U1", 1903241331), (b"a", b"", 3042), (b"", b"", 35)],
)
def test_key_hash_is_the_absolute_value_of_javas(twin, topic, key, value):
    assert twin.key_hash(topic, key) == value


@twins
def test_the_smallest_hash_becomes_zero(twin):
    # hash("#" + text) = 35 * 31**n + hash(text): write what is missing to -2**31 in digits of base 31.
    rest = (-(1 << 31) - 35 * 31**7) % (1 << 32)
    units = []
    for power in range(6, -1, -1):
        units.append(min(0x7F, rest // 31**power))
        rest -= units[-1] * 31**power
    assert rest == 0
    key = "".join(map(chr, units)).encode()
    assert twin.key_hash(b"", key) == 0


@twins
def test_first_entry_begins_the_file(twin, data):
    assert twin.put(data, SMALL, 7, 1000, DAY)
    assert IndexHeader.read(data) == IndexHeader(DAY, DAY, 1000, 1000, 1, 2)
    assert slot(data, 7) == 1
    assert entry(data, 1) == (7, 1000, 0, 0)
    assert entry(data, 0) == (0, 0, 0, 0)


@twins
def test_entries_of_a_slot_are_chained_backwards(twin, data):
    for number, key_hash in enumerate((7, 2, 12, 3)):
        assert twin.put(data, SMALL, key_hash, 100 * number, DAY + 2500 * number)
    assert [entry(data, number) for number in (1, 2, 3, 4)] == [
        (7, 0, 0, 0),
        (2, 100, 2, 1),
        (12, 200, 5, 2),
        (3, 300, 7, 0),
    ]
    assert IndexHeader.read(data) == IndexHeader(DAY, DAY + 7500, 0, 300, 2, 5)
    assert slot(data, 7) == 3


@twins
def test_a_full_file_takes_nothing_more_and_does_not_change(twin, data):
    for number in range(1, SMALL.entry_count):
        assert twin.put(data, SMALL, number, number, DAY)
    before = bytes(data)
    assert not twin.put(data, SMALL, 1, 1, DAY)
    assert data == before


@twins
def test_a_key_is_found_newest_first(twin, data):
    for number in range(6):
        twin.put(data, SMALL, 7 if number % 2 else 12, number, DAY + 1000 * number)
    assert twin.query(data, SMALL, 7, 0, 2 * DAY, 64) == [5, 3, 1]
    assert twin.query(data, SMALL, 12, 0, 2 * DAY, 2) == [4, 2]
    assert twin.query(data, SMALL, 2, 0, 2 * DAY, 64) == []
    assert twin.query(data, SMALL, 7, 0, 2 * DAY, 0) == []


@twins
def test_store_times_count_in_whole_seconds_from_the_begin(twin, data):
    twin.put(data, SMALL, 7, 0, DAY)
    twin.put(data, SMALL, 7, 1, DAY + 1999)
    assert twin.query(data, SMALL, 7, DAY + 1000, DAY + 1000, 64) == [1]
    assert twin.query(data, SMALL, 7, DAY + 1001, DAY + 1999, 64) == []


@twins
def test_a_store_time_before_the_begin_counts_as_the_begin(twin, data):
    twin.put(data, SMALL, 7, 0, DAY)
    twin.put(data, SMALL, 7, 1, DAY - 5000)
    assert entry(data, 2)[2] == 0


@twins
def test_the_first_entry_of_a_follow_up_file_counts_from_where_the_last_file_ended(twin, data):
    IndexHeader(DAY, DAY, 500, 500, 0, 1).write(data)
    twin.put(data, SMALL, 7, 600, DAY + 4000)
    assert entry(data, 1) == (7, 600, 4, 0)
    assert IndexHeader.read(data) == IndexHeader(DAY + 4000, DAY + 4000, 600, 600, 1, 2)


@twins
@pytest.mark.parametrize("begin_timestamp", [0, -1])
def test_without_a_begin_time_the_difference_is_zero(twin, data, begin_timestamp):
    IndexHeader(begin_timestamp, 0, 0, 0, 0, 5).write(data)
    twin.put(data, SMALL, 7, 0, DAY)
    assert entry(data, 5)[2] == 0


@twins
def test_a_difference_of_many_years_is_capped(twin, data):
    IndexHeader(1, 0, 0, 0, 0, 5).write(data)
    twin.put(data, SMALL, 7, 0, 1 << 62)
    assert entry(data, 5)[2] == 0x7FFFFFFF


@twins
@pytest.mark.parametrize("stale", [-1, 0, 9, 0x7FFFFFFF])
def test_a_slot_that_cannot_be_right_counts_as_empty(twin, data, stale):
    INDEX_SLOT.struct.pack_into(data, SMALL.slot_position(7), stale)
    assert twin.query(data, SMALL, 7, 0, 2 * DAY, 64) == []
    twin.put(data, SMALL, 7, 42, DAY)
    assert entry(data, 1) == (7, 42, 0, 0)
    assert IndexHeader.read(data).used_slot_count == 1


@twins
@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [(0, 999, False), (0, 1000, True), (1500, 1500, True), (2000, 9000, True), (2001, 9000, False), (0, 9000, True)],
)
def test_a_file_covers_what_its_times_meet(twin, data, begin, end, expected):
    IndexHeader(1000, 2000, 0, 0, 0, 1).write(data)
    assert twin.covers(data, begin, end) is expected


@twins
def test_a_chain_that_does_not_fall_is_left(twin, data):
    for number in range(3):
        twin.put(data, SMALL, 7, number, DAY)
    position = SMALL.entry_position(1) + INDEX_ENTRY.offsets["previous_entry"]
    INDEX_SLOT.struct.pack_into(data, position, 3)
    assert twin.query(data, SMALL, 7, 0, 2 * DAY, 64) == [2, 1, 0]
    INDEX_SLOT.struct.pack_into(data, SMALL.entry_position(3) + INDEX_ENTRY.offsets["previous_entry"], 3)
    assert twin.query(data, SMALL, 7, 0, 2 * DAY, 64) == [2]


@twins
def test_an_entry_that_no_slot_leads_to_is_not_found_and_disturbs_nothing(twin, data):
    # A writer that died between the count and the slot.
    twin.put(data, SMALL, 7, 1, DAY)
    before = slot(data, 7)
    twin.put(data, SMALL, 7, 2, DAY)
    INDEX_SLOT.struct.pack_into(data, SMALL.slot_position(7), before)
    assert twin.query(data, SMALL, 7, 0, 2 * DAY, 64) == [1]
    twin.put(data, SMALL, 7, 2, DAY)
    assert twin.query(data, SMALL, 7, 0, 2 * DAY, 64) == [2, 1]


@twins
def test_a_buffer_of_another_geometry_is_refused(twin, data):
    with pytest.raises(ValueError, match=f"wanted {SMALL.file_size}"):
        twin.put(data[:-1], SMALL, 1, 1, 1)
    with pytest.raises(ValueError, match="index file"):
        twin.query(data[:-1], SMALL, 1, 1, 1, 1)
    with pytest.raises(ValueError, match="key hash"):
        twin.put(data, SMALL, -1, 1, 1)


def test_a_geometry_without_room_is_refused():
    with pytest.raises(ValueError, match="at least one slot"):
        IndexGeometry(slot_count=0, entry_count=20)


puts = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 1 << 40), st.integers(0, DAY)), max_size=25)


@given(puts=puts)
def test_both_twins_write_the_same_file_and_find_every_entry(puts):
    one, other = bytearray(SMALL.file_size), bytearray(SMALL.file_size)
    for put in puts:
        assert plain.put(one, SMALL, *put) == fast.put(other, SMALL, *put)
    assert one == other
    for key_hash in range(13):
        stored = [put[1] for put in puts[: SMALL.entry_count - 1] if put[0] == key_hash]
        found = fast.query(other, SMALL, key_hash, -(1 << 60), 1 << 60, 64)
        assert found == plain.query(one, SMALL, key_hash, -(1 << 60), 1 << 60, 64) == stored[::-1]


@walked("round_number", range(300))
def test_both_twins_survive_a_damaged_file_alike(round_number, chance):
    data = bytearray(SMALL.file_size)
    for number in range(15):
        plain.put(data, SMALL, chance.randrange(13), number, DAY + number * 1000)
    for _ in range(chance.randint(1, 12)):
        at = chance.randrange(INDEX_HEADER.size // 2, len(data))
        data[at] = chance.choice((0, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    copy = bytearray(data)
    for key_hash in range(13):
        found = fast.query(data, SMALL, key_hash, 0, 1 << 60, 64)
        assert found == plain.query(data, SMALL, key_hash, 0, 1 << 60, 64)
        assert len(found) < SMALL.entry_count
    assert plain.put(data, SMALL, 3, 1, DAY) == fast.put(copy, SMALL, 3, 1, DAY)
    assert data == copy
