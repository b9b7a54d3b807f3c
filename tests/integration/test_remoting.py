"""Connections over real sockets: calls, time-outs, closing, and peers that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from mqcore.address import host_and_port
from mqcore.codes import ResponseCode, SerializeType
from mqcore.errors import (
    HeaderError,
    RemotingConnectError,
    RemotingSendError,
    RemotingTimeoutError,
    RemotingTooMuchRequestError,
    StoreNotWritableError,
)
from mqcore.protocol.command import FrameSplitter, RemotingCommand
from mqcore.transport import connection as connection_module
from mqcore.transport.client import RemotingClient
from mqcore.transport.connection import Connection, Handler
from mqcore.transport.server import RemotingServer
from tests.rigs import free_port

ECHO, FAIL, REFUSE, HOLD, BIG, CALL_BACK, SILENT = range(1, 8)
BIG_SIZE = 1024 * 1024


class Peer:
    """A server whose handler does what the request code says."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.held = 0
        self.seen: list[int] = []
        self.connections: list[Connection] = []
        self.closed: list[Connection] = []

    async def handle(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        self.seen.append(request.code)
        if request.code == FAIL:
            raise ValueError("boom")
        if request.code == REFUSE:
            raise StoreNotWritableError("disk full")
        if request.code == HOLD:
            self.held += 1
            await self.release.wait()
        if request.code == SILENT:
            return None
        if request.code == BIG:
            return request.reply(body=bytes(BIG_SIZE))
        if request.code == CALL_BACK:
            answer = await connection.invoke(RemotingCommand(int((request.ext_fields or {})["code"])), 5)
            return request.reply(answer.code, answer.remark, body=answer.body)
        return request.reply(body=request.body)


Start = Callable[..., Awaitable[RemotingServer]]


@pytest.fixture
async def peer() -> Peer:
    return Peer()


@pytest.fixture
async def start(peer: Peer) -> AsyncIterator[Start]:
    servers: list[RemotingServer] = []

    async def start_server(handler: Handler = peer.handle, port: int = 0, **options: object) -> RemotingServer:
        server = RemotingServer(
            "127.0.0.1",
            port,
            handler,
            on_connect=peer.connections.append,
            on_close=peer.closed.append,
            **options,  # type: ignore[arg-type]
        )
        await server.start()
        servers.append(server)
        return server

    yield start_server
    peer.release.set()
    for server in servers:
        await server.stop()


@pytest.fixture
async def server(start: Start) -> RemotingServer:
    return await start()


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    client = RemotingClient()
    yield client
    await client.close()


async def until(condition: Callable[[], bool], deadline_s: float = 30) -> None:
    """Wait until *condition* holds; fail after *deadline_s*."""
    async with asyncio.timeout(deadline_s):
        while not condition():
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def raw(server: RemotingServer) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def read_responses(reader: asyncio.StreamReader, count: int) -> list[RemotingCommand]:
    splitter = FrameSplitter()
    found: list[RemotingCommand] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            data = await reader.read(65536)
            assert data, "connection closed"
            found += [RemotingCommand.decode(payload) for payload in splitter.feed(data)]
    return found


# Calls


async def test_a_request_gets_its_response(server: RemotingServer, client: RemotingClient) -> None:
    answer = await client.invoke(server.address, RemotingCommand(ECHO, body=b"hello"), 5)
    assert (answer.code, answer.body, answer.flag) == (0, b"hello", 1)


async def test_small_and_large_requests_of_one_turn_arrive_whole(
    client: RemotingClient, server: RemotingServer, peer: Peer
) -> None:
    bodies = [bytes([number]) * size for number, size in enumerate([10, BIG_SIZE, 20, 30, BIG_SIZE, BIG_SIZE, 40])]
    asked = [client.invoke(server.address, RemotingCommand(ECHO, body=body), 30) for body in bodies]
    assert [answer.body for answer in await asyncio.gather(*asked)] == bodies


async def test_responses_find_their_requests_in_any_order(
    server: RemotingServer, client: RemotingClient, peer: Peer
) -> None:
    held = asyncio.create_task(client.invoke(server.address, RemotingCommand(HOLD, body=b"first"), 10))
    await until(lambda: peer.held == 1)
    later = [client.invoke(server.address, RemotingCommand(ECHO, body=b"%d" % number), 10) for number in range(100)]
    assert [answer.body for answer in await asyncio.gather(*later)] == [b"%d" % number for number in range(100)]
    assert not held.done()
    peer.release.set()
    assert (await held).body == b"first"
    assert len(peer.connections) == 1


async def test_pipelined_requests_are_answered_in_one_stream(server: RemotingServer) -> None:
    requests = [RemotingCommand(ECHO, opaque, body=b"x" * opaque) for opaque in range(1, 200)]
    async with raw(server) as (reader, writer):
        writer.write(b"".join(request.encode() for request in requests))
        answers = await read_responses(reader, len(requests))
    assert [(answer.opaque, answer.body) for answer in answers] == [(sent.opaque, sent.body) for sent in requests]


async def test_answers_that_are_ready_together_leave_in_one_write(
    server: RemotingServer, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with raw(server) as (reader, writer):
        writer.write(RemotingCommand(ECHO, 1).encode())
        await read_responses(reader, 1)
        transport = peer.connections[0]._transport
        assert transport is not None
        writes: list[int] = []
        write = transport.write
        monkeypatch.setattr(transport, "write", lambda data: (writes.append(len(data)), write(data)))
        writer.write(b"".join(RemotingCommand(ECHO, opaque).encode() for opaque in range(200)))
        await read_responses(reader, 200)
    assert len(writes) <= 5


async def test_a_request_may_arrive_byte_by_byte(server: RemotingServer) -> None:
    async with raw(server) as (reader, writer):
        for byte in RemotingCommand(ECHO, 7, body=b"slow").encode():
            writer.write(bytes([byte]))
            await writer.drain()
        (answer,) = await read_responses(reader, 1)
    assert (answer.opaque, answer.body) == (7, b"slow")


async def test_large_frames_pass_both_ways(server: RemotingServer, client: RemotingClient) -> None:
    body = bytes(range(256)) * 4096 * 8
    assert (await client.invoke(server.address, RemotingCommand(ECHO, body=body), 10)).body == body


async def test_who_reads_an_answer_itself_gets_the_body_where_it_lies(
    server: RemotingServer, client: RemotingClient
) -> None:
    found: list[tuple[RemotingCommand, bytes]] = []

    def read(answer: RemotingCommand, body: memoryview) -> None:
        found.append((answer, bytes(body)))

    body = bytes(range(256)) * 4096
    answers = await asyncio.gather(
        client.invoke(server.address, RemotingCommand(ECHO, body=body), 30, read=read),
        client.invoke(server.address, RemotingCommand(ECHO, body=b"other"), 30),
    )
    assert [answer.body for answer in answers] == [b"", b"other"]
    assert found == [(answers[0], body)]


async def test_what_reading_an_answer_raises_is_its_callers_alone(
    server: RemotingServer, client: RemotingClient
) -> None:
    def read(answer: RemotingCommand, body: memoryview) -> None:
        raise HeaderError("body", bytes(body).decode(), "another")

    results = await asyncio.gather(
        client.invoke(server.address, RemotingCommand(ECHO, body=b"bad"), 30, read=read),
        client.invoke(server.address, RemotingCommand(ECHO, body=b"good"), 30),
        return_exceptions=True,
    )
    assert isinstance(results[0], HeaderError)
    assert isinstance(results[1], RemotingCommand)
    assert results[1].body == b"good"
    connection = client.connection_of(server.address)
    assert connection is not None
    assert not connection.is_closed


async def test_an_answer_has_the_form_of_its_request(server: RemotingServer, client: RemotingClient) -> None:
    request = RemotingCommand(ECHO, serialize_type=SerializeType.ROCKETMQ)
    assert (await client.invoke(server.address, request, 5)).serialize_type is SerializeType.ROCKETMQ


async def test_host_names_are_resolved(server: RemotingServer, client: RemotingClient) -> None:
    assert (await client.invoke(f"localhost:{server.port}", RemotingCommand(ECHO), 5)).code == 0


async def test_both_ends_send_without_delay(server: RemotingServer, client: RemotingClient, peer: Peer) -> None:
    ours = await client.connect(server.address)
    await until(lambda: bool(peer.connections))
    for end in (ours, peer.connections[0]):
        assert end._transport is not None
        assert end._transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert ours.remote_address == server.address == peer.connections[0].local_address
    assert ours.local_address == peer.connections[0].remote_address


async def test_hooks_see_each_request_before_it_is_sent(server: RemotingServer, client: RemotingClient) -> None:
    def sign(address: str, request: RemotingCommand) -> None:
        request.body += address.encode()

    client.request_hooks.append(sign)
    answer = await client.invoke(server.address, RemotingCommand(ECHO, body=b"to "), 5)
    assert answer.body == f"to {server.address}".encode()


# Failures of handlers


@pytest.mark.parametrize("kind", list(SerializeType))
async def test_an_exception_becomes_system_error_in_json(
    server: RemotingServer, client: RemotingClient, kind: SerializeType, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await client.invoke(server.address, RemotingCommand(FAIL, serialize_type=kind), 5)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "ValueError: boom")
    assert answer.serialize_type is SerializeType.JSON
    assert "Traceback" in caplog.text


async def test_an_error_with_a_code_becomes_that_code(server: RemotingServer, client: RemotingClient) -> None:
    answer = await client.invoke(server.address, RemotingCommand(REFUSE), 5)
    assert (answer.code, answer.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, "StoreNotWritableError: disk full")


async def test_oneway_requests_are_served_and_never_answered(
    server: RemotingServer, client: RemotingClient, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    for code in (ECHO, FAIL, REFUSE):
        await client.invoke_oneway(server.address, RemotingCommand(code))
    # A response to any of them would be read before this one, and be logged.
    await client.invoke(server.address, RemotingCommand(ECHO), 5)
    assert peer.seen == [ECHO, FAIL, REFUSE, ECHO]
    assert "nobody waits for" not in caplog.text


async def test_a_handler_may_answer_later(start: Start, client: RemotingClient) -> None:
    parked: list[tuple[Connection, RemotingCommand]] = []

    async def park(connection: Connection, request: RemotingCommand) -> None:
        parked.append((connection, request))

    server = await start(park)
    waiting = asyncio.create_task(client.invoke(server.address, RemotingCommand(ECHO), 10))
    await until(lambda: bool(parked))
    connection, request = parked[0]
    connection.send(request.reply(body=b"at last"))
    assert (await waiting).body == b"at last"


async def test_too_many_requests_at_once_are_answered_busy(
    server: RemotingServer, client: RemotingClient, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "RUNNING_HANDLERS_MAX", 2)
    held = [asyncio.create_task(client.invoke(server.address, RemotingCommand(HOLD), 10)) for _ in range(2)]
    await until(lambda: peer.held == 2)
    answer = await client.invoke(server.address, RemotingCommand(ECHO), 5)
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert answer.remark is not None
    assert answer.remark.startswith("[OVERLOAD]")
    peer.release.set()
    assert [answer.code for answer in await asyncio.gather(*held)] == [0, 0]


async def test_too_many_calls_at_once_are_refused(
    server: RemotingServer, client: RemotingClient, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "PENDING_REQUESTS_MAX", 1)
    held = asyncio.create_task(client.invoke(server.address, RemotingCommand(HOLD), 10))
    await until(lambda: peer.held == 1)
    with pytest.raises(RemotingTooMuchRequestError):
        await client.invoke(server.address, RemotingCommand(ECHO), 5)
    peer.release.set()
    await held


# Requests of the server


async def test_a_server_may_ask_its_client(server: RemotingServer, client: RemotingClient) -> None:
    async def answer(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        return request.reply(body=b"from the client")

    client.register_handler(220, answer)
    asked = await client.invoke(server.address, RemotingCommand(CALL_BACK, ext_fields={"code": "220"}), 5)
    assert asked.body == b"from the client"
    unknown = await client.invoke(server.address, RemotingCommand(CALL_BACK, ext_fields={"code": "40"}), 5)
    assert unknown.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert unknown.remark == " request type 40 not supported"


# Time-outs and closing


async def test_a_timeout_closes_the_connection(server: RemotingServer, client: RemotingClient, peer: Peer) -> None:
    other = asyncio.create_task(client.invoke(server.address, RemotingCommand(HOLD), 30))
    await until(lambda: peer.held == 1)
    with pytest.raises(RemotingTimeoutError, match=r"no response from 127\.0\.0\.1:\d+ within"):
        await client.invoke(server.address, RemotingCommand(SILENT), 0.05)
    with pytest.raises(RemotingSendError, match="was closed"):
        await other
    await until(lambda: len(peer.closed) == 1)
    assert (await client.invoke(server.address, RemotingCommand(ECHO), 5)).code == 0
    assert len(peer.connections) == 2


async def test_a_timeout_may_keep_the_connection(server: RemotingServer, client: RemotingClient, peer: Peer) -> None:
    await client.connect(server.address)  # which the time-out is not about
    with pytest.raises(RemotingTimeoutError):
        await client.invoke(server.address, RemotingCommand(HOLD), 0.05, close_on_timeout=False)
    peer.release.set()  # its late answer is dropped
    assert (await client.invoke(server.address, RemotingCommand(ECHO, body=b"x"), 5)).body == b"x"
    assert len(peer.connections) == 1


async def test_a_caller_that_gives_up_leaves_nothing_behind(server: RemotingServer, client: RemotingClient) -> None:
    call = asyncio.create_task(client.invoke(server.address, RemotingCommand(SILENT), 30))
    connection = await client.connect(server.address)
    await until(lambda: bool(connection._pending))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not connection._pending


async def test_callers_fail_at_once_when_the_peer_closes(
    server: RemotingServer, client: RemotingClient, peer: Peer
) -> None:
    calls = [asyncio.create_task(client.invoke(server.address, RemotingCommand(SILENT), 30)) for _ in range(3)]
    await until(lambda: len(peer.seen) == 3)
    peer.connections[0].close()
    for result in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(result, RemotingSendError)


async def test_a_client_connects_again_to_a_server_that_came_back(start: Start, client: RemotingClient) -> None:
    first = await start(port=free_port())  # one that nobody else takes meanwhile
    await client.invoke(first.address, RemotingCommand(ECHO), 5)
    await first.stop()
    await until(lambda: client.connection_of(first.address) is None)
    with pytest.raises(RemotingConnectError, match=f"connect to {first.address} failed"):
        await client.invoke(first.address, RemotingCommand(ECHO), 5)
    second = await start(port=first.port)
    assert (await client.invoke(second.address, RemotingCommand(ECHO), 5)).code == 0


async def test_a_server_that_does_not_accept_is_given_up(client: RemotingClient) -> None:
    with socket.socket() as listener, contextlib.ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):  # more than the kernel will queue, so that further handshakes get no answer
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        hasty = RemotingClient(connect_timeout_s=0.1)
        address = host_and_port(*listener.getsockname())
        with pytest.raises(RemotingConnectError, match="no answer in 100 ms"):
            await hasty.invoke(address, RemotingCommand(ECHO), 5)
        with pytest.raises(RemotingConnectError, match="no answer in 50 ms"):
            await client.invoke(address, RemotingCommand(ECHO), 0.05)
        await hasty.close()


async def test_stop_lets_handlers_answer(start: Start, client: RemotingClient, peer: Peer) -> None:
    server = await start()
    held = asyncio.create_task(client.invoke(server.address, RemotingCommand(HOLD, body=b"x"), 10))
    await until(lambda: peer.held == 1)
    stopping = asyncio.create_task(server.stop())
    peer.release.set()
    assert (await held).body == b"x"
    await stopping
    await until(lambda: client.connection_of(server.address) is None)


async def test_stop_does_not_wait_for_ever(
    start: Start, client: RemotingClient, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqcore.transport.server.STOP_GRACE_S", 0.05)
    server = await start()
    held = asyncio.create_task(client.invoke(server.address, RemotingCommand(HOLD), 10))
    await until(lambda: peer.held == 1)
    await server.stop()
    with pytest.raises(RemotingSendError):
        await held


async def test_a_closed_client_stays_closed(server: RemotingServer) -> None:
    client = RemotingClient()
    call = asyncio.create_task(client.invoke(server.address, RemotingCommand(SILENT), 30))
    await client.connect(server.address)
    await client.close()
    with pytest.raises(RemotingSendError):
        await call
    with pytest.raises(RemotingConnectError, match="the client is closed"):
        await client.invoke(server.address, RemotingCommand(ECHO), 5)


async def test_close_connection_makes_room_for_a_new_one(
    server: RemotingServer, client: RemotingClient, peer: Peer
) -> None:
    await client.invoke(server.address, RemotingCommand(ECHO), 5)
    connection = client.connection_of(server.address)
    assert connection is not None
    client.close_connection(server.address)
    await connection.wait_closed()
    assert client.connection_of(server.address) is None
    with pytest.raises(RemotingSendError):
        await connection.invoke(RemotingCommand(ECHO), 5)
    with pytest.raises(RemotingSendError):
        connection.invoke_oneway(RemotingCommand(ECHO))
    connection.send(RemotingCommand(ECHO))  # dropped in silence, as an answer to a peer that has gone
    assert (await client.invoke(server.address, RemotingCommand(ECHO), 5)).code == 0
    assert len(peer.connections) == 2


# Peers that misbehave


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",
        b"\0\0\0\x03abc",
        b"\x7f\xff\xff\xff",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0\0\0\x08\0\0\0\x05{}xx",
        b"\0\0\0\x06\x07\0\0\x02{}",
        b"\0\0\0\x07\0\0\0\x03{a]",
        b"\0\0\0\x08\x01\0\0\x04\0\0\0\0",
    ],
    ids=["negative", "too small", "too large", "http", "header too long", "serialize type", "json", "binary"],
)
async def test_a_bad_frame_costs_its_sender_the_connection_only(
    server: RemotingServer, client: RemotingClient, data: bytes
) -> None:
    await client.invoke(server.address, RemotingCommand(ECHO), 5)
    async with raw(server) as (reader, writer):
        writer.write(data)
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 60) == b""
    assert (await client.invoke(server.address, RemotingCommand(ECHO, body=b"alive"), 5)).body == b"alive"
    await until(lambda: len(server.connections) == 1)


async def test_a_frame_beyond_the_server_s_limit_closes(start: Start) -> None:
    server = await start(frame_size_max=65536)
    async with raw(server) as (reader, writer):
        writer.write(RemotingCommand(ECHO, 1, body=bytes(65536)).encode())
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 60) == b""


async def test_a_peer_that_never_reads_is_closed(start: Start, peer: Peer) -> None:
    server = await start(write_buffer_size_max=2 * BIG_SIZE)
    async with raw(server) as (_, writer):
        writer.write(b"".join(RemotingCommand(BIG, opaque).encode() for opaque in range(100)))
        await until(lambda: len(peer.closed) == 1)
    assert not server.connections


def hangs_up(connection: socket.socket) -> bool:
    """Whether the other end is gone, without reading what may have come before."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    return bool(poll.poll(0))


@contextlib.asynccontextmanager
async def unread(server: RemotingServer) -> AsyncIterator[socket.socket]:
    """A connection that nobody reads from, with as small a window as the system allows."""
    with socket.socket() as connection:
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", server.port))
        yield connection


async def test_a_peer_that_reads_nothing_hears_of_the_end(start: Start) -> None:
    server = await start(idle_timeout_s=0.5)
    async with unread(server) as connection:
        connection.sendall(RemotingCommand(BIG, 1).encode())
        await until(lambda: hangs_up(connection), 30)


async def test_who_holds_most_is_cut_off_when_unfinished_frames_fill_the_memory(start: Start) -> None:
    server = await start(memory_budget=BIG_SIZE)
    whole = RemotingCommand(ECHO, 1, body=bytes(1000)).encode()
    async with raw(server) as (reader, modest), raw(server) as (_, greedy):
        modest.write(whole[:-1])
        greedy.write((2 * BIG_SIZE).to_bytes(4, "big") + bytes(2 * BIG_SIZE - 10))
        await until(lambda: len(server.connections) == 1, 30)
        modest.write(whole[-1:])
        assert [answer.body for answer in await read_responses(reader, 1)] == [bytes(1000)]


async def test_who_leaves_most_unread_is_cut_off_when_answers_fill_the_memory(start: Start, peer: Peer) -> None:
    server = await start(memory_budget=4 * BIG_SIZE)
    async with raw(server) as (reader, modest), unread(server) as greedy:
        greedy.sendall(b"".join(RemotingCommand(BIG, opaque).encode() for opaque in range(40)))
        await until(lambda: len(peer.closed) == 1, 30)
        modest.write(RemotingCommand(ECHO, 1).encode())
        assert len(await read_responses(reader, 1)) == 1


async def test_an_answer_larger_than_the_write_buffer_is_sent(start: Start, client: RemotingClient) -> None:
    server = await start(write_buffer_size_max=65536)
    assert len((await client.invoke(server.address, RemotingCommand(BIG), 10)).body) == BIG_SIZE


async def test_reading_pauses_while_the_peer_does_not_read(start: Start, peer: Peer) -> None:
    server = await start()
    async with raw(server) as (reader, writer):
        for opaque in range(8):
            writer.write(RemotingCommand(BIG, opaque).encode())
        await until(lambda: len(peer.seen) == 8 and peer.connections[0].unsent_size > BIG_SIZE)
        connection = peer.connections[0]
        assert connection._transport is not None
        await until(lambda: connection._transport is not None and not connection._transport.is_reading())
        writer.write(RemotingCommand(ECHO, 99, body=b"waits").encode())
        answers = await read_responses(reader, 9)
    assert answers[-1].body == b"waits"


async def test_an_idle_connection_is_closed_and_a_busy_one_is_not(
    start: Start, client: RemotingClient, peer: Peer
) -> None:
    server = await start(idle_timeout_s=4.0)  # the busy one must not seem idle when this process waits for a processor
    async with raw(server) as (reader, _):
        closed = asyncio.create_task(reader.read())
        async with asyncio.timeout(60):
            while not closed.done():
                await client.invoke(server.address, RemotingCommand(ECHO), 5)
                await asyncio.sleep(0.02)
        with contextlib.suppress(ConnectionResetError):
            assert await closed == b""
    assert len(peer.connections) == 2
    assert len(peer.closed) == 1
    assert server.connections.keys() == {connection for connection in peer.connections if connection not in peer.closed}


async def test_a_response_nobody_asked_for_is_dropped(server: RemotingServer) -> None:
    async with raw(server) as (reader, writer):
        writer.write(RemotingCommand(0, 12345, 1).encode() + RemotingCommand(ECHO, 7).encode())
        (answer,) = await read_responses(reader, 1)
    assert answer.opaque == 7


async def test_a_close_callback_that_fails_does_not_keep_the_connection(
    client: RemotingClient, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(connection: Connection) -> None:
        raise RuntimeError("in the callback")

    async def echo(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        return request.reply()

    loop = asyncio.get_running_loop()
    reported: list[str] = []
    loop.set_exception_handler(lambda _, context: reported.append(str(context.get("exception"))))
    server = RemotingServer("127.0.0.1", 0, echo, on_close=fail)
    await server.start()
    await client.invoke(server.address, RemotingCommand(ECHO), 5)
    await server.stop()
    assert reported == ["in the callback"]


async def test_a_peer_that_comes_again_and_again_does_not_fill_the_log(
    server: RemotingServer, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        reader, writer = await asyncio.open_connection(*server.address.split(":"))
        writer.write(b"GET / HTTP/1.1\r\n")
        assert await reader.read() == b"", "the server closes the connection"
        writer.close()
    assert caplog.text.count("closing connection after a bad frame") == 1
