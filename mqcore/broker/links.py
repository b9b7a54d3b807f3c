"""The broker process's ends of the socket pairs to its workers: messages in and out.

Slow-path requests cross here rather than through a ring: their bytes must cross anyway, and a socket wakes the event
loop, bounds memory and ends with its process.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import cast

from mqcore.workers.link_frames import LinkFrames, link_message

logger = logging.getLogger(__name__)

READ_SIZE = 256 * 1024
WRITE_BUFFER_MAX = 256 * 2**20

MessageHandler = Callable[["WorkerLink", int, int, bytes], None]
"""Called with (link, LinkKind, connection id, payload) for each message."""


class WorkerLink(asyncio.BufferedProtocol):
    """One worker's link. Messages come in order; writing never blocks, and is refused when the worker is far behind.

    What is written in one turn of the event loop leaves together: the worker is woken once for all of it.
    """

    def __init__(self, name: str, on_message: MessageHandler, on_lost: Callable[[WorkerLink], None]) -> None:
        self.name = name
        self._on_message = on_message
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._frames = LinkFrames(READ_SIZE)
        self._loop = asyncio.get_running_loop()
        self._unsent: list[bytes] = []
        self._unsent_size = 0

    @classmethod
    async def open(
        cls, name: str, end: socket.socket, on_message: MessageHandler, on_lost: Callable[[WorkerLink], None]
    ) -> WorkerLink:
        """Take over *end* of the socket pair."""
        loop = asyncio.get_running_loop()
        end.setblocking(False)
        _, protocol = await loop.create_connection(lambda: cls(name, on_message, on_lost), sock=end)
        return protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._on_lost(self)

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.room()

    def buffer_updated(self, nbytes: int) -> None:
        for kind, connection_id, payload in self._frames.take(nbytes):
            self._on_message(self, kind, connection_id, payload)

    def write(self, kind: int, connection_id: int, payload: bytes) -> bool:
        """Send one message; False if the worker is gone or does not read."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        if self._unsent_size + transport.get_write_buffer_size() > WRITE_BUFFER_MAX:
            return False
        if not self._unsent:
            self._loop.call_soon(self._send)
        message = link_message(kind, connection_id, payload)
        self._unsent.append(message)
        self._unsent_size += len(message)
        return True

    def _send(self) -> None:
        if self._transport is not None and self._unsent:
            self._transport.write(b"".join(self._unsent))
        self._unsent.clear()
        self._unsent_size = 0

    def close(self) -> None:
        if self._transport is not None:
            self._send()
            self._transport.close()
