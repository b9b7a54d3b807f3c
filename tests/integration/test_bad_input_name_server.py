"""What no honest client sends to a name server, here the one inside a broker: the same answers, and it serves on.

The broker itself, and those who send and read there, may not notice either.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
import zlib
from collections.abc import Iterator

import pytest

from mqcore.codes import RequestCode, ResponseCode
from mqcore.protocol import headers
from mqcore.protocol.command import FRAME_SIZE_MAX, RemotingCommand
from mqcore.protocol.topic_config import REGISTER_BODY_SIZE_MAX
from tests.fault.rig import DEADLINE_S, seeded, seeds
from tests.fault.talker import Talker
from tests.integration.bad_frames import IMPOSSIBLE_FRAMES, RUBBISH, broken_headers, changed
from tests.integration.bystander import Peaceful, peaceful_broker
from tests.rigs import wire
from tests.waiting import POLL_S, wait_until

pytestmark = pytest.mark.fault

TOPIC = "Target"
VICTIM = "Victim"
MIB = 1 << 20
ROOM = 48 * MIB
FUZZED_FRAMES = 300
RANDOM_CONNECTIONS = 60
SETTINGS_ASKED = 200_000
STALLED_S = 2.0
SMALL_WINDOW = 4096
PROMISING = 300
BOMB_SIZE = REGISTER_BODY_SIZE_MAX + MIB
CODES = [100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 219, 224, 304, 311, 312, 313, 318, 319, 322, 327]
REGISTRATION = {
    "brokerName": "impostor", "brokerAddr": "127.0.0.1:1", "clusterName": "nowhere", "haServerAddr": "127.0.0.1:2",
    "brokerId": "0",
}  # fmt: skip
ILLEGAL_TOPICS = ["../../escape", "a/b", "", "a\0b", "ünder", "$HOME", "a" * 5000]


@pytest.fixture(scope="module")
def peaceful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peaceful]:
    for running in peaceful_broker(tmp_path_factory.mktemp("bad-input-name-server")):
        wire.create_topic(running.address, TOPIC, queues=1)
        await_route(running)
        yield running


def await_route(peaceful: Peaceful) -> None:
    wait_until(lambda: has_route(peaceful), DEADLINE_S, "the topic is registered")


@pytest.fixture(autouse=True)
def others_go_on(peaceful: Peaceful) -> Iterator[None]:
    with peaceful.undisturbed():
        yield
    assert has_route(peaceful)


def route_request(topic: str = TOPIC) -> RemotingCommand:
    return RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": topic})


def has_route(peaceful: Peaceful) -> bool:
    with Talker(peaceful.name_server) as talker:
        return talker.call(route_request(), DEADLINE_S).code == ResponseCode.SUCCESS


# Frames ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", IMPOSSIBLE_FRAMES)
def test_an_impossible_frame_closes_its_connection_without_an_answer(peaceful: Peaceful, data: bytes) -> None:
    with Talker(peaceful.name_server) as talker:
        talker.socket.sendall(data)
        with pytest.raises(ConnectionError):
            talker.receive(DEADLINE_S)


def test_the_largest_frame_is_taken(peaceful: Peaceful) -> None:
    command = route_request()
    command.body = bytes(FRAME_SIZE_MAX - len(command.encode()) - 16)
    with Talker(peaceful.name_server) as talker:
        assert talker.call(command, DEADLINE_S).code == ResponseCode.SUCCESS


def test_a_frame_cut_or_split_at_any_byte_is_no_other_frame(peaceful: Peaceful) -> None:
    whole = route_request().encode()
    with Talker(peaceful.name_server) as split:
        for cut in range(1, len(whole)):
            with Talker(peaceful.name_server) as talker:
                talker.socket.sendall(whole[:cut])
                talker.socket.shutdown(socket.SHUT_WR)
                assert talker.is_closed_by_peer(DEADLINE_S)
            split.socket.sendall(whole[:cut])
            assert has_route(peaceful)
            split.socket.sendall(whole[cut:])
            assert split.receive(DEADLINE_S).code == ResponseCode.SUCCESS


def test_random_bytes_end_with_a_closed_connection(peaceful: Peaceful) -> None:
    rng = seeded(seeds(1)[0])
    for _ in range(RANDOM_CONNECTIONS):
        with Talker(peaceful.name_server) as talker:
            talker.socket.sendall(rng.randbytes(rng.randrange(1, 5000)))
            talker.socket.shutdown(socket.SHUT_WR)
            assert talker.is_closed_by_peer(DEADLINE_S)


def test_changed_frames_are_answered_or_closed(peaceful: Peaceful) -> None:
    rng = seeded(seeds(1)[0])
    samples = [RemotingCommand(code, ext_fields={"topic": VICTIM}, body=b"{}").encode() for code in CODES]
    for _ in range(FUZZED_FRAMES):
        data = changed(rng.choice(samples), rng)
        with Talker(peaceful.name_server) as talker:
            talker.socket.sendall(data)
            talker.socket.shutdown(socket.SHUT_WR)
            assert talker.is_closed_by_peer(DEADLINE_S), data


# Codes, fields and bodies ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, -1, 13, 10, 11, 4711, 2**31 - 1])
def test_an_unknown_code_is_told_so(peaceful: Peaceful, code: int) -> None:
    with Talker(peaceful.name_server) as talker:
        response = talker.call(RemotingCommand(code), DEADLINE_S)
    assert response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert (response.remark or "").startswith(f" request type {code} not supported")


@pytest.mark.parametrize("code", sorted(set(CODES) & set(headers.REQUEST_HEADERS)))
def test_a_broken_header_is_an_error_and_not_silence(peaceful: Peaceful, code: int) -> None:
    with Talker(peaceful.name_server) as talker:
        for what, ext_fields in broken_headers(code):
            response = talker.call(RemotingCommand(code, ext_fields=ext_fields), DEADLINE_S)
            assert response.code != ResponseCode.SUCCESS, what
            assert response.remark, what


@pytest.mark.parametrize("code", CODES)
def test_a_body_of_rubbish_gets_an_answer(peaceful: Peaceful, code: int) -> None:
    with Talker(peaceful.name_server) as talker:
        for body in RUBBISH:
            for ext_fields in (None, {"topic": VICTIM}, REGISTRATION, {**REGISTRATION, "compressed": "true"}):
                talker.call(RemotingCommand(code, ext_fields=ext_fields, body=body), DEADLINE_S)
        talker.call(RemotingCommand(RequestCode.UNREGISTER_BROKER, ext_fields=REGISTRATION))


def test_a_registration_that_swells_is_refused(peaceful: Peaceful) -> None:
    before = peaceful.memory_bytes("broker")
    bomb = zlib.compress(bytes(BOMB_SIZE), 1)
    with Talker(peaceful.name_server) as talker:
        fields = {**REGISTRATION, "compressed": "true"}
        response = talker.call(RemotingCommand(RequestCode.REGISTER_BROKER, ext_fields=fields, body=bomb), DEADLINE_S)
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert peaceful.memory_bytes("broker") - before < ROOM


@pytest.mark.parametrize("topic", ILLEGAL_TOPICS)
def test_an_illegal_topic_has_no_route(peaceful: Peaceful, topic: str) -> None:
    with Talker(peaceful.name_server) as talker:
        response = talker.call(route_request(topic), DEADLINE_S)
    assert response.code == ResponseCode.TOPIC_NOT_EXIST


# Peers ----------------------------------------------------------------------------------------------------------------


def hangs_up(connection: socket.socket) -> bool:
    """Whether the other end is gone, without reading what may have come before."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    return bool(poll.poll(0))


def test_a_client_that_never_reads_is_cut_off_or_left_waiting(peaceful: Peaceful) -> None:
    """Nothing more is read from it while it leaves much unread; if it had asked for too much before, it is closed."""
    before, grown = peaceful.memory_bytes("broker"), 0
    data = RemotingCommand(RequestCode.GET_NAMESRV_CONFIG).encode() * SETTINGS_ASKED
    with Talker(peaceful.name_server, receive_buffer_size=SMALL_WINDOW) as talker:
        talker.socket.setblocking(False)
        at, taken_at = 0, time.monotonic()
        while not hangs_up(talker.socket) and time.monotonic() - taken_at < STALLED_S:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                at += talker.socket.send(data[at : at + MIB])
                taken_at = time.monotonic()
            grown = max(grown, peaceful.memory_bytes("broker") - before)
            time.sleep(POLL_S)
        assert at < len(data)
    assert grown < ROOM


def test_a_promise_of_many_bytes_costs_only_the_bytes_that_came(peaceful: Peaceful) -> None:
    before = peaceful.memory_bytes("broker")
    with contextlib.ExitStack() as stack:
        for _ in range(PROMISING):
            talker = stack.enter_context(Talker(peaceful.name_server))
            talker.socket.sendall(struct.pack(">ii", FRAME_SIZE_MAX - 4, 100) + bytes(1000))
        assert has_route(peaceful)
        assert peaceful.memory_bytes("broker") - before < ROOM
