"""The broker process's ends of the socket pairs to its workers: messages in and out.

What travels is LINK_HEAD and a payload, see mqcore.layout.LinkKind. Slow-path requests cross here rather than through a
ring: their bytes must cross anyway, and a socket wakes the event loop, bounds memory and ends with its process.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import cast

from mqcore import layout

logger = logging.getLogger(__name__)

HEAD = layout.LINK_HEAD
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
        self._buffer = bytearray(256 * 1024)
        self._filled = 0
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
        if self._filled == len(self._buffer):
            self._buffer.extend(bytes(len(self._buffer)))
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        at = 0
        # Copied out: a handler may keep the payload longer than this buffer stays as it is.
        while self._filled - at >= HEAD.size:
            size, kind, connection_id = HEAD.struct.unpack_from(self._buffer, at)
            if self._filled - at < HEAD.size + size:
                break
            payload = bytes(memoryview(self._buffer)[at + HEAD.size : at + HEAD.size + size])
            at += HEAD.size + size
            self._on_message(self, kind, connection_id, payload)
        if at:
            rest = self._filled - at
            self._buffer[:rest] = self._buffer[at : self._filled]
            self._filled = rest

    def write(self, kind: int, connection_id: int, payload: bytes) -> bool:
        """Send one message; False if the worker is gone or does not read."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        if self._unsent_size + transport.get_write_buffer_size() > WRITE_BUFFER_MAX:
            return False
        if not self._unsent:
            self._loop.call_soon(self._send)
        self._unsent += (HEAD.struct.pack(len(payload), kind, connection_id), payload)
        self._unsent_size += HEAD.size + len(payload)
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
