"""Messages between the broker process and a worker, over a socket pair: LINK_HEAD and a payload (layout.LinkKind)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mqcore import layout

HEAD: Final = layout.LINK_HEAD


def link_message(kind: int, connection_id: int, payload: bytes) -> bytes:
    """One message as it travels."""
    return HEAD.struct.pack(len(payload), kind, connection_id) + payload


class LinkFrames:
    """Cuts what came over a link into messages, which may be larger than the buffer is at first (*size*, bytes)."""

    def __init__(self, size: int) -> None:
        self._buffer = bytearray(size)
        self._filled = 0

    def room(self) -> memoryview:
        """Where to read to."""
        if self._filled == len(self._buffer):
            self._buffer.extend(bytes(len(self._buffer)))
        return memoryview(self._buffer)[self._filled :]

    def take(self, count: int) -> Iterator[tuple[int, int, bytes]]:
        """Yield what has come whole with *count* more bytes in the room: (LinkKind, connection id, payload).

        Payloads are copies: who takes them may keep them. To be iterated to its end.
        """
        self._filled += count
        at = 0
        while self._filled - at >= HEAD.size:
            size, kind, connection_id = HEAD.struct.unpack_from(self._buffer, at)
            end = at + HEAD.size + size
            if self._filled < end:
                break
            payload = bytes(memoryview(self._buffer)[at + HEAD.size : end])
            at = end
            yield kind, connection_id, payload
        if at:
            rest = self._filled - at
            self._buffer[:rest] = self._buffer[at : self._filled]
            self._filled = rest
