"""A stored record put again under another topic, and two messages that are stored together or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from fast_rig import HOST, TOPIC, Appended, Log, Mortals, commit_log, mortals
from hypothesis import given
from hypothesis import strategies as st

from mqcore import layout
from mqcore._fast.log.republish import republish_record
from mqcore.codes import SysFlag
from mqcore.protocol.properties import decode_properties, encode_properties

PUT = layout.constants("PutStatus")
FILE_SIZE = 64 * 1024
KILLED = -9
OTHER = b"elsewhere"
MOMENTS = {
    "locked": False, "rolled": False, "half declared": False, "declared": False, "half written": False,
    "written": False, "published": True, "counted": True, "counted twice": True, "ended": True,
}  # fmt: skip
"""Where a process dies over a pair, and whether both messages are there then."""


@pytest.fixture
def log() -> Iterator[Log]:
    with commit_log(FILE_SIZE) as made:
        yield made


@pytest.fixture(scope="module")
def children() -> Iterator[Mortals]:
    with mortals() as found:
        yield found


def again(log: Log, offset: int, **changes: Any) -> Appended:
    done = republish_record(log.writer, offset, **{"topic": OTHER, "queue_id": 3, **changes})
    assert done is not None
    return Appended(*done)


# Copies ----------------------------------------------------------------------------------------------------------


names = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=8)
properties = st.dictionaries(
    names, st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"]), min_size=1, max_size=20), max_size=6
)


@given(has=properties, dropped=st.lists(names, max_size=4), added=properties, drops_own=st.integers(0, 6))
def test_a_copy_has_other_properties_and_the_same_everything_else(
    has: dict[str, str], dropped: list[str], added: dict[str, str], drops_own: int
) -> None:
    dropped = dropped + list(has)[:drops_own]
    with commit_log(FILE_SIZE) as log:
        flags = int(SysFlag.COMPRESSED | SysFlag.TRANSACTION_PREPARED)
        first = log.append(
            b"body", properties=encode_properties(has).encode(), flag=7, sys_flag=flags, born_timestamp=1234,
            born_address=b"\x01" * 16, reconsume_times=2,
        )  # fmt: skip
        done = again(
            log, first.offsets[0], dropped=tuple(name.encode() for name in dropped),
            added=encode_properties(added).encode(), sys_flag_cleared=int(SysFlag.TRANSACTION_ROLLBACK),
            sys_flag_set=int(SysFlag.TRANSACTION_COMMIT), prepared_transaction_offset=99,
        )  # fmt: skip
        assert done.status == PUT["PUT_OK"]
        record, copy = log.check()
    wanted = {name: value for name, value in has.items() if name not in dropped} | added
    assert decode_properties(copy.properties.decode()) == wanted
    assert replace(copy, properties=b"") == replace(
        record, properties=b"", topic=OTHER, queue_id=3, queue_offset=0, physical_offset=first.end,
        sys_flag=record.sys_flag & ~int(SysFlag.TRANSACTION_ROLLBACK) | int(SysFlag.TRANSACTION_COMMIT),
        store_timestamp=done.timestamp, prepared_transaction_offset=99, total_size=done.size,
    )  # fmt: skip


def test_nothing_is_put_again_from_a_place_where_no_record_starts(log: Log) -> None:
    first = log.append(b"x" * 1000)
    for offset in (-1, 1, first.end - 1, first.end, FILE_SIZE, 1 << 60):
        assert republish_record(log.writer, offset, topic=OTHER, queue_id=0) is None, offset
    assert len(log.check()) == 1


def test_a_copy_whose_properties_would_be_too_long_is_refused(log: Log) -> None:
    first = log.append(properties=b"K\x01" + b"v" * 32_000)
    fits = again(log, first.offsets[0], added=b"L\x01" + b"v" * (32_767 - 32_002 - 1 - 2))
    refused = again(log, first.offsets[0], added=b"L\x01" + b"v" * (32_767 - 32_002 - 2))
    instead = again(log, first.offsets[0], added=b"L\x01" + b"v" * 32_765, dropped=(b"K",))
    assert [done.status for done in (fits, refused, instead)] == [
        PUT["PUT_OK"], PUT["PROPERTIES_SIZE_EXCEEDED"], PUT["PUT_OK"],
    ]  # fmt: skip
    assert len(log.check()) == 3


def test_broken_pairs_are_left_out_of_a_copy(log: Log) -> None:
    first = log.append(properties=b"\x02\x01v\x02A\x01\x02plain\x02B\x01b\x02")
    again(log, first.offsets[0], added=b"C\x01c")
    assert log.check()[1].properties == b"B\x01b\x02C\x01c"


def test_a_record_of_another_file_is_put_again(log: Log) -> None:
    first = log.append(b"a" * 20_000)
    for _ in range(12):
        assert again(log, first.offsets[0]).status == PUT["PUT_OK"]
    records = log.check()
    assert [record.queue_offset for record in records if record.topic == OTHER] == list(range(12))
    assert {record.body for record in records} == {b"a" * 20_000}


# Pairs -----------------------------------------------------------------------------------------------------------


def message(topic: bytes = TOPIC, body: bytes = b"body", **changes: Any) -> dict[str, Any]:
    return {
        "topic": topic, "queue_id": 0, "body": body, "properties": b"K\x01k", "flag": 0, "sys_flag": 0,
        "born_timestamp": 1, "born_address": HOST.address, "born_port": 5000, "store_address": HOST.address,
        "store_port": HOST.port, **changes,
    }  # fmt: skip


def test_a_pair_lies_side_by_side_each_in_its_queue(log: Log) -> None:
    log.append(topic=OTHER)
    for number in range(40):
        done = Appended(*log.writer.append_pair(message(body=b"x" * 3_000), message(OTHER, b"%d" % number)))
        assert (done.status, done.queue_offset) == (PUT["PUT_OK"], number)
    records = log.check()
    pairs = list(zip(records[1::2], records[2::2], strict=True))
    for first, second in pairs:
        assert second.physical_offset == first.physical_offset + first.total_size
        assert second.store_timestamp == first.store_timestamp
    assert [second.queue_offset for _, second in pairs] == list(range(1, 41))
    get = log.segment.get
    assert (get("put_times"), get("put_bytes")) == (81, sum(record.total_size for record in records))
    assert get("file_rolls") > 0


def test_a_pair_that_cannot_be_stored_leaves_neither(log: Log) -> None:
    log.append()
    end = log.end
    pair = log.writer.append_pair
    assert pair(message(), message())[0] == PUT["MESSAGE_ILLEGAL"]
    assert pair(message(), message(OTHER, b"x" * FILE_SIZE))[0] == PUT["MESSAGE_ILLEGAL"]
    assert pair(message(body=b"x" * 40_000), message(OTHER, b"x" * 40_000))[0] == PUT["MESSAGE_ILLEGAL"]
    log.writer.append_pair(message(), message(OTHER))
    _, taken = log.writer.begin_drop([log.queue_row(0, OTHER)])
    assert taken
    assert pair(message(), message(OTHER))[0] == PUT["SERVICE_NOT_AVAILABLE"]
    assert log.end > end
    assert len(list(log.walk())) == 3


LISTED = b"K\x01k\x02INNER_MULTI_QUEUE_OFFSET\x01"


def test_the_first_of_a_pair_takes_an_offset_of_every_queue_that_it_lists(log: Log) -> None:
    queues = [(b"a", 0), (TOPIC, 0), (b"b", 0), (b"a", 0)]
    log.append(topic=b"b")
    for number in range(3):
        first = message(properties=LISTED, more_queues=queues)
        done = Appended(*log.writer.append_pair(first, message(OTHER)))
        assert (done.status, done.queue_offset) == (PUT["PUT_OK"], number)
    firsts = list(log.walk())[1::2]
    assert [record.properties for record in firsts] == [LISTED + b"%d,%d,%d,%d" % (n, n, n + 1, n) for n in range(3)]
    rows = [log.queue_row(0, topic) for topic in (TOPIC, OTHER, b"a", b"b")]
    assert [log.segment.queue_word(row, "next_offset") for row in rows] == [3, 3, 3, 4]


def test_a_pair_whose_queues_cannot_be_taken_leaves_neither(log: Log) -> None:
    def pair(properties: bytes = LISTED, queue: bytes = b"a") -> int:
        first = message(properties=properties, more_queues=[(queue, 0)])
        return log.writer.append_pair(first, message(OTHER))[0]

    assert pair() == PUT["PUT_OK"]
    end = log.end
    # The second would take the same offset.
    assert pair(queue=OTHER) == PUT["MESSAGE_ILLEGAL"]
    assert pair(LISTED.rjust(32_767, b"x")) == PUT["PROPERTIES_SIZE_EXCEEDED"]
    assert pair(LISTED.rjust(32_768, b"x")) == PUT["PROPERTIES_SIZE_EXCEEDED"]
    _, taken = log.writer.begin_drop([log.queue_row(0, b"a")])
    assert taken
    assert pair() == PUT["SERVICE_NOT_AVAILABLE"]
    assert log.end == end
    assert log.append().queue_offset == 1


@pytest.mark.parametrize("rest", [40_000, 300], ids=lambda rest: f"{rest} left in the file")
@pytest.mark.parametrize(("moment", "is_stored"), MOMENTS.items(), ids=list(MOMENTS))
def test_whoever_dies_over_a_pair_has_stored_both_or_neither(
    log: Log, children: Mortals, moment: str, is_stored: bool, rest: int
) -> None:
    log.append(bytes(FILE_SIZE - rest - 106), properties=b"")
    log.append(b"o", topic=OTHER, properties=b"")
    killed = children.run(
        log.segment, "hold_put_lock", directory=str(log.directory), file_size=FILE_SIZE, topic=TOPIC.decode(),
        queue_row=log.queue_row(), body="y" * 400, moment=moment,
        second={"topic": OTHER.decode(), "queue_row": log.queue_row(0, OTHER), "body": "second"},
    )  # fmt: skip
    assert killed == [KILLED]
    done = log.append(b"z")
    assert done.queue_offset == 1 + is_stored
    assert log.append(b"p", topic=OTHER).queue_offset == 1 + is_stored
    bodies = [record.body for record in log.check()]
    assert bodies[1:] == [b"o", *([b"y" * 400, b"second"] if is_stored else []), b"z", b"p"]
    assert log.segment.get("put_times") == 4 + 2 * is_stored
    # What the dead had begun to declare is of nobody any more.
    assert log.segment.get("intent_second_queue") == 0
