"""One send and its answer on a blocking socket: Cython, the Python twin, and with TLS; the peer does as it is told."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mqcore._fast.client import exchange as fast
from mqcore._fast.client import frames as fast_frames
from mqcore.codes import SerializeType
from mqcore.errors import HeaderError, ProtocolError, RemotingSendError, RemotingTimeoutError
from mqcore.protocol import send_frames as python_frames
from mqcore.protocol.command import RemotingCommand
from mqcore.transport import blocking
from mqcore.transport import exchange as python
from mqcore.transport.sealed_exchange import SealedExchange
from mqcore.transport.signed_sends import SignedSendHead
from mqcore.transport.tls import ServerMaterial
from tests.rigs.certificates import trusting

DEADLINE_S = 60.0
FIELDS = {"msgId": "7F00000100002A9F00000000000004D2", "queueId": "3", "queueOffset": "12", "MSG_REGION": "R"}
STORED = (0, None, FIELDS["msgId"], 3, 12, None, "R", None)
DECODERS = [
    pytest.param(python.decode_send_answer, id="python"),
    pytest.param(fast.decode_send_answer, id="cython"),
]


class Line:
    """One twin's exchange on a connected pair, whose other end the test holds."""

    ours: socket.socket
    theirs: socket.socket

    def __init__(self, exchange_class: Any, head_class: Any) -> None:
        self.connect()
        self.theirs.settimeout(DEADLINE_S)
        self.exchange = exchange_class(self.ours.fileno(), "peer:1")
        self.head = head_class("g", "t", "TBW102", 4, 3, "b")

    def connect(self) -> None:
        self.ours, self.theirs = socket.socketpair()

    def send(self, opaque: int = 7, timeout_s: float = DEADLINE_S, body: bytes = b"body") -> Any:
        return self.exchange.send(self.head, opaque, 0, 1, 0, {"a": "1"}, body, timeout_s)

    def read_request(self) -> RemotingCommand:
        length = int.from_bytes(self.read(4), "big")
        return RemotingCommand.decode(self.read(length))

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += self.theirs.recv(size - len(data))
        return data

    def cut_off(self) -> None:
        """End the connection without a word."""
        self.theirs.shutdown(socket.SHUT_RDWR)

    def answering(self, work: Callable[[Line], None]) -> threading.Thread:
        """Run *work*, the peer, beside the test."""
        thread = threading.Thread(target=work, args=(self,), daemon=True)
        thread.start()
        return thread

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


class SealedLine(Line):
    """The same with TLS."""

    def __init__(self, head_class: Any) -> None:
        super().__init__(lambda _, peer: SealedExchange(self.sealed, peer), head_class)

    def connect(self) -> None:
        super().connect()
        plain = self.theirs
        self.sealed = trusting().wrap_socket(self.ours, do_handshake_on_connect=False)
        server = ServerMaterial().context()
        with ThreadPoolExecutor(1) as pool:
            theirs = pool.submit(server.wrap_socket, plain, server_side=True)
            self.sealed.do_handshake()
            self.ours, self.theirs = self.sealed, theirs.result(DEADLINE_S)


def signed_head(*values: Any) -> SignedSendHead:
    return SignedSendHead({"AccessKey": "me"}, b"secret", *values)


MAKERS = {
    "python": lambda: Line(python.Exchange, python_frames.SendHead),
    "cython": lambda: Line(fast.Exchange, fast_frames.SendHead),
    "cython signed": lambda: Line(fast.Exchange, signed_head),
    "tls": lambda: SealedLine(fast_frames.SendHead),
    "tls signed": lambda: SealedLine(signed_head),
}


@pytest.fixture(params=MAKERS)
def line(request: pytest.FixtureRequest) -> Iterator[Line]:
    made = MAKERS[request.param]()
    yield made
    made.close()


def answer(opaque: int = 7, code: int = 0, **changes: Any) -> bytes:
    command = RemotingCommand(code, opaque, 1, ext_fields=FIELDS)
    for name, value in changes.items():
        setattr(command, name, value)
    return command.encode()


@pytest.mark.parametrize("kind", list(SerializeType))
def test_a_stored_message_is_answered_with_its_place(line: Line, kind: SerializeType) -> None:
    def peer(line: Line) -> None:
        request = line.read_request()
        assert (request.code, request.opaque, request.body) == (310, 7, b"body")
        line.theirs.sendall(answer(serialize_type=kind))

    line.answering(peer)
    assert line.send() == STORED


def test_one_line_serves_many_sends_and_large_ones(line: Line) -> None:
    def peer(line: Line) -> None:
        for opaque in range(1, 21):
            assert line.read_request().opaque == opaque
            line.theirs.sendall(answer(opaque))

    line.answering(peer)
    for opaque in range(1, 21):
        assert line.send(opaque, body=bytes(opaque * 50_000)) == STORED


def test_a_refusal_is_answered_with_its_code_and_remark(line: Line) -> None:
    line.answering(
        lambda line: (line.read_request(), line.theirs.sendall(answer(code=17, remark="no", ext_fields=None)))[1]
    )
    assert line.send() == (17, "no", "", 0, 0, None, None, None)


def test_an_answer_in_pieces_is_put_together(line: Line) -> None:
    def peer(line: Line) -> None:
        line.read_request()
        for byte in answer():
            line.theirs.sendall(bytes([byte]))

    line.answering(peer)
    assert line.send() == STORED


def test_what_is_not_the_answer_is_passed_over(line: Line) -> None:
    def peer(line: Line) -> None:
        line.read_request()
        request = RemotingCommand(40, 7, 0, ext_fields={"consumerGroup": "G"})
        line.theirs.sendall(request.encode() + answer(opaque=6) + answer())

    line.answering(peer)
    assert line.send() == STORED


def test_a_connection_closed_before_the_send_is_no_error(line: Line) -> None:
    line.theirs.close()
    assert line.send() is None


def test_a_connection_on_which_something_unasked_has_come_is_not_used(line: Line) -> None:
    line.theirs.sendall(answer(opaque=6))
    assert line.send() is None


def test_a_connection_closed_after_the_send_is_an_error(line: Line) -> None:
    line.answering(lambda line: (line.read_request(), line.theirs.close())[1])
    with pytest.raises(RemotingSendError, match="connection to peer:1 was closed"):
        line.send()


@pytest.mark.parametrize("is_answered", [False, True])
def test_a_connection_cut_off_is_an_error_in_the_middle_only(line: Line, is_answered: bool) -> None:
    if is_answered:  # a server's tickets have been taken then
        line.answering(lambda line: (line.read_request(), line.theirs.sendall(answer()))[1])
        assert line.send() == STORED
    line.answering(lambda line: (line.read_request(), line.cut_off())[1])
    with pytest.raises(RemotingSendError, match="connection to peer:1 was closed"):
        line.send()
    assert line.send() is None


def test_a_sealed_peer_that_says_what_is_no_tls_is_an_error_with_openssls_reason() -> None:
    line = SealedLine(fast_frames.SendHead)

    def peer(line: Line) -> None:
        line.read_request()
        with socket.socket(fileno=os.dup(line.theirs.fileno())) as plain:
            plain.sendall(answer())

    line.answering(peer)
    with pytest.raises(RemotingSendError, match=r"was closed: TLS: .*(wrong version|record)"):
        line.send()
    line.close()


def test_a_sealed_line_is_cut_in_another_thread_without_a_plain_word() -> None:
    line = SealedLine(fast_frames.SendHead)
    line.answering(lambda line: (line.read_request(), blocking.cut(line.sealed))[1])  # type: ignore[attr-defined]
    with pytest.raises(RemotingSendError, match="was closed"):
        line.send()
    with pytest.raises((ssl.SSLError, OSError)):
        line.sealed.send(b"plain")
    assert line.theirs.recv(100) == b""
    line.close()


def test_an_answer_that_does_not_come_is_a_timeout(line: Line) -> None:
    begin = time.monotonic()
    with pytest.raises(RemotingTimeoutError, match="no response from peer:1 within 50 ms"):
        line.send(timeout_s=0.05)
    assert time.monotonic() - begin < DEADLINE_S


def test_a_peer_that_does_not_read_is_a_timeout(line: Line) -> None:
    with pytest.raises(RemotingTimeoutError):
        line.send(timeout_s=0.05, body=bytes(8 << 20))


def test_a_peer_that_dribbles_does_not_go_on_for_ever(line: Line) -> None:
    stop = threading.Event()

    def peer(line: Line) -> None:
        line.read_request()
        line.theirs.sendall(struct.pack(">i", 1 << 20))
        while not stop.wait(0.01):
            try:
                line.theirs.sendall(b"x")
            except OSError:
                return

    thread = line.answering(peer)
    with pytest.raises(RemotingTimeoutError):
        line.send(timeout_s=0.2)
    stop.set()
    thread.join(DEADLINE_S)


@pytest.mark.parametrize("length", [-1, 0, 3, 1 << 30])
def test_an_impossible_length_is_an_error(line: Line, length: int) -> None:
    line.answering(lambda line: (line.read_request(), line.theirs.sendall(struct.pack(">i", length)))[1])
    with pytest.raises(RemotingSendError, match=f"got a frame of length {length}"):
        line.send()


def test_an_answer_that_cannot_be_read_is_an_error(line: Line) -> None:
    line.answering(
        lambda line: (line.read_request(), line.theirs.sendall(struct.pack(">ii", 8, 2 << 24) + bytes(4)))[1]
    )
    with pytest.raises(ProtocolError):
        line.send()


def test_a_message_that_cannot_travel_sends_nothing(line: Line) -> None:
    with pytest.raises(HeaderError):
        line.exchange.send(line.head, 1, 0, 1, 0, {"a": "\x02"}, b"x", 1.0)
    line.answering(lambda line: (line.read_request(), line.theirs.sendall(answer()))[1])
    assert line.send() == STORED


def test_an_interrupt_ends_the_waiting(line: Line) -> None:
    class Stopped(Exception):
        pass

    seen: list[int] = []
    done = threading.Event()

    def stop(number: int, frame: object) -> None:
        seen.append(number)
        if len(seen) == 1:
            raise Stopped

    def peer(line: Line) -> None:
        line.read_request()
        # Again and again: one that comes just before the sender begins to wait is noticed only when it has waited.
        while not done.wait(0.02) and not seen:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        thread = line.answering(peer)
        with pytest.raises(Stopped):
            line.send()
        done.set()
        thread.join(DEADLINE_S)
    finally:
        signal.signal(signal.SIGUSR1, before)


# Answers.


def outcome(work: Callable[[bytes], Any], payload: bytes) -> Any:
    try:
        return work(payload)
    except ProtocolError as error:
        return type(error)


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize("code", [0, 10, 11, 12])
def test_all_four_ways_of_being_stored_are_read(decode: Callable[[bytes], Any], code: int) -> None:
    fields = FIELDS | {"transactionId": "tx", "TRACE_ON": "false", "queueOffset": str(2**62)}
    payload = answer(code=code, ext_fields=fields)[4:]
    assert decode(payload) == (code, None, FIELDS["msgId"], 3, 2**62, "tx", "R", "false")


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize("missing", ["msgId", "queueId", "queueOffset"])
def test_a_stored_answer_without_its_place_is_refused(decode: Callable[[bytes], Any], missing: str) -> None:
    fields = {name: value for name, value in FIELDS.items() if name != missing}
    with pytest.raises(HeaderError, match=missing):
        decode(answer(ext_fields=fields)[4:])


@pytest.mark.parametrize("kind", list(SerializeType))
def test_answers_cut_anywhere_or_with_any_flipped_bit_are_read_alike(kind: SerializeType) -> None:
    whole = answer(serialize_type=kind)[4:]
    for cut in range(len(whole)):
        assert outcome(fast.decode_send_answer, whole[:cut]) == outcome(python.decode_send_answer, whole[:cut])
    for at in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[at] ^= 1 << bit
            got, wanted = (outcome(one, bytes(damaged)) for one in (fast.decode_send_answer, python.decode_send_answer))
            assert got == wanted, (at, bit)


ANSWERS_OF = [
    pytest.param(python.answer_of, id="python"),
    pytest.param(fast.answer_of, id="cython"),
]


@pytest.mark.parametrize("answer_of", ANSWERS_OF)
def test_the_answer_to_another_request_or_a_request_is_none(answer_of: Callable[[bytes, int], Any]) -> None:
    assert answer_of(answer()[4:], 7) == STORED
    assert answer_of(answer()[4:], 8) is None
    assert answer_of(RemotingCommand(40, 7, 0).encode()[4:], 7) is None
    with pytest.raises(ProtocolError):
        answer_of(b"", 7)


@pytest.mark.parametrize("kind", list(SerializeType))
def test_answers_cut_anywhere_are_found_alike(kind: SerializeType) -> None:
    whole = answer(serialize_type=kind)[4:]
    for cut_at in range(len(whole)):
        damaged = whole[:cut_at]
        got, wanted = (
            outcome(lambda data, one=one: one(data, 7), damaged) for one in (fast.answer_of, python.answer_of)
        )
        assert got == wanted, cut_at
