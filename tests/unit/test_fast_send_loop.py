"""A send worker's loop on its own: a client on one side, the broker process's end of the link on the other."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fast_rig import TOPIC, Log, RawRing, shared_segment

from mqcore import layout
from mqcore._fast.segment.latencies import sum_latencies
from mqcore._fast.segment.rings import PullRequestRing
from mqcore._fast.send.loop import SendLoop
from mqcore.codes import RemotingFlag, RequestCode, ResponseCode, SerializeType
from mqcore.protocol.command import FrameSplitter, RemotingCommand
from mqcore.store.paths import file_name
from tests.waiting import wait_until

LINK = layout.constants("LinkKind")
COMMAND = layout.constants("WorkerCommand")
STATE = layout.constants("WorkerState")
STORE_FLAG = layout.constants("StoreFlag")
HEAD = layout.LINK_HEAD
FILE_SIZE = 1 << 20
FRAME_LENGTH_MAX = 1 << 20
SEND_ROW, PULL_ROW, REPUT_ROW, FLUSH_ROW, HA_ROW = 1, 2, 3, 4, 5
DEADLINE_S = 60.0
STRINGS_MAX = 32768
SLOT = layout.TICKETS_MAX - 1
SYNC_TIMEOUT_MS = 4000
"""It must not be over before the test has said what is flushed."""

IDLE_TIMEOUT_MS = 3000
"""Nor this before an answer is under way."""

SEND_FIELDS = {
    "a": "producers", "b": TOPIC.decode(), "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1700000000000",
    "h": "5", "i": "WAIT\x01true\x02KEYS\x01k\x02", "j": "0", "k": "false", "m": "false",
}  # fmt: skip
PULL_FIELDS = {
    "consumerGroup": "billing", "topic": TOPIC.decode(), "queueId": "1", "queueOffset": "7", "maxMsgNums": "32",
    "sysFlag": "2", "commitOffset": "0", "suspendTimeoutMillis": "15000", "subscription": "*", "subVersion": "0",
    "expressionType": "TAG",
}  # fmt: skip


class LoopRig:
    """A running loop. ``connect`` gives a client's socket, ``told`` what the loop wrote to the broker process."""

    def __init__(self, log: Log, **changes: Any) -> None:
        self.segment = log.segment
        self.segment.set_store_host(socket.inet_aton("127.0.0.1"), 10911)
        self.segment.publish_topic(TOPIC, 6, 4, 4, True, False)
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self._link, theirs = socket.socketpair()
        self._theirs = theirs
        theirs.setblocking(False)
        self._link.settimeout(DEADLINE_S)
        self._received = b""
        options = {
            "number": 0, "row": SEND_ROW, "wake": self._wake, "link": theirs.fileno(),
            "listeners": [(self._listener.fileno(), False)], "pullers": [(PULL_ROW, self._wake)],
            "broker_name": "broker-a", "timer_precision_ms": 1000, "timer_max_delay_ms": 259_200_000,
            "reput_row": REPUT_ROW, "reput_wake": self._wake, "flush_row": FLUSH_ROW, "flush_wake": self._wake,
            "ha_row": HA_ROW, "ha_wake": self._wake,
            "commit_log": str(log.directory), "commit_log_file_size": FILE_SIZE, "cluster": "c", "region": "here",
            "trace_on": True, "max_message_size": 100_000, "frame_length_max": FRAME_LENGTH_MAX,
            "write_buffer_max": 1 << 24, "read_budget": 1 << 24, "write_budget": 1 << 24, "idle_timeout_ms": 60_000,
            "sync_timeout_ms": 10_000, "waits_for_flush": False, "waits_for_slave": False, "in_group": False,
            "slave_timeout_ms": 10_000, "slave_lag_max": 1 << 28, "wakes_flush": False, "refuses_halves": False,
            "keeps_replies": True, "push_timeout_ms": 10_000,
            "lock_timeout_ms": 1000, "is_only_sender": True, "is_guarded": False,
            "tls_mode": 0, "handshake_timeout_ms": 10_000, "send_wait_ms": 0, "transaction_wait_ms": 0,
            "connections_max": 0, "connections_per_host_max": 0, "quotas": (), "quota_delay_max_ms": 1000,
            "waiting_max": 1 << 18,
        }  # fmt: skip
        self._loop = SendLoop(self.segment, {**options, **changes})
        self._options = options | changes
        self._version = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        wait_until(lambda: self.word("state") == STATE["RUNNING"], describe="the loop runs")

    def _serve(self) -> None:
        while self._loop.run(self._version):
            self._loop.use(self._options)
            self._version = self.segment.get("settings_version")

    def change(self, **changes: Any) -> None:
        """Publish other settings and wait until the loop goes by them."""
        self._options |= changes
        version = self.segment.add("settings_version", 1)
        os.eventfd_write(self._wake, 1)
        wait_until(lambda: self._version == version, describe="the loop has asked for the settings")

    def word(self, name: str) -> int:
        return self.segment.worker_word(SEND_ROW, name)

    def limit_socket_buffers(self) -> None:
        """From now on the system keeps little for those who connect and do not read."""
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32768)

    def connect(self, receive_buffer_size: int | None = None) -> socket.socket:
        client = socket.socket()
        client.settimeout(DEADLINE_S)
        if receive_buffer_size is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_size)
        client.connect(self._listener.getsockname())
        return client

    def told(self) -> tuple[int, int, bytes]:
        """The next message on the link: kind, connection id, payload; of a request the frame."""
        while len(self._received) < HEAD.size or len(self._received) < HEAD.size + self._next_size():
            data = self._link.recv(65536)
            assert data, "the loop closed its link"
            self._received += data
        size, kind, connection_id = HEAD.struct.unpack_from(self._received)
        payload = self._received[HEAD.size : HEAD.size + size]
        self._received = self._received[HEAD.size + size :]
        if kind == LINK["REQUEST"]:
            self.since_ms, self.is_charged, _ = layout.REQUEST_HEAD.struct.unpack_from(payload)
            payload = payload[layout.REQUEST_HEAD.size :]
        return kind, connection_id, payload

    def _next_size(self) -> int:
        size: int = HEAD.struct.unpack_from(self._received)[0]
        return size

    def introduced(self, client: socket.socket) -> int:
        """The id under which the loop introduced *client*."""
        kind, connection_id, payload = self.told()
        ip, port = client.getsockname()
        assert (kind, payload) == (LINK["CONNECTED"], f"{ip} {port} 0".encode())
        return connection_id

    def tell(self, kind: int, connection_id: int, payload: bytes = b"") -> None:
        self._link.sendall(HEAD.struct.pack(len(payload), kind, connection_id) + payload)

    def wake(self) -> None:
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        self.segment.set_worker_word(SEND_ROW, "command", COMMAND["STOP"])
        self.wake()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "the loop did not stop"
        del self._loop
        self._link.close()
        self._theirs.close()
        self._listener.close()
        os.close(self._wake)


@contextlib.contextmanager
def running(log: Log, **changes: Any) -> Iterator[LoopRig]:
    rig = LoopRig(log, **changes)
    try:
        yield rig
    finally:
        rig.close()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with shared_segment() as segment:
        yield Log(tmp_path, segment, FILE_SIZE)


@pytest.fixture
def loop(log: Log) -> Iterator[LoopRig]:
    with running(log) as rig:
        yield rig


@pytest.fixture
def synced_loop(log: Log) -> Iterator[LoopRig]:
    with running(log, waits_for_flush=True, wakes_flush=True, sync_timeout_ms=SYNC_TIMEOUT_MS) as rig:
        yield rig


def payloads(client: socket.socket, count: int) -> list[bytes]:
    splitter, found = FrameSplitter(), list[bytes]()
    while len(found) < count:
        data = client.recv(65536)
        assert data, f"closed after {len(found)} of {count} replies"
        found += [bytes(payload) for payload in splitter.feed(data)]
    return found


def replies(client: socket.socket, count: int) -> list[RemotingCommand]:
    return [RemotingCommand.decode(payload) for payload in payloads(client, count)]


def is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def read_to_end(client: socket.socket) -> None:
    while client.recv(65536):
        pass


def heart_beat(opaque: int, body: bytes = b"") -> RemotingCommand:
    return RemotingCommand(RequestCode.HEART_BEAT, opaque, body=body)


def send_request(opaque: int, body: bytes = b"body", **changes: str) -> RemotingCommand:
    fields = {**SEND_FIELDS, **changes}
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, opaque, ext_fields=fields, body=body)


# Frames ----------------------------------------------------------------------------------------------------------


def test_what_is_not_for_this_worker_goes_to_the_broker_process_as_it_came(loop: LoopRig) -> None:
    with loop.connect() as client:
        client.sendall(heart_beat(1, b"x").encode() + heart_beat(2, b"y").encode())
        identity = loop.introduced(client)
        assert loop.told() == (LINK["REQUEST"], identity, heart_beat(1, b"x").encode()[4:])
        assert loop.told() == (LINK["REQUEST"], identity, heart_beat(2, b"y").encode()[4:])
    assert loop.told() == (LINK["CLOSED"], identity, b"")


def await_turn(loop: LoopRig, turns: int) -> None:
    wait_until(lambda: loop.word("turns") > turns, DEADLINE_S, "a turn")


def test_frames_cut_at_any_byte_come_out_whole(loop: LoopRig) -> None:
    frame = heart_beat(7, b"0123456789").encode()
    with loop.connect() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for cut in range(1, len(frame)):
            turns = loop.word("turns")
            client.sendall(frame[:cut])
            # The rest is sent once the loop has taken the start.
            await_turn(loop, turns)
            client.sendall(frame[cut:])
        loop.introduced(client)
        assert [loop.told()[2] for _ in range(1, len(frame))] == [frame[4:]] * (len(frame) - 1)


def test_a_large_frame_in_pieces_comes_out_whole_with_what_follows(loop: LoopRig) -> None:
    large = heart_beat(1, os.urandom(900_000)).encode()
    with loop.connect() as client:
        client.sendall(large + heart_beat(2).encode() + heart_beat(3).encode()[:10])
        loop.introduced(client)
        assert loop.told()[2] == large[4:]
        assert loop.told()[2] == heart_beat(2).encode()[4:]
        client.sendall(heart_beat(3).encode()[10:])
        assert loop.told()[2] == heart_beat(3).encode()[4:]


@pytest.mark.parametrize("length", [-1, 0, 3, FRAME_LENGTH_MAX + 1, 2**31 - 1])
def test_an_impossible_length_closes_the_connection(loop: LoopRig, length: int) -> None:
    with loop.connect() as client:
        client.sendall((length & 0xFFFFFFFF).to_bytes(4, "big"))
        assert is_closed(client)
    assert loop.word("protocol_errors") == 1


def test_an_impossible_header_closes_the_connection(loop: LoopRig) -> None:
    with loop.connect() as client:
        client.sendall(bytes.fromhex("00000004 00000099"))
        assert is_closed(client)
    assert loop.word("protocol_errors") == 1


def test_the_broker_process_answers_and_closes_through_the_link(loop: LoopRig) -> None:
    with loop.connect() as client:
        client.sendall(heart_beat(9).encode())
        identity = loop.introduced(client)
        loop.told()
        loop.tell(LINK["FRAME"], identity, heart_beat(9).reply().encode())
        assert replies(client, 1) == [heart_beat(9).reply()]
        loop.tell(LINK["FRAME"], identity + (1 << layout.CONNECTION_SLOT_BITS), b"for a connection that never was")
        loop.tell(LINK["CLOSE"], identity)
        assert is_closed(client)
    assert loop.told() == (LINK["CLOSED"], identity, b"")


def test_who_asks_for_more_than_the_broker_process_can_take_waits_alone(loop: LoopRig) -> None:
    frame = heart_beat(1, bytes(100_000)).encode()
    with loop.connect() as greedy, loop.connect() as modest:
        greedy.settimeout(0)
        sent = 0
        while True:
            with contextlib.suppress(BlockingIOError):
                sent += greedy.send(frame[sent % len(frame) :])
                continue
            turns = loop.word("turns")
            wait_until(lambda seen=turns: loop.word("turns") > seen + 1, DEADLINE_S, "turns in which it could be read")
            if not select.select([], [greedy], [], 0)[1]:
                break
        modest.sendall(heart_beat(2).encode())
        greedy_id = loop.introduced(greedy)
        ahead = 0
        while (message := loop.told())[1] == greedy_id:
            assert message == (LINK["REQUEST"], greedy_id, frame[4:])
            ahead += len(frame)
        assert message[0] == LINK["CONNECTED"]
        assert loop.told()[2] == heart_beat(2).encode()[4:]
        assert ahead < 4 * 2**20
        # Nothing of it is lost, and it is read from again.
        greedy.settimeout(DEADLINE_S)
        greedy.sendall(frame[sent % len(frame) :] if sent % len(frame) else b"")
        for _ in range(-(-sent // len(frame)) - ahead // len(frame)):
            assert loop.told() == (LINK["REQUEST"], greedy_id, frame[4:])


# Sends -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [SerializeType.JSON, SerializeType.ROCKETMQ], ids=lambda kind: kind.name)
def test_a_send_is_stored_and_answered(loop: LoopRig, log: Log, kind: SerializeType) -> None:
    requests = [send_request(opaque, b"body %d" % opaque) for opaque in range(3)]
    with loop.connect() as client:
        for request in requests:
            request.serialize_type = kind
        client.sendall(b"".join(request.encode() for request in requests))
        answers = replies(client, 3)
        born_port = client.getsockname()[1]
    records = log.check()
    for request, answer, record in zip(requests, answers, records, strict=True):
        fields = {
            "queueId": "1", "TRACE_ON": "true", "MSG_REGION": "here", "queueOffset": str(record.queue_offset),
            "msgId": f"7F00000100002A9F{record.physical_offset:016X}",
        }  # fmt: skip
        assert answer == request.reply(ext_fields=fields)
        assert (record.body, record.topic, record.queue_id, record.flag) == (request.body, TOPIC, 1, 5)
        assert record.properties == b"KEYS\x01k\x02CLUSTER\x01c"
        assert (record.born_host.address, record.born_host.port) == (b"\x7f\0\0\1", born_port)


@pytest.mark.parametrize(
    "region", ["{queueId}", "{msgId}2147483647{queueOffset}", 'a "quoted" one', "h\x01" + "e" * 300]
)
def test_an_answer_is_written_as_the_twin_writes_it(log: Log, region: str) -> None:
    requests = [send_request(opaque, b"body") for opaque in (0, 1, -1, 2**31 - 1, -(2**31), 9, 10, 99, 100)]
    with running(log, region=region, trace_on=False) as loop, loop.connect() as client:
        client.sendall(b"".join(request.encode() for request in requests))
        answers = payloads(client, len(requests))
    for request, answer, record in zip(requests, answers, log.check(), strict=True):
        fields = {
            "queueId": "1", "TRACE_ON": "false", "MSG_REGION": region,
            "msgId": f"7F00000100002A9F{record.physical_offset:016X}", "queueOffset": str(record.queue_offset),
        }  # fmt: skip
        assert answer == request.reply(ext_fields=fields).encode()[4:]


def test_a_oneway_send_is_stored_and_not_answered(loop: LoopRig, log: Log) -> None:
    with loop.connect() as client:
        oneway = send_request(1, b"oneway")
        oneway.flag = int(RemotingFlag.ONEWAY)
        client.sendall(oneway.encode() + send_request(2, b"second").encode())
        assert [answer.opaque for answer in replies(client, 1)] == [2]
    assert [record.body for record in log.check()] == [b"oneway", b"second"]


@pytest.mark.parametrize(
    "changes",
    [
        {"b": "unknown"}, {"e": "4"}, {"e": "x"}, {"i": "DELAY\x013"}, {"i": "TRAN_MSG\x01true"}, {"g": ""},
        {"i": "K\x01" + "v" * 40_000}, {"f": "2147483648"},
    ],
    ids=str,
)  # fmt: skip
def test_an_unusual_send_is_left_to_the_broker_process(loop: LoopRig, log: Log, changes: dict[str, str]) -> None:
    request = send_request(1, **changes)
    with loop.connect() as client:
        client.sendall(request.encode())
        identity = loop.introduced(client)
        assert loop.told() == (LINK["REQUEST"], identity, request.encode()[4:])
    assert log.end == 0


def tallies(log: Log) -> int:
    """How many puts have been counted by their time."""
    return sum(log.segment.get(f"put_tally_{number}") for number in range(len(layout.PUT_TALLY_BOUNDS_MS) + 1))


def test_a_synced_send_is_answered_once_it_is_flushed(synced_loop: LoopRig, log: Log) -> None:
    with synced_loop.connect() as client:
        client.sendall(send_request(1).encode() + send_request(2).encode())
        wait_until(lambda: synced_loop.word("parked") == 2, describe="two answers wait")
        first, _ = log.walk()
        log.segment.set("flushed_offset", first.total_size)
        assert [(answer.opaque, answer.code) for answer in replies(client, 1)] == [(1, ResponseCode.SUCCESS)]
        assert tallies(log) == 1
        # The second one's time runs out.
        assert [(answer.opaque, answer.code) for answer in replies(client, 1)] == [(2, ResponseCode.FLUSH_DISK_TIMEOUT)]
    assert len(log.check()) == 2


def test_a_failed_sync_is_never_answered_as_durable(synced_loop: LoopRig, log: Log) -> None:
    with synced_loop.connect() as client:
        client.sendall(send_request(1).encode())
        wait_until(lambda: synced_loop.word("parked") == 1, describe="the answer waits")
        log.segment.set_flags(STORE_FLAG["SYNC_FAILED"])
        (answer,) = replies(client, 1)
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE


def test_settings_that_change_hold_from_the_next_frame_on(loop: LoopRig, log: Log) -> None:
    with loop.connect() as client:
        client.sendall(send_request(1, b"x" * 5000).encode())
        (before,) = replies(client, 1)
        loop.change(max_message_size=4999, trace_on=False)
        client.sendall(send_request(2, b"x" * 5000).encode() + send_request(3).encode())
        loop.introduced(client)
        kind, _, payload = loop.told()
        assert (kind, payload) == (LINK["REQUEST"], send_request(2, b"x" * 5000).encode()[4:]), "too large for it now"
        (after,) = replies(client, 1)
    assert [(answer.opaque, (answer.ext_fields or {})["TRACE_ON"]) for answer in (before, after)] == [
        (1, "true"),
        (3, "false"),
    ]
    assert len(log.check()) == 2


def test_a_change_lets_larger_messages_in(log: Log) -> None:
    rig = LoopRig(log, max_message_size=10)
    try:
        rig.change(max_message_size=FILE_SIZE // 4)
        with rig.connect() as client:
            client.sendall(send_request(1, b"x" * (FILE_SIZE // 4)).encode())
            assert [answer.code for answer in replies(client, 1)] == [ResponseCode.SUCCESS]
    finally:
        rig.close()


def test_a_wait_for_the_disk_that_is_made_shorter_ends_sooner(log: Log) -> None:
    rig = LoopRig(log, waits_for_flush=True, wakes_flush=True, sync_timeout_ms=1 << 30)
    try:
        with rig.connect() as client:
            client.sendall(send_request(1).encode())
            wait_until(lambda: rig.word("parked") == 1, describe="the answer waits")
            rig.change(sync_timeout_ms=1)
            assert [answer.code for answer in replies(client, 1)] == [ResponseCode.FLUSH_DISK_TIMEOUT]
    finally:
        rig.close()


@pytest.mark.parametrize("wakes", [True, False])
def test_the_flush_worker_is_woken_if_it_wants_to_know(log: Log, wakes: bool) -> None:
    flush_wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    rig = LoopRig(log, wakes_flush=not wakes, flush_wake=flush_wake)
    try:
        rig.change(wakes_flush=wakes)
        log.segment.set_worker_word(FLUSH_ROW, "sleeping", 1)
        with rig.connect() as client:
            client.sendall(send_request(1).encode())
            replies(client, 1)
        # It is woken before anything is answered.
        ready, _, _ = select.select([flush_wake], [], [], 0)
        assert bool(ready) == wakes
    finally:
        rig.close()
        os.close(flush_wake)


# Pulls -----------------------------------------------------------------------------------------------------------


def pull_request(opaque: int, **changes: str) -> RemotingCommand:
    return RemotingCommand(RequestCode.PULL_MESSAGE, opaque, ext_fields={**PULL_FIELDS, **changes})


ENDED = layout.constants("RingKind")["PULLS_ENDED"]
BEGIN = (ENDED, b"")
"""What a send worker says first: whatever its predecessor has asked for is over."""


def popped(loop: LoopRig) -> tuple[dict[str, int], list[bytes]]:
    """The next request in the pull worker's ring: its numbers, and its strings."""
    ring = PullRequestRing(loop.segment, 0, 0)
    entries: list[tuple[int, bytes]] = []
    wait_until(
        lambda: entries.extend(entry for entry in [ring.pop()] if entry and entry != BEGIN) or entries,
        describe="a pull request",
    )
    ((kind, payload),) = entries
    assert kind == layout.constants("RingKind")["PULL_REQUEST"]
    names = [field.name for field in layout.PULL_REQUEST.fields]
    values = dict(zip(names, layout.PULL_REQUEST.struct.unpack_from(payload), strict=True))
    strings, at = [], layout.PULL_REQUEST.size
    for name in ("topic_size", "group_size", "subscription_size", "expression_type_size"):
        strings.append(payload[at : at + max(0, values[name])])
        at += max(0, values[name])
    assert at == len(payload)
    return values, strings


def test_a_pull_becomes_a_descriptor_in_a_ring(loop: LoopRig) -> None:
    with loop.connect() as client:
        client.sendall(pull_request(3).encode())
        values, strings = popped(loop)
    assert strings == [TOPIC, b"billing", b"*", b"TAG"]
    wanted = {
        "opaque": 3, "code": 11, "queue_id": 1, "queue_offset": 7, "max_msg_nums": 32, "sys_flag": 2,
        "suspend_timeout_ms": 15000, "serialize_type": 0, "principal": 0,
    }  # fmt: skip
    assert {name: values[name] for name in wanted} == wanted


def test_a_pull_that_the_broker_process_has_put_into_plain_words_is_taken(loop: LoopRig) -> None:
    with loop.connect() as client:
        client.sendall(heart_beat(1).encode())
        identity = loop.introduced(client)
        loop.tell(LINK["INJECT"], identity, pull_request(4).encode()[4:])
        values, _ = popped(loop)
    assert (values["opaque"], values["connection_id"]) == (4, identity)


def test_a_pull_that_stays_unusual_is_refused_and_not_handed_to_and_fro(loop: LoopRig) -> None:
    long_one = pull_request(5, subscription="a" * STRINGS_MAX)
    with loop.connect() as client:
        client.sendall(long_one.encode())
        identity = loop.introduced(client)
        assert loop.told() == (LINK["REQUEST"], identity, long_one.encode()[4:])
        loop.tell(LINK["INJECT"], identity, long_one.encode()[4:])
        (answer,) = replies(client, 1)
        assert (answer.opaque, answer.code) == (5, ResponseCode.SYSTEM_ERROR)
        assert answer.remark is not None
        assert str(STRINGS_MAX) in answer.remark
    assert loop.told() == (LINK["CLOSED"], identity, b"")


def test_pulls_of_a_pull_worker_that_was_started_anew_are_asked_again(loop: LoopRig) -> None:
    with loop.connect() as client:
        client.sendall(pull_request(6).encode())
        popped(loop)
        loop.segment.set_worker_word(PULL_ROW, "generation", 1)
        (answer,) = replies(client, 1)
    assert (answer.opaque, answer.code) == (6, ResponseCode.PULL_RETRY_IMMEDIATELY)
    assert answer.ext_fields is not None
    assert answer.ext_fields["nextBeginOffset"] == "7"


def ended(loop: LoopRig) -> list[int]:
    """The tickets of the next word about pulls that have ended, in order; requests before it are passed over."""
    ring = PullRequestRing(loop.segment, 0, 0)
    found: list[bytes] = []

    def look() -> bool:
        entry = ring.pop()
        if entry is not None and entry != BEGIN and entry[0] == ENDED:
            found.append(entry[1])
        return bool(found)

    wait_until(look, describe="pulls have ended")
    return sorted(struct.unpack(f"={len(found[0]) // 4}i", found[0]))


def test_the_first_word_is_that_all_before_it_is_over(loop: LoopRig) -> None:
    assert PullRequestRing(loop.segment, 0, 0).pop() == BEGIN


def test_pulls_end_with_their_connection(loop: LoopRig) -> None:
    with loop.connect() as other, loop.connect() as client:
        other.sendall(pull_request(1).encode())
        kept, _ = popped(loop)
        asked = []
        for opaque in (2, 3, 4):
            client.sendall(pull_request(opaque).encode())
            asked.append(popped(loop)[0])
        # One of them is over already.
        answer_pull(loop, asked[1])
        replies(client, 1)
        client.close()
        assert ended(loop) == sorted(values["ticket"] for values in (asked[0], asked[2]))
        # The slots serve again; an answer to a former use is nobody's.
        with loop.connect() as third:
            third.sendall(pull_request(5).encode() + pull_request(6).encode())
            again = [popped(loop)[0] for _ in range(2)]
            assert {values["ticket"] & SLOT for values in again} <= {values["ticket"] & SLOT for values in asked}
            for values in (asked[0], asked[2], again[1], kept):
                answer_pull(loop, values)
            assert [answer.opaque for answer in replies(third, 1)] == [6]
        assert [answer.opaque for answer in replies(other, 1)] == [1]


def test_a_full_ring_hears_later_of_what_has_ended(loop: LoopRig) -> None:
    with loop.connect() as client:
        long_one = pull_request(1, subscription="a" * (STRINGS_MAX - 100)).encode()
        client.sendall(long_one * 60)
        assert replies(client, 1)[0].code == ResponseCode.SYSTEM_BUSY
    wait_until(lambda: loop.word("connections") == 0, describe="the connection is closed")
    ring = PullRequestRing(loop.segment, 0, 0)
    assert ring.pop() == BEGIN
    waiting = [ring.pop() for _ in range(20)]
    assert all(entry is not None and entry[0] != ENDED for entry in waiting)
    assert len(ended(loop)) >= len(waiting)


def test_one_connection_has_at_most_half_of_the_tickets(loop: LoopRig) -> None:
    ring = PullRequestRing(loop.segment, 0, 0)
    at_a_time = 1 << 12  # so many fit into the ring
    assert ring.pop() == BEGIN

    def taken_of(client: socket.socket) -> int:
        """How many of so many pulls go to the pull worker; the others are answered."""
        client.sendall(pull_request(1).encode() * at_a_time)
        client.sendall(heart_beat(2).encode())
        while loop.told()[0] != LINK["REQUEST"]:
            pass
        taken = 0
        while ring.pop() is not None:
            taken += 1
        assert all(answer.code == ResponseCode.SYSTEM_BUSY for answer in replies(client, at_a_time - taken))
        return taken

    with loop.connect() as greedy, loop.connect() as other:
        taken = 0
        while (more := taken_of(greedy)) == at_a_time:
            taken += more
        assert taken + more == layout.TICKETS_MAX // 2
        # Who comes next has half of what is left, and then both have none of the rest.
        assert sum(taken_of(other) for _ in range(4)) == 4 * at_a_time
        assert taken_of(other) == taken_of(greedy) == 0


# Bounded memory --------------------------------------------------------------------------------------------------

BUDGET = 1 << 20


@pytest.fixture
def frugal_loop(log: Log) -> Iterator[LoopRig]:
    rig = LoopRig(log, read_budget=BUDGET, write_budget=BUDGET, idle_timeout_ms=60_000)
    rig.limit_socket_buffers()
    try:
        yield rig
    finally:
        rig.close()


def hangs_up(client: socket.socket) -> bool:
    """Whether the other end is gone, without reading what may have come before."""
    poll = select.poll()
    poll.register(client, select.POLLRDHUP)
    return bool(poll.poll(0))


def test_who_holds_most_is_closed_when_unfinished_frames_fill_the_memory(log: Log) -> None:
    """It is not whoever comes last. Memory is given in powers of two: the early and the late one take 2 KiB each."""
    rig = LoopRig(log, read_budget=BUDGET + 3 * 1024, frame_length_max=BUDGET)
    whole = heart_beat(1, bytes(1500)).encode()
    try:
        with rig.connect() as early, rig.connect() as greedy, rig.connect() as late:
            early.sendall(whole[:-1])
            greedy.sendall((BUDGET - 4).to_bytes(4, "big") + bytes(BUDGET - 8))
            wait_until(lambda: rig.word("buffered") == BUDGET + 2 * 1024, DEADLINE_S, "both are held")
            assert not hangs_up(greedy)
            late.sendall(whole[:-1])
            wait_until(lambda: hangs_up(greedy), DEADLINE_S, "the greedy one is closed")
            for client in (early, late):
                client.sendall(whole[-1:])
                rig.introduced(client)
                assert rig.told()[2] == whole[4:]
    finally:
        rig.close()


def test_one_alone_is_closed_when_its_frame_fills_the_memory(log: Log) -> None:
    rig = LoopRig(log, read_budget=BUDGET // 2)
    try:
        with rig.connect() as client:
            with contextlib.suppress(ConnectionError):  # closed before all was sent
                client.sendall(FRAME_LENGTH_MAX.to_bytes(4, "big") + bytes(BUDGET // 2))
            assert is_closed(client)
    finally:
        rig.close()


def ask(loop: LoopRig, client: socket.socket) -> int:
    """Send a request that the broker process is to answer; the connection's id."""
    client.sendall(heart_beat(1).encode())
    identity = loop.introduced(client)
    loop.told()
    return identity


def test_who_leaves_more_unread_than_one_may_is_closed(log: Log) -> None:
    rig = LoopRig(log, write_buffer_max=BUDGET // 2)
    rig.limit_socket_buffers()
    try:
        with rig.connect() as client:
            rig.tell(LINK["FRAME"], ask(rig, client), bytes(BUDGET))
            wait_until(lambda: hangs_up(client), DEADLINE_S, "the connection is reset")
            assert rig.word("slow_readers") == 1
    finally:
        rig.close()


def test_who_leaves_most_unread_is_closed_when_answers_fill_the_memory(frugal_loop: LoopRig) -> None:
    answer = bytes(BUDGET // 4)
    with frugal_loop.connect() as modest, frugal_loop.connect() as greedy:
        identities = [ask(frugal_loop, client) for client in (modest, greedy)]
        frugal_loop.tell(LINK["FRAME"], identities[0], answer)
        for _ in range(6):
            frugal_loop.tell(LINK["FRAME"], identities[1], answer)
        wait_until(lambda: hangs_up(greedy), DEADLINE_S, "the greedy one is closed")
        assert frugal_loop.word("slow_readers") == 1
        got = 0
        while got < len(answer):
            got += len(modest.recv(65536))


@pytest.mark.parametrize("size", [20_000, BUDGET // 2], ids=["the system has it all", "some is still here"])
def test_who_reads_nothing_hears_that_its_time_is_over(log: Log, size: int) -> None:
    rig = LoopRig(log, idle_timeout_ms=IDLE_TIMEOUT_MS)
    rig.limit_socket_buffers()
    try:
        with rig.connect(receive_buffer_size=4096) as client:
            rig.tell(LINK["FRAME"], ask(rig, client), bytes(size))
            wait_until(lambda: hangs_up(client), DEADLINE_S, "the connection is reset")
            with pytest.raises(ConnectionResetError):
                read_to_end(client)
    finally:
        rig.close()


# Ending ----------------------------------------------------------------------------------------------------------


def test_idle_connections_are_closed(log: Log) -> None:
    rig = LoopRig(log, idle_timeout_ms=200)
    try:
        with rig.connect() as client:
            assert client.recv(1) == b""
    finally:
        rig.close()


def test_a_drained_loop_takes_no_new_connection_and_says_so(loop: LoopRig) -> None:
    loop.segment.set_worker_word(SEND_ROW, "command", COMMAND["DRAIN"])
    wait_until(lambda: loop.word("state") == STATE["DRAINED"], describe="the loop is drained")
    accepted = loop.word("accepted")
    with loop.connect() as client:
        client.sendall(heart_beat(1).encode())
        turns = loop.word("turns")
        wait_until(lambda: loop.word("turns") > turns + 2, describe="turns")
        assert loop.word("accepted") == accepted


def answer_pull(loop: LoopRig, asked: dict[str, int], *ranges: tuple[int, int], woken: int = 0) -> None:
    """Be the pull worker: ranges of the commit log, or nothing, and offset 8 to go on with."""
    status = layout.constants("GetStatus")["FOUND" if ranges else "NO_MATCHED_MESSAGE"]
    values = dict.fromkeys((field.name for field in layout.PULL_REPLY.fields), 0) | {
        "connection_id": asked["connection_id"], "next_begin_offset": 8, "max_offset": 9, "ticket": asked["ticket"],
        "code": ResponseCode.SUCCESS, "status": status, "range_count": len(ranges),
        "total_size": sum(size for _, size in ranges), "message_count": len(ranges),
        "was_held": int(woken > 0), "woken": woken,
    }  # fmt: skip
    payload = layout.PULL_REPLY.struct.pack(*values.values())
    payload += b"".join(layout.PULL_RANGE.struct.pack(*each) for each in ranges)
    RawRing(loop.segment.fd, "pull_reply_rings", 0).push(layout.constants("RingKind")["PULL_REPLY"], payload)
    loop.wake()


@pytest.mark.parametrize(
    ("size", "code", "remark", "next_offset"),
    [
        (FILE_SIZE, ResponseCode.SUCCESS, "FOUND", "8"),
        (None, ResponseCode.PULL_RETRY_IMMEDIATELY, "MESSAGE_WAS_REMOVING", "8"),
        (FILE_SIZE - 1, ResponseCode.SYSTEM_ERROR, "COMMIT_LOG_NOT_READABLE", "7"),
    ],
)
def test_only_what_is_gone_is_passed_over(
    loop: LoopRig, log: Log, size: int | None, code: int, remark: str, next_offset: str
) -> None:
    if size is not None:
        (log.directory / f"{FILE_SIZE:020d}").write_bytes(b"body" * (size // 4) + b"b" * (size % 4))
    with loop.connect() as client:
        client.sendall(pull_request(7).encode())
        asked, _ = popped(loop)
        answer_pull(loop, asked, (FILE_SIZE + 4, 8))
        (answer,) = replies(client, 1)
    assert (answer.code, answer.remark) == (code, remark)
    assert answer.ext_fields is not None
    assert answer.ext_fields["nextBeginOffset"] == next_offset
    assert answer.body == (b"bodybody" if code == ResponseCode.SUCCESS else b"")


SMALL_FILE = 4096


@pytest.mark.parametrize("size", [3000, 100], ids=["out of the mappings", "copied"])
@pytest.mark.parametrize("numbers", [(0, 512), (512, 0, 1024), (1536, 7, 7 + 512, 1536 + 512)], ids=str)
def test_each_range_of_a_pull_comes_out_of_its_own_file(log: Log, size: int, numbers: tuple[int, ...]) -> None:
    rig = LoopRig(log, commit_log_file_size=SMALL_FILE)
    try:
        for number in numbers:
            path = log.directory / file_name(number * SMALL_FILE)
            path.write_bytes(number.to_bytes(4, "big") * (SMALL_FILE // 4))
        with rig.connect() as client:
            client.sendall(pull_request(7).encode())
            asked, _ = popped(rig)
            answer_pull(rig, asked, *((number * SMALL_FILE + 4, size) for number in numbers))
            (answer,) = replies(client, 1)
        assert answer.body == b"".join(number.to_bytes(4, "big") * (size // 4) for number in numbers)
    finally:
        rig.close()


# Latencies -------------------------------------------------------------------------------------------------------

LATENCY_KIND = layout.constants("LatencyKind")


def latencies(log: Log) -> dict[str, int]:
    """How many answers of each kind were counted, without kinds of which there are none."""
    counts = {kind: sum(sum_latencies(log.segment, number)[1]) for kind, number in LATENCY_KIND.items()}
    return {kind: count for kind, count in counts.items() if count}


def least_and_most_us(log: Log, kind: str) -> tuple[float, float]:
    """Between which times the answers of *kind* lie that were counted."""
    counts = sum_latencies(log.segment, LATENCY_KIND[kind])[1]
    found = [number for number, count in enumerate(counts) if count]
    edges = (0, *layout.LATENCY_BOUNDS_US, float("inf"))
    return edges[found[0]], edges[found[-1] + 1]


def test_every_answered_send_is_counted_and_nothing_else(loop: LoopRig, log: Log) -> None:
    with loop.connect() as client:
        oneway = send_request(9)
        oneway.flag |= RemotingFlag.ONEWAY
        client.sendall(b"".join(each.encode() for each in (send_request(1), oneway, send_request(2), heart_beat(3))))
        began_s = time.monotonic()
        replies(client, 2)
        wait_until(lambda: latencies(log) == {"SEND": 2}, describe="they are counted")
        sum_us, _ = sum_latencies(log.segment, LATENCY_KIND["SEND"])
        # All that were read in one turn have taken as long as it; each is counted once, wherever that is.
        assert 0 <= sum_us <= 2 * (time.monotonic() - began_s + 1) * 1e6


def test_a_send_that_waits_for_the_disk_is_counted_with_its_wait(synced_loop: LoopRig, log: Log) -> None:
    with synced_loop.connect() as client:
        client.sendall(send_request(1).encode() + send_request(2).encode())
        began_s = time.monotonic()
        wait_until(lambda: synced_loop.word("parked") == 2, describe="two answers wait")
        assert latencies(log) == {}
        first, _ = log.walk()
        log.segment.set("flushed_offset", first.total_size)
        replies(client, 1)
        assert latencies(log) == {"SEND": 1}
        replies(client, 1)  # its time is out
        assert latencies(log) == {"SEND": 1, "UNCONFIRMED": 1}
        # By a coarse clock, which may be some ms behind.
        least, most = least_and_most_us(log, "UNCONFIRMED")
        assert most >= SYNC_TIMEOUT_MS * 900
        assert least <= (time.monotonic() - began_s + 1) * 1e6


@pytest.mark.parametrize("size", [8, 8192], ids=["copied", "out of the mappings"])
def test_pulls_with_messages_are_counted_and_held_ones_without_their_hold(loop: LoopRig, log: Log, size: int) -> None:
    (log.directory / f"{FILE_SIZE:020d}").write_bytes(bytes(FILE_SIZE))
    with loop.connect() as client:
        for number, woken_s in enumerate((0.0, 1.0, 100.0)):
            client.sendall(pull_request(number).encode())
            asked, _ = popped(loop)
            woken = int((time.monotonic() - woken_s) * 1e9) if woken_s else 0
            answer_pull(loop, asked, (FILE_SIZE, size), woken=woken)
            replies(client, 1)
        client.sendall(pull_request(7).encode())
        asked, _ = popped(loop)
        answer_pull(loop, asked)
        replies(client, 1)
    assert latencies(log) == {"PULL": 1, "HELD": 2}
    least, most = least_and_most_us(log, "HELD")
    assert 5e5 < least <= 1e6 + DEADLINE_S * 1e6
    assert most == float("inf")


# Slaves ----------------------------------------------------------------------------------------------------------


OK, DISK_LATE, SLAVE_LATE, NO_SLAVE = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
)
AT_ONCE_MS, NEVER_MS = 1, 1 << 30


@contextlib.contextmanager
def sync_master(log: Log, **changes: Any) -> Iterator[LoopRig]:
    options = {"waits_for_slave": True, "slave_timeout_ms": NEVER_MS, "sync_timeout_ms": NEVER_MS}
    with contextlib.closing(LoopRig(log, **options | changes)) as rig:
        yield rig


def test_a_send_waits_until_a_slave_has_the_message(log: Log) -> None:
    with sync_master(log) as loop, loop.connect() as client:
        loop.segment.set("slave_count", 1)
        client.sendall(send_request(1).encode())
        wait_until(lambda: loop.word("parked") == 1, describe="the answer waits")
        loop.segment.set("replicated_offset", log.end - 1)
        loop.wake()
        assert select.select([client], [], [], 0.05)[0] == []
        loop.segment.set("replicated_offset", log.end)
        loop.wake()
        (reply,) = replies(client, 1)
        assert (reply.code, reply.opaque) == (OK, 1)


def test_in_a_group_a_send_waits_for_whoever_must_have_it_and_asks_nobody(log: Log) -> None:
    with sync_master(log, in_group=True, slave_lag_max=0) as loop, loop.connect() as client:
        client.sendall(send_request(1).encode())
        wait_until(lambda: loop.word("parked") == 1, describe="the answer waits")
        loop.segment.set("replicated_offset", log.end)
        loop.wake()
        (reply,) = replies(client, 1)
        assert reply.code == OK


@pytest.mark.parametrize("waits", [{"waits_for_slave": True}, {"waits_for_slave": False, "waits_for_flush": True}])
def test_who_waits_for_a_master_that_leads_no_more_is_sent_to_the_next(log: Log, waits: dict[str, bool]) -> None:
    with sync_master(log, in_group=True, **waits) as loop, loop.connect() as client:
        client.sendall(send_request(1).encode())
        wait_until(lambda: loop.word("parked") == 1, describe="the answer waits")
        log.writer.stop_appends()
        loop.wake()
        (reply,) = replies(client, 1)
        assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "no longer the master" in (reply.remark or "")


@pytest.mark.parametrize(
    ("is_flushed", "has_slave", "is_copied", "code"),
    [
        (True, True, True, OK),
        (True, True, False, SLAVE_LATE),
        (True, False, False, NO_SLAVE),
        (False, True, True, DISK_LATE),
        (False, True, False, SLAVE_LATE),
        (False, False, False, NO_SLAVE),
    ],
)
def test_what_is_said_of_slaves_goes_before_what_is_said_of_the_disk(
    log: Log, is_flushed: bool, has_slave: bool, is_copied: bool, code: int
) -> None:
    late = {"slave_timeout_ms": AT_ONCE_MS, "sync_timeout_ms": AT_ONCE_MS}
    with sync_master(log, waits_for_flush=True, **late) as loop, loop.connect() as client:
        loop.segment.set("slave_count", int(has_slave))
        loop.segment.set("flushed_offset", (1 << 40) * is_flushed)
        loop.segment.set("replicated_offset", (1 << 40) * is_copied)
        client.sendall(send_request(1).encode())
        (reply,) = replies(client, 1)
        assert reply.code == code
        assert reply.ext_fields is not None
        assert reply.ext_fields["queueOffset"] == "0", "it is stored in any case"


def test_who_waits_for_disk_and_slave_waits_for_both(log: Log) -> None:
    with sync_master(log, waits_for_flush=True) as loop, loop.connect() as client:
        loop.segment.set("slave_count", 1)
        client.sendall(send_request(1).encode())
        wait_until(lambda: loop.word("parked") == 1, describe="the answer waits")
        loop.segment.set_flushed(log.end)
        loop.wake()
        assert select.select([client], [], [], 0.05)[0] == []
        loop.segment.set("replicated_offset", log.end)
        loop.wake()
        assert replies(client, 1)[0].code == OK


def test_a_message_that_does_not_wait_is_answered_at_once(log: Log) -> None:
    with sync_master(log, waits_for_flush=True) as loop, loop.connect() as client:
        client.sendall(send_request(1, i="WAIT\x01false\x02").encode())
        assert replies(client, 1)[0].code == OK


@pytest.mark.parametrize("lag_max", [1000, 100_000])
def test_slaves_that_lag_too_far_are_nobody_to_wait_for(log: Log, lag_max: int) -> None:
    with sync_master(log, slave_lag_max=lag_max, slave_timeout_ms=AT_ONCE_MS) as loop, loop.connect() as client:
        loop.segment.set("slave_count", 1)
        client.sendall(send_request(1, bytes(5000)).encode())
        assert replies(client, 1)[0].code == (NO_SLAVE if lag_max == 1000 else SLAVE_LATE)


def test_a_sync_that_failed_is_told_whatever_the_slaves_have(log: Log) -> None:
    with sync_master(log, waits_for_flush=True) as loop, loop.connect() as client:
        loop.segment.set("slave_count", 1)
        client.sendall(send_request(1).encode())
        wait_until(lambda: loop.word("parked") == 1, describe="the answer waits")
        loop.segment.set("replicated_offset", log.end)
        loop.segment.set_flags(STORE_FLAG["SYNC_FAILED"])
        loop.wake()
        assert replies(client, 1)[0].code == ResponseCode.SERVICE_NOT_AVAILABLE


def test_the_ha_worker_is_woken_only_when_it_sleeps(log: Log) -> None:
    ha_wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    try:
        with sync_master(log, waits_for_slave=False, ha_wake=ha_wake) as loop, loop.connect() as client:
            client.sendall(send_request(1).encode())
            replies(client, 1)
            assert select.select([ha_wake], [], [], 0)[0] == []
            loop.segment.set_worker_word(HA_ROW, "sleeping", 1)
            client.sendall(send_request(2).encode())
            replies(client, 1)
            assert select.select([ha_wake], [], [], DEADLINE_S)[0]
    finally:
        os.close(ha_wake)
