"""TLS in a send worker's loop: who comes in, what comes in which pieces, and who is shown out."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fast_rig import Log, shared_segment
from test_fast_send_loop import (
    DEADLINE_S,
    FILE_SIZE,
    LINK,
    LoopRig,
    answer_pull,
    heart_beat,
    is_closed,
    popped,
    pull_request,
    replies,
    send_request,
)

from mqcore._fast.tls import library
from mqcore._fast.tls.context import ServerContext
from mqcore._fast.tls.self_signed import make
from mqcore.codes import RemotingFlag, ResponseCode
from mqcore.errors import TlsError, TlsUnavailableError
from mqcore.protocol.command import RemotingCommand
from mqcore.store.paths import file_name
from tests.rigs.certificates import NO_OPENSSL, OPENSSL, Authority, Pair, trusting
from tests.waiting import wait_until

MODES = ["disabled", "permissive", "enforcing"]
DISABLED, PERMISSIVE, ENFORCING = range(3)
HELLO = b"\x16\x03\x01\x02\x00"


class TlsRig(LoopRig):
    """A loop that makes its context when it is asked for one, as the worker does."""

    def __init__(self, log: Log, context: ServerContext | None, **changes: Any) -> None:
        self.context = context
        self.asked = 0
        super().__init__(log, **{"tls_mode": PERMISSIVE, **changes})

    def _serve(self) -> None:
        while self._loop.run(self._version):
            if self._loop.wants_context:
                self.asked += 1
                self._loop.use_context(self.context)
            self._loop.use(self._options)
            self._version = self.segment.get("settings_version")

    def connect_tls(self, context: ssl.SSLContext | None = None, **options: Any) -> ssl.SSLSocket:
        client = self.connect(**options)
        try:
            return (context or trusting()).wrap_socket(client, server_hostname="localhost")
        except BaseException:
            client.close()
            raise

    def refused(self, context: ssl.SSLContext) -> str:
        """What a client that comes with *context* is told; with TLS 1.3 only after its handshake."""
        try:
            with self.connect_tls(context) as client:
                client.sendall(heart_beat(1).encode())
                assert client.recv(1) == b""
        except OSError as error:
            return str(error)
        return ""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    directory = tmp_path_factory.mktemp("pair")
    certificate, key = make()
    found = Pair(directory / "server.pem", directory / "server.key")
    found.certificate.write_bytes(certificate)
    found.key.write_bytes(key)
    return found


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    if OPENSSL is None:
        pytest.skip(NO_OPENSSL)
    return Authority(tmp_path_factory.mktemp("authority"))


def context_of(pair: Pair, **options: Any) -> ServerContext:
    return ServerContext(str(pair.certificate), str(pair.key), pair.password, **options)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with shared_segment() as segment:
        yield Log(tmp_path, segment, FILE_SIZE)


@pytest.fixture
def make_loop(log: Log, pair: Pair) -> Iterator[Any]:
    rigs = []

    def make_rig(context: ServerContext | None = None, **changes: Any) -> TlsRig:
        rigs.append(TlsRig(log, context or context_of(pair), **changes))
        return rigs[-1]

    yield make_rig
    for rig in rigs:
        rig.close()


# Who comes in -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_with_tls_is_served_and_one_without_beside_it(make_loop: Any, version: ssl.TLSVersion) -> None:
    loop = make_loop()
    context = trusting()
    context.minimum_version = context.maximum_version = version
    with loop.connect_tls(context) as client, loop.connect() as plain:
        assert client.version() == {771: "TLSv1.2", 772: "TLSv1.3"}[version]
        for connection in (client, plain):
            connection.sendall(send_request(5).encode())
            (reply,) = replies(connection, 1)
            assert (reply.opaque, reply.code) == (5, ResponseCode.SUCCESS)
    assert loop.word("handshakes") == 1
    assert loop.asked == 1, "the context is made once"


def test_the_library_is_not_asked_for_before_somebody_comes_with_tls(make_loop: Any) -> None:
    loop = make_loop()
    with loop.connect() as client:
        client.sendall(send_request(5).encode())
        replies(client, 1)
    assert loop.asked == 0


@pytest.mark.parametrize(("mode", "is_tls"), [(DISABLED, True), (ENFORCING, False)])
def test_who_may_not_come_so_is_shown_out(
    make_loop: Any, caplog: pytest.LogCaptureFixture, mode: int, is_tls: bool
) -> None:
    loop = make_loop(tls_mode=mode)
    with loop.connect() as client:
        client.sendall(HELLO if is_tls else heart_beat(1).encode())
        assert is_closed(client)
        assert f"cause=transport refused: it begins with{'' if is_tls else 'out'} TLS" in caplog.text
    assert loop.word("transport_refused") == 1
    other = loop.connect() if is_tls else loop.connect_tls()
    with other:
        other.sendall(send_request(5).encode())
        assert replies(other, 1)[0].code == ResponseCode.SUCCESS


def test_without_a_certificate_or_library_tls_is_refused_and_the_rest_served(make_loop: Any) -> None:
    loop = make_loop()
    loop.context = None
    with loop.connect() as client, loop.connect() as plain:
        client.sendall(HELLO)
        assert is_closed(client)
        plain.sendall(send_request(5).encode())
        assert replies(plain, 1)[0].code == ResponseCode.SUCCESS
    assert (loop.asked, loop.word("transport_refused")) == (1, 1)


def test_an_old_version_is_refused_by_name(make_loop: Any, caplog: pytest.LogCaptureFixture) -> None:
    loop = make_loop()
    context = trusting()
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="deprecated"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    assert "protocol version" in loop.refused(context)
    wait_until(lambda: "TLS handshake failed: unsupported protocol" in caplog.text, describe="the failure is logged")
    assert loop.word("handshakes_failed") == 1


def test_refusals_are_logged_once_in_a_while(make_loop: Any, caplog: pytest.LogCaptureFixture) -> None:
    loop = make_loop()
    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            with loop.connect() as client:
                client.sendall(HELLO + b"\x01" + bytes(512))
                assert is_closed(client) or client.recv(100)
    wait_until(lambda: loop.word("handshakes_failed") == 20, describe="all are counted")
    assert caplog.text.count("TLS handshake failed") == 1


# Handshakes that go wrong -----------------------------------------------------------------------------------------


def test_a_stopped_handshake_is_closed_and_counted(make_loop: Any, caplog: pytest.LogCaptureFixture) -> None:
    loop = make_loop(handshake_timeout_ms=200)
    with loop.connect() as client:
        client.sendall(HELLO)
        assert is_closed(client)
    assert loop.word("handshakes_failed") == 1
    assert "not over in tlsHandshakeTimeoutMillis" in caplog.text


def test_a_handshake_that_is_reset_is_counted(make_loop: Any) -> None:
    loop = make_loop()
    loop.connect_tls().close()  # from here on it has its certificate
    with loop.connect() as plain:
        for _ in range(20):
            with loop.connect() as client:
                client.sendall(HELLO)
                for _ in ("it is accepted", "it is read"):
                    plain.sendall(send_request(5).encode())
                    replies(plain, 1)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until(lambda: loop.word("handshakes_failed") == 20, describe="those who were reset are counted")


def test_many_half_handshakes_keep_nobody_out(make_loop: Any) -> None:
    loop = make_loop()
    halves = [loop.connect() for _ in range(200)]
    try:
        for number, half in enumerate(halves):
            half.sendall(HELLO[: 1 + number % 5])
        with loop.connect_tls() as client:
            client.sendall(send_request(5).encode())
            assert replies(client, 1)[0].code == ResponseCode.SUCCESS
    finally:
        for half in halves:
            half.close()
    wait_until(lambda: loop.word("handshakes_failed") == 200, describe="those who left are counted")


def test_noise_in_the_place_of_records_closes_that_connection_only(make_loop: Any) -> None:
    loop = make_loop()
    client = loop.connect()
    with loop.connect_tls() as good:
        wrapped = trusting().wrap_socket(client.dup(), server_hostname="localhost")
        with client, wrapped:
            client.sendall(os.urandom(4096))
            with pytest.raises((ssl.SSLError, ConnectionResetError)):
                assert wrapped.recv(1)
        good.sendall(send_request(5).encode())
        assert replies(good, 1)[0].code == ResponseCode.SUCCESS


# Pieces -----------------------------------------------------------------------------------------------------------


class Fragmenter:
    """Between a client and the loop: what either says travels on in random pieces."""

    def __init__(self, loop: TlsRig, chance: random.Random) -> None:
        self._chance = chance
        self.client, near = socket.socketpair()
        far = loop.connect()
        far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ends = [near, far]
        self._threads = [
            threading.Thread(target=self._carry, args=ends, daemon=True) for ends in ((near, far), (far, near))
        ]
        for thread in self._threads:
            thread.start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(self._chance.choice((1, 5, 17, 1000, 16384, 300_000))):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the test is over

    def close(self) -> None:
        for end in (self.client, *self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)  # closing alone wakes nobody who reads from it
            end.close()
        for thread in self._threads:
            thread.join(DEADLINE_S)


def test_frames_in_random_pieces_come_out_whole(make_loop: Any, chance: random.Random) -> None:
    loop = make_loop()
    between = Fragmenter(loop, chance)
    bodies = [os.urandom(chance.choice((0, 1, 100, 16_000, 16_400, 50_000, 700_000))) for _ in range(60)]
    try:
        with trusting().wrap_socket(between.client, server_hostname="localhost") as client:
            client.settimeout(DEADLINE_S)
            stream = b"".join(heart_beat(number, body).encode() for number, body in enumerate(bodies))
            writer = threading.Thread(target=send_in_pieces, args=(client, stream, chance))
            writer.start()
            loop.told()
            for number, body in enumerate(bodies):
                kind, identity, payload = loop.told()
                assert (kind, payload) == (LINK["REQUEST"], heart_beat(number, body).encode()[4:])
            # And back, from the broker process.
            for number, body in enumerate(bodies):
                answer = RemotingCommand(0, number, int(RemotingFlag.RESPONSE), body=body)
                loop.tell(LINK["FRAME"], identity, answer.encode())
            assert [reply.body for reply in replies(client, len(bodies))] == bodies
            writer.join(DEADLINE_S)
    finally:
        between.close()


def send_in_pieces(client: ssl.SSLSocket, stream: bytes, chance: random.Random) -> None:
    at = 0
    while at < len(stream):
        size = chance.choice((1, 3, 4, 200, 5_000, 16_384, 100_000))
        client.sendall(stream[at : at + size])
        at += size


def test_what_a_socket_does_not_take_is_sent_later_in_order(make_loop: Any) -> None:
    loop = make_loop()
    loop.limit_socket_buffers()
    bodies = [os.urandom(100_000) for _ in range(40)]
    with loop.connect_tls(receive_buffer_size=16384) as client:
        client.sendall(heart_beat(1).encode())
        loop.told()
        _, identity, _ = loop.told()
        for number, body in enumerate(bodies):
            loop.tell(LINK["FRAME"], identity, heart_beat(number, body).encode())
        turns = loop.word("turns")
        wait_until(lambda: loop.word("turns") > turns + 2 or loop.word("buffered") > 0, describe="something waits")
        assert [reply.body for reply in replies(client, len(bodies))] == bodies


@pytest.mark.parametrize("is_slow", [True, False], ids=["read slowly", "read at once"])
def test_pulls_of_large_and_small_ranges_come_whole(
    make_loop: Any, log: Log, chance: random.Random, is_slow: bool
) -> None:
    loop = make_loop()
    data = [os.urandom(FILE_SIZE), os.urandom(FILE_SIZE)]
    for number, content in enumerate(data):
        (log.directory / file_name(number * FILE_SIZE)).write_bytes(content)
    if is_slow:
        loop.limit_socket_buffers()
    with loop.connect_tls(receive_buffer_size=16384 if is_slow else None) as client:
        wanted, received = [], []
        for opaque in range(8):
            ranges = [
                (chance.randrange(2) * FILE_SIZE + chance.randrange(FILE_SIZE // 2), size)
                for size in chance.choices((1, 100, 3_000, 16_384, 16_385, 200_000, 400_000), k=chance.randint(1, 6))
            ]
            client.sendall(pull_request(opaque).encode())
            asked, _ = popped(loop)
            answer_pull(loop, asked, *ranges)
            wanted.append(b"".join(data[at // FILE_SIZE][at % FILE_SIZE :][:size] for at, size in ranges))
            if opaque % 2:  # two at a time, so that one comes behind what the other has left
                received += replies(client, 2)
        assert [answer.body for answer in sorted(received, key=lambda answer: answer.opaque)] == wanted


def test_who_does_not_read_is_cut_off(make_loop: Any) -> None:
    loop = make_loop(write_buffer_max=1 << 20)
    loop.limit_socket_buffers()
    with loop.connect_tls(receive_buffer_size=16384) as client:
        client.sendall(heart_beat(1).encode())
        loop.told()
        _, identity, _ = loop.told()
        loop.tell(LINK["FRAME"], identity, heart_beat(2, bytes(1 << 21)).encode())
        wait_until(lambda: loop.word("slow_readers") == 1, describe="it is cut off")


def test_the_end_of_either_side_is_said(make_loop: Any) -> None:
    loop = make_loop(idle_timeout_ms=700)
    with loop.connect_tls() as client:
        assert client.recv(1) == b"", "an idle client is told by an alert: without it this raises"
    with loop.connect_tls() as client:
        client.sendall(heart_beat(1).encode())
        loop.told()
        _, identity, _ = loop.told()
        raw = client.unwrap()  # says so, and waits for the same
        raw.close()
    assert loop.told() == (LINK["CLOSED"], identity, b"")


# Certificates -----------------------------------------------------------------------------------------------------


def test_a_client_that_checks_accepts_the_right_certificate_only(make_loop: Any, authority: Authority) -> None:
    loop = make_loop(context_of(authority.sign(password="secret")))
    with loop.connect_tls(authority.client()) as client:
        client.sendall(send_request(5).encode())
        assert replies(client, 1)[0].code == ResponseCode.SUCCESS
    with pytest.raises(ssl.SSLCertVerificationError):
        loop.connect_tls(ssl.create_default_context())
    wait_until(lambda: loop.word("handshakes_failed") == 1, describe="its alert is counted")


def test_clients_are_asked_for_certificates_and_known_by_them(
    make_loop: Any, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = Authority(tmp_path / "other", "stranger")
    loop = make_loop(context_of(authority.sign(), trust=str(authority.certificate), requires=True))
    assert "certificate required" in loop.refused(authority.client())
    assert "unknown ca" in loop.refused(authority.client(stranger.sign()))
    assert "expired" in loop.refused(authority.client(authority.sign(days=-1)))
    wait_until(lambda: loop.word("handshakes_failed") == 3, describe="all are counted")
    with loop.connect_tls(authority.client(authority.sign("/O=Books, Inc./CN=alice"))) as client:
        client.sendall(heart_beat(1).encode())
        _, _, introduction = loop.told()
    *_, name = introduction.decode().split(" ", 3)
    assert name == r"CN=alice,O=Books\, Inc."


def test_a_name_may_be_optional(make_loop: Any, authority: Authority) -> None:
    loop = make_loop(context_of(authority.sign(), trust=str(authority.certificate)))
    with loop.connect_tls(authority.client()) as client:
        client.sendall(heart_beat(1).encode())
        assert loop.told()[2].endswith(b" 0")


def test_another_certificate_is_for_new_connections(make_loop: Any, authority: Authority) -> None:
    loop = make_loop(context_of(authority.sign("/CN=old")))
    with loop.connect_tls(authority.client()) as old:
        loop._loop.use_context(context_of(authority.sign("/CN=new")))
        with loop.connect_tls(authority.client()) as new:
            names = [dict(pair[0] for pair in end.getpeercert()["subject"])["commonName"] for end in (old, new)]
            assert names == ["old", "new"]
            for client in (old, new):
                client.sendall(send_request(5).encode())
                assert replies(client, 1)[0].code == ResponseCode.SUCCESS


def test_what_does_not_fit_together_is_refused(authority: Authority, tmp_path: Path) -> None:
    one, other, locked = authority.sign(), authority.sign(), authority.sign(password="secret")
    with pytest.raises(TlsError, match="key"):
        ServerContext(str(one.certificate), str(other.key))
    for password in ("", "wrong"):
        with pytest.raises(TlsError, match="key"):
            ServerContext(str(locked.certificate), str(locked.key), password)
    with pytest.raises(TlsError, match="certificate"):
        ServerContext(str(one.key), str(one.key))
    nothing = tmp_path / "nothing.pem"
    nothing.write_bytes(b"")
    with pytest.raises(TlsError, match="trusted"):
        ServerContext(str(one.certificate), str(one.key), trust=str(nothing))


def test_without_a_library_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "mapped_library", lambda: None)
    monkeypatch.setattr(library, "SYSTEM_NAMES", ("libnowhere.so.9",))
    with pytest.raises(TlsUnavailableError, match=r"no OpenSSL.*libnowhere"):
        library.load()


def test_the_system_s_library_serves_where_python_has_none_to_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "mapped_library", lambda: None)
    try:
        name = library.load()
    except TlsUnavailableError as error:
        pytest.skip(str(error))
    assert name in library.SYSTEM_NAMES


def test_a_slow_reader_of_handshakes_gets_them_whole(make_loop: Any) -> None:
    loop = make_loop()
    source, sink = ssl.MemoryBIO(), ssl.MemoryBIO()
    mind = trusting().wrap_bio(source, sink, server_hostname="localhost")
    with loop.connect() as client:
        while True:
            try:
                mind.do_handshake()
                break
            except ssl.SSLWantReadError:
                for byte in sink.read():
                    client.sendall(bytes([byte]))
                source.write(client.recv(7))
        client.sendall(sink.read())
        wait_until(lambda: loop.word("handshakes") == 1, describe="it is over")
