"""The calling end: one connection per address, made when first needed and again after it has gone."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Final

from mqcore.address import parse_peer_address
from mqcore.cause_log import CauseLog
from mqcore.codes import ResponseCode
from mqcore.errors import RemotingConnectError, RemotingTimeoutError
from mqcore.protocol.command import FRAME_SIZE_MAX, RemotingCommand
from mqcore.protocol.unsupported import not_supported
from mqcore.transport.connection import (
    IDLE_TIMEOUT_S,
    TLS_FAREWELL_S,
    WRITE_BUFFER_SIZE_MAX,
    AnswerReader,
    CallingConnection,
    CloseCallback,
    Connection,
    Handler,
)
from mqcore.transport.pem import reason_of

logger = logging.getLogger(__name__)
log = CauseLog(logger)

CONNECT_TIMEOUT_S: Final = 3.0
CLOSE_GRACE_S: Final = 3.0

RequestHook = Callable[[str, RemotingCommand], None]
"""Called with the address and the request just before it is encoded, for instance to sign it."""


class RemotingClient:
    """Calls peers from the running event loop. Requests that peers send are given to the handlers registered here."""

    def __init__(
        self,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        frame_size_max: int = FRAME_SIZE_MAX,
        write_buffer_size_max: int = WRITE_BUFFER_SIZE_MAX,
        on_close: CloseCallback | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """*tls* is what all its connections go by; None makes plain ones."""
        self._tls = tls
        self._connect_timeout_s = connect_timeout_s
        self._idle_timeout_s = idle_timeout_s
        self._frame_size_max = frame_size_max
        self._write_buffer_size_max = write_buffer_size_max
        self._on_close = on_close
        self._handlers: dict[int, Handler] = {}
        self._connections: dict[str, asyncio.Task[Connection]] = {}
        self._is_closed = False
        self.request_hooks: list[RequestHook] = []

    @property
    def tls(self) -> ssl.SSLContext | None:
        """What its connections go by; None when they are plain."""
        return self._tls

    def register_handler(self, code: int, handler: Handler) -> None:
        """Let *handler* serve the requests with *code* that peers send; without one they are answered code 3."""
        self._handlers[code] = handler

    async def invoke(
        self,
        address: str,
        command: RemotingCommand,
        timeout_s: float,
        *,
        close_on_timeout: bool = True,
        read: AnswerReader | None = None,
    ) -> RemotingCommand:
        """Send *command* to *address* and return the response, whatever its code, within *timeout_s* seconds in all.

        After a timeout the connection is closed, as RocketMQ's synchronous calls do, because an answer that is late is
        often one that will never come; *close_on_timeout* False keeps it, as its asynchronous calls do. *read* gets the
        response before its body is copied; see ``Connection.invoke``.
        Raises RemotingConnectError, RemotingSendError, RemotingTimeoutError or RemotingTooMuchRequestError.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        connection = await self.connect(address, timeout_s)
        left_s = deadline_s - loop.time()
        if left_s <= 0:
            raise RemotingTimeoutError(f"connecting to {address} took the whole {timeout_s * 1000:.0f} ms")
        for hook in self.request_hooks:
            hook(address, command)
        try:
            return await connection.invoke(command, left_s, read)
        except RemotingTimeoutError:
            if close_on_timeout:
                log.warning("closing connection after a timeout", address=address, code=command.code)
                connection.abort()
            raise

    async def invoke_oneway(self, address: str, command: RemotingCommand, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        """Send *command* to *address* without waiting for anything but the connection.

        Raises RemotingConnectError, RemotingSendError.
        """
        connection = await self.connect(address, timeout_s)
        for hook in self.request_hooks:
            hook(address, command)
        connection.invoke_oneway(command)

    async def connect(self, address: str, timeout_s: float = CONNECT_TIMEOUT_S) -> Connection:
        """Return the open connection to *address*, making it if there is none. Callers at the same time share one.

        Raises RemotingConnectError, also when *timeout_s* passes first.
        """
        if self._is_closed:
            raise RemotingConnectError("the client is closed")
        open_already = self.connection_of(address)
        if open_already is not None:
            return open_already
        task = self._connections.get(address)
        if task is None or _is_useless(task):
            task = asyncio.get_running_loop().create_task(self._open(address))
            task.add_done_callback(_note_failure)
            self._connections[address] = task
        try:
            # The connection is shared: a caller that gives up must not take it from the others. Not wait_for: before
            # Python 3.12 it can swallow the caller's cancellation.
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(task)
        except TimeoutError as error:
            raise RemotingConnectError(
                f"connect to {address} failed: no answer in {timeout_s * 1000:.0f} ms"
            ) from error

    def connection_of(self, address: str) -> Connection | None:
        """Return the open connection to *address*, or None; makes none."""
        task = self._connections.get(address)
        return None if task is None or not task.done() or _is_useless(task) else task.result()

    def close_connection(self, address: str) -> None:
        """Close the connection to *address* if there is one; requests that wait on it fail at once."""
        connection = self.connection_of(address)
        if connection is not None:
            connection.close()

    async def close(self) -> None:
        """Close every connection; requests in flight fail. The client cannot be used again."""
        self._is_closed = True
        tasks, self._connections = list(self._connections.values()), {}
        for task in tasks:
            task.cancel()
        opened = await asyncio.gather(*tasks, return_exceptions=True)
        connections = [connection for connection in opened if isinstance(connection, Connection)]
        await asyncio.gather(*(_close(connection) for connection in connections))

    async def _open(self, address: str) -> Connection:
        peer = parse_peer_address(address)
        loop = asyncio.get_running_loop()
        farewell_s = None if self._tls is None else TLS_FAREWELL_S
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                _, connection = await loop.create_connection(
                    self._new_connection, peer.host, peer.port, ssl=self._tls, ssl_shutdown_timeout=farewell_s
                )
        except TimeoutError as error:
            waited_ms = self._connect_timeout_s * 1000
            raise RemotingConnectError(f"connect to {address} failed: no answer in {waited_ms:.0f} ms") from error
        except ssl.SSLError as error:
            raise RemotingConnectError(f"connect to {address} failed: TLS: {reason_of(error)}") from error
        except OSError as error:
            # From a port that knows no TLS there comes no word of it.
            during = " in the TLS handshake (does the peer know TLS?)" if self._tls and _is_close(error) else ""
            raise RemotingConnectError(f"connect to {address} failed{during}: {error}") from error
        return connection

    def _new_connection(self) -> Connection:
        return CallingConnection(
            self._handle,
            idle_timeout_s=self._idle_timeout_s,
            frame_size_max=self._frame_size_max,
            write_buffer_size_max=self._write_buffer_size_max,
            on_close=self._on_close,
        )

    async def _handle(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        handler = self._handlers.get(request.code)
        if handler is None:
            return RemotingCommand(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=not_supported(request.code))
        return await handler(connection, request)


def _is_close(error: OSError) -> bool:
    return isinstance(error, ConnectionResetError | ConnectionAbortedError | BrokenPipeError)


def _is_useless(task: asyncio.Task[Connection]) -> bool:
    """Whether a connecting task has ended without a connection that can still be used."""
    if not task.done():
        return False
    return task.cancelled() or task.exception() is not None or task.result().is_closed


def _note_failure(task: asyncio.Task[Connection]) -> None:
    # Every caller may have given up by now; an exception that nobody has looked at would be logged as a bug.
    if not task.cancelled() and task.exception() is not None:
        logger.debug("connect failed error=%s", task.exception())


async def _close(connection: Connection) -> None:
    await connection.finish_handlers(0)
    connection.close()
    try:
        async with asyncio.timeout(CLOSE_GRACE_S):
            await connection.wait_closed()
    except TimeoutError:
        connection.abort()
        await connection.wait_closed()
