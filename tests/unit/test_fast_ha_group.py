"""The ha worker's loop in a failover group: who is let in, what counts as confirmed, whom a slave listens to."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fast_rig import Log, shared_segment
from ha_rig import (
    DEADLINE_S,
    FILE_SIZE,
    LOOPBACK,
    PATIENT_MS,
    SEND_ROW,
    SLAVE,
    HaRig,
    MasterEnd,
    ReplicaRig,
    SlaveEnd,
    bounds,
    bytes_of,
    fill,
    log_bytes,
)

from mqcore import layout
from mqcore._fast.segment.boards import SharedSegment
from tests.waiting import wait_until

ROLE = layout.constants("HaRole")
GATE = layout.constants("ReadGate")
HELLO, HEAD, REPORT = layout.HA_HELLO, layout.HA_GROUP_FRAME_HEAD, layout.HA_REPORT
TERM, ME, FIRST, SECOND = 7, 0, 1, 62
NONCES = {FIRST: 1001, SECOND: (1 << 63) - 1}


class Member:
    """A slave's end of a connection to the master of its group."""

    def __init__(self, slave: SlaveEnd) -> None:
        self.socket = slave.socket
        self.slave = slave

    def report(self, end: int) -> None:
        self.slave.report(end)

    def frame(self) -> tuple[int, bytes, int, int]:
        """The next frame: where it belongs, its bytes, the term, and what is confirmed."""
        offset, size, zero, term, confirmed = HEAD.struct.unpack(self.slave.take(HEAD.size))
        assert zero == 0
        return offset, self.slave.take(size), term, confirmed

    def copy(self, start: int, end: int) -> bytes:
        """Frames until *end* is reached, which must follow each other from *start* on."""
        data = b""
        while start + len(data) < end:
            offset, body, term, confirmed = self.frame()
            assert (offset, term) == (start + len(data), TERM)
            assert confirmed <= end
            data += body
        return data

    def await_confirmed(self, end: int) -> None:
        while self.frame()[3] < end:
            pass


class GroupRig(HaRig):
    """A running loop that leads TERM, and whom it asks."""

    def __init__(self, log: Log, **changes: Any) -> None:
        segment = log.segment
        segment.set("read_gates", GATE["CONFIRMED"])
        segment.set("ha_member", ME)
        segment.set("ha_term", TERM)
        segment.set("ha_role", ROLE["MASTER"])
        for member, nonce in NONCES.items():
            segment.set_nonce(member, nonce)
        self._generation = 0
        super().__init__(log, **{"in_group": True, "waits_for_slaves": True, **changes})

    def greet(self, member: int = FIRST, end: int = 0, **changes: Any) -> Member:
        slave = self.connect()
        said = {"magic": layout.HA_HELLO_MAGIC, "term": TERM, "nonce": NONCES.get(member, 1), "end": end,
                "member": member, "zero": 0, "spare": 0} | changes  # fmt: skip
        slave.socket.sendall(HELLO.struct.pack(*said.values()))
        return Member(slave)

    def join(self, member: int = FIRST, end: int = 0) -> Member:
        """A member that is let in."""
        joined = self.greet(member, end)
        self.await_state(joined.slave, "COPYING")
        return joined

    def require(self, *members: int) -> None:
        """Let these be required; returns when that is seen."""
        self._generation += 1
        self.segment.require(self._generation, sum(1 << member for member in (ME, *members)))
        self.wake()
        wait_until(lambda: self.segment.get("required_seen") == self._generation, describe="the set is seen")

    @property
    def confirmed(self) -> int:
        return self.segment.get("confirmed_offset")

    def await_confirmed(self, end: int) -> None:
        wait_until(lambda: self.confirmed >= end, describe=f"{end} is confirmed")
        assert self.confirmed == end

    def pass_turns(self) -> None:
        """Let the loop look at everything that is there once more."""
        for _ in range(2):
            seen = self.word("turns")
            self.wake()
            wait_until(lambda seen=seen: self.word("turns") > seen, describe="a turn")  # type: ignore[misc]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with shared_segment() as segment:
        yield Log(tmp_path, segment, FILE_SIZE)


@pytest.fixture
def rig(log: Log) -> Iterator[GroupRig]:
    with contextlib.closing(GroupRig(log)) as made:
        yield made


# Who is let in ----------------------------------------------------------------------------------------------------


def test_a_member_gets_the_log_in_frames_that_tell_the_term_and_what_is_confirmed(log: Log, rig: GroupRig) -> None:
    fill(log, 3 * FILE_SIZE)
    member = rig.join()
    assert member.copy(0, log.end) == bytes_of(log, 0, log.end)
    row = rig.row(member.slave)
    assert (row["member"], row["sent"], row["acked"]) == (FIRST, log.end, -1)


def test_a_member_goes_on_from_the_end_that_it_says(log: Log, rig: GroupRig) -> None:
    fill(log, 2 * FILE_SIZE)
    start = bounds(log)[5]
    assert rig.join(end=start).copy(start, log.end) == bytes_of(log, start, log.end)


@pytest.mark.parametrize(
    "said",
    [
        {"term": TERM - 1}, {"term": TERM + 1}, {"nonce": NONCES[FIRST] + 1}, {"nonce": 0}, {"nonce": -1},
        {"member": 5, "nonce": 0}, {"member": 5}, {"member": ME}, {"member": -1}, {"member": 63}, {"member": 1 << 30},
        {"end": 1 << 40}, {"end": -1}, {"magic": layout.HA_HELLO_MAGIC - 1},
    ],
    ids=str,
)  # fmt: skip
def test_who_says_something_else_is_sent_away(log: Log, rig: GroupRig, said: dict[str, int]) -> None:
    log.append()
    assert rig.greet(**said).slave.is_closed()
    assert rig.word("refused") == 1
    rig.join()


def test_nobody_is_let_in_by_a_broker_that_does_not_lead(log: Log, rig: GroupRig) -> None:
    rig.segment.set("ha_role", ROLE["NONE"])
    rig.wake()
    assert rig.greet().slave.is_closed()
    apache = rig.connect(reports=0)
    assert apache.is_closed()


def test_a_nonce_that_is_forgotten_is_let_in_no_more(log: Log, rig: GroupRig) -> None:
    rig.join()
    rig.segment.set_nonce(FIRST, 0)
    assert rig.greet().slave.is_closed()


def test_a_member_that_connects_anew_has_one_connection(log: Log, rig: GroupRig) -> None:
    first = rig.join()
    second = rig.join()
    assert first.slave.is_closed()
    rows = [row for row in rig.segment.slaves() if row["state"] == SLAVE["COPYING"]]
    assert [row["port"] for row in rows] == [second.socket.getsockname()[1]]


@pytest.mark.parametrize("pieces", [1, 3, 8, 47])
def test_a_hello_may_come_in_pieces_and_reports_behind_it(log: Log, rig: GroupRig, pieces: int) -> None:
    log.append()
    slave = rig.connect()
    said = HELLO.struct.pack(layout.HA_HELLO_MAGIC, TERM, NONCES[FIRST], log.end, FIRST, 0, 0)
    stream = said + REPORT.struct.pack(0) + REPORT.struct.pack(log.end)
    slave.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for at in range(0, len(stream), pieces):
        slave.socket.sendall(stream[at : at + pieces])
    wait_until(lambda: rig.row(slave)["acked"] == log.end, describe="the report is taken")


@pytest.mark.parametrize("reports", [(5, 4), (1 << 40,), (-1,)])
def test_a_report_that_cannot_be_ends_the_connection(log: Log, rig: GroupRig, reports: tuple[int, ...]) -> None:
    log.append()
    member = rig.join(end=log.end)
    for end in reports:
        member.report(end)
        rig.pass_turns()
    assert member.slave.is_closed()


def test_rocketmqs_slave_is_sent_its_frames_and_counts_for_nothing(log: Log, rig: GroupRig) -> None:
    fill(log, 5000)
    slave = rig.connect(reports=0)
    assert slave.copy(0, log.end) == bytes_of(log, 0, log.end)
    slave.report(log.end)
    wait_until(lambda: rig.row(slave)["acked"] == log.end, describe="it has reported")
    assert rig.row(slave)["member"] == -1
    assert rig.segment.get("replicated_offset") == rig.confirmed == 0


# What is confirmed ------------------------------------------------------------------------------------------------


def test_nothing_is_confirmed_before_there_is_a_required_set(log: Log, rig: GroupRig) -> None:
    member = rig.join()
    log.append()
    member.report(log.end)
    rig.pass_turns()
    assert (rig.confirmed, rig.segment.get("readable_offset")) == (0, 0)
    rig.require(FIRST)
    rig.await_confirmed(log.end)


def test_a_master_alone_confirms_what_it_has_and_wakes_who_waits(log: Log, rig: GroupRig) -> None:
    rig.require()
    rig.segment.set_worker_word(SEND_ROW, "parked", 1)
    rig.segment.set_worker_word(SEND_ROW, "sleeping", 1)
    wait_until(lambda: rig.word("sleeping") == 1, describe="the loop sleeps over the end of the log")
    log.append()
    rig.wake()
    rig.await_confirmed(log.end)
    wait_until(lambda: rig.segment.get("replicated_offset") == log.end, describe="who waits for a slave is released")
    wait_until(lambda: os.eventfd_read(rig.send_wake) > 0, describe="the send worker is woken")
    assert rig.segment.get("readable_offset") == log.end


def test_all_required_members_must_have_it_and_others_hold_nobody_up(log: Log, rig: GroupRig) -> None:
    first, second = rig.join(FIRST), rig.join(SECOND)
    rig.require(FIRST, SECOND)
    ends = []
    for _ in range(4):
        log.append()
        ends.append(log.end)
    first.report(ends[3])
    second.report(ends[0])
    rig.await_confirmed(ends[0])
    second.report(ends[1])
    rig.await_confirmed(ends[1])
    rig.require(FIRST)
    rig.await_confirmed(ends[3])
    assert rig.segment.get("readable_offset") == rig.segment.get("replicated_offset") == ends[3]


def test_a_required_member_without_a_connection_holds_what_is_confirmed(log: Log, rig: GroupRig) -> None:
    rig.require(FIRST)
    log.append()
    rig.pass_turns()
    assert rig.confirmed == 0
    member = rig.join()
    member.report(log.end)
    rig.await_confirmed(first := log.end)
    member.socket.close()
    log.append()
    rig.pass_turns()
    again = rig.join(end=first)
    rig.pass_turns()
    assert rig.confirmed == first, "its hello is no report"
    again.report(log.end)
    rig.await_confirmed(log.end)


def test_what_is_confirmed_does_not_go_back_when_a_member_joins_the_set(log: Log, rig: GroupRig) -> None:
    rig.require()
    log.append()
    rig.wake()
    rig.await_confirmed(log.end)
    before = log.end
    member = rig.join()
    rig.require(FIRST)
    log.append()
    rig.pass_turns()
    assert rig.confirmed == before
    member.report(log.end)
    rig.await_confirmed(log.end)


def test_a_successor_counts_only_what_it_hears_itself(log: Log, rig: GroupRig) -> None:
    rig.require(FIRST)
    member = rig.join()
    log.append()
    member.report(before := log.end)
    rig.await_confirmed(before)
    log.append()
    rig.stop()
    rig.segment.set("required_seen", 0)
    rig.start()
    wait_until(lambda: rig.segment.get("required_seen") == 1, describe="the set is read")
    rig.pass_turns()
    assert rig.confirmed == before
    rig.join(end=before).report(log.end)
    rig.await_confirmed(log.end)


def test_who_leads_no_more_confirms_nothing_and_has_no_slaves(log: Log, rig: GroupRig) -> None:
    rig.require(FIRST)
    member = rig.join()
    rig.segment.set("ha_role", ROLE["NONE"])
    rig.wake()
    assert member.slave.is_closed()
    log.append()
    rig.segment.require(9, 1 << ME)
    rig.pass_turns()
    assert (rig.confirmed, rig.segment.get("required_seen")) == (0, 1)


def test_a_set_that_is_being_written_is_not_taken(log: Log, rig: GroupRig) -> None:
    rig.require(FIRST)
    rig.segment.add("required_version", 1)
    rig.segment.set("required_members", 1 << ME)
    log.append()
    rig.pass_turns()
    assert rig.confirmed == 0
    rig.segment.set("required_generation", 2)
    rig.segment.add("required_version", 1)
    rig.wake()
    rig.await_confirmed(log.end)


def test_what_counts_of_the_own_log_can_be_what_is_on_disk(log: Log) -> None:
    with contextlib.closing(GroupRig(log, acks_flushed=True)) as rig:
        rig.require()
        log.append()
        log.append()
        rig.pass_turns()
        assert rig.confirmed == 0
        rig.segment.set_flushed(first := bounds(log)[1])
        rig.wake()
        rig.await_confirmed(first)


def test_what_is_read_must_be_flushed_too_where_that_is_asked_for(log: Log, rig: GroupRig) -> None:
    rig.segment.set("read_gates", GATE["CONFIRMED"] | GATE["FLUSHED"])
    rig.require()
    log.append()
    rig.wake()
    rig.await_confirmed(first := log.end)
    assert rig.segment.get("readable_offset") == 0
    rig.segment.set_flushed(first)
    assert rig.segment.get("readable_offset") == first
    log.append()
    rig.segment.set_flushed(log.end)
    rig.wake()
    wait_until(lambda: rig.segment.get("readable_offset") == log.end, describe="it is confirmed, and may be read")


# What members are told ---------------------------------------------------------------------------------------------


def test_members_are_told_what_is_confirmed_though_nothing_else_goes(log: Log, rig: GroupRig) -> None:
    member = rig.join()
    rig.require(FIRST)
    log.append()
    assert member.copy(0, log.end)
    member.report(log.end)
    member.await_confirmed(log.end)


def test_members_hear_something_several_times_a_second(log: Log, rig: GroupRig) -> None:
    member = rig.join()
    heard = [member.frame() for _ in range(4)]
    assert heard == [(0, b"", TERM, 0)] * 4
    assert rig._options["heartbeat_ms"] == PATIENT_MS


def test_a_member_that_does_not_read_is_told_nothing_twice_and_nothing_mixed_up(log: Log, rig: GroupRig) -> None:
    """What is confirmed grows while frames wait for room in the socket, some of them cut wherever it was full."""
    rig.require()
    member = rig.join()
    for _ in range(80):
        fill(log, 100_000)
        rig.wake()
    rig.await_confirmed(log.end)
    told, at = 0, 0
    while at < log.end:
        offset, body, term, confirmed = member.frame()
        assert (offset, term) == (at, TERM)
        assert told <= confirmed <= log.end
        assert body == bytes_of(log, offset, offset + len(body))
        told, at = confirmed, at + len(body)
    member.await_confirmed(log.end)


# Slaves -----------------------------------------------------------------------------------------------------------


class GroupMasterEnd(MasterEnd):
    """The end of a master of the group."""

    def hello(self) -> dict[str, int]:
        return dict(zip(HELLO.offsets, HELLO.struct.unpack(self.take(HELLO.size)), strict=True))

    def group_frame(self, offset: int, data: bytes = b"", term: int = TERM, confirmed: int = 0) -> None:
        self.socket.sendall(HEAD.struct.pack(offset, len(data), 0, term, confirmed) + data)


class FollowerRig(ReplicaRig):
    """A running loop of member FIRST, which leads nothing."""

    def __init__(self, segment: SharedSegment, directory: Path, **changes: Any) -> None:
        segment.set("read_gates", GATE["CONFIRMED"])
        segment.set("ha_member", FIRST)
        segment.set("ha_nonce", NONCES[FIRST])
        super().__init__(segment, directory, **{"in_group": True, "is_slave": False, **changes})

    def follow(self, start: int = 0) -> GroupMasterEnd:
        return GroupMasterEnd(self._meet(start, TERM))

    def forget(self) -> int:
        version = self.segment.forget_master()
        self.wake()
        wait_until(lambda: self.segment.get("followed_version") == version, describe="the master is left")
        return version


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Log]:
    (tmp_path / "master").mkdir()
    with shared_segment() as segment:
        source = Log(tmp_path / "master", segment, FILE_SIZE)
        fill(source, 2 * FILE_SIZE, b"x" * 777)
        yield source


@pytest.fixture
def follower(tmp_path: Path) -> Iterator[FollowerRig]:
    (tmp_path / "slave").mkdir()
    with shared_segment() as segment, contextlib.closing(FollowerRig(segment, tmp_path / "slave")) as made:
        yield made


def test_a_member_says_who_it_is_and_where_its_log_ends_and_then_reports(source: Log, follower: FollowerRig) -> None:
    data = log_bytes(source)
    master = follower.follow()
    said = {
        "magic": layout.HA_HELLO_MAGIC,
        "term": TERM,
        "nonce": NONCES[FIRST],
        "member": FIRST,
        "zero": 0,
        "spare": 0,
    }
    assert master.hello() == said | {"end": 0}
    assert master.report() == 0
    master.group_frame(0, data)
    while master.report() < len(data):
        pass
    assert follower.bytes_at(0, len(data)) == data
    follower.forget()
    assert follower.follow().hello() == said | {"end": len(data)}


def test_a_slave_reads_what_its_master_says_is_confirmed_and_it_has(source: Log, follower: FollowerRig) -> None:
    data, ends = log_bytes(source), bounds(source)
    master = follower.follow()
    master.group_frame(0, data[: ends[4]], confirmed=ends[2])
    wait_until(lambda: follower.segment.get("readable_offset") == ends[2], describe="what is confirmed may be read")
    master.group_frame(ends[4], confirmed=ends[6])
    wait_until(lambda: follower.segment.get("readable_offset") == ends[4], describe="as far as it is here")
    assert follower.segment.get("confirmed_offset") == ends[4]
    master.group_frame(ends[4], data[ends[4] : ends[8]], confirmed=ends[6])
    wait_until(lambda: follower.segment.get("confirmed_offset") == ends[6], describe="and as it comes")
    assert follower.end == ends[8]


@pytest.mark.parametrize("term", [0, TERM - 1, TERM + 1])
def test_a_slave_leaves_a_master_of_another_term_and_takes_nothing_from_it(
    source: Log, follower: FollowerRig, term: int
) -> None:
    data = log_bytes(source)
    master = follower.follow()
    master.group_frame(0, data[:5000], term=term, confirmed=5000)
    follower.await_loss()
    assert (follower.end, follower.segment.get("confirmed_offset")) == (0, 0)


def test_nothing_is_reported_once_the_master_is_left(source: Log, follower: FollowerRig) -> None:
    data, ends = log_bytes(source), bounds(source)
    master = follower.follow()
    master.hello()
    master.group_frame(0, data[: ends[4]])
    follower.await_end(ends[4])
    follower.forget()
    assert master.is_closed()
    assert follower.segment.get("ha_role") == ROLE["NONE"]
    assert follower.segment.get("master_heard") == 0


def test_a_master_that_does_not_answer_is_left_at_once(follower: FollowerRig) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as silent, contextlib.ExitStack() as stack:
        for _ in range(8):  # the kernel takes no more, and says nothing
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(silent.getsockname())
        follower.segment.set_master(LOOPBACK, silent.getsockname()[1], 0, TERM)
        follower.wake()
        state = layout.constants("MasterState")["CONNECTING"]
        wait_until(lambda: follower.segment.get("master_state") == state, describe="it tries")
        follower.forget()


def test_a_slave_reports_several_times_a_second_and_knows_when_it_heard_its_master(follower: FollowerRig) -> None:
    master = follower.follow()
    master.hello()
    assert [master.report() for _ in range(4)] == [0] * 4
    assert follower.segment.get("master_heard") == 0, "no frame has come"
    master.group_frame(0)
    wait_until(lambda: follower.segment.get("master_heard") > 0, describe="it has heard the master")


def test_a_slave_can_report_what_is_on_disk(tmp_path: Path, source: Log) -> None:
    (tmp_path / "slave").mkdir()
    data, ends = log_bytes(source), bounds(source)
    with (
        shared_segment() as segment,
        contextlib.closing(FollowerRig(segment, tmp_path / "slave", acks_flushed=True)) as follower,
    ):
        master = follower.follow()
        master.hello()
        master.group_frame(0, data[: ends[4]])
        follower.await_end(ends[4])
        assert master.report() == 0
        segment.set_flushed(ends[3])
        follower.wake()
        while (reported := master.report()) == 0:
            pass
        assert reported == ends[3]


def test_an_empty_log_of_a_member_can_begin_at_a_later_file(source: Log, follower: FollowerRig) -> None:
    master = follower.follow(start=FILE_SIZE)
    assert master.hello()["end"] == FILE_SIZE
    master.group_frame(FILE_SIZE, log_bytes(source)[FILE_SIZE:])
    follower.await_end(source.end)


def test_a_slave_that_is_promoted_lets_members_in_without_a_restart(source: Log, follower: FollowerRig) -> None:
    data = log_bytes(source)
    master = follower.follow()
    master.group_frame(0, data)
    follower.await_end(len(data))
    follower.forget()
    follower.segment.set("ha_term", TERM + 1)
    follower.segment.set("ha_role", ROLE["MASTER"])
    follower.segment.set_nonce(SECOND, NONCES[SECOND])
    follower.wake()
    with socket.create_connection(follower.slaves_address, DEADLINE_S) as slave:
        slave.sendall(HELLO.struct.pack(layout.HA_HELLO_MAGIC, TERM + 1, NONCES[SECOND], 0, SECOND, 0, 0))
        head = HEAD.struct.unpack(slave.recv(HEAD.size, socket.MSG_WAITALL))
        assert head[0] == 0
        assert head[3] == TERM + 1
