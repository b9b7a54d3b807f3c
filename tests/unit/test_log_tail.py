"""Queue offsets of records that are not dispatched yet, as who takes a master's place must know them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fast_rig import shared_segment
from store_builder import StoreBuilder

from mqcore import layout
from mqcore._fast.log.append import CommitLogWriter
from mqcore._fast.queues.log_tail import LogTail
from mqcore._fast.segment.boards import SharedSegment
from mqcore._fast.segment.offsets import take_changed_offsets
from mqcore.codes import SysFlag
from mqcore.errors import StoreError

FLAG = layout.constants("StoreFlag")
ROLE = layout.constants("HaRole")
GATE = layout.constants("ReadGate")


@pytest.fixture
def segment() -> Iterator[SharedSegment]:
    with shared_segment() as made:
        yield made


@pytest.fixture
def store(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "store")


def tail_of(store: StoreBuilder, segment: SharedSegment, start: int = 0) -> dict[tuple[bytes, int], int]:
    """Next offsets by topic and queue id, of the records from *start* on."""
    tail = LogTail(store.paths, store.geometry)
    tail.attach(segment)
    for offset, data in store.runs():
        if offset + len(data) > start:
            skipped = max(0, start - offset)
            assert tail.dispatch(data[skipped:], offset + skipped).consumed == len(data) - skipped
    found = {segment.queue_key(row): next_offset for row, next_offset in tail.next_offsets()}
    tail.close()
    return found


def test_queues_go_on_behind_their_records_over_files(store: StoreBuilder, segment: SharedSegment) -> None:
    store.append_many(61)
    store.append("Other", 3, queue_offset=900)
    assert tail_of(store, segment) == {(b"TopicA", 0): 31, (b"TopicA", 1): 30, (b"Other", 3): 901}
    assert not any(store.paths.consume_queue.iterdir()), "nothing is written"


def test_records_in_front_of_the_tail_are_not_asked(store: StoreBuilder, segment: SharedSegment) -> None:
    store.append("Before", 0)
    start = store.append("After", 0, queue_offset=7).physical_offset
    assert tail_of(store, segment, start) == {(b"After", 0): 8}


def test_what_is_passed_over_when_it_is_dispatched_counts_for_nothing(
    store: StoreBuilder, segment: SharedSegment
) -> None:
    store.append("TopicA", 0, sys_flag=int(SysFlag.TRANSACTION_PREPARED))
    store.append("TopicA", 0, sys_flag=int(SysFlag.TRANSACTION_ROLLBACK))
    store.append("TopicB", 0, queue_offset=50)
    born = store.end
    store.append("TopicB", 0, queue_offset=2)
    segment.set_queue_word(segment.queue_row(b"TopicB", 0, True), "born", born)
    assert tail_of(store, segment) == {(b"TopicB", 0): 3}


def test_an_epoch_begins_above_units_and_records_and_behind_half_a_record(
    store: StoreBuilder, segment: SharedSegment
) -> None:
    last = store.append_many(3)[-1]
    half = store.append_many(1)[0]
    store.write(half.physical_offset + 50, bytes(half.total_size - 50))
    end = last.physical_offset + last.total_size
    rows = [segment.queue_row(b"TopicA", number, True) for number in range(3)]
    segment.fill_queue(rows[1], 0, 0, 40, end)
    segment.set_queue_word(rows[2], "next_offset", ~5)
    segment.set("wrote_offset", end)
    segment.set("received_offset", end + 50)
    segment.set_flags(FLAG["SLAVE"])
    writer = writer_of(store, segment)
    assert writer.begin_epoch(9, [(rows[0], 12), (rows[1], 12), (rows[2], 12)]) == end
    assert [segment.queue_word(row, "next_offset") for row in rows] == [12, 40, ~5], "a dropped queue begins anew"
    assert [segment.get(name) for name in ("epoch_start", "ha_term", "ha_role")] == [end, 9, ROLE["MASTER"]]
    assert not segment.get("store_flags") & FLAG["SLAVE"]
    assert not any(store.log_bytes(end, end + 50))


@pytest.mark.parametrize("may_lack", [False, True])
def test_no_group_stands_behind_the_end_of_a_queue_when_an_epoch_begins(
    store: StoreBuilder, segment: SharedSegment, may_lack: bool
) -> None:
    offsets = {}
    for number, committed in enumerate((11, 12, 15)):
        segment.queue_row(b"TopicA", number, True)
        offsets[number] = segment.offset_row(b"g", b"TopicA", number, True)
        segment.commit(offsets[number], committed)
        segment.set_offset_word(offsets[number], "pull_offset", committed)
    segment.set("wrote_offset", store.end)
    segment.set("keeps_metadata", 1)
    tail = [(segment.queue_row(b"TopicA", number), 12) for number in range(3)]
    writer_of(store, segment).begin_epoch(9, tail, may_lack)
    assert [segment.committed(row) for row in offsets.values()] == [11, 12, 12]
    assert [segment.offset_word(row, "pull_offset") for row in offsets.values()] == [11, 12, 12]
    changed = take_changed_offsets(segment)
    assert changed.part(0, len(changed)) == [(b"g", b"TopicA", 2, 12)], "the others are told"
    assert (segment.get("doubts_until") > 0) is may_lack
    assert [segment.queue_word(segment.queue_row(b"TopicA", 0), name) for name in ("epoch_offset", "doubt_offset")] == [
        12, 12,
    ]  # fmt: skip


@pytest.mark.parametrize("waits_for_nobody", [False, True])
def test_who_waits_for_nobody_lets_all_of_its_log_be_read_when_it_leads(
    store: StoreBuilder, segment: SharedSegment, waits_for_nobody: bool
) -> None:
    end = store.append_many(3)[-1].physical_offset
    segment.set("wrote_offset", end)
    segment.set("read_gates", GATE["CONFIRMED"])
    writer_of(store, segment).begin_epoch(9, [], waits_for_nobody=waits_for_nobody)
    assert segment.get("readable_offset") == (end if waits_for_nobody else 0)
    assert segment.get("read_gates") == (0 if waits_for_nobody else GATE["CONFIRMED"])


@pytest.mark.parametrize(("has_some_of_it", "doubt_offset"), [(False, 5), (True, 12)])
def test_who_leads_next_goes_on_with_the_doubts_of_the_master_that_it_has_followed(
    store: StoreBuilder, segment: SharedSegment, has_some_of_it: bool, doubt_offset: int
) -> None:
    row = segment.queue_row(b"TopicA", 0, True)
    segment.set_queue_word(row, "max_offset", 5)
    segment.doubt(60_000, has_some_of_it)
    until = segment.get("doubts_until")
    segment.set("wrote_offset", store.end)
    writer_of(store, segment).begin_epoch(9, [(row, 12)])
    assert [segment.queue_word(row, name) for name in ("epoch_offset", "doubt_offset")] == [12, doubt_offset]
    assert segment.get("doubts_until") == until > 0


def writer_of(store: StoreBuilder, segment: SharedSegment) -> CommitLogWriter:
    return CommitLogWriter(segment, str(store.paths.commit_log), store.geometry.commit_log_file_size, 4096)


def test_a_tail_that_fits_on_no_board_is_an_error(store: StoreBuilder, segment: SharedSegment) -> None:
    for number in range(layout.TOPIC_CAPACITY):
        segment.topic_row(b"t%d" % number, True)
    store.append("OneMore", 0)
    with pytest.raises((StoreError, OSError), match="board of queues"):
        tail_of(store, segment)
