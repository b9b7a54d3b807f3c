"""Clients that mean harm, of many kinds and all at once: ``python -m tests.fault.hostile ADDRESSES CONNECTIONS SEED``.

They go on until standard input ends, and then tell how often each kind of them has lived. They come from addresses of
their own on the loopback device, so that a server may tell them from others by that.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import resource
import socket
import ssl
import struct
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final, NoReturn

from mqcore.codes import RequestCode
from mqcore.protocol.command import RemotingCommand
from tests.compat.differential.identities import Identity
from tests.fault.talker import pull_request, send_request

TOPIC: Final = "Bait"
"""What they pull, and would send to."""

INSIDER: Final = Identity("an insider", "insider", "insider-secret")
"""An account that may read; who reads slowly has to be let in first."""

GUESSER: Final = Identity("a guesser", "insider", "guessed-secret")
HOLD_S: Final = 5.0
IDLE_S: Final = 60.0
UNANSWERED_S: Final = 2.0
SMALL_WINDOW: Final = 4096
PULLS: Final = 200
FLOOD: Final = 64
FRAME_MAX: Final = 16 << 20
GARBAGE_MAX: Final = 65_536
TLS_HANDSHAKE: Final = 0x16
# Of Linux; Python has no names for them.
TCP_REPAIR: Final = 19
IP_BIND_ADDRESS_NO_PORT: Final = 24
NICE: Final = 10
"""They may take what others leave: what is asked is how a server does, not how a kernel shares its processors."""


@dataclass
class Foe:
    """What one kind of client needs: whom to trouble, and chance."""

    addresses: list[tuple[str, int]]
    chance: random.Random
    tally: Counter[str]

    @contextlib.asynccontextmanager
    async def connection(self, window: int = 0) -> AsyncIterator[socket.socket]:
        """A connection from one of many addresses to one of the servers."""
        connection = socket.socket()
        try:
            connection.setblocking(False)
            if window:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
            # The kernel takes a port when it knows both ends: there are more connections than ports.
            connection.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
            connection.bind((self.source(), 0))
            await asyncio.get_running_loop().sock_connect(connection, self.chance.choice(self.addresses))
            yield connection
        finally:
            connection.close()

    def source(self) -> str:
        """An address of the loopback device that is not 127.0.0.1."""
        return f"127.{self.chance.randrange(1, 99)}.{self.chance.randrange(256)}.{self.chance.randrange(1, 255)}"


async def say(connection: socket.socket, data: bytes) -> None:
    await asyncio.wait_for(asyncio.get_running_loop().sock_sendall(connection, data), HOLD_S)


async def hear(connection: socket.socket, seconds: float, size: int = 65_536) -> bytes | None:
    """What comes within *seconds*; None if nothing does, and nothing where the connection is closed."""
    try:
        return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(connection, size), seconds)
    except TimeoutError:
        return None


def signed(identity: Identity, command: RemotingCommand) -> bytes:
    identity.sign(command)
    return command.encode()


# What each of them does in its life -----------------------------------------------------------------------------------


async def talk_garbage(foe: Foe) -> None:
    """Bytes that mean nothing, or something to somebody else."""
    data = foe.chance.randbytes(foe.chance.randrange(1, GARBAGE_MAX))
    if foe.chance.random() < 0.3:
        data = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    async with foe.connection() as connection:
        await say(connection, bytes([data[0] if data[0] != TLS_HANDSHAKE else 0]) + data[1:])
        await hear(connection, UNANSWERED_S)


async def send_giants(foe: Foe) -> None:
    """Headers and frames that are too large, or say that they are."""
    nested = b'{"extFields":' + b"[" * 60_000
    fields = json.dumps({"code": 10, "extFields": {f"k{number}": "v" * 50 for number in range(5_000)}}).encode()
    promise = struct.pack(">ii", FRAME_MAX - 4, 100) + bytes(1 << 20)
    giants = [
        struct.pack(">ii", 0x7FFFFFFF, 10),
        struct.pack(">ii", -1, 10),
        struct.pack(">ii", 100, 0x00FFFFFF) + bytes(96),
        struct.pack(">ii", 4 + len(nested), len(nested)) + nested,
        struct.pack(">ii", 4 + len(fields), len(fields)) + fields,
        promise,
    ]
    async with foe.connection() as connection:
        await say(connection, foe.chance.choice(giants))
        await hear(connection, UNANSWERED_S)


def client_hello() -> bytes:
    """The first flight of a handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    out = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    return out.read()


async def stop_a_handshake(foe: Foe) -> None:
    """The beginning of a handshake, or its first flight, and nothing more."""
    hello = client_hello()
    async with foe.connection() as connection:
        await say(connection, hello[: foe.chance.choice([1, 5, len(hello) // 2, len(hello)])])
        await asyncio.sleep(HOLD_S)


async def write_slowly(foe: Foe) -> None:
    """A good request, a byte a second."""
    async with foe.connection() as connection:
        for byte in send_request(TOPIC, 0, bytes(1000)).encode():
            await say(connection, bytes([byte]))
            await asyncio.sleep(1.0)


async def read_slowly(foe: Foe) -> None:
    """Very much is asked for, and a byte a second is read of it."""
    pulls = signed(INSIDER, pull_request(TOPIC, 0, 0)) * PULLS
    lists = signed(INSIDER, RemotingCommand(RequestCode.GET_ALL_TOPIC_CONFIG)) * PULLS
    async with foe.connection(SMALL_WINDOW) as connection:
        with contextlib.suppress(TimeoutError):
            await say(connection, foe.chance.choice([pulls, lists]))
        while await hear(connection, HOLD_S, 1) != b"":
            await asyncio.sleep(1.0)


async def vanish(foe: Foe) -> None:
    """A pull that waits, and then the client is gone without a word, as when a machine loses its power."""
    async with foe.connection() as connection:
        await say(connection, signed(INSIDER, pull_request(TOPIC, 1, 0, suspend_ms=30_000)))
        try:
            # What is closed while it is under repair sends nothing.
            connection.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
        except PermissionError:
            await asyncio.sleep(HOLD_S)


async def guess(foe: Foe) -> None:
    """A wrong signature of somebody who is there."""
    async with foe.connection() as connection:
        await say(connection, signed(GUESSER, send_request(TOPIC, 0, b"guessed")))
        await hear(connection, UNANSWERED_S)


async def idle(foe: Foe) -> None:
    """A connection by which nothing ever comes."""
    async with foe.connection() as connection:
        while await hear(connection, IDLE_S) != b"":
            pass


async def come_and_go(foe: Foe) -> None:
    """A connection that is reset at once."""
    async with foe.connection() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def flood(foe: Foe) -> None:
    """Requests of all codes without a key, many at once, and answers that are read."""
    codes = [foe.chance.choice(list(RequestCode)) for _ in range(FLOOD)]
    async with foe.connection() as connection:
        await say(connection, b"".join(RemotingCommand(code, body=b"{}").encode() for code in codes))
        while await hear(connection, UNANSWERED_S / 4):
            pass


@dataclass(frozen=True, slots=True)
class Kind:
    """How many live at once, as a share of all connections, and how long until a life is followed by another."""

    life: Callable[[Foe], Awaitable[None]]
    share: float
    pause_s: float


KINDS: Final = (
    Kind(idle, 0.70, 1.0),
    Kind(write_slowly, 0.10, 1.0),
    Kind(stop_a_handshake, 0.06, 0.5),
    Kind(read_slowly, 0.03, 1.0),
    Kind(vanish, 0.03, 0.5),
    Kind(talk_garbage, 0.02, 0.5),
    Kind(send_giants, 0.02, 0.5),
    Kind(guess, 0.02, 0.5),
    Kind(come_and_go, 0.01, 0.1),
    Kind(flood, 0.01, 0.2),
)


async def lives(kind: Kind, foe: Foe) -> None:
    """One life after the other."""
    name = kind.life.__name__
    await asyncio.sleep(foe.chance.random() * kind.pause_s * 2)
    while True:
        foe.tally[name] += 1
        try:
            await kind.life(foe)
        except (OSError, TimeoutError) as error:
            # To be refused, reset, or not to be let in is what they have to expect.
            foe.tally[f"{name}: {type(error).__name__}"] += 1
        await asyncio.sleep(kind.pause_s)


async def attack(addresses: list[tuple[str, int]], connections: int, seed: int) -> NoReturn:
    """All of them, until standard input ends; with it ends the process."""
    tally: Counter[str] = Counter()
    is_over = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), is_over.set)
    tasks = []
    for kind in KINDS:
        for number in range(max(1, round(kind.share * connections))):
            chance = random.Random(f"{seed}/{kind.life.__name__}/{number}")
            tasks.append(asyncio.create_task(lives(kind, Foe(addresses, chance, tally))))
    await is_over.wait()
    print(json.dumps({"event": "tally", **tally}), flush=True)
    # Nothing is to be put in order, and thousands of connections need not be closed one by one.
    os._exit(0)


def main(arguments: list[str]) -> None:
    addresses, connections, seed = arguments
    os.nice(NICE)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    targets = [(host, int(port)) for host, _, port in (address.rpartition(":") for address in addresses.split(","))]
    asyncio.run(attack(targets, int(connections), int(seed)))


if __name__ == "__main__":
    main(sys.argv[1:])
