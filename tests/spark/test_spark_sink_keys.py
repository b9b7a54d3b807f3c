"""Keys that come again, and the guard against repeats."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcore.errors import ConfigError
from mqcore.protocol.message_id import unique_id_time_ms
from mqcore.spark.repeats import UNSEEN, RepeatGuard, Seen
from mqcore.spark.sink_keys import (
    BATCHES_MAX,
    ID_LENGTH,
    PARTITIONS_MAX,
    ROWS_MAX,
    WAYS,
    RandomKeys,
    RowKeys,
    parse_keys,
    query_of,
)

LAYOUT = ["broker-a", 4]
A, B = RowKeys("query", 1, 0).ids(0, LAYOUT), RowKeys("query", 1, 1).ids(0, LAYOUT)
LATER = RowKeys("query", 2, 0).ids(0, LAYOUT)


def guard() -> RepeatGuard:
    return RepeatGuard(lambda query, batch: UNSEEN)


def kept(guard: RepeatGuard, ids: list[str | None]) -> list[str | None]:
    chosen = guard.first_copies(pa.array(ids, pa.string()))
    return ids if chosen is None else [one for one, is_kept in zip(ids, chosen, strict=True) if is_kept]


def test_a_key_names_query_batch_task_layout_and_row_and_reads_as_an_id() -> None:
    ids = [
        keys.ids(way, layout).of(row)
        for keys in (RowKeys("query", 1, 0), RowKeys("query", 0, 1), RowKeys("other", 1, 0), RowKeys("query", 1, 1))
        for way in range(WAYS)
        for layout in (LAYOUT, [*LAYOUT, 5])
        for row in (0, 1, ROWS_MAX - 1)
    ]
    assert len(set(ids)) == len(ids)
    assert all(len(one) == ID_LENGTH for one in ids)
    assert RowKeys("query", 1, 0).ids(0, LAYOUT) == A
    assert unique_id_time_ms(A.of(5), 1_700_000_000_000) <= 1_700_000_000_000


@given(
    query=st.text(max_size=20), batch=st.integers(0, BATCHES_MAX - 1), partition=st.integers(0, PARTITIONS_MAX - 1),
    way=st.integers(0, WAYS - 1), row=st.integers(0, ROWS_MAX - 1), layout=st.integers(),
)  # fmt: skip
def test_a_key_is_read_back_as_it_was_made(
    query: str, batch: int, partition: int, way: int, row: int, layout: int
) -> None:
    ids = RowKeys(query, batch, partition).ids(way, [layout])
    keys = parse_keys(pa.array([None, ids.of(0), "7F000001" * 4, ids.of(row)]))
    assert keys is not None
    assert keys.places.tolist() == [1, 3]
    assert keys.queries.tolist() == [query_of(query)] * 2
    assert keys.batches.tolist() == [batch] * 2
    assert keys.lanes[0] == keys.lanes[1]
    assert keys.lanes[0] >> 16 == partition * WAYS + way
    assert keys.rows.tolist() == [0, row]


@pytest.mark.parametrize(("batch", "partition"), [(-1, 0), (BATCHES_MAX, 0), (0, -1), (0, PARTITIONS_MAX)])
def test_a_batch_or_partition_that_no_key_can_hold_is_refused(batch: int, partition: int) -> None:
    with pytest.raises(ConfigError, match=r"option dedup: got (micro-batch|partition) -?\d+, wanted one below \d+"):
        RowKeys("query", batch, partition)


def test_random_ids_are_no_keys() -> None:
    assert parse_keys(pa.array([RandomKeys().ids(0, []).of(row) for row in range(3)])) is None


def test_repeats_are_dropped_within_and_across_record_batches() -> None:
    one = guard()
    assert kept(one, [A.of(0), B.of(0), A.of(1), A.of(0)]) == [A.of(0), B.of(0), A.of(1)]
    assert kept(one, [A.of(1), B.of(1), A.of(7)]) == [B.of(1), A.of(7)]


def test_rows_of_a_batch_that_is_over_are_repeats() -> None:
    one = guard()
    assert kept(one, [A.of(0), LATER.of(0), A.of(1), LATER.of(1), B.of(9)]) == [A.of(0), LATER.of(0), LATER.of(1)]
    assert kept(one, [B.of(0), LATER.of(0), LATER.of(2)]) == [LATER.of(2)]


def test_what_was_seen_before_is_asked_for_once_and_counts() -> None:
    asked = []

    def seen_before(query: int, batch: int) -> Seen:
        asked.append((query, batch))
        keys = parse_keys(pa.array([A.of(3)]))
        assert keys is not None
        return Seen(1, {int(keys.lanes[0]): 3})

    one = RepeatGuard(seen_before)
    assert kept(one, ["7F000001" * 4]) == ["7F000001" * 4]
    assert asked == []
    assert kept(one, [A.of(2), A.of(3), B.of(0), A.of(4), A.of(3)]) == [B.of(0), A.of(4)]
    assert kept(one, [A.of(4), A.of(5)]) == [A.of(5)]
    assert asked == [(query_of("query"), 1)]


def test_ids_of_other_senders_are_never_dropped() -> None:
    old_mark = A.of(0)[:-4] + "5350"
    others: list[str | None] = [
        "7F000001" * 4, None, "", "7F000001" * 7, "x" * ID_LENGTH, old_mark, "g" + A.of(0)[1:], A.of(10).lower(),
    ]  # fmt: skip
    one = guard()
    assert kept(one, others) == others
    assert kept(one, others) == others


@given(size=st.sampled_from([1, 3, 100]), data=st.data())
def test_attempts_that_broke_off_leave_each_row_once(size: int, data: st.DataObject) -> None:
    # Each attempt sends rows 0, 1, 2 ... and breaks off somewhere; the last one gets through. They may overlap.
    ends = [*data.draw(st.lists(st.integers(0, 20), max_size=4)), 20]
    attempts = [[A.of(row) for row in range(end)] for end in ends]
    stream: list[str | None] = []
    while any(attempts):
        source = data.draw(st.sampled_from([attempt for attempt in attempts if attempt]))
        stream.append(source.pop(0))
    one = guard()
    got = [row for at in range(0, len(stream), size) for row in kept(one, stream[at : at + size])]
    assert got == [A.of(row) for row in range(20)]
