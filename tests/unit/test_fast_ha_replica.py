"""The ha worker's loop on its own, as a slave: the master is a socket that sends what the test wants."""

from __future__ import annotations

import contextlib
import random
import select
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from fast_rig import Log, shared_segment
from ha_rig import DEADLINE_S, FILE_SIZE, HEAD, REPORT, STORE_FLAG, ReplicaRig, bounds, log_bytes

from mqcore.store.paths import file_name
from tests.waiting import wait_until


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Log]:
    """A master's log of some files."""
    (tmp_path / "master").mkdir()
    with shared_segment() as segment:
        log = Log(tmp_path / "master", segment, FILE_SIZE)
        chance = random.Random(4711)
        while log.end < 3 * FILE_SIZE:
            log.append(bytes(chance.randrange(4000)))
        yield log


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ReplicaRig]:
    (tmp_path / "slave").mkdir()
    with shared_segment() as segment, contextlib.closing(ReplicaRig(segment, tmp_path / "slave")) as made:
        yield made


# What is received -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [777, 32768, FILE_SIZE, 200_000])
def test_the_log_becomes_the_masters_however_it_is_cut_into_frames(source: Log, rig: ReplicaRig, size: int) -> None:
    data = log_bytes(source)
    master = rig.meet(start=-1)
    assert master.report() == 0
    for at in range(0, len(data), size):
        master.frame(at, data[at : at + size])
    rig.await_end(len(data))
    assert rig.bytes_at(0, len(data)) == data
    while master.report() != len(data):
        pass
    assert rig.segment.get("readable_offset") == len(data)
    assert rig.segment.get("master_end") == len(data)


def test_only_whole_records_are_published_and_reported(source: Log, rig: ReplicaRig) -> None:
    data, ends = log_bytes(source), bounds(source)
    master = rig.meet(start=-1)
    assert master.report() == 0
    chance = random.Random(7)
    at = 0
    while at < 20_000:
        size = chance.randrange(1, 3000)
        master.frame(at, data[at : at + size])
        at += size
        whole = max(end for end in ends if end <= at)
        rig.await_end(whole) if whole > rig.end else None
        assert rig.end in ends
    rig.await_end(max(end for end in ends if end <= at))
    assert rig.end <= rig.segment.get("received_offset")


def test_bytes_that_come_one_by_one_make_the_same_log(source: Log, rig: ReplicaRig) -> None:
    data, end = log_bytes(source), bounds(source)[3]
    master = rig.meet(start=-1)
    stream = HEAD.struct.pack(0, 100) + data[:100] + HEAD.struct.pack(100, 0) + HEAD.struct.pack(100, end - 100)
    for byte in stream + data[100:end]:
        master.socket.sendall(bytes((byte,)))
    rig.await_end(end)
    assert rig.bytes_at(0, end) == data[:end]


def test_an_empty_slave_asks_for_everything_from_byte_one_on(source: Log, rig: ReplicaRig) -> None:
    """RocketMQ's master answers a request for byte 0 with its last file."""
    data = log_bytes(source)
    master = rig.meet(start=0)
    assert master.report() == 1
    master.frame(1)
    master.frame(1, data[1:5000])
    master.frame(5000, data[5000:])
    rig.await_end(len(data))
    assert rig.bytes_at(0, len(data)) == data


def test_an_empty_slave_can_begin_at_a_later_file(source: Log, rig: ReplicaRig) -> None:
    data = log_bytes(source)
    master = rig.meet(start=FILE_SIZE)
    assert master.report() == FILE_SIZE
    master.frame(FILE_SIZE, data[FILE_SIZE:])
    rig.await_end(len(data))
    assert rig.bytes_at(FILE_SIZE, len(data) - FILE_SIZE) == data[FILE_SIZE:]
    assert rig.segment.get("min_offset") == rig.segment.get("flushed_offset") == FILE_SIZE
    assert sorted(path.name for path in rig.directory.iterdir())[0] == file_name(FILE_SIZE)


def test_a_slave_goes_on_at_its_end_after_each_loss(source: Log, rig: ReplicaRig) -> None:
    data = log_bytes(source)
    chance = random.Random(11)
    while rig.end < len(data):
        master = rig.meet(start=-1)
        assert master.report() == rig.end
        at, size = rig.end, chance.randrange(1, 40_000)
        with contextlib.suppress(BrokenPipeError):
            master.frame(at, data[at : at + size])
        master.socket.close()
        rig.await_loss()
    assert rig.bytes_at(0, len(data)) == data


def test_a_successor_wipes_what_was_not_whole_before_another_masters_bytes_come(source: Log, rig: ReplicaRig) -> None:
    data, ends = log_bytes(source), bounds(source)
    master = rig.meet(start=-1)
    master.frame(0, data[: ends[5] - 1])
    rig.await_end(ends[4])
    rig.stop()
    # As one that died has left it.
    with (rig.directory / file_name(0)).open("r+b") as file:
        file.seek(ends[4])
        file.write(data[ends[4] : ends[5] - 1])
    assert any(rig.bytes_at(ends[4], 1000))
    rig.start()
    assert rig.meet(start=-1).report() == ends[4]
    assert not any(rig.bytes_at(ends[4], 1000))


def test_one_that_is_stopped_leaves_nothing_behind_its_end(source: Log, rig: ReplicaRig) -> None:
    data, ends = log_bytes(source), bounds(source)
    master = rig.meet(start=-1)
    master.frame(0, data[: ends[5] - 1])
    rig.await_end(ends[4])
    wait_until(lambda: any(rig.bytes_at(ends[4], 100)), describe="half a record is there")
    rig.stop()
    assert rig.end == ends[4]
    assert not any(rig.bytes_at(ends[4], FILE_SIZE - ends[4]))


# What is not taken ------------------------------------------------------------------------------------------------


def test_a_frame_that_does_not_follow_ends_the_connection(source: Log, rig: ReplicaRig) -> None:
    data, end = log_bytes(source), bounds(source)[2]
    master = rig.meet(start=-1)
    master.frame(0, data[:end])
    master.frame(end + 1, data[end + 1 : end + 100])
    assert master.is_closed()
    rig.await_end(end)


def test_a_heart_beat_that_does_not_follow_ends_the_connection(source: Log, rig: ReplicaRig) -> None:
    data, end = log_bytes(source), bounds(source)[2]
    master = rig.meet(start=-1)
    master.frame(0, data[:end])
    rig.await_end(end)
    master.frame(end)
    master.frame(end + 8)
    assert master.is_closed()


@pytest.mark.parametrize("size", [-1, 2**31 - 1])
def test_a_frame_without_sense_ends_the_connection(rig: ReplicaRig, size: int) -> None:
    master = rig.meet(start=-1)
    master.socket.sendall(struct.pack(">qi", 0, size))
    assert master.is_closed()


@pytest.mark.parametrize("at", [0, 4, 28, 84])
def test_bytes_that_are_no_record_of_their_place_are_not_published(source: Log, rig: ReplicaRig, at: int) -> None:
    data, ends = bytearray(log_bytes(source)), bounds(source)
    data[ends[2] + at] ^= 0x40
    master = rig.meet(start=-1)
    # Enough for any size that the damaged record may claim.
    master.frame(0, bytes(data[:FILE_SIZE]))
    assert master.is_closed()
    rig.await_loss()
    assert rig.end == ends[2]


def test_a_master_of_other_file_sizes_is_left(rig: ReplicaRig, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with shared_segment() as segment:
        other = Log(tmp_path / "other", segment, FILE_SIZE // 2)
        while other.end < FILE_SIZE:
            other.append(bytes(1000))
        data = b"".join(other.read(start, FILE_SIZE // 2) for start in range(0, other.end, FILE_SIZE // 2))
        master = rig.meet(start=-1)
        master.frame(0, data[: other.end])
        assert master.is_closed()
        assert rig.end < FILE_SIZE // 2


def test_a_store_that_refuses_takes_nothing(source: Log, rig: ReplicaRig) -> None:
    rig.segment.set_flags(STORE_FLAG["SYNC_FAILED"])
    master = rig.meet(start=-1)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        master.frame(0, log_bytes(source)[:FILE_SIZE])
    assert master.is_closed()
    assert rig.end == 0


# Time and waking --------------------------------------------------------------------------------------------------


def test_a_silent_master_is_left(tmp_path: Path) -> None:
    (tmp_path / "slave").mkdir()
    with (
        shared_segment() as segment,
        contextlib.closing(ReplicaRig(segment, tmp_path / "slave", silence_ms=50)) as rig,
    ):
        assert rig.meet(start=-1).is_closed()
        rig.await_loss()


def test_a_slave_reports_again_and_again(tmp_path: Path) -> None:
    (tmp_path / "slave").mkdir()
    with (
        shared_segment() as segment,
        contextlib.closing(ReplicaRig(segment, tmp_path / "slave", heartbeat_ms=5)) as rig,
    ):
        master = rig.meet(start=-1)
        assert [master.report() for _ in range(5)] == [0] * 5


@pytest.mark.parametrize("row", [3, 4], ids=["reput", "flush"])
def test_who_follows_the_log_is_woken(source: Log, rig: ReplicaRig, row: int) -> None:
    data, end = log_bytes(source), bounds(source)[1]
    rig.segment.set_worker_word(row, "sleeping", 1)
    master = rig.meet(start=-1)
    assert select.select([rig.other_wake], [], [], 0)[0] == []
    master.frame(0, data[:end])
    assert select.select([rig.other_wake], [], [], DEADLINE_S)[0]


def test_a_slave_of_a_slave_gets_what_the_first_one_gets(source: Log, rig: ReplicaRig) -> None:
    data = log_bytes(source)
    master = rig.meet(start=-1)
    with socket.create_connection(rig.slaves_address, DEADLINE_S) as second:
        second.sendall(REPORT.struct.pack(0))
        wait_until(lambda: rig.segment.get("slave_count") == 1, describe="the second copies")
        master.frame(0, data)
        received = b""
        copied = b""
        while len(copied) < len(data):
            received += second.recv(65536)
            while len(received) >= HEAD.size:
                offset, size = HEAD.struct.unpack_from(received)
                if len(received) < HEAD.size + size:
                    break
                assert offset == len(copied)
                copied += received[HEAD.size : HEAD.size + size]
                received = received[HEAD.size + size :]
        assert copied == data
