"""The listening end: accepts connections and gives every request to one handler."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from mqcore.address import host_and_port
from mqcore.cause_log import CauseLog
from mqcore.protocol.command import FRAME_SIZE_MAX
from mqcore.transport.connection import (
    IDLE_TIMEOUT_S,
    WRITE_BUFFER_SIZE_MAX,
    CloseCallback,
    Connection,
    Handler,
)
from mqcore.transport.door import Doorman, TlsDoor

logger = logging.getLogger(__name__)

BACKLOG: Final = 1024
STOP_GRACE_S: Final = 3.0
"""How long stop() lets handlers finish and answers go out."""


MEMORY_BUDGET: Final = 256 * 1024 * 1024
"""Bytes kept for all connections together: unsent answers and unfinished frames."""

CHECKS_PER_BUDGET: Final = 16
"""After how small a part of the budget has come in all connections are looked at again."""

log = CauseLog(logger)


class RemotingServer:
    """Serves one address on the running event loop.

    *handler* gets each request and returns its response, or None if there is none (yet: it may call
    ``Connection.send`` later). What it raises becomes a response with the error's code and the remark
    ``class: message``. *on_close* is called once for every connection that goes, for whatever reason. When peers that
    do not read or do not finish their frames have used up *memory_budget*, the one that holds most of it is cut off.
    """

    def __init__(
        self,
        host: str,
        port: int,
        handler: Handler,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        on_close: CloseCallback | None = None,
        *,
        on_connect: CloseCallback | None = None,
        frame_size_max: int = FRAME_SIZE_MAX,
        write_buffer_size_max: int = WRITE_BUFFER_SIZE_MAX,
        memory_budget: int = MEMORY_BUDGET,
        door: TlsDoor | None = None,
    ) -> None:
        """*door* says who may come with TLS; without one nobody is looked at, and only plain frames are understood."""
        self._host = host
        self._wanted_port = port
        self._handler = handler
        self._idle_timeout_s = idle_timeout_s
        self._on_close = on_close
        self._on_connect = on_connect
        self._frame_size_max = frame_size_max
        self._write_buffer_size_max = write_buffer_size_max
        self._memory_budget = memory_budget
        self._grown_size = 0
        self._door = door
        self._doormen: list[Doorman] = []
        self._server: asyncio.Server | None = None
        self._bound: tuple[str, int] | None = None
        self.connections: dict[Connection, None] = {}  # a dict as an ordered set: the oldest first

    async def start(self) -> None:
        """Bind and listen; raises OSError if the address cannot be had. Port 0 takes any free one."""
        await self.bind()
        await self.serve()

    async def bind(self) -> None:
        """Take the address, without listening: who connects is refused. Raises as ``start``, the first half of it."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._accept, self._host, self._wanted_port, backlog=BACKLOG, start_serving=False
        )
        name = self._server.sockets[0].getsockname()
        self._bound = (str(name[0]), int(name[1]))

    async def serve(self) -> None:
        """Listen, and let in who comes."""
        assert self._server is not None
        if self._door is None:
            await self._server.start_serving()
        else:
            self._post(self._door)
        logger.info("listening address=%s", self.address)

    def _post(self, door: TlsDoor) -> None:
        assert self._server is not None
        self._doormen = [
            Doorman(bound, door, self._accept, backlog=BACKLOG, silence_max_s=self._idle_timeout_s)
            for bound in self._server.sockets
        ]
        for doorman in self._doormen:
            doorman.start()

    async def stop(self) -> None:
        """Stop listening, let the handlers in work answer, close every connection. Takes at most about STOP_GRACE_S."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.close()
        for doorman in self._doormen:
            await doorman.stop()
        connections = list(self.connections)
        await asyncio.gather(*(connection.finish_handlers(STOP_GRACE_S) for connection in connections))
        for connection in connections:
            connection.close()
        closing = [asyncio.ensure_future(connection.wait_closed()) for connection in connections]
        if closing:
            _, late = await asyncio.wait(closing, timeout=STOP_GRACE_S)
            if late:
                for connection in connections:
                    connection.abort()
                await asyncio.wait(late)
        # Requests that arrived while the others were being finished.
        await asyncio.gather(*(connection.finish_handlers(0) for connection in connections))
        await server.wait_closed()
        logger.info("stopped address=%s", self.address)

    @property
    def port(self) -> int:
        """The port that is listened on; known after start()."""
        assert self._bound is not None
        return self._bound[1]

    @property
    def address(self) -> str:
        """``host:port`` that is listened on; known after start()."""
        assert self._bound is not None
        return host_and_port(*self._bound)

    def _accept(self) -> Connection:
        return Connection(
            self._handler,
            is_server=True,
            idle_timeout_s=self._idle_timeout_s,
            frame_size_max=self._frame_size_max,
            write_buffer_size_max=self._write_buffer_size_max,
            on_connect=self._connected,
            on_close=self._disconnected,
            on_growth=self._grown,
        )

    def _connected(self, connection: Connection) -> None:
        self.connections[connection] = None
        if self._on_connect is not None:
            self._on_connect(connection)

    def _disconnected(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        if self._on_close is not None:
            self._on_close(connection)

    def _grown(self, size: int) -> None:
        """*size* bytes more are kept somewhere. Adding them up is cheap, looking at every connection is not."""
        self._grown_size += size
        if self._grown_size * CHECKS_PER_BUDGET < self._memory_budget:
            return
        self._grown_size = 0
        held = sorted(((connection.held_size, connection) for connection in self.connections), key=lambda pair: pair[0])
        total = sum(size for size, _ in held)
        while total > self._memory_budget:
            size, connection = held.pop()
            total -= size
            log.warning(
                "closing the connection that holds most memory",
                remote_address=connection.remote_address,
                held_size=size,
            )
            connection.cut_off()
