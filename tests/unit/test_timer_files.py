"""Timer wheel, timer log and checkpoint: RocketMQ's bytes, the same from both twins, and what a start makes of them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mqcore import layout
from mqcore._fast.log import timed as fast_timed
from mqcore._fast.timer import units as fast_units
from mqcore._fast.timer.due import Due, Offsets
from mqcore._fast.timer.wheel import WheelView
from mqcore.errors import CorruptFileError
from mqcore.layout import TIMER_SLOT_COUNT, TIMER_UNIT, TIMER_WHEEL_FILE_SIZE
from mqcore.store.timer import checkpoint, log, timed
from mqcore.store.timer.wheel import TimerWheel, map_wheel
from tests.rows import walked

PRECISION_MS = 1000
NOW = 1_700_000_000_123
# As RocketMQ 5.3.3 wrote it: the first unit of a slot, and one behind it that is to be rolled and deletes another.
UNIT = log.TimerUnit(-1, 1, NOW // 1000 * 1000 + 5000, NOW // 1000 * 1000, 246, 300, 84, 0)
UNIT_BYTES = bytes.fromhex(
    "00000034ffffffffffffffff000000010000018bcfe568000000138800000000000000f60000012c00000054"
    "0000000000000000"
)  # fmt: skip


# Units.


def test_a_unit_has_the_bytes_of_rocketmq() -> None:
    assert log.encode(UNIT) == UNIT_BYTES
    assert fast_units.encode(*UNIT) == UNIT_BYTES
    assert log.decode(UNIT_BYTES) == UNIT


def drawn_unit(draw: random.Random) -> log.TimerUnit:
    write_time = draw.randrange(0, 1 << 41)
    return log.TimerUnit(
        draw.randrange(-1, 1 << 50), draw.randrange(1, 8), write_time + draw.randrange(-(1 << 30), 1 << 30), write_time,
        draw.randrange(0, 1 << 60), draw.randrange(1, 1 << 22), draw.randrange(-(1 << 31), 1 << 31),
        draw.randrange(0, 1 << 41),
    )  # fmt: skip


def test_both_twins_write_and_read_the_same_units() -> None:
    draw = random.Random(7)
    for _ in range(500):
        unit = drawn_unit(draw)
        data = log.encode(unit)
        assert fast_units.encode(*unit) == data
        assert log.decode(data) == unit == fast_units.decode(data)


@walked("at", range(TIMER_UNIT.size))
def test_damaged_units_are_the_same_to_both_twins(at: int) -> None:
    for value in (0x00, 0x01, 0x7F, 0x80, 0xFF):
        data = bytearray(UNIT_BYTES)
        data[at] = value
        plain, fast = log.decode(bytes(data)), fast_units.decode(data)
        assert (plain is None) == (fast is None)
        assert plain is None or tuple(plain) == tuple(fast)


@walked("cut", range(TIMER_UNIT.size))
def test_a_unit_that_is_cut_is_none(cut: int) -> None:
    assert log.decode(UNIT_BYTES[:cut]) is None
    assert fast_units.decode(UNIT_BYTES[:cut]) is None


def test_a_file_of_100_mib_has_as_many_units_as_rocketmqs() -> None:
    assert len(log.unit_positions(100 * 2**20)) == 2_016_492


def test_timer_log_files_go_with_the_records_of_their_last_unit(tmp_path: Path) -> None:
    size = 52 * 3 + 20
    last = log.unit_positions(size)[-1]
    for start in range(0, 4 * size, size):
        data = bytearray(size)
        data[last : last + 52] = log.encode(UNIT._replace(physical_offset=start))
        (tmp_path / f"{start:020d}").write_bytes(data)
    assert log.file_starts(tmp_path, size) == [0, size, 2 * size, 3 * size]
    assert log.delete_expired(tmp_path, size, 2 * size) == 2
    assert log.delete_expired(tmp_path, size, 100 * size) == 1  # never the newest
    assert log.file_starts(tmp_path, size) == [3 * size]
    with pytest.raises(CorruptFileError, match="wanted 200"):
        log.file_starts(tmp_path, 200)


# The wheel.


def test_both_wheels_keep_the_same_slots() -> None:
    plain_memory, fast_memory = bytearray(TIMER_WHEEL_FILE_SIZE), bytearray(TIMER_WHEEL_FILE_SIZE)
    plain, fast = TimerWheel(plain_memory, PRECISION_MS), WheelView(fast_memory, PRECISION_MS)
    draw = random.Random(11)
    start = NOW // 1000 * 1000
    for position in range(0, 52 * 2000, 52):
        time = start + draw.randrange(50) * 1000 + draw.choice((0, TIMER_SLOT_COUNT * 1000))
        count = draw.choice((1, 1, -1))
        plain.add(time, position, count)
        fast.add(time, position, count)
        assert tuple(plain.slot(time)) == fast.slot(time)
    assert plain_memory == fast_memory


def test_a_slot_is_of_one_time_only() -> None:
    wheel = WheelView(bytearray(TIMER_WHEEL_FILE_SIZE), PRECISION_MS)
    wheel.add(NOW // 1000 * 1000, 0, 1)
    later = NOW // 1000 * 1000 + TIMER_SLOT_COUNT * PRECISION_MS
    assert wheel.slot(later) == (-1, -1, 0)
    wheel.add(later, 52, 1)
    assert wheel.slot(later) == (52, 52, 1)
    assert wheel.slot(NOW // 1000 * 1000) == (-1, -1, 0)


def test_a_slot_has_the_bytes_of_rocketmq() -> None:
    memory = bytearray(TIMER_WHEEL_FILE_SIZE)
    WheelView(memory, PRECISION_MS).add(NOW // 1000 * 1000, 104, 1)
    at = NOW // 1000 % TIMER_SLOT_COUNT * 32
    assert layout.TIMER_SLOT.struct.unpack_from(memory, at) == (NOW // 1000, 104, 104, 1, 0)


def test_a_wheel_of_another_length_is_refused(tmp_path: Path) -> None:
    (tmp_path / "timerwheel").write_bytes(b"x")
    with pytest.raises(CorruptFileError, match="wanted 38707200"):
        map_wheel(tmp_path / "timerwheel", make=True)


def test_a_wheel_is_made_whole(tmp_path: Path) -> None:
    with map_wheel(tmp_path / "timerwheel", make=True) as made:
        assert len(made) == TIMER_WHEEL_FILE_SIZE
    assert (tmp_path / "timerwheel").stat().st_blocks * 512 >= TIMER_WHEEL_FILE_SIZE


# When a message is due.

SEC, MS, DELIVER, DELETE = "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_DEL_UNIQKEY"
MAX_MS = 259_200_000


@walked("judge", [pytest.param(timed.judge, id="python"), pytest.param(fast_timed.judge, id="cython")])
@walked(
    "properties, due",
    [
        ({}, None),
        ({"TAGS": "a"}, None),
        ({SEC: "5"}, NOW + 5000),
        ({MS: "5"}, NOW + 5),
        ({DELIVER: str(NOW + 1)}, NOW + 1),
        ({DELIVER: "1", MS: "7", SEC: "3"}, NOW + 3000),
        ({DELIVER: "1", MS: "7"}, NOW + 7),
        ({DELIVER: str(NOW)}, None),
        ({MS: "0"}, None),
        ({MS: "-1"}, None),
        ({MS: "+1"}, NOW + 1),
        ({MS: "0000000000000000000000000001"}, NOW + 1),
        ({MS: "abc"}, timed.ILLEGAL),
        ({MS: " 1"}, timed.ILLEGAL),
        ({MS: "1.0"}, timed.ILLEGAL),
        ({MS: "9223372036854775808"}, timed.ILLEGAL),
        ({MS: str(MAX_MS)}, NOW + MAX_MS),
        ({MS: str(MAX_MS + 1)}, timed.ILLEGAL),
        ({SEC: "9223372036854775"}, None),  # too large for a sum: it begins again at the other end, as in Java
        ({DELIVER: str(NOW), DELETE: "T+k"}, timed.ILLEGAL),
        ({DELIVER: str(NOW + 9), DELETE: "T+k"}, NOW + 9),
        ({MS: "5", "TIMER_OUT_MS": "1"}, None),
        ({DELETE: "T+k"}, None),
    ],
)  # fmt: skip
def test_a_message_is_due_when_rocketmq_says_so(judge: object, properties: dict[str, str], due: int | None) -> None:
    text = "\x02".join(f"{name}\x01{value}" for name, value in properties.items()).encode()
    assert judge(text, NOW, MAX_MS) == due  # type: ignore[operator]


@pytest.mark.parametrize(("due", "slot"), [(12_345, 12_000), (12_000, 11_000), (12_001, 12_000)])
def test_a_slot_begins_before_what_is_due_in_it(due: int, slot: int) -> None:
    assert timed.slot_of(due, PRECISION_MS) == slot


# Tables in memory.


def test_the_heap_gives_the_earliest_first() -> None:
    draw, heap = random.Random(3), Due()
    entries = [(draw.randrange(100), number) for number in range(5000)]
    for entry in entries:
        heap.push(*entry)
    assert [heap.pop() for _ in entries] == sorted(entries)
    assert heap.pop() is None


def test_the_set_of_offsets_has_what_was_added() -> None:
    draw, offsets = random.Random(5), Offsets()
    added = {draw.randrange(1 << 50) for _ in range(20_000)} | {0}
    for offset in added:
        offsets.add(offset)
    assert len(offsets) == len(added)
    assert all(offset in offsets for offset in added)
    assert not any(offset in offsets for offset in range(1 << 51, (1 << 51) + 1000))


# The checkpoint.


def test_timercheck_has_the_bytes_of_rocketmq(tmp_path: Path) -> None:
    check = checkpoint.TimerCheck(NOW, 104, 3, 3, 0, NOW, 9)
    check.write(tmp_path / "timercheck")
    data = (tmp_path / "timercheck").read_bytes()
    assert len(data) == 4096
    assert data[:56] == b"".join(value.to_bytes(8, "big") for value in (NOW, 104, 3, 3, 0, NOW, 9))
    assert checkpoint.TimerCheck.read(tmp_path / "timercheck") == check


def test_a_start_goes_on_from_the_state_that_timercheck_is_of(tmp_path: Path) -> None:
    before, newest = checkpoint.ResumePoint(1000, 52, 1, 77), checkpoint.ResumePoint(2000, 104, 2, 99)
    checkpoint.write_states(tmp_path / "mqcore" / "timers", before, newest)
    states = checkpoint.read_states(tmp_path / "mqcore" / "timers")
    assert checkpoint.starting_state(checkpoint.TimerCheck(2000, 104, 2), states) == newest
    # Killed between the two files.
    assert checkpoint.starting_state(checkpoint.TimerCheck(1000, 52, 1), states) == before
    # Nothing has been there: a slave that has become a master.
    assert checkpoint.starting_state(checkpoint.TimerCheck(), ()).scan_offset == checkpoint.FROM_THE_FIRST
    # RocketMQ has been there.
    foreign = checkpoint.starting_state(checkpoint.TimerCheck(3000, 104, 2), states)
    assert foreign == checkpoint.ResumePoint(3000, 104, 2, checkpoint.UNKNOWN)


@walked("at", range(68))
def test_a_damaged_state_is_none(tmp_path: Path, at: int) -> None:
    path = tmp_path / "mqcore" / "timers"
    checkpoint.write_states(path, checkpoint.ResumePoint(1000, 52, 1, 77), checkpoint.ResumePoint(2000, 104, 2, 99))
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    assert checkpoint.read_states(path) == ()
    path.write_bytes(data[:at])
    assert checkpoint.read_states(path) == ()
