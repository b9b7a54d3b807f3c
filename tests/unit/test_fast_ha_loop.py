"""The ha worker's loop on its own, as a master: slaves are sockets that speak RocketMQ's few bytes."""

from __future__ import annotations

import contextlib
import os
import select
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fast_rig import TOPIC, Log, shared_segment
from ha_rig import DEADLINE_S, FILE_SIZE, REPORT, SEND_ROW, SLAVE, STATE, HaRig, bytes_of, fill

from mqcore import layout
from mqcore.store.paths import file_name
from tests.page_cache import keeps_pages, resident_share
from tests.waiting import wait_until

RATE = 1 << 19
BURST_S = 0.01
"""A slave is given what it did not take in the last 5 ms, and a piece that it is sent may be as large once more."""


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with shared_segment() as segment:
        yield Log(tmp_path, segment, FILE_SIZE)


@pytest.fixture
def rig(log: Log) -> Iterator[HaRig]:
    with contextlib.closing(HaRig(log)) as made:
        yield made


# What is sent -----------------------------------------------------------------------------------------------------


def test_a_slave_gets_the_bytes_of_the_log_as_they_lie_there_over_files(log: Log, rig: HaRig) -> None:
    log.append()
    slave = rig.connect(reports=0)
    rig.await_state(slave, "COPYING")
    fill(log, 3 * FILE_SIZE)
    assert slave.copy(0, log.end) == bytes_of(log, 0, log.end)
    row = rig.row(slave)
    assert (row["sent"], row["sent_bytes"], row["state"]) == (log.end, log.end, SLAVE["COPYING"])


def test_what_is_appended_later_follows(log: Log, rig: HaRig) -> None:
    slave = rig.connect(reports=0)
    at = 0
    for number in range(20):
        log.append(b"%d" % number)
        assert slave.copy(at, log.end) == bytes_of(log, at, log.end)
        at = log.end


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_no_frame_is_larger_than_it_may_be_or_crosses_a_file(log: Log, size: int) -> None:
    fill(log, FILE_SIZE + 3000)
    with contextlib.closing(HaRig(log, frame_size_max=size)) as rig:
        start = FILE_SIZE - 2000
        slave = rig.connect(reports=start)
        at = start
        while at < log.end:
            offset, body = slave.frame()
            assert offset == at
            assert 0 < len(body) <= size
            assert offset // FILE_SIZE == (offset + len(body) - 1) // FILE_SIZE
            assert body == log.read(offset, len(body))
            at += len(body)


def test_a_slave_goes_on_where_it_says_also_in_the_middle_of_a_record(log: Log, rig: HaRig) -> None:
    fill(log, 5000)
    slave = rig.connect(reports=1234)
    assert slave.copy(1234, log.end) == bytes_of(log, 1234, log.end)


@pytest.mark.parametrize("from_first_file", [False, True])
def test_an_empty_slave_gets_the_last_file_or_all(log: Log, from_first_file: bool) -> None:
    fill(log, 2 * FILE_SIZE + 5000)
    start = 0 if from_first_file else log.end - log.end % FILE_SIZE
    with contextlib.closing(HaRig(log, from_first_file=from_first_file)) as rig:
        slave = rig.connect(reports=0)
        assert slave.copy(start, log.end) == bytes_of(log, start, log.end)


def test_a_slave_that_does_not_read_gets_all_when_it_does_and_keeps_nobody_waiting(log: Log, rig: HaRig) -> None:
    stuck = rig.connect(reports=0)
    other = rig.connect(reports=0)
    rig.await_state(stuck, "COPYING")
    rig.await_state(other, "COPYING")
    fill(log, 8 << 20)
    assert other.copy(0, log.end) == bytes_of(log, 0, log.end)
    assert stuck.copy(0, log.end) == bytes_of(log, 0, log.end)


# Reports ----------------------------------------------------------------------------------------------------------


def test_nothing_is_sent_before_a_slave_has_said_from_where(log: Log) -> None:
    with contextlib.closing(HaRig(log, heartbeat_ms=1)) as rig:
        log.append()
        slave = rig.connect()
        rig.await_state(slave, "CONNECTED")
        slave.socket.sendall(REPORT.struct.pack(0)[:7])
        assert select.select([slave.socket], [], [], 0.05)[0] == []
        slave.socket.sendall(REPORT.struct.pack(0)[7:])
        assert slave.copy(0, log.end) == bytes_of(log, 0, log.end)


def test_the_last_whole_report_counts_wherever_reads_end(log: Log, rig: HaRig) -> None:
    fill(log, 3000)
    slave = rig.connect(reports=0)
    slave.copy(0, log.end)
    reports = b"".join(REPORT.struct.pack(number) for number in range(1, 2000))
    slave.socket.sendall(reports[:-3])
    wait_until(lambda: rig.row(slave)["acked"] == 1998, describe="the last whole one counts")
    slave.socket.sendall(reports[-3:])
    wait_until(lambda: rig.row(slave)["acked"] == 1999, describe="the rest of one counts")


def test_the_greatest_end_of_all_slaves_is_the_replicated_one(log: Log, rig: HaRig) -> None:
    fill(log, 5000)
    first, second = rig.connect(reports=100), rig.connect(reports=300)
    wait_until(lambda: rig.segment.get("slave_count") == 2, describe="both count")
    assert rig.segment.get("replicated_offset") == 300
    assert rig.segment.get("ha_wanted") == 100
    first.report(log.end)
    wait_until(lambda: rig.segment.get("replicated_offset") == log.end, describe="one has everything")
    assert rig.segment.get("ha_wanted") == 300
    first.socket.close()
    second.socket.close()
    wait_until(lambda: rig.segment.get("slave_count") == 0, describe="nobody is there")
    assert rig.segment.get("replicated_offset") == log.end
    assert rig.segment.get("ha_wanted") == 0
    assert rig.segment.slaves() == []


def test_a_report_that_goes_back_ends_the_connection(log: Log, rig: HaRig) -> None:
    fill(log, 5000)
    slave = rig.connect(reports=300)
    rig.await_state(slave, "COPYING")
    slave.report(200)
    assert slave.is_closed()


def test_a_slave_that_is_ahead_is_refused_by_name_and_counts_for_nothing(
    log: Log, rig: HaRig, caplog: pytest.LogCaptureFixture
) -> None:
    fill(log, 5000)
    ahead = log.end + 1
    slave = rig.connect(reports=ahead)
    assert slave.is_closed()
    assert [row["state"] for row in rig.segment.slaves()] == [SLAVE["REFUSED_AHEAD"]]
    assert rig.segment.get("slave_count") == rig.segment.get("replicated_offset") == 0
    # It tries again, for ever; one line tells of it, and one row.
    for _ in range(3):
        assert rig.connect(reports=ahead).is_closed()
    assert len(rig.segment.slaves()) == 1
    lines = [record for record in caplog.records if "its history is another one" in record.getMessage()]
    assert len(lines) == 1
    assert f"offset={ahead}" in lines[0].getMessage()


def test_a_slave_that_was_ahead_stays_refused_when_the_log_has_grown_past_it(log: Log, rig: HaRig) -> None:
    fill(log, 5000)
    ahead = log.end + 1
    assert rig.connect(reports=ahead).is_closed()
    fill(log, 5000)
    assert rig.connect(reports=ahead).is_closed()
    # Another one at the same address is none the worse for it.
    other = rig.connect(reports=ahead + 1)
    assert other.copy(ahead + 1, log.end) == bytes_of(log, ahead + 1, log.end)
    rig.stop()
    rig.start()
    assert rig.connect(reports=ahead).is_closed()


def test_a_slave_that_runs_ahead_later_is_refused_too(log: Log, rig: HaRig) -> None:
    fill(log, 5000)
    slave = rig.connect(reports=0)
    slave.copy(0, log.end)
    slave.report(log.end + 8)
    assert slave.is_closed()
    assert rig.segment.get("replicated_offset") == 0
    assert [row["state"] for row in rig.segment.slaves()] == [SLAVE["REFUSED_AHEAD"]]


def test_a_slave_before_the_first_file_gets_heart_beats_and_is_told_of(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    fill(log, 2 * FILE_SIZE)
    log.segment.set("min_offset", FILE_SIZE)
    with contextlib.closing(HaRig(log, heartbeat_ms=1)) as rig:
        slave = rig.connect(reports=100)
        rig.await_state(slave, "BEFORE_FIRST_FILE")
        assert [slave.frame() for _ in range(3)] == [(100, b"")] * 3
        assert rig.segment.get("slave_count") == 0
        assert rig.segment.get("ha_wanted") == 0
        assert "before the first file" in caplog.text


def test_a_slave_whose_files_are_deleted_while_it_copies_is_lost(log: Log) -> None:
    fill(log, 8 << 20)
    with contextlib.closing(HaRig(log, heartbeat_ms=1)) as rig:
        slave = rig.connect(reports=8)
        wait_until(lambda: rig.row(slave)["sent"] > 8, describe="it is sent what there is")
        log.segment.set("min_offset", log.end - log.end % FILE_SIZE)
        slave.frame()
        wait_until(
            lambda: slave.frame() and rig.row(slave)["state"] == SLAVE["BEFORE_FIRST_FILE"], describe="it is lost"
        )


# Time -------------------------------------------------------------------------------------------------------------


def test_a_slave_that_has_everything_gets_heart_beats(log: Log) -> None:
    log.append()
    with contextlib.closing(HaRig(log, heartbeat_ms=20)) as rig:
        slave = rig.connect(reports=log.end)
        assert [slave.frame() for _ in range(3)] == [(log.end, b"")] * 3


def test_a_slave_that_is_silent_for_too_long_is_disconnected(log: Log) -> None:
    with contextlib.closing(HaRig(log, silence_ms=50)) as rig:
        began = time.monotonic()
        assert rig.connect(reports=0).is_closed()
        assert rig.connect().is_closed()
        assert time.monotonic() - began >= 0.1


def test_a_slave_is_sent_no_more_in_a_second_than_it_may_and_keeps_nobody_waiting(log: Log, rig: HaRig) -> None:
    fill(log, RATE // 4)
    end = log.end
    rig.change(bytes_per_s=RATE)
    began = time.monotonic()
    far, near = rig.connect(reports=1), rig.connect(reports=end)
    rig.await_state(near, "COPYING")
    log.append()
    assert near.copy(end, log.end) == bytes_of(log, end, log.end)
    assert far.copy(1, log.end) == bytes_of(log, 1, log.end)
    assert time.monotonic() - began > (end - 1) / RATE - BURST_S


def test_a_slave_that_was_paced_gets_the_rest_when_it_may(log: Log, rig: HaRig) -> None:
    fill(log, RATE // 4)
    end = log.end
    rig.change(bytes_per_s=1)
    slave = rig.connect(reports=1)
    rig.await_state(slave, "COPYING")
    rig.change(bytes_per_s=0)
    assert slave.copy(1, end) == bytes_of(log, 1, end)


def test_other_settings_are_gone_by(log: Log, rig: HaRig) -> None:
    slave = rig.connect(reports=0)
    rig.await_state(slave, "COPYING")
    rig.change(heartbeat_ms=1)
    assert slave.frame() == (0, b"")


# Waking -----------------------------------------------------------------------------------------------------------


def test_without_slaves_it_sleeps_and_wants_no_wakes(log: Log, rig: HaRig) -> None:
    slave = rig.connect(reports=0)
    rig.await_state(slave, "COPYING")
    slave.socket.close()
    wait_until(lambda: rig.segment.get("slave_count") == 0, describe="it is gone")
    turns = rig.word("turns")
    for _ in range(10):
        log.append()
        assert rig.word("sleeping") == 0
        time.sleep(0.01)
    assert rig.word("turns") <= turns + 1
    assert rig.word("released") == 2**63 - 1


@pytest.mark.parametrize("waits", [False, True], ids=["async", "sync"])
def test_it_says_that_it_sleeps_over_more_of_the_log(log: Log, waits: bool) -> None:
    with contextlib.closing(HaRig(log, waits_for_slaves=waits)) as rig:
        slave = rig.connect(reports=0)
        wait_until(lambda: rig.word("sleeping") == 1, describe="it wants to be woken")
        log.append()
        rig.wake()
        slave.copy(0, log.end)


def test_who_waits_for_a_slave_is_woken_by_its_report(log: Log, rig: HaRig) -> None:
    log.append()
    rig.segment.set_worker_word(SEND_ROW, "parked", 1)
    rig.segment.set_worker_word(SEND_ROW, "sleeping", 1)
    slave = rig.connect(reports=0)
    slave.copy(0, log.end)
    assert select.select([rig.send_wake], [], [], 0)[0] == []
    slave.report(log.end)
    assert select.select([rig.send_wake], [], [], DEADLINE_S)[0]


def test_a_slave_that_keeps_up_leaves_with_everything(log: Log, rig: HaRig) -> None:
    slave = rig.connect(reports=0)
    rig.await_state(slave, "COPYING")
    fill(log, FILE_SIZE)
    stopper = threading.Thread(target=rig.stop)
    stopper.start()
    slave.copy(0, log.end)
    slave.report(log.end)
    stopper.join()
    assert rig.segment.get("replicated_offset") == log.end
    assert rig.word("state") == STATE["STOPPED"]


def test_as_many_slaves_as_there_are_rows_and_no_more(log: Log, rig: HaRig) -> None:
    slaves = [rig.connect(reports=0) for _ in range(layout.SLAVE_CAPACITY)]
    wait_until(lambda: rig.segment.get("slave_count") == len(slaves), describe="all count")
    assert rig.connect(reports=0).is_closed()
    slaves[3].socket.close()
    wait_until(lambda: rig.segment.get("slave_count") == len(slaves) - 1, describe="one is gone")
    log.append()
    assert rig.connect(reports=0).copy(0, log.end) == bytes_of(log, 0, log.end)


def test_the_first_bytes_of_a_frame_are_rocketmqs(log: Log, rig: HaRig) -> None:
    """As HAConnection writes them: the offset in 8 bytes, the size in 4, big-endian, then the log."""
    log.append()
    slave = rig.connect(reports=0)
    wanted = struct.pack(">qi", 0, log.end) + bytes_of(log, 0, log.end)
    data = b""
    while len(data) < len(wanted):
        data += slave.socket.recv(len(wanted) - len(data))
    assert data == wanted
    assert TOPIC in data


def test_a_slave_far_behind_gets_what_is_on_disk_only_while_another_is_served(tmp_path: Path) -> None:
    """The pages that it needs are asked for and looked at again; nobody else waits for the disk."""
    if keeps_pages(tmp_path):
        pytest.skip("files lie in memory here")
    with shared_segment() as segment:
        log = Log(tmp_path, segment, 1 << 24)
        fill(log, 100 << 20, bytes(60_000))
        far_behind = 1000
        for path in tmp_path.iterdir():
            descriptor = os.open(path, os.O_RDWR)
            os.fsync(descriptor)
            os.close(descriptor)
        del log.writer  # its mappings hold the pages
        for path in tmp_path.iterdir():
            descriptor = os.open(path, os.O_RDWR)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
        assert resident_share(tmp_path / file_name(0)) < 0.1
        log.writer = log.another_writer()
        with contextlib.closing(HaRig(log)) as rig:
            slave, other = rig.connect(reports=far_behind), rig.connect(reports=log.end)
            rig.await_state(other, "COPYING")
            end = log.end
            log.append(b"now")
            assert other.copy(end, log.end) == bytes_of(log, end, log.end)
            at = far_behind
            while at < log.end:
                offset, body = slave.frame()
                assert (offset, body) == (at, log.read(at, len(body)))
                at += len(body)
            assert at == log.end
