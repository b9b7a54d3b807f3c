"""What the workers have counted, taken from the shared segment: each message once, and nothing of rows that rest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fast_rig import RawSegment, shared_segment

from mqcore import layout
from mqcore._fast.segment.boards import SharedSegment
from mqcore._fast.segment.counts import CountTaker
from mqcore.broker.ports import GetCount, PutCount
from mqcore.broker.segment.shared_ports import SharedCounters

MANY = 200_000


@pytest.fixture
def segment() -> Iterator[SharedSegment]:
    with shared_segment() as made:
        yield made


def give(segment: SharedSegment, group: str, topic: str, queue_id: int, nums: int, size: int) -> None:
    """As a pull worker counts an answer."""
    row = segment.offset_row(group.encode(), topic.encode(), queue_id, True)
    for name, value in (("get_nums", nums), ("get_bytes", size), ("pulls", 1)):
        segment.set_offset_word(row, name, segment.offset_word(row, name) + value)


def gets(counters: SharedCounters) -> list[GetCount]:
    return list(counters.grown()[1])


def test_each_count_is_taken_once(segment: SharedSegment) -> None:
    counters = SharedCounters(segment)
    assert gets(counters) == []
    give(segment, "g", "t", 0, 3, 30)
    give(segment, "g", "t", 1, 4, 40)
    assert gets(counters) == [GetCount("t", "g", 0, 3, 30, 1), GetCount("t", "g", 1, 4, 40, 1)]
    give(segment, "g", "t", 1, 5, 50)
    segment.offset_row(b"h", b"t", 0, True)
    assert gets(counters) == [GetCount("t", "g", 1, 5, 50, 1)]
    assert gets(counters) == []


def test_puts_are_taken_by_topic(segment: SharedSegment) -> None:
    counters = SharedCounters(segment)
    raw = RawSegment(segment.fd).rows("topics")
    for topic, nums in (("a", 2), ("b", 0), ("c", 5)):
        raw["put_nums"][segment.topic_row(topic.encode(), True)] = nums
        raw["put_bytes"][segment.topic_row(topic.encode())] = 10 * nums
    assert list(counters.grown()[0]) == [PutCount("a", 2, 20), PutCount("c", 5, 50)]
    raw["put_nums"][segment.topic_row(b"b")] = 7
    assert list(counters.grown()[0]) == [PutCount("b", 7, 0)]


def test_what_comes_while_it_is_looked_at_is_for_the_next_time(segment: SharedSegment) -> None:
    """The rows of one call are handed out at leisure."""
    counters = SharedCounters(segment)
    give(segment, "g", "t", 0, 1, 1)
    give(segment, "g", "t", 1, 1, 1)
    _, first = counters.grown()
    seen = [next(iter(first))]
    give(segment, "g", "t", 1, 10, 10)
    assert [*seen, *first] == [GetCount("t", "g", 0, 1, 1, 1), GetCount("t", "g", 1, 1, 1, 1)]
    assert gets(counters) == [GetCount("t", "g", 1, 10, 10, 1)]


def test_many_rows_that_rest_are_passed_over(segment: SharedSegment) -> None:
    assert MANY <= layout.OFFSET_CAPACITY
    raw = RawSegment(segment.fd)
    rows, board = raw.rows("offsets"), raw.board
    board["offset_rows"] = MANY
    rows["get_nums"][:MANY] = 1
    taker = CountTaker(segment)
    assert len(taker.take_gets()[0]) == MANY
    rows["get_nums"][MANY - 1] = 3
    rows["get_bytes"][0] = 5  # another word of the same count, whose messages come with the next
    numbers, values = taker.take_gets()
    assert (list(numbers), list(values)) == ([MANY - 1], [2, 0, 0])
    rows["get_nums"][0] = 2
    assert list(taker.take_gets()[1]) == [1, 5, 0]


def test_the_longest_reading_is_the_longest_of_all_pull_workers(segment: SharedSegment) -> None:
    counters = SharedCounters(segment)
    assert counters.totals().get_time_max_ms == 0
    for row, took_ms in ((1, 4), (3, 9), (7, 2)):
        segment.set_worker_word(row, "read_ms_max", took_ms)
    assert counters.totals().get_time_max_ms == 9
