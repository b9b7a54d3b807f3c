"""Keys that come again, and the guard against repeats."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcore.protocol.message_id import unique_id_time_ms
from mqcore.spark.sink_keys import ID_LENGTH, RepeatGuard, key_prefix, row_key

A, B = key_prefix("query", 1, 0), key_prefix("query", 1, 1)


def kept(guard: RepeatGuard, ids: list[str | None]) -> list[str | None]:
    chosen = guard.first_copies(pa.array(ids, pa.string()))
    return ids if chosen is None else [one for one, is_kept in zip(ids, chosen, strict=True) if is_kept]


def test_a_key_names_query_batch_partition_and_row_and_reads_as_an_id() -> None:
    others = {key_prefix(*name) for name in [("query", 1, 0), ("query", 0, 1), ("other", 1, 0), ("query", 1, 1)]}
    assert len(others) == 4
    assert key_prefix("query", 1, 0) == A
    assert len(row_key(A, 5)) == ID_LENGTH
    assert unique_id_time_ms(row_key(A, 5), 1_700_000_000_000) <= 1_700_000_000_000


def test_repeats_are_dropped_within_and_across_record_batches() -> None:
    guard = RepeatGuard()
    assert kept(guard, [row_key(A, 0), row_key(B, 0), row_key(A, 1), row_key(A, 0)]) == [
        row_key(A, 0), row_key(B, 0), row_key(A, 1),
    ]  # fmt: skip
    assert kept(guard, [row_key(A, 1), row_key(B, 1), row_key(A, 7)]) == [row_key(B, 1), row_key(A, 7)]


def test_ids_of_other_senders_are_never_dropped() -> None:
    others: list[str | None] = ["7F000001" * 4, None, "", "7F000001" * 7, "x" * ID_LENGTH]
    guard = RepeatGuard()
    assert kept(guard, others) == others
    assert kept(guard, others) == others


@pytest.mark.parametrize("size", [1, 3, 100])
@given(data=st.data())
def test_attempts_that_broke_off_leave_each_row_once(size: int, data: st.DataObject) -> None:
    # Each attempt sends rows 0, 1, 2 ... and breaks off somewhere; the last one gets through. They may overlap.
    ends = [*data.draw(st.lists(st.integers(0, 20), max_size=4)), 20]
    attempts = [[row_key(A, row) for row in range(end)] for end in ends]
    stream: list[str | None] = []
    while any(attempts):
        source = data.draw(st.sampled_from([attempt for attempt in attempts if attempt]))
        stream.append(source.pop(0))
    guard = RepeatGuard()
    got = [one for at in range(0, len(stream), size) for one in kept(guard, stream[at : at + size])]
    assert got == [row_key(A, row) for row in range(20)]
