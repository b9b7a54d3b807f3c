"""One TCP connection that speaks the remoting protocol, the same for both ends.

Either side may send requests. Frames are cut from whatever arrives; each request runs its handler in a task of its own;
answers that become ready together leave in one write. A response finds its caller by opaque. Nothing that a peer sends
can do more than close its own connection.
Source: RocketMQ remoting/netty/NettyRemotingAbstract.java.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import socket
import ssl
import struct
import termios
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import groupby
from typing import Any, Final

from mqcore.address import host_and_port
from mqcore.cause_log import CauseLog
from mqcore.codes import RemotingFlag, ResponseCode
from mqcore.errors import (
    MQError,
    ProtocolError,
    RemotingSendError,
    RemotingTimeoutError,
    RemotingTooMuchRequestError,
)
from mqcore.protocol.buffer import Buffer
from mqcore.protocol.command import (
    APART_SIZE,
    FRAME_SIZE_MAX,
    FrameBuffer,
    FrameSplitter,
    RemotingCommand,
    next_opaque,
)
from mqcore.transport.pem import reason_of

logger = logging.getLogger(__name__)
log = CauseLog(logger)

IDLE_TIMEOUT_S: Final = 120.0
"""A connection without reads and writes for so long is closed; both ends of RocketMQ do so."""

TLS_FAREWELL_S: Final = 1.0
"""In which a connection with TLS that we close has its last bytes sent and hears that the peer has closed, too, which
Apache's servers and who is silent never say, and on which nothing depends."""

WRITE_BUFFER_SIZE_MAX: Final = 64 * 1024 * 1024
"""Unsent bytes at which a peer counts as one that never reads: the next answer costs it its connection."""

WRITE_BUFFER_HIGH_SIZE: Final = 4 * 1024 * 1024
"""Unsent bytes at which a server stops reading from the peer, until they have gone."""

RUNNING_HANDLERS_MAX: Final = 10_000
"""Requests of one connection that may be in work; the next ones are answered SYSTEM_BUSY."""

PENDING_REQUESTS_MAX: Final = 65_535
"""Requests of ours that may wait for an answer on one connection."""

Handler = Callable[["Connection", RemotingCommand], Awaitable[RemotingCommand | None]]

AnswerReader = Callable[[RemotingCommand, memoryview], None]
"""Is given an answer without its body, and the body as a view that is good until it returns."""

CloseCallback = Callable[["Connection"], None]
GrowthCallback = Callable[[int], None]

UNHEARD: Final = " before it said anything (a port with tls.server.mode=enforcing closes what comes without TLS)"
"""Behind the error of a call on a connection on which nothing has come."""

REASON_WAIT_S: Final = 0.1
"""How long, at most, a call waits for the reason why its connection is being closed."""

RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: on, 0 seconds."""


class Connection(asyncio.Protocol):
    """A connection as seen by handlers and callers. Made by RemotingServer and RemotingClient.

    ``attributes`` is free for the handler, for instance to remember who the peer said it is.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        is_server: bool,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        frame_size_max: int = FRAME_SIZE_MAX,
        write_buffer_size_max: int = WRITE_BUFFER_SIZE_MAX,
        on_connect: CloseCallback | None = None,
        on_close: CloseCallback | None = None,
        on_growth: GrowthCallback | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._handler = handler
        self._is_server = is_server
        self._idle_timeout_s = idle_timeout_s
        self._write_buffer_size_max = write_buffer_size_max
        self._on_connect = on_connect
        self._on_close = on_close
        self._on_growth = on_growth
        self._splitter = FrameSplitter(frame_size_max)
        self._transport: asyncio.Transport | None = None
        self._outgoing: list[bytes] = []
        self._outgoing_size = 0
        self._pending: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._readers: dict[int, AnswerReader] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle_timer: asyncio.TimerHandle | None = None
        self._active_s = self._loop.time()
        self._is_heard = False
        self._is_left = False  # we close it, not the peer
        self._why = ""
        self._closed = self._loop.create_future()
        self.remote_address = ""
        self.local_address = ""
        self.attributes: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"Connection({self.remote_address}{' closed' if self.is_closed else ''})"

    # What handlers and callers use.

    @property
    def is_closed(self) -> bool:
        """Whether the connection is closed or closing."""
        return self._transport is None or self._transport.is_closing()

    @property
    def unsent_size(self) -> int:
        """Bytes handed to send() that the operating system has not taken yet."""
        return self._outgoing_size + (0 if self._transport is None else self._transport.get_write_buffer_size())

    @property
    def held_size(self) -> int:
        """Bytes kept for this peer: unsent ones, and the start of a frame that has not come whole."""
        return self.unsent_size + self._splitter.pending_size

    def send(self, command: RemotingCommand) -> None:
        """Write *command* as it is, soon; for answers that a handler gives later. To a closed peer it is dropped."""
        self._write(*command.encode_apart())

    async def invoke(
        self, command: RemotingCommand, timeout_s: float, read: AnswerReader | None = None
    ) -> RemotingCommand:
        """Send a request and return its response, whatever its code. *command* is given a new opaque.

        With *read* the body is not copied: *read* is called with the response as soon as that has come, and what it
        raises is raised here. Raises RemotingSendError if the connection is or becomes closed, RemotingTimeoutError if
        no response came in time, RemotingTooMuchRequestError at the in-flight limit.
        """
        if self.is_closed:
            with suppress(TimeoutError):
                async with asyncio.timeout(REASON_WAIT_S):
                    await self.wait_closed()
            raise RemotingSendError(f"connection to {self.remote_address} is closed{self._why}")
        if len(self._pending) >= PENDING_REQUESTS_MAX:
            raise RemotingTooMuchRequestError(f"{len(self._pending)} requests to {self.remote_address} are in flight")
        opaque = command.opaque = next_opaque()
        frame = command.encode_apart()
        response: asyncio.Future[RemotingCommand] = self._loop.create_future()
        self._pending[opaque] = response
        if read is not None:
            self._readers[opaque] = read
        timer = self._loop.call_later(timeout_s, self._expire, opaque, timeout_s)
        try:
            self._write(*frame)
            return await response
        finally:
            timer.cancel()
            self._pending.pop(opaque, None)
            self._readers.pop(opaque, None)

    def invoke_oneway(self, command: RemotingCommand) -> None:
        """Send a request that nobody answers. *command* is given a new opaque and the one-way bit.

        Raises RemotingSendError if the connection is closed.
        """
        if self.is_closed:
            raise RemotingSendError(f"connection to {self.remote_address} is closed")
        command.opaque = next_opaque()
        command.flag |= RemotingFlag.ONEWAY
        self._write(*command.encode_apart())

    def close(self) -> None:
        """Close after what has been written has gone out."""
        self._is_left = True
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once; what has not gone out is lost."""
        self._is_left = True
        if self._transport is not None:
            self._transport.abort()

    def cut_off(self) -> None:
        """Close at once; a peer that leaves answers unread is told by a reset.

        After a mere close the system would keep those answers and go on offering them for minutes, and the peer would
        not even hear of the close, which is queued behind them.
        """
        self._is_left = True
        if self._transport is None:
            return
        connection = self._transport.get_extra_info("socket")
        if connection is not None and (self.unsent_size > 0 or _unread_size(connection) > 0):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the connection is gone and its close callback has run."""
        await asyncio.shield(self._closed)

    async def finish_handlers(self, grace_s: float) -> None:
        """Wait for the handlers in work, at most *grace_s* seconds, then cancel the rest."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=grace_s)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH_SIZE)
        self.remote_address = _address_of(transport, "peername")
        self.local_address = _address_of(transport, "sockname")
        if self._idle_timeout_s > 0:
            self._idle_timer = self._loop.call_later(self._idle_timeout_s, self._check_idle)
        if self._on_connect is not None:
            self._on_connect(self)

    def data_received(self, data: bytes) -> None:
        self._receive(self._splitter.feed(data), len(data))

    def _receive(self, payloads: Iterator[Buffer], size: int) -> None:
        self._active_s = self._loop.time()
        self._is_heard = True
        try:
            for payload in payloads:
                self._dispatch(*RemotingCommand.split(payload))
        except ProtocolError as error:
            log.warning("closing connection after a bad frame", remote_address=self.remote_address, error=error)
            self.abort()
            return
        if self._on_growth is not None and self._splitter.pending_size:
            self._on_growth(size)

    def pause_writing(self) -> None:
        # Only the server pauses: if both ends stopped reading because both are full, neither would ever go on.
        if self._is_server and self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._is_server and self._transport is not None:
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._outgoing.clear()
        self._outgoing_size = 0
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._why = self._reason(exc)
        pending, self._pending = self._pending, {}
        for response in pending.values():
            if not response.done():
                response.set_exception(RemotingSendError(f"connection to {self.remote_address} was closed{self._why}"))
        try:
            if self._on_close is not None:
                self._on_close(self)
        finally:
            if not self._closed.done():
                self._closed.set_result(None)

    # The inside.

    def _reason(self, error: Exception | None) -> str:
        """The end of a sentence that says why the connection is gone, as far as one can tell."""
        if isinstance(error, ssl.SSLError):
            return f": TLS: {reason_of(error)}"
        return "" if self._is_heard or self._is_left else UNHEARD

    def _dispatch(self, command: RemotingCommand, body: memoryview) -> None:
        if command.is_response:
            response = self._pending.get(command.opaque)
            if response is None:
                log.warning(
                    "dropping a response that nobody waits for",
                    remote_address=self.remote_address,
                    opaque=command.opaque,
                )
            elif not response.done():
                self._answer(response, command, body)
            return
        command.body = bytes(body)
        if len(self._tasks) >= RUNNING_HANDLERS_MAX:
            self._refuse(command, ResponseCode.SYSTEM_BUSY, "[OVERLOAD]system busy, start flow control for a while")
            return
        task = self._loop.create_task(self._handle(command))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _answer(self, response: asyncio.Future[RemotingCommand], command: RemotingCommand, body: memoryview) -> None:
        read = self._readers.get(command.opaque)
        if read is None:
            command.body = bytes(body)
        else:
            try:
                read(command, body)
            except Exception as error:
                response.set_exception(error)
                return
        response.set_result(command)

    async def _handle(self, request: RemotingCommand) -> None:
        """Run the handler of one request. This is the top of its task, hence the one place that catches everything."""
        try:
            response = await self._handler(self, request)
            if response is not None and not request.is_oneway:
                response.opaque = request.opaque
                response.flag |= RemotingFlag.RESPONSE
                self._write(*response.encode_apart())
        except MQError as error:
            log.warning("request failed", remote_address=self.remote_address, code=request.code, error=error)
            self._refuse(request, error.response_code, describe(error))
        except Exception as error:
            log.error(
                "handler failed", exc_info=error, name=f"request {request.code}", remote_address=self.remote_address
            )
            self._refuse(request, ResponseCode.SYSTEM_ERROR, describe(error))

    def _refuse(self, request: RemotingCommand, code: int, remark: str) -> None:
        """Answer in the place of the handler: in JSON, whatever the request came in, as RocketMQ's framework does."""
        if not request.is_oneway:
            response = RemotingCommand(code, request.opaque, int(RemotingFlag.RESPONSE), remark)
            self._write(response.encode())

    def _write(self, frame: bytes, body: bytes = b"") -> None:
        """Send *frame* soon, and *body* behind it."""
        if self.is_closed:
            return
        backlog_size = self.unsent_size
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing.append(frame)
        if body:
            self._outgoing.append(body)
        size = len(frame) + len(body)
        self._outgoing_size += size
        # What waited before counts, so that one large answer to a peer that does read is never refused.
        if backlog_size > self._write_buffer_size_max:
            log.warning(
                "closing a connection whose peer does not read",
                remote_address=self.remote_address,
                unsent_size=self.unsent_size,
            )
            self.cut_off()
        elif self._on_growth is not None and backlog_size:
            self._on_growth(size)

    def _flush(self) -> None:
        if self._outgoing and not self.is_closed:
            assert self._transport is not None
            if self._outgoing_size < APART_SIZE:
                self._transport.write(b"".join(self._outgoing))
            else:  # what is small goes together, what is large is not copied for it
                for is_large, parts in groupby(self._outgoing, key=lambda part: len(part) >= APART_SIZE):
                    for part in parts if is_large else (b"".join(parts),):
                        self._transport.write(part)
            self._active_s = self._loop.time()
        self._outgoing.clear()
        self._outgoing_size = 0

    def _expire(self, opaque: int, timeout_s: float) -> None:
        response = self._pending.get(opaque)
        if response is not None and not response.done():
            response.set_exception(
                RemotingTimeoutError(f"no response from {self.remote_address} within {timeout_s * 1000:.0f} ms")
            )

    def _check_idle(self) -> None:
        left_s = self._active_s + self._idle_timeout_s - self._loop.time()
        if left_s > 0:
            self._idle_timer = self._loop.call_later(left_s, self._check_idle)
            return
        logger.info("closing an idle connection remote_address=%s", self.remote_address)
        # A peer that does not read would keep a gentle close waiting for ever.
        self.cut_off()


class CallingConnection(Connection, asyncio.BufferedProtocol):
    """The calling end's connection. It keeps the memory that it reads into, since its answers may be large."""

    def __init__(
        self,
        handler: Handler,
        *,
        idle_timeout_s: float,
        frame_size_max: int,
        write_buffer_size_max: int,
        on_close: CloseCallback | None,
    ) -> None:
        super().__init__(
            handler,
            is_server=False,
            idle_timeout_s=idle_timeout_s,
            frame_size_max=frame_size_max,
            write_buffer_size_max=write_buffer_size_max,
            on_close=on_close,
        )
        self._frames = FrameBuffer(frame_size_max)

    @property
    def held_size(self) -> int:
        return self.unsent_size + self._frames.pending_size

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.room()

    def buffer_updated(self, nbytes: int) -> None:
        self._receive(self._frames.added(nbytes), nbytes)


def describe(error: BaseException) -> str:
    """Return the remark that tells a peer of *error*: ``class: message``."""
    return f"{type(error).__name__}: {error}"


def _unread_size(connection: socket.socket) -> int:
    """Bytes that the system has taken and the peer has not."""
    size: int = struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))[0]
    return size


def _address_of(transport: asyncio.Transport, name: str) -> str:
    pair = transport.get_extra_info(name)
    return host_and_port(pair[0], pair[1]) if pair else ""
