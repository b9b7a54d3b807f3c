"""Positions and ranges, as values."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcore.errors import ConfigError, ProtocolError
from mqcore.protocol.message import MessageQueue
from mqcore.spark.offsets import (
    Position,
    Where,
    ending_position,
    from_json,
    parse_assign,
    parse_key,
    parse_time_ms,
    queue_key,
    starting_position,
    to_json,
)
from mqcore.spark.options import Use
from mqcore.spark.ranges import QueueRange, plan_ranges, share_out
from mqcore.spark.settings import SourceSettings, source_settings
from mqcore.spark.subscription import matching_topics

Q0, Q1 = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)


def settings(**options: str) -> SourceSettings:
    return source_settings({"nameServer": "a:1", "subscribe": "T", **options}, Use.BATCH)


def start(**options: str) -> Position:
    return starting_position(settings(**options), Where.EARLIEST)


def test_the_checkpoint_form_reads_back_also_with_a_slash_in_a_brokers_name() -> None:
    offsets = {MessageQueue("%RETRY%g", "rack/broker-a", 3): 7, Q0: 0}
    assert from_json(json.loads(json.dumps(to_json(offsets)))) == offsets
    assert queue_key(Q1) == "T/broker-a/1"


@pytest.mark.parametrize("key", ["", "T", "T/b", "T/b/x", "/b/1", "T//1"])
def test_a_key_that_is_not_ours_is_refused(key: str) -> None:
    with pytest.raises(ProtocolError, match="bad queue name"):
        parse_key(key)


def test_users_may_write_offsets_nested_or_flat() -> None:
    nested = start(startingOffsets='{"T":{"broker-a":{"0":5,"1":-2}}}')
    flat = start(startingOffsets='{"T/broker-a/0":5,"T/broker-a/1":-2}')
    assert nested.values == flat.values == {Q0: 5, Q1: -2}


def test_a_timestamp_counts_more_than_timestamps_by_queue_and_these_more_than_offsets() -> None:
    by_time = {"startingOffsetsByTimestamp": '{"T":1000}', "startingOffsets": "latest"}
    assert start(startingTimestamp="2000", **by_time).values == {"": 2000}
    assert start(**by_time).values == {"T": 1000}
    assert start(startingOffsets="latest").where is Where.LATEST
    assert start().where is Where.EARLIEST
    assert ending_position(settings()).where is Where.LATEST
    assert ending_position(settings(endingTimestamp="9")).strategy == "latest"


def test_a_value_for_a_queue_counts_more_than_one_for_its_topic() -> None:
    position = start(startingOffsetsByTimestamp='{"T":{"broker-a":{"0":5}},"U":7}')
    assert position.value(Q0) == 5
    assert position.value(MessageQueue("U", "b", 9)) == 7
    with pytest.raises(ConfigError, match="nothing is said about the queue T/broker-a/1"):
        position.value(Q1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "soon"}, "startingOffsets: got 'soon', wanted a word"),
        ({"startingOffsets": "[1]"}, "wanted a word such as latest, or a JSON object"),
        ({"startingOffsets": '{"T":{"b":{"0":-3}}}'}, "wanted an offset, -2"),
        ({"startingOffsets": '{"T":{"b":{"x":3}}}'}, "wanted {"),
        ({"startingOffsets": '{"T":{"b":3}}'}, "wanted {"),
        ({"startingOffsets": "committed"}, "needs the option group"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp: got 'yesterday'"),
    ],
)
def test_a_bad_position_names_its_option(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        start(**options)


def test_times_are_ms_or_iso_in_utc_unless_they_say_otherwise() -> None:
    assert parse_time_ms("o", "1700000000000") == 1_700_000_000_000
    assert parse_time_ms("o", "2023-11-14T22:13:20") == 1_700_000_000_000
    assert parse_time_ms("o", "2023-11-15T00:13:20+02:00") == 1_700_000_000_000


def test_assign_lists_queues() -> None:
    assert parse_assign('{"T":{"broker-a":[1,0]}}') == [Q0, Q1]
    with pytest.raises(ConfigError, match="option assign"):
        parse_assign('{"T":[0]}')


def test_a_pattern_leaves_out_what_brokers_keep_for_themselves() -> None:
    topics = [
        "Orders",
        "OrdersOld",
        "%RETRY%g",
        "%DLQ%g",
        "TBW102",
        "broker-a",
        "Default_REPLY_TOPIC",
        "SELF_TEST_TOPIC",
    ]
    assert matching_topics(".*", topics, {"broker-a"}) == ["Orders", "OrdersOld"]
    assert matching_topics("Orders", topics, set()) == ["Orders"]
    assert matching_topics("%DLQ%.*", topics, set()) == ["%DLQ%g"]
    with pytest.raises(ConfigError, match="regular expression"):
        matching_topics("(", topics, set())


sizes = st.dictionaries(
    st.builds(MessageQueue, st.sampled_from("TU"), st.just("b"), st.integers(0, 5)),
    st.tuples(st.integers(0, 1000), st.integers(0, 5000)),
    max_size=8,
)


@given(sizes, st.none() | st.integers(1, 60), st.none() | st.integers(1, 700))
def test_ranges_cover_every_offset_once_and_keep_the_limits(
    queues: dict[MessageQueue, tuple[int, int]], minimum: int | None, size_max: int | None
) -> None:
    begin = {queue: first for queue, (first, _) in queues.items()}
    end = {queue: first + size for queue, (first, size) in queues.items()}
    ranges = plan_ranges(begin, end, min_partitions=minimum, size_max=size_max)
    for queue in queues:
        mine = [part for part in ranges if part.queue == queue]
        edges = [begin[queue], *(part.end for part in mine)]
        assert [part.start for part in mine] == edges[:-1]
        assert edges[-1] == end[queue]
    assert all(part.size >= 1 for part in ranges)
    if size_max is not None:
        assert all(part.size <= size_max for part in ranges)
    total = sum(size for _, size in queues.values())
    assert len(ranges) >= min(minimum or 0, total)


@given(sizes, st.integers(1, 4000))
def test_a_limit_is_shared_out_by_backlog_and_starves_no_queue(
    queues: dict[MessageQueue, tuple[int, int]], limit: int
) -> None:
    begin = {queue: first for queue, (first, _) in queues.items()}
    available = {queue: first + size for queue, (first, size) in queues.items()}
    end = share_out(begin, available, limit)
    taken = {queue: end[queue] - begin[queue] for queue in queues}
    assert all(begin[queue] <= end[queue] <= available[queue] for queue in queues)
    assert all(taken[queue] >= 1 for queue in queues if available[queue] > begin[queue])
    assert sum(taken.values()) <= limit + len(queues)


def test_a_range_says_what_it_is() -> None:
    assert str(QueueRange("T", "broker-a", 0, 5, 9)) == "T/broker-a/0 [5, 9)"
