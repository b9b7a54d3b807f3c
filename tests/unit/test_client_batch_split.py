"""Long lists are cut into as few batches as their order allows, none of them too large."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcore.client.errors import InvalidMessageError
from mqcore.client.produce.batch_split import BatchPart, member_size, split_batch, whole_batch
from mqcore.protocol.batch import encode_batch
from mqcore.protocol.message import Message

MAX = 100


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ([], []),
        ([100], [BatchPart(0, 1, True)]),
        ([50, 50], [BatchPart(0, 2, True)]),
        ([50, 51], [BatchPart(0, 1, True), BatchPart(1, 2, True)]),
        ([1, 99, 1, 99], [BatchPart(0, 2, True), BatchPart(2, 4, True)]),
        ([101], [BatchPart(0, 1, False)]),
        ([10, 101, 10, 10], [BatchPart(0, 1, True), BatchPart(1, 2, False), BatchPart(2, 4, True)]),
        ([101, 101], [BatchPart(0, 1, False), BatchPart(1, 2, False)]),
    ],
)
def test_lists_are_cut_where_a_part_would_grow_too_large(sizes: list[int], parts: list[BatchPart]) -> None:
    assert list(split_batch(sizes, MAX)) == parts


@given(st.lists(st.integers(1, 130), max_size=60))
def test_parts_are_the_list_in_order_each_as_full_as_can_be(sizes: list[int]) -> None:
    parts = list(split_batch(sizes, MAX))
    assert [at for part in parts for at in range(part.first, part.end)] == list(range(len(sizes)))
    for part in parts:
        assert (sum(sizes[part.first : part.end]) <= MAX) == part.is_batch
    for part, following in pairwise(parts):
        if part.is_batch and following.is_batch:
            assert sum(sizes[part.first : part.end]) + sizes[following.first] > MAX


def test_the_size_of_a_member_is_what_it_takes_in_the_batch() -> None:
    properties = {"KEYS": "ä€😀", "UNIQ_KEY": "1"}
    message = Message("T", b"body", properties=properties)
    assert member_size(message.body, properties) == len(encode_batch([message]))
    assert member_size(b"x", {}) == len(encode_batch([Message("T", b"x")]))


def test_a_list_that_may_not_be_cut_is_refused_when_it_is_too_large() -> None:
    assert whole_batch([50, 50], MAX) == BatchPart(0, 2, True)
    with pytest.raises(InvalidMessageError, match="over max value, MAX: 100"):
        whole_batch([50, 51], MAX)
