"""Sums over queues by topic and by group, against what each row says."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from fast_rig import RawSegment, shared_segment

from mqcore._fast.segment.boards import SharedSegment
from mqcore._fast.segment.sums import sum_groups, sum_topics
from mqcore.broker.segment.shared_figures import SharedFigures
from mqcore.config import load

ALL = 1 << 20


@pytest.fixture
def segment() -> Iterator[SharedSegment]:
    with shared_segment() as made:
        yield made


def has(segment: SharedSegment, topic: str, *ends: int) -> None:
    """*topic* exists, and its queues have units up to *ends*."""
    segment.publish_topic(topic.encode(), 6, len(ends), len(ends), True, False)
    for queue_id, end in enumerate(ends):
        segment.set_queue_word(segment.queue_row(topic.encode(), queue_id), "max_offset", end)


def stands(segment: SharedSegment, group: str, topic: str, queue_id: int, committed: int, pulled: int = 0) -> int:
    row = segment.offset_row(group.encode(), topic.encode(), queue_id, True)
    segment.commit(row, committed)
    segment.set_offset_word(row, "pull_offset", pulled)
    return row


def test_a_topic_is_its_queues_together_while_it_exists(segment: SharedSegment) -> None:
    has(segment, "a", 5, 7)
    has(segment, "b", 0)
    segment.topic_row(b"unknown", True)
    raw = RawSegment(segment.fd).rows("topics")
    raw["put_nums"][segment.topic_row(b"a")], raw["put_bytes"][segment.topic_row(b"a")] = 12, 1200
    assert sum_topics(segment).part(0, ALL) == [(b"a", 12, 1200, 12), (b"b", 0, 0, 0)]
    segment.remove_topic(b"a")
    assert sum_topics(segment).part(0, ALL) == [(b"b", 0, 0, 0)]


def test_a_queue_that_was_dropped_has_nothing(segment: SharedSegment) -> None:
    has(segment, "a", 5)
    stands(segment, "g", "a", 0, 2)
    segment.set_queue_word(segment.queue_row(b"a", 0), "born", 4096)
    assert sum_topics(segment).part(0, ALL) == [(b"a", 0, 0, 0)]
    ((*_, committed, lag, in_flight, ready, end),) = sum_groups(segment).part(0, ALL)
    assert (committed, lag, in_flight, ready, end) == (2, 0, 0, 0, 0)


def test_a_group_is_behind_where_it_has_committed(segment: SharedSegment) -> None:
    has(segment, "a", 100, 50, 30)
    stands(segment, "g", "a", 0, 40, pulled=60)
    stands(segment, "g", "a", 1, 50, pulled=20)  # before its last commit
    broadcasts = stands(segment, "g", "a", 2, -1)
    segment.set_offset_word(broadcasts, "get_nums", 7)
    segment.set_offset_word(broadcasts, "get_bytes", 70)
    sums = sum_groups(segment)
    assert sums.part(0, ALL) == [(b"g", b"a", 7, 70, 90, 60, 20, 40, 150)]
    assert sums.behind(0) == [(segment.offset_row(b"g", b"a", 0), 0, 40)]


def test_who_has_neither_offset_nor_read_is_not_there(segment: SharedSegment) -> None:
    has(segment, "a", 5)
    stands(segment, "gone", "a", 0, -1)
    stands(segment, "g", "deleted", 0, 3)
    assert len(sum_groups(segment)) == 0
    with pytest.raises(IndexError, match="group sum: got 0"):
        sum_groups(segment).behind(0)


def test_many_rows_in_any_order_add_up(segment: SharedSegment, chance: random.Random) -> None:
    ends = {f"t{number}": [chance.randrange(1000) for _ in range(chance.randrange(1, 9))] for number in range(30)}
    for topic, queues in ends.items():
        has(segment, topic, *queues)
    rows = [(f"g{group}", topic, queue) for group in range(20) for topic in ends for queue in range(len(ends[topic]))]
    chance.shuffle(rows)
    wanted: dict[tuple[str, str], list[int]] = {}
    for group, topic, queue in rows[: len(rows) // 2]:
        committed = chance.randrange(1000)
        stands(segment, group, topic, queue, committed)
        total = wanted.setdefault((group, topic), [0, 0])
        total[0] += committed
        total[1] += max(0, ends[topic][queue] - committed)
    figures = SharedFigures(segment, [], load(environment={}))
    found = {(one.group, one.topic): [one.committed, one.lag] for one in figures.groups()}
    assert found == wanted
    assert {one.topic: one.max_offset for one in figures.topics()} == {
        topic: sum(queues) for topic, queues in ends.items()
    }
