"""A listening socket that lets in plain connections and such with TLS, told apart by their first byte.

0x16 begins a TLS handshake, and no frame: its length would be beyond every limit. The byte is looked at and stays to
be read. Source: RocketMQ remoting/netty/NettyRemotingServer.java (HandshakeHandler).
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable
from typing import Final

from mqcore.address import host_and_port
from mqcore.cause_log import CauseLog
from mqcore.config import TlsMode
from mqcore.errors import TlsError
from mqcore.transport.connection import TLS_FAREWELL_S
from mqcore.transport.pem import reason_of
from mqcore.transport.tls import ServerMaterial

logger = logging.getLogger(__name__)
log = CauseLog(logger)

HANDSHAKE_RECORD: Final = b"\x16"
ACCEPTS_PER_TURN: Final = 64
PAUSE_S: Final = 1.0
"""Before it accepts again, when there were no descriptors left."""

ProtocolFactory = Callable[[], asyncio.BaseProtocol]


class TlsDoor:
    """What a server's ports let in, and what they show of themselves; *material* may change at any time."""

    def __init__(self, mode: TlsMode, material: ServerMaterial, handshake_timeout_s: float) -> None:
        self.mode = mode
        self.handshake_timeout_s = handshake_timeout_s
        self.handshakes = 0
        self.handshakes_failed = 0
        self.refused = 0
        self._material = material
        self._context: ssl.SSLContext | None = None

    def use(self, material: ServerMaterial) -> None:
        """Show *material* to those who come from now on."""
        self._material, self._context = material, None

    @property
    def context(self) -> ssl.SSLContext:
        """Made when the first client asks for it. Raises TlsError."""
        if self._context is None:
            self._context = self._material.context()
        return self._context

    def choice(self, first: bytes) -> ssl.SSLContext | None:
        """What a connection that begins with *first* is to have; None is no TLS. Raises TlsError if it may not come."""
        if first != HANDSHAKE_RECORD:
            if self.mode is TlsMode.ENFORCING:
                raise TlsError("it begins without TLS, and tls.server.mode is enforcing")
            return None
        if self.mode is TlsMode.DISABLED:
            raise TlsError("it begins with TLS, and tls.server.mode is disabled")
        return self.context


class Doorman:
    """Accepts on one bound *listener*, from ``start`` to ``stop``, and makes a protocol for each that may come in."""

    def __init__(
        self, listener: socket.socket, door: TlsDoor, factory: ProtocolFactory, *, backlog: int, silence_max_s: float
    ) -> None:
        """Who says nothing for *silence_max_s* is shown out; 0 waits for ever."""
        # A descriptor of its own: whoever has bound the socket closes the other one.
        self._listener = socket.socket(fileno=os.dup(listener.fileno()))
        self._listener.setblocking(False)
        self._listener.listen(backlog)
        self._door = door
        self._factory = factory
        self._silence_max_s = silence_max_s or None
        self._loop = asyncio.get_running_loop()
        self._guests: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    async def stop(self) -> None:
        """Close the socket; who has not come in yet is shown out."""
        self._loop.remove_reader(self._listener)
        self._listener.close()
        if self._pause is not None:
            self._pause.cancel()
        for guest in self._guests:
            guest.cancel()
        await asyncio.gather(*self._guests, return_exceptions=True)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("cannot accept a connection", error=error)
                self._loop.remove_reader(self._listener)
                self._pause = self._loop.call_later(PAUSE_S, self.start)
                return
            connection.setblocking(False)
            guest = self._loop.create_task(self._welcome(connection))
            self._guests.add(guest)
            guest.add_done_callback(self._guests.discard)

    async def _welcome(self, connection: socket.socket) -> None:
        """Let *connection* in, or close it. This is the top of its task."""
        is_in = False
        try:
            peer = _name_of(connection)
            first = await self._first_byte(connection)
            if first:
                await self._let_in(connection, self._door.choice(first), peer)
                is_in = True
        except TlsError as error:
            self._door.refused += 1
            log.warning("connection closed: transport refused", remote_address=peer, error=error)
        except ssl.SSLError as error:
            self._failed(peer, reason_of(error))
        except OSError as error:
            # It is gone. If it was in its handshake, that has failed.
            logger.debug("connection closed before it came in error=%s", error)
        finally:
            if not is_in:
                connection.close()

    async def _let_in(self, connection: socket.socket, context: ssl.SSLContext | None, peer: str) -> None:
        timeout_s = None if context is None else self._door.handshake_timeout_s
        try:
            await self._loop.connect_accepted_socket(
                self._factory,
                connection,
                ssl=context,
                ssl_handshake_timeout=timeout_s,
                ssl_shutdown_timeout=None if context is None else TLS_FAREWELL_S,
            )
        except (ConnectionError, TimeoutError) as error:
            if context is not None:
                self._failed(peer, str(error) or "the peer closed the connection during the handshake")
            raise
        if context is not None:
            self._door.handshakes += 1

    def _failed(self, peer: str, reason: str) -> None:
        self._door.handshakes_failed += 1
        log.warning("connection closed: TLS handshake failed", remote_address=peer, reason=reason)

    async def _first_byte(self, connection: socket.socket) -> bytes:
        """The first byte, which stays to be read; empty when none comes."""
        readable = self._loop.create_future()
        self._loop.add_reader(connection, _set, readable)
        try:
            async with asyncio.timeout(self._silence_max_s):
                await readable
        except TimeoutError:
            return b""
        finally:
            self._loop.remove_reader(connection)
        return connection.recv(1, socket.MSG_PEEK)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _name_of(connection: socket.socket) -> str:
    host, port = connection.getpeername()[:2]
    return host_and_port(host, port)
