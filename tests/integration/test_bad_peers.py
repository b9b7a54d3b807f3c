"""Clients that never read, never finish, or are far too many: memory stays bounded, and nobody else is disturbed."""

from __future__ import annotations

import contextlib
import resource
import select
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from mqcore.codes import RequestCode, ResponseCode
from mqcore.protocol.command import RemotingCommand
from tests.fault.rig import DEADLINE_S, find_worker
from tests.fault.talker import Talker, max_offset_request, pull_request, pulled, send_request
from tests.integration.bystander import Peaceful, peaceful_broker
from tests.rigs import wire
from tests.waiting import wait_until

pytestmark = pytest.mark.fault

TOPIC = "Target"
BIG_BODY = 60_000
BIG_BODIES = 8
WRITE_BUFFER = 1 << 20
MIB = 1 << 20
ROOM = 48 * MIB
PULLS = 20_000
LISTS = 20_000
PROMISING = 300
IDLE_S = 2
MANY = 1500
FRAME_PROMISED = 16 * MIB - 4
FEW_DESCRIPTORS = 120


@pytest.fixture(scope="module")
def peaceful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peaceful]:
    properties = {
        "connectionWriteBufferBytes": str(WRITE_BUFFER),
        "serverChannelMaxIdleTimeSeconds": str(IDLE_S),
        "mappedFileSizeCommitLog": str(1 << 18),
    }
    for running in peaceful_broker(tmp_path_factory.mktemp("bad-peers"), properties):
        wire.create_topic(running.address, TOPIC, queues=1)
        with Talker(running.address) as talker:
            for _ in range(BIG_BODIES):
                assert talker.call(send_request(TOPIC, 0, bytes(BIG_BODY))).code == ResponseCode.SUCCESS
            wait_until(
                lambda: talker.call(max_offset_request(TOPIC, 0)).ext_fields == {"offset": str(BIG_BODIES)},
                describe="the messages are readable",
            )
        yield running


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


def write_until_refused(talker: Talker, data: bytes, watches: list[Watch], deadline_s: float = DEADLINE_S) -> bool:
    """Write *data*, reading nothing, until the broker closes the connection (True) or takes no more."""
    talker.socket.setblocking(False)
    at, deadline = 0, time.monotonic() + deadline_s
    stuck_since = time.monotonic()
    while time.monotonic() < deadline:
        for watch in watches:
            watch.look()
        try:
            if at < len(data):
                at += talker.socket.send(data[at : at + MIB])
                stuck_since = time.monotonic()
            elif hangs_up(talker.socket):
                return True
        except BlockingIOError:
            if time.monotonic() - stuck_since > 1:
                return False
        except ConnectionError:
            return True
        select.select([], [talker.socket], [], 0.02)
    return False


def hangs_up(connection: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    return bool(poll.poll(0))


def small_window(talker: Talker) -> None:
    """Take as few bytes as the system allows, so that the broker has to keep the rest."""
    talker.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)


def test_a_client_that_reads_no_messages_is_cut_off(peaceful: Peaceful) -> None:
    """Thousands of pulls in one go, each for half a megabyte, and not one answer read."""
    watches = [Watch(peaceful, "send"), Watch(peaceful, "pull")]
    data = pull_request(TOPIC, 0, 0).encode() * PULLS
    with Talker(peaceful.address) as talker:
        small_window(talker)
        assert write_until_refused(talker, data, watches)
    assert max(watch.grown for watch in watches) < ROOM


def test_a_client_that_reads_no_lists_is_cut_off(peaceful: Peaceful) -> None:
    """The same with answers that the broker process makes."""
    watches = [Watch(peaceful, "send")]
    data = RemotingCommand(RequestCode.GET_ALL_TOPIC_CONFIG).encode() * LISTS
    with Talker(peaceful.address) as talker:
        small_window(talker)
        assert write_until_refused(talker, data, watches)
    assert watches[0].grown < ROOM


def test_a_client_that_reads_slowly_gets_everything(peaceful: Peaceful) -> None:
    with Talker(peaceful.address) as talker:
        small_window(talker)
        talker.send([pull_request(TOPIC, 0, 0)])
        time.sleep(IDLE_S / 2)
        assert [len(message.body) for message in pulled(talker.receive())] == [BIG_BODY] * 4


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
        talker.socket.sendall(send_request(TOPIC, 0, b"x").encode()[:50])
        began = time.monotonic()
        assert talker.is_closed_by_peer(DEADLINE_S)
        assert time.monotonic() - began >= IDLE_S


def test_many_connections_are_served_and_given_back(peaceful: Peaceful) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4 * MANY), hard))
    worker = find_worker(peaceful.broker, "send")
    before = worker.num_fds()
    try:
        with contextlib.ExitStack() as stack:
            talkers = [stack.enter_context(Talker(peaceful.address, DEADLINE_S)) for _ in range(MANY)]
            for talker in talkers:
                talker.send([max_offset_request(TOPIC, 0)])
            assert {talker.receive().code for talker in talkers} == {ResponseCode.SUCCESS}
            assert worker.num_fds() >= before + MANY
        wait_until(lambda: worker.num_fds() <= before + 2, DEADLINE_S, "the connections are given back")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_worker_out_of_descriptors_takes_connections_again_later(peaceful: Peaceful) -> None:
    worker = find_worker(peaceful.broker, "send")
    limits = worker.rlimit(resource.RLIMIT_NOFILE)
    worker.rlimit(resource.RLIMIT_NOFILE, (worker.num_fds() + 20, limits[1]))
    try:
        with contextlib.ExitStack() as stack:
            talkers = [stack.enter_context(Talker(peaceful.address)) for _ in range(FEW_DESCRIPTORS)]
            talkers[0].send([max_offset_request(TOPIC, 0)])
            assert talkers[0].receive().code == ResponseCode.SUCCESS
            talkers[-1].send([max_offset_request(TOPIC, 0)])
            with pytest.raises(TimeoutError):
                talkers[-1].receive(IDLE_S / 4)
            for talker in talkers[:-1]:
                talker.close()
            assert talkers[-1].receive().code == ResponseCode.SUCCESS
    finally:
        worker.rlimit(resource.RLIMIT_NOFILE, limits)


def test_connections_that_come_and_go_leave_nothing(peaceful: Peaceful) -> None:
    worker = find_worker(peaceful.broker, "send")
    before = worker.num_fds()
    watch = Watch(peaceful, "send")
    for number in range(MANY):
        with Talker(peaceful.address) as talker:
            if number % 3 == 0:
                talker.send([pull_request(TOPIC, 0, BIG_BODIES, suspend_ms=60_000)])
            elif number % 3 == 1:
                talker.call(max_offset_request(TOPIC, 0))
    wait_until(lambda: worker.num_fds() <= before + 2, DEADLINE_S, "the connections are given back")
    watch.look()
    assert watch.grown < ROOM
