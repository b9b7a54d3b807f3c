"""What op messages say, by both readers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from fast_rig import commit_log
from hypothesis import example, given
from hypothesis import strategies as st

from mqcore._fast.queues import op_numbers as fast
from mqcore.store.queues import op_numbers as readable
from tests.rows import walked

READERS = [pytest.param(readable.numbers_of, id="python"), pytest.param(fast.numbers_of, id="cython")]


@walked("numbers_of", READERS)
@walked(
    "body, numbers",
    [
        (b"17", [17]), (b"0", [0]), (b"017", [~17]), (b"00", [~0]), (b"1,2,3", [1, 2, 3]), (b"1,,x,-2,+3,4 ,5", [1, 5]),
        (b"", []), (b",", []), (b"123456789012345678", [123456789012345678]), (b"1234567890123456789", []),
        (b"1234567890123456789,7", [7]), (b"\xff1", []), (b"8,", [8]),
    ],
)  # fmt: skip
def test_numbers_are_read(numbers_of: Callable[[bytes], list[int]], body: bytes, numbers: list[int]) -> None:
    assert numbers_of(body) == numbers


@given(st.binary(max_size=60) | st.text("0123456789,", max_size=60).map(str.encode))
@example(b"9" * 40 + b",1")
def test_both_readers_read_the_same(body: bytes) -> None:
    assert fast.numbers_of(body) == readable.numbers_of(body)


@given(st.lists(st.lists(st.integers(0, 10**12), max_size=5), max_size=30), st.integers(0, 12))
def test_the_numbers_of_a_log_come_in_order_however_little_room_there_is(bodies: list[list[int]], room: int) -> None:
    with commit_log() as log:
        appended = [log.append(",".join(map(str, body)).encode()) for body in bodies]
        offsets = np.array([done.offsets[0] for done in appended], dtype=np.int64)
        numbers = fast.OpNumbers(str(log.directory), log.file_size)
        found: list[int] = []
        at = 0
        while at < len(offsets):
            out = np.empty(max(room, len(bodies[at])), dtype=np.int64)
            count, written, _ = numbers.read(offsets[at:], log.end, out)
            assert count > 0
            found += out[:written].tolist()
            at += count
    assert found == [number for body in bodies for number in body]


def test_what_is_not_in_the_log_says_nothing() -> None:
    with commit_log() as log:
        first, second = log.append(b"1"), log.append(b"2")
        offsets = np.array([first.offsets[0], 1, second.offsets[0], 1 << 50, -1], dtype=np.int64)
        numbers = fast.OpNumbers(str(log.directory), log.file_size)
        out = np.empty(9, dtype=np.int64)
        assert numbers.read(offsets, first.end, out) == (5, 1, first.size)
        assert numbers.read(offsets, second.end, out) == (5, 2, first.size + second.size)
        assert out[:2].tolist() == [1, 2]


def test_only_op_messages_that_say_of_an_end_are_weighed() -> None:
    with commit_log() as log:
        done = [log.append(body) for body in (b"1", b"02", b"", b"3,4")]
        offsets = np.array([one.offsets[0] for one in done], dtype=np.int64)
        out = np.empty(9, dtype=np.int64)
        read = fast.OpNumbers(str(log.directory), log.file_size).read(offsets, log.end, out)
        assert read == (4, 4, done[0].size + done[3].size)
