"""The shared segment: rows found and made by anyone, told apart, never moved, whoever dies over them."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest
from fast_rig import Mortals, RawSegment, mortals, shared_segment
from hypothesis import given
from hypothesis import strategies as st

from mqcore import layout
from mqcore._fast.segment.boards import SharedSegment
from mqcore.errors import StoreError

STORE_FLAG = layout.constants("StoreFlag")
TOPIC_WORD = layout.constants("TopicWord")
KIND = layout.constants("WorkerKind")
HA_ROLE = layout.constants("HaRole")
NONE = -1


@pytest.fixture
def segment() -> Iterator[SharedSegment]:
    with shared_segment() as made:
        yield made


@pytest.fixture
def raw(segment: SharedSegment) -> RawSegment:
    return RawSegment(segment.fd)


@pytest.fixture(scope="module")
def children() -> Iterator[Mortals]:
    with mortals() as found:
        yield found


# The segment -----------------------------------------------------------------------------------------------------


def test_a_second_mapping_sees_the_same_memory(segment: SharedSegment) -> None:
    other = SharedSegment.attach(segment.fd)
    other.set("wrote_offset", 4711)
    row = other.queue_row(b"orders", 3, True)
    assert segment.get("wrote_offset") == 4711
    assert segment.queue_row(b"orders", 3) == row


def test_a_segment_of_another_size_or_version_is_refused() -> None:
    fd = os.memfd_create("other", os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, 4096)
        with pytest.raises(StoreError, match="got 4096 bytes, wanted"):
            SharedSegment.attach(fd)
        os.ftruncate(fd, layout.region_offsets()["end"])
        with pytest.raises(StoreError, match="magic"):
            SharedSegment.attach(fd)
    finally:
        os.close(fd)


def test_words_of_the_board_are_where_the_table_says(segment: SharedSegment, raw: RawSegment) -> None:
    fields = [field.name for field in layout.STORE_BOARD.fields if field.code == "q" and field.name != "magic"]
    for number, name in enumerate(fields):
        segment.set(name, 1000 + number)
    assert [int(raw.board[name]) for name in fields] == [1000 + number for number in range(len(fields))]
    assert raw.board["magic"] == layout.SHARED_MAGIC
    assert segment.add("put_times", 5) == segment.get("put_times")


def test_a_failed_sync_is_never_cleared(segment: SharedSegment) -> None:
    segment.set_flags(STORE_FLAG["SYNC_FAILED"] | STORE_FLAG["DISK_FULL"])
    assert segment.clear_flags(STORE_FLAG["SYNC_FAILED"] | STORE_FLAG["DISK_FULL"]) == STORE_FLAG["SYNC_FAILED"]


def test_the_first_failure_is_the_one_that_is_kept(segment: SharedSegment) -> None:
    assert segment.failure() is None
    segment.fail(STORE_FLAG["SYNC_FAILED"], 5, KIND["FLUSH"], 4096)
    segment.fail(STORE_FLAG["NOT_WRITABLE"], 28, KIND["SEND"], 8192)
    assert segment.failure() == (5, KIND["FLUSH"], 4096)
    assert segment.get("store_flags") == STORE_FLAG["SYNC_FAILED"] | STORE_FLAG["NOT_WRITABLE"]


def test_the_store_host_has_4_or_16_bytes(segment: SharedSegment, raw: RawSegment) -> None:
    segment.set_store_host(bytes(range(16)), 10911)
    assert (int(raw.board["store_host_size"]), int(raw.board["store_host_port"])) == (16, 10911)
    assert bytes(raw.board["store_host"]) == bytes(range(16))
    with pytest.raises(ValueError, match="got 5 address bytes"):
        segment.set_store_host(b"12345", 10911)


def test_a_worker_has_a_row_of_its_own(segment: SharedSegment) -> None:
    segment.describe_worker(2, KIND["PULL"], 1)
    segment.set_worker_word(2, "heartbeat", 99)
    assert segment.worker_word(2, "heartbeat") == 99
    assert segment.worker_word(1, "heartbeat") == segment.worker_word(3, "heartbeat") == 0
    for row in (-1, layout.WORKER_CAPACITY):
        with pytest.raises(IndexError, match=f"worker row {row}"):
            segment.worker_word(row, "heartbeat")
        with pytest.raises(IndexError, match=f"worker row {row}"):
            segment.set_worker_word(row, "heartbeat", 1)


# Topics and queues -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [b"t", b"t" * 127, "тема%RETRY%é".encode()])
def test_a_topic_is_found_once_it_is_made(segment: SharedSegment, name: bytes) -> None:
    assert segment.topic_row(name) == NONE
    row = segment.topic_row(name, True)
    assert segment.topic_row(name) == segment.topic_row(name, True) == row
    assert segment.topic_name(row) == name
    assert segment.topic_row(name[:-1]) == segment.topic_row(name + b"x") == NONE
    assert segment.topic_count() == 1


@pytest.mark.parametrize("name", [b"", b"t" * 128, b"t" * 1000])
def test_a_topic_that_no_record_can_have_gets_no_row(segment: SharedSegment, name: bytes) -> None:
    with pytest.raises(StoreError, match="at most 127 bytes"):
        segment.topic_row(name, True)
    assert segment.topic_count() == 0


@given(
    perm=st.integers(0, 255),
    reads=st.integers(0, 20),
    writes=st.integers(0, 20),
    sendable=st.booleans(),
    multi_tag=st.booleans(),
)
def test_a_topic_is_published_in_one_word(perm: int, reads: int, writes: int, sendable: bool, multi_tag: bool) -> None:
    with shared_segment() as segment:
        segment.publish_topic(b"orders", perm, reads, writes, sendable, multi_tag)
        word = int(RawSegment(segment.fd).rows("topics")["config"][segment.topic_row(b"orders")])
        assert (
            word & 0xFF
            == TOPIC_WORD["EXISTS"] | TOPIC_WORD["SENDABLE"] * sendable | TOPIC_WORD["MULTI_TAG"] * multi_tag
        )
        assert word >> TOPIC_WORD["PERM_SHIFT"] & 0xFF == perm
        assert word >> TOPIC_WORD["READ_SHIFT"] & 0xFFFF == reads
        assert word >> TOPIC_WORD["WRITE_SHIFT"] & 0xFFFF == writes
        assert segment.queue_count() == max(reads, writes)


def test_a_removed_topic_is_hidden_and_keeps_its_rows(segment: SharedSegment, raw: RawSegment) -> None:
    segment.publish_topic(b"orders", 6, 4, 4, True, False)
    row = segment.topic_row(b"orders")
    segment.remove_topic(b"orders")
    segment.remove_topic(b"never seen")
    assert raw.rows("topics")["config"][row] == 0
    assert (segment.topic_row(b"orders"), segment.queue_count()) == (row, 4)
    segment.publish_topic(b"orders", 6, 4, 4, True, False)
    assert segment.queue_count() == 4


def test_a_queue_has_words_of_its_own(segment: SharedSegment) -> None:
    first, second = segment.queue_row(b"orders", 0, True), segment.queue_row(b"orders", 1, True)
    segment.set_queue_word(first, "next_offset", 10)
    segment.set_queue_word(first, "max_offset", 9)
    segment.set_queue_word(first, "min_offset", 3)
    assert segment.queue_bounds(first) == (3, 9)
    assert segment.queue_word(first, "next_offset") == 10
    assert segment.queue_bounds(second) == (0, 0)
    assert segment.queue_key(second) == (b"orders", 1)


def test_a_negative_queue_gets_no_row(segment: SharedSegment) -> None:
    with pytest.raises(StoreError, match="queue board"):
        segment.queue_row(b"orders", -1, True)


@pytest.mark.parametrize(
    ("max_offset", "flushed", "least_pages", "is_listed"),
    [
        (10, 10, 0, False),
        (11, 10, 0, True),
        (204, 0, 1, False),
        (205, 0, 1, True),
        (205, 205, 1, False),
        (409, 205, 1, False),
    ],
)
def test_queues_with_enough_unflushed_pages_are_listed(
    segment: SharedSegment, max_offset: int, flushed: int, least_pages: int, is_listed: bool
) -> None:
    row = segment.queue_row(b"orders", 0, True)
    segment.set_queue_word(row, "max_offset", max_offset)
    segment.set_queue_word(row, "flushed_units", flushed)
    assert segment.unflushed_queues(least_pages) == ([row] if is_listed else [])


# Groups and offsets ----------------------------------------------------------------------------------------------


def test_an_offset_is_none_until_it_is_committed(segment: SharedSegment) -> None:
    assert segment.offset_row(b"billing", b"orders", 2) == NONE
    row = segment.offset_row(b"billing", b"orders", 2, True)
    assert segment.committed(row) == -1
    segment.commit(row, 42)
    assert segment.committed(segment.offset_row(b"billing", b"orders", 2)) == 42
    assert segment.offset_key(row) == (b"billing", b"orders", 2)
    assert segment.offset_word(row, "get_nums") == 0


def test_offsets_are_told_apart_by_group_topic_and_queue(segment: SharedSegment) -> None:
    keys = [(b"a", b"t", 0), (b"a", b"t", 1), (b"b", b"t", 0), (b"a", b"u", 0), (b"at", b"t", 0)]
    for number, key in enumerate(keys):
        segment.commit(segment.offset_row(*key, True), number)
    assert [segment.committed(segment.offset_row(*key)) for key in keys] == list(range(len(keys)))


@pytest.mark.parametrize("name", [b"", b"g" * 257])
def test_a_group_that_is_empty_or_too_long_gets_no_row(segment: SharedSegment, name: bytes) -> None:
    with pytest.raises(StoreError, match="at most 256 bytes"):
        segment.offset_row(name, b"orders", 0, True)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"g", b"gg", b"h" * 256]), st.sampled_from([b"t", b"tt", b"u" * 127]), st.integers(0, 40)
        ),
        max_size=60,
    )
)
def test_rows_are_a_map_from_keys(keys: list[tuple[bytes, bytes, int]]) -> None:
    with shared_segment() as segment:
        rows = {key: segment.offset_row(*key, True) for key in keys}
        assert sorted(rows.values()) == list(range(len(rows))) == list(range(segment.offset_count()))
        assert {segment.offset_key(row): row for row in range(segment.offset_count())} == rows
        assert {key: segment.offset_row(*key) for key in keys} == rows


def test_thousands_of_rows_are_found(segment: SharedSegment) -> None:
    keys = [(b"group-%d" % (number % 50), b"topic-%d" % (number // 8 % 500), number % 8) for number in range(4000)]
    rows = [segment.offset_row(*key, True) for key in keys]
    assert rows == [segment.offset_row(*key) for key in keys]
    assert len(set(keys)) == segment.offset_count()


# Epochs ------------------------------------------------------------------------------------------------------------

NAMES = [b"", *(b"name %d" % number for number in range(5_000)), "grün".encode(), b"x" * 255]


@pytest.mark.parametrize("kind", ["topic", "group"])
def test_an_epoch_grows_for_its_name_and_hardly_any_other(segment: SharedSegment, raw: RawSegment, kind: str) -> None:
    bump = segment.bump_topic if kind == "topic" else segment.bump_group

    def epochs() -> list[int]:
        return [segment.pull_epoch(*((name, b"g") if kind == "topic" else (b"t", name))) for name in NAMES]

    before = epochs()
    bump(NAMES[7])
    grown = [name for name, old, new in zip(NAMES, before, epochs(), strict=True) if new > old]
    assert NAMES[7] in grown
    assert len(grown) <= 5, "names share rows far more often than chance makes them"
    assert epochs() == epochs()
    assert int(raw.rows(f"{kind}_epochs")["epoch"].sum()) == 1


def test_every_name_has_epochs_without_a_row_of_its_own(segment: SharedSegment) -> None:
    for name in NAMES:
        before = segment.pull_epoch(name, b"g"), segment.pull_epoch(b"t", name)
        segment.bump_topic(name)
        assert segment.pull_epoch(name, b"g") > before[0]
        segment.bump_group(name)
        assert segment.pull_epoch(b"t", name) > before[1]
    assert segment.topic_count() == 0


def test_a_common_change_makes_every_epoch_grow(segment: SharedSegment) -> None:
    before = [segment.pull_epoch(name, name) for name in NAMES]
    segment.add("config_epoch", 1)
    assert [segment.pull_epoch(name, name) for name in NAMES] == [epoch + 1 for epoch in before]


# A full board ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "capacity", "message"),
    [
        ("topic_rows", layout.TOPIC_CAPACITY, "topic board"),
        ("queue_rows", layout.QUEUE_CAPACITY, "queue board"),
        ("group_rows", layout.GROUP_CAPACITY, "group board"),
        ("offset_rows", layout.OFFSET_CAPACITY, "offset table"),
    ],
)
def test_a_full_board_refuses_new_keys_and_serves_old_ones(
    segment: SharedSegment, raw: RawSegment, count: str, capacity: int, message: str
) -> None:
    old = segment.offset_row(b"billing", b"orders", 0, True)
    raw.board[count] = capacity - 1
    # One of each still fits.
    segment.offset_row(b"last", b"last", 7, True)
    assert int(raw.board[count]) == capacity
    with pytest.raises(StoreError, match=message):
        segment.offset_row(b"more", b"more", 8, True)
    assert segment.offset_row(b"billing", b"orders", 0, True) == old
    assert int(raw.board[count]) == capacity


# Several processes, and dying ones -------------------------------------------------------------------------------


def test_processes_that_make_the_same_rows_agree(
    segment: SharedSegment, children: Mortals, chance: random.Random
) -> None:
    seeds = [chance.randrange(1 << 31) for _ in range(3)]
    assert children.run(segment, "make_rows", seeds=seeds, topics=40, queues=25) == [0, 0, 0]
    assert (segment.topic_count(), segment.queue_count(), segment.offset_count()) == (40, 1000, 1000)
    wanted = {(b"group-%d" % (topic % 7), b"topic-%d" % topic, queue) for topic in range(40) for queue in range(25)}
    assert {segment.offset_key(row) for row in range(1000)} == wanted
    assert sorted(segment.offset_row(*key) for key in wanted) == list(range(1000))


NEW_ROWS = {
    "topics": ("topic_rows", {"name_size": 6, "name": "orders", "config": 0}),
    "queues": ("queue_rows", {"queue_id": 5, "topic_row": 0}),
    "groups": ("group_rows", {"name_size": 7, "name": "billing"}),
    "offsets": ("offset_rows", {"committed": -1, "group_row": 0, "queue_row": 2}),
}


@pytest.mark.parametrize("moment", ["locked", "half filled", "filled", "counted"])
@pytest.mark.parametrize("region", NEW_ROWS)
def test_a_process_killed_over_a_new_row_leaves_a_whole_board(
    segment: SharedSegment, children: Mortals, region: str, moment: str
) -> None:
    old = segment.offset_row(b"old", b"old", 0, True), segment.offset_row(b"old", b"old", 1, True)
    count, keys = NEW_ROWS[region]
    if region == "offsets":
        assert segment.queue_row(b"old", 5, True) == keys["queue_row"]
    killed = children.run(segment, "hold_board_lock", region=region, keys=keys, count=count, moment=moment)
    assert killed == [-9]
    # The next one inherits the lock, and every key has one row, also the one that the dead process had begun.
    wanted = {
        (b"old", b"old", 0), (b"old", b"old", 1), (b"old", b"old", 5), (b"billing", b"old", 0), (b"old", b"orders", 0),
        (b"billing", b"orders", 5),
    }  # fmt: skip
    rows = {key: segment.offset_row(*key, True) for key in sorted(wanted)}
    assert (segment.offset_row(b"old", b"old", 0), segment.offset_row(b"old", b"old", 1)) == old
    assert {segment.offset_key(row): row for row in range(segment.offset_count())} == rows
    assert {segment.topic_name(row) for row in range(segment.topic_count())} == {b"old", b"orders"}
    assert segment.topic_count() == 2
    queues = [segment.queue_key(row) for row in range(segment.queue_count())]
    assert sorted(queues) == [(b"old", 0), (b"old", 1), (b"old", 5), (b"orders", 0), (b"orders", 5)]
    assert all(segment.committed(row) == -1 for row in rows.values())


def test_a_row_that_counts_is_whole(segment: SharedSegment, children: Mortals, chance: random.Random) -> None:
    # Who walks the rows while others make them must not meet one without its key: its offset would be another's.
    children.begin(segment, "make_rows", seeds=[chance.randrange(1 << 31)], topics=60, queues=60)
    seen: set[tuple[bytes, bytes, int]] = set()
    row = 0
    while row < 3600:
        while row < segment.offset_count():
            assert segment.committed(row) == -1
            seen.add(segment.offset_key(row))
            row += 1
    assert children.finish() == [0]
    assert len(seen) == 3600


# Replicas --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", [b"\x7f\0\0\1", bytes(range(16))])
def test_where_the_master_is_can_be_told_and_told_anew(segment: SharedSegment, address: bytes) -> None:
    segment.set_master(b"\x0a\0\0\1", 1)
    segment.set_master(address, 10912, 4096)
    assert segment.master() == (4, address, 10912, 4096, 0)
    segment.add("master_version", 1)
    assert segment.master() is None, "somebody is writing it"


def test_a_masters_address_has_the_size_of_one(segment: SharedSegment) -> None:
    with pytest.raises(ValueError, match="got 5 address bytes"):
        segment.set_master(b"12345", 10912)
    assert segment.master() == (0, b"", 0, 0, 0)


def test_a_slave_of_a_group_is_told_the_term_with_its_master(segment: SharedSegment) -> None:
    segment.set_master(b"\x0a\0\0\1", 10912, 0, term=7)
    assert segment.master() == (2, b"\x0a\0\0\1", 10912, 0, 7)
    assert segment.get("ha_role") == HA_ROLE["SLAVE"]


def test_a_master_can_be_forgotten(segment: SharedSegment) -> None:
    segment.set_master(b"\x0a\0\0\1", 10912, 0, term=7)
    assert segment.forget_master() == 4
    assert segment.master() == (4, b"\x0a\0\0\1", 0, 0, 7)
    assert segment.get("ha_role") == HA_ROLE["NONE"]


def test_the_required_set_is_written_between_two_versions(segment: SharedSegment) -> None:
    segment.require(3, 0b101)
    words = ("required_version", "required_generation", "required_members")
    assert [segment.get(word) for word in words] == [2, 3, 0b101]


@pytest.mark.parametrize("member", [-1, layout.GROUP_MEMBERS_MAX])
def test_a_nonce_is_of_an_id_that_a_group_may_give(segment: SharedSegment, member: int) -> None:
    with pytest.raises(IndexError, match=f"member {member}: wanted 0 to 62"):
        segment.set_nonce(member, 1)
