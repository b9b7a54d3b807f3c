"""Clients that never read, never finish, or are far too many: memory stays bounded, and nobody else is disturbed."""

from __future__ import annotations

import contextlib
import resource
import select
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from mqcore.codes import RequestCode, ResponseCode
from mqcore.protocol.command import RemotingCommand
from mqcore.workers.send import READ_BUDGET_BYTES, WRITE_BUDGET_BYTES
from tests.fault.rig import DEADLINE_S, SMALL_FILES, find_worker, start_broker
from tests.fault.talker import Talker, max_offset_request, pull_request, pulled, send_request
from tests.integration.bystander import Peaceful, lone_name_server, peaceful_broker
from tests.rigs import wire
from tests.waiting import POLL_S, wait_until

pytestmark = pytest.mark.fault

TOPIC = "Target"
ROLLED = "Rolled"
BIG_BODY = 60_000
BIG_BODIES = 8
WRITE_BUFFER = 1 << 20
MIB = 1 << 20
ROOM = 48 * MIB
PULLS = 20_000
LISTS = 5_000
PROMISING = 300
IDLE_S = 4
"""Those who go on all the time, in this process, must never seem idle, even if it has to wait for a processor."""

CLOCK_MONOTONIC_COARSE = 6  # of Linux; Python has no name for it
TICK_S = time.clock_getres(CLOCK_MONOTONIC_COARSE) + 0.001
"""How far the worker's clock may be behind, which goes in ticks and counts whole milliseconds."""

MANY = 1500
FRAME_PROMISED = 16 * MIB - 4
FEW_DESCRIPTORS = 120
SHELL_DESCRIPTORS = 256
UNANSWERED_S = 0.5
SMALL_WINDOW = 4096
LATE_READERS = 100
LATE_PULLS = 60
GREEDY = 40
LATE_WINDOW = 65536


@pytest.fixture(scope="module")
def peaceful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peaceful]:
    properties = {
        "connectionWriteBufferBytes": str(WRITE_BUFFER),
        "serverChannelMaxIdleTimeSeconds": str(IDLE_S),
        "mappedFileSizeCommitLog": str(1 << 18),
    }
    for running in peaceful_broker(tmp_path_factory.mktemp("bad-peers"), properties):
        fill(running)
        yield running


def fill(peaceful: Peaceful) -> None:
    """Make the topic, with some big messages in it."""
    wire.create_topic(peaceful.address, TOPIC, queues=1)
    with Talker(peaceful.address) as talker:
        for _ in range(BIG_BODIES):
            assert talker.call(send_request(TOPIC, 0, bytes(BIG_BODY))).code == ResponseCode.SUCCESS
        wait_until(
            lambda: talker.call(max_offset_request(TOPIC, 0)).ext_fields == {"offset": str(BIG_BODIES)},
            DEADLINE_S,
            "the messages are readable",
        )


@pytest.fixture(autouse=True)
def others_go_on(peaceful: Peaceful) -> Iterator[None]:
    with peaceful.undisturbed():
        yield


class Watch:
    """How much a worker's memory has grown at most since the watch began."""

    def __init__(self, peaceful: Peaceful, kind: str) -> None:
        self._peaceful = peaceful
        self._kind = kind
        self._before = peaceful.memory_bytes(kind)
        self.grown = 0

    def look(self) -> None:
        self.grown = max(self.grown, self._peaceful.memory_bytes(self._kind) - self._before)


def write_until_closed(talker: Talker, data: bytes, watches: list[Watch]) -> None:
    """Write *data*, reading nothing, until the broker closes the connection."""
    talker.socket.setblocking(False)
    at, deadline = 0, time.monotonic() + DEADLINE_S
    while not hangs_up(talker.socket):
        assert time.monotonic() < deadline, f"the connection is still there, {at} of {len(data)} bytes were taken"
        for watch in watches:
            watch.look()
        with contextlib.suppress(BlockingIOError, ConnectionError):
            at += talker.socket.send(data[at : at + MIB])
        time.sleep(POLL_S)


def hangs_up(connection: socket.socket) -> bool:
    """Whether the other end is gone, without reading what may have come before."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    return bool(poll.poll(0))


def unread(address: str) -> Talker:
    """A connection that takes as few bytes as the system allows, so that the broker has to keep the rest."""
    return Talker(address, receive_buffer_size=SMALL_WINDOW)


def read_queue(talker: Talker, topic: str) -> list[int]:
    """The sizes of all the bodies in a queue, read as clients do: on from where the broker says."""
    sizes: list[int] = []
    while len(sizes) < BIG_BODIES:
        response = talker.call(pull_request(topic, 0, len(sizes), suspend_ms=1000), DEADLINE_S)
        assert response.code in (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND)
        sizes += [len(message.body) for message in pulled(response)]
        assert response.ext_fields is not None
        assert response.ext_fields["nextBeginOffset"] == str(len(sizes))
    return sizes


def test_a_client_that_reads_no_messages_is_cut_off(peaceful: Peaceful) -> None:
    """Thousands of pulls in one go, each for half a megabyte, and not one answer read."""
    watches = [Watch(peaceful, "send"), Watch(peaceful, "pull")]
    data = pull_request(TOPIC, 0, 0).encode() * PULLS
    with unread(peaceful.address) as talker:
        write_until_closed(talker, data, watches)
    assert max(watch.grown for watch in watches) < ROOM


def test_a_client_that_reads_no_lists_is_cut_off(peaceful: Peaceful) -> None:
    """The same with answers that the broker process makes."""
    watches = [Watch(peaceful, "send")]
    data = RemotingCommand(RequestCode.GET_ALL_TOPIC_CONFIG).encode() * LISTS
    with unread(peaceful.address) as talker:
        write_until_closed(talker, data, watches)
    assert watches[0].grown < ROOM


@pytest.mark.parametrize("count", [1, 32], ids=["little", "much"])
def test_a_client_that_reads_nothing_hears_that_its_time_is_over(peaceful: Peaceful, count: int) -> None:
    with unread(peaceful.address) as talker:
        talker.send([pull_request(TOPIC, 0, 0, count=count)])
        wait_until(lambda: hangs_up(talker.socket), DEADLINE_S, "the connection is closed")


def test_a_client_that_reads_slowly_gets_everything(peaceful: Peaceful) -> None:
    with Talker(peaceful.address, receive_buffer_size=4 * SMALL_WINDOW) as talker:
        talker.send([pull_request(TOPIC, 0, 0)])
        messages = pulled(talker.receive(DEADLINE_S))
    assert [len(message.body) for message in messages] == [BIG_BODY] * 4


def test_a_promise_of_many_bytes_costs_only_the_bytes_that_came(peaceful: Peaceful) -> None:
    watch = Watch(peaceful, "send")
    with contextlib.ExitStack() as stack:
        for _ in range(PROMISING):
            talker = stack.enter_context(Talker(peaceful.address))
            talker.socket.sendall(struct.pack(">ii", FRAME_PROMISED, 100) + bytes(1000))
            watch.look()
    assert watch.grown < ROOM


def test_an_unfinished_frame_is_closed_when_its_time_is_over(peaceful: Peaceful) -> None:
    with Talker(peaceful.address) as talker:
        # Before the bytes are sent: the broker may have read them before this thread comes to its next line.
        began = time.monotonic()
        talker.socket.sendall(send_request(TOPIC, 0, b"x").encode()[:50])
        assert talker.is_closed_by_peer(DEADLINE_S)
        assert time.monotonic() - began >= IDLE_S - TICK_S


def test_the_system_alone_limits_how_many_connections_there_may_be(tmp_path: Path) -> None:
    """As with a Java machine, whatever the shell's own limit was."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(SHELL_DESCRIPTORS, hard), hard))
    try:
        with start_broker(tmp_path, SMALL_FILES) as broker, lone_name_server(tmp_path) as (name_server, _):
            for process in (psutil.Process(broker.pid), find_worker(broker, "send"), psutil.Process(name_server.pid)):
                assert process.rlimit(resource.RLIMIT_NOFILE) == (hard, hard)
            broker.stop()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# With room and time ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peaceful]:
    """A broker that gives everybody as much time and room as brokers do unless they are told otherwise."""
    for running in peaceful_broker(tmp_path_factory.mktemp("patient"), {"mappedFileSizeCommitLog": str(1 << 18)}):
        fill(running)
        yield running


def test_many_connections_are_served_and_given_back(patient: Peaceful) -> None:
    """The first must not have been idle for too long when the last one has come."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4 * MANY), hard))
    worker = find_worker(patient.broker, "send")
    before = worker.num_fds()
    try:
        with contextlib.ExitStack() as stack, patient.undisturbed():
            talkers = [stack.enter_context(Talker(patient.address, DEADLINE_S)) for _ in range(MANY)]
            for talker in talkers:
                talker.send([max_offset_request(TOPIC, 0)])
            assert {talker.receive().code for talker in talkers} == {ResponseCode.SUCCESS}
            assert worker.num_fds() >= MANY
        wait_until(lambda: worker.num_fds() <= before + 2, DEADLINE_S, "the connections are given back")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_connections_that_come_and_go_leave_nothing(patient: Peaceful) -> None:
    worker = find_worker(patient.broker, "send")
    before = worker.num_fds()
    watch = Watch(patient, "send")
    with patient.undisturbed():
        for number in range(MANY):
            with Talker(patient.address) as talker:
                if number % 3 == 0:
                    talker.send([pull_request(TOPIC, 0, BIG_BODIES, suspend_ms=60_000)])
                elif number % 3 == 1:
                    talker.call(max_offset_request(TOPIC, 0))
    wait_until(lambda: worker.num_fds() <= before + 2, DEADLINE_S, "the connections are given back")
    watch.look()
    assert watch.grown < ROOM


def test_a_worker_out_of_descriptors_takes_connections_again_later(patient: Peaceful) -> None:
    wire.create_topic(patient.address, ROLLED, queues=1)
    worker = find_worker(patient.broker, "send")
    limits = worker.rlimit(resource.RLIMIT_NOFILE)
    worker.rlimit(resource.RLIMIT_NOFILE, (worker.num_fds() + 20, limits[1]))
    try:
        with contextlib.ExitStack() as stack, patient.undisturbed():
            talkers = [stack.enter_context(Talker(patient.address)) for _ in range(FEW_DESCRIPTORS)]
            talkers[0].send([max_offset_request(TOPIC, 0)])
            assert talkers[0].receive().code == ResponseCode.SUCCESS
            talkers[-1].send([max_offset_request(TOPIC, 0)])
            with pytest.raises(TimeoutError):
                talkers[-1].receive(UNANSWERED_S)
            # Files of the commit log roll meanwhile, and must be mapped to be written and read.
            for _ in range(BIG_BODIES):
                assert talkers[0].call(send_request(ROLLED, 0, bytes(BIG_BODY))).code == ResponseCode.SUCCESS
            assert read_queue(talkers[0], ROLLED) == [BIG_BODY] * BIG_BODIES
            for talker in talkers[:-1]:
                talker.close()
            assert talkers[-1].receive(DEADLINE_S).code == ResponseCode.SUCCESS
    finally:
        worker.rlimit(resource.RLIMIT_NOFILE, limits)


def test_many_who_read_late_share_the_memory_and_lose_nothing(patient: Peaceful) -> None:
    """They pull more than they may leave unread. What is left out is to be asked for again, from the same offset."""
    watch = Watch(patient, "send")
    follower = patient.load.follower

    def pulls_of_others() -> int:
        """How many pulls the worker has taken that are not the well-behaved client's, less those on their way."""
        taken = patient.word("pull", "units")
        return taken - follower.pulls

    with contextlib.ExitStack() as stack, patient.undisturbed():
        talkers = [
            stack.enter_context(Talker(patient.address, receive_buffer_size=LATE_WINDOW)) for _ in range(LATE_READERS)
        ]
        before = pulls_of_others()
        for talker in talkers:
            talker.send([pull_request(TOPIC, 0, 0) for _ in range(LATE_PULLS)])
        wait_until(lambda: pulls_of_others() >= before + LATE_READERS * LATE_PULLS, DEADLINE_S, "all are read")
        for talker in talkers:
            answers = [talker.receive(DEADLINE_S) for _ in range(LATE_PULLS)]
            watch.look()
            found = [answer for answer in answers if answer.code == ResponseCode.SUCCESS]
            assert found
            assert all([len(message.body) for message in pulled(answer)] == [BIG_BODY] * 4 for answer in found)
            left_out = [answer for answer in answers if answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY]
            assert len(found) + len(left_out) == LATE_PULLS
            assert left_out
            assert {(answer.ext_fields or {})["nextBeginOffset"] for answer in left_out} == {"0"}
            assert read_queue(talker, TOPIC) == [BIG_BODY] * BIG_BODIES
    assert watch.grown < WRITE_BUDGET_BYTES / 2 + ROOM


@pytest.mark.slow
def test_those_who_hold_most_pay_when_unfinished_frames_fill_the_memory(patient: Peaceful) -> None:
    """Many send all but the end of the largest frame there is; who is half through a small one is not cut off."""
    watch = Watch(patient, "send")
    small = send_request(TOPIC, 0, bytes(BIG_BODY)).encode()
    with contextlib.ExitStack() as stack, patient.undisturbed():
        early = stack.enter_context(Talker(patient.address))
        early.socket.sendall(small[:-1])
        greedy = [stack.enter_context(Talker(patient.address)) for _ in range(GREEDY)]
        for talker in greedy:
            with contextlib.suppress(ConnectionError):
                talker.socket.sendall(struct.pack(">ii", FRAME_PROMISED, 100) + bytes(FRAME_PROMISED - 100))
            watch.look()
        late = stack.enter_context(Talker(patient.address))
        late.socket.sendall(small[:-1])
        for talker in (early, late):
            talker.socket.sendall(small[-1:])
            assert talker.receive(DEADLINE_S).code == ResponseCode.SUCCESS
        closed = sum(hangs_up(talker.socket) for talker in greedy)
    assert 0 < closed < GREEDY
    assert READ_BUDGET_BYTES / 2 < watch.grown < READ_BUDGET_BYTES + ROOM
