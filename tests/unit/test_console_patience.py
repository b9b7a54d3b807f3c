"""Connections of a console that let it wait: each thing has its time, and who means well is served meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
import uvicorn
from uvicorn.server import ServerState

from mqcore.console.patience import BODY_BYTES_MAX, CONNECTIONS_MAX, Awaited, PatientProtocol

DEADLINE_S: Final = 60.0
GET: Final = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
LARGE_BYTES: Final = 32 << 20
BACKLOG: Final = 256
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def application(
    scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:
    """Answers /, reads what comes to /form, answers /unread without reading, and /large and /whole with a lot."""
    path = scope["path"]
    while path == "/form" and (await receive()).get("more_body"):
        pass
    part, count = {"/large": (bytes(LARGE_BYTES // 32), 32), "/whole": (bytes(LARGE_BYTES), 1)}.get(path, (b"xx", 1))
    size = str(len(part) * count).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", size)]})
    for number in range(count):
        await send({"type": "http.response.body", "body": part, "more_body": number + 1 < count})


class HastyProtocol(PatientProtocol):
    """One whose times in *short* are short."""

    short: frozenset[Awaited] = frozenset()

    def _limit_s(self, what: Awaited) -> float:
        return 0.2 if what in self.short else super()._limit_s(what)


@dataclass(slots=True)
class Served:
    """A server, what it knows of its connections, and the clients that have connected by this."""

    port: int
    state: ServerState
    clients: list[asyncio.StreamWriter] = field(default_factory=list)

    async def connect(self) -> Streams:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 16)
        self.clients.append(writer)
        return reader, writer


@asynccontextmanager
async def served(*short: Awaited) -> AsyncIterator[Served]:
    """A server in whose connections the times of *short* are short."""
    config, state = uvicorn.Config(application, log_config=None, http=HastyProtocol, ws="none"), ServerState()
    config.load()

    def protocol() -> HastyProtocol:
        made = HastyProtocol(config=config, server_state=state, app_state={})
        made.short = frozenset(short)
        return made

    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0, backlog=BACKLOG)
    found = Served(server.sockets[0].getsockname()[1], state)
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield found
    finally:
        server.close()
        for transport in (*(held.transport for held in state.connections), *(held.transport for held in found.clients)):
            transport.abort()
        await asyncio.gather(*state.tasks, *map(wait_closed, found.clients))


async def wait_closed(writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        await writer.wait_closed()


async def is_ended(reader: asyncio.StreamReader) -> bool:
    """Wait until the other side has closed."""
    try:
        while await reader.read(1 << 16):
            pass
    except ConnectionError:
        pass
    return True


async def answer(streams: Streams, request: bytes = GET) -> bytes:
    """Ask for something small, and return its head."""
    reader, writer = streams
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(2)
    return head


async def trickle(streams: Streams, data: bytes) -> None:
    """Write a byte of *data* now and then, always a little before one could think that nothing more comes."""
    try:
        for at in range(len(data)):
            streams[1].write(data[at : at + 1])
            await streams[1].drain()
            await asyncio.sleep(0.02)
    except ConnectionError:
        pass


@pytest.mark.parametrize("before", [b"", GET], ids=["the first request", "a later one"])
def test_headers_that_come_byte_by_byte_are_not_waited_for_for_ever(before: bytes) -> None:
    async def work() -> None:
        async with served(Awaited.HEADERS) as server:
            streams = await server.connect()
            if before:
                assert (await answer(streams)).startswith(b"HTTP/1.1 200")
            slow = asyncio.create_task(trickle(streams, GET[:4] + b"x" * 10_000))
            assert await is_ended(streams[0])
            slow.cancel()
            assert not server.state.connections

    asyncio.run(work())


def test_a_connection_that_says_nothing_more_is_closed() -> None:
    async def work() -> None:
        async with served(Awaited.NEXT_REQUEST) as server:
            streams = await server.connect()
            await answer(streams)
            assert await is_ended(streams[0])

    asyncio.run(work())


@pytest.mark.parametrize("path", ["form", "unread"])
def test_a_body_that_does_not_end_is_not_waited_for_for_ever(path: str) -> None:
    async def work() -> None:
        async with served(Awaited.BODY) as server:
            streams = await server.connect()
            streams[1].write(f"POST /{path} HTTP/1.1\r\nHost: here\r\nContent-Length: 100000\r\n\r\n".encode())
            slow = asyncio.create_task(trickle(streams, b"x" * 10_000))
            assert await is_ended(streams[0])
            slow.cancel()
            assert not server.state.connections

    asyncio.run(work())


def test_a_body_that_is_too_large_is_not_read() -> None:
    async def work() -> None:
        async with served() as server:
            reader, writer = await server.connect()
            size = 4 * BODY_BYTES_MAX
            writer.write(f"POST /unread HTTP/1.1\r\nHost: here\r\nContent-Length: {size}\r\n\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
            with pytest.raises(ConnectionError):
                await flood(writer, size)

    asyncio.run(work())


async def flood(writer: asyncio.StreamWriter, size: int) -> None:
    for _ in range(size >> 16):
        writer.write(bytes(1 << 16))
        await writer.drain()


def test_an_answer_that_is_not_taken_is_given_up() -> None:
    async def work() -> None:
        async with served(Awaited.ANSWER) as server:
            reader, writer = await server.connect()
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(GET.replace(b"/ ", b"/large ", 1))
            await until(lambda: bool(server.state.tasks))
            await until(lambda: not server.state.connections and not server.state.tasks)

    asyncio.run(work())


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.01)


def test_the_last_bytes_are_given_up_too() -> None:
    async def work() -> None:
        async with served(Awaited.END) as server:
            reader, writer = await server.connect()
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(b"GET /whole HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
            await until(lambda: bool(server.state.connections))
            await until(lambda: not server.state.connections)

    asyncio.run(work())


def test_who_means_well_is_served_while_all_connections_are_slow() -> None:
    async def work() -> None:
        async with served() as server:
            slow = []
            for number in range(3 * CONNECTIONS_MAX):
                slow.append(await server.connect())
                slow[-1][1].write(GET[: number % len(GET)])
                if number % CONNECTIONS_MAX == 0 or number > 2 * CONNECTIONS_MAX:
                    well = await server.connect()
                    assert (await answer(well)).startswith(b"HTTP/1.1 200"), number
                    well[1].close()
            await until(lambda: len(server.state.connections) <= CONNECTIONS_MAX)

    asyncio.run(work())


def test_who_has_let_us_wait_for_longest_makes_room() -> None:
    async def work() -> None:
        async with served() as server:
            held = [await server.connect() for _ in range(CONNECTIONS_MAX)]
            await until(lambda: len(server.state.connections) == CONNECTIONS_MAX)
            await answer(held[0])  # it waits since now for the next request
            assert (await answer(await server.connect())).startswith(b"HTTP/1.1 200")
            assert await is_ended(held[1][0])
            assert (await answer(held[0])).startswith(b"HTTP/1.1 200")

    asyncio.run(work())
