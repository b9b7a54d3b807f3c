"""JSON over HTTP/1.1, as far as a gateway needs it: one request at a time on a connection that is kept.

Nobody else's answers are read here than those of an engine that an operator has named; still, what it sends is bounded.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import orjson

from mqcore.address import Address
from mqcore.errors import ProtocolError

HEAD_SIZE_MAX: Final = 1 << 16
BODY_SIZE_MAX: Final = 1 << 24


class HttpJson:
    """A connection to one server. Not for two requests at the same time."""

    def __init__(self, address: Address, context: ssl.SSLContext | None = None) -> None:
        self.address = address
        self._context = context
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    @property
    def is_open(self) -> bool:
        return self._writer is not None

    async def open(self) -> None:
        """Connect. Raises OSError."""
        name = self.address.host if self._context is not None else None
        self._reader, self._writer = await asyncio.open_connection(
            self.address.host, self.address.port, ssl=self._context, server_hostname=name, limit=HEAD_SIZE_MAX
        )

    def close(self) -> None:
        """Leave; an answer that is under way is lost."""
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None

    async def post(self, path: str, body: object, headers: Mapping[str, str]) -> tuple[int, Any]:
        """Return the status and the JSON of the answer.

        Raises OSError, EOFError or ProtocolError, and the connection is closed then.
        """
        try:
            status, pieces = await self._ask(path, body, headers)
            text = b"".join([piece async for piece in pieces])
            return status, _loads(text) if text else {}
        except BaseException:
            self.close()
            raise

    async def stream(self, path: str, body: object, headers: Mapping[str, str]) -> AsyncIterator[Any]:
        """Yield the JSON lines of an answer that has no end. Raises as ``post``; the connection is closed then."""
        try:
            status, pieces = await self._ask(path, body, headers)
            rest = b""
            async for piece in pieces:
                *lines, rest = (rest + piece).split(b"\n")
                if len(rest) > BODY_SIZE_MAX:
                    raise ProtocolError(
                        f"{self.address}: got a line of {len(rest)} bytes, wanted {BODY_SIZE_MAX} at most"
                    )
                for line in lines:
                    yield _loads(line)
            if rest:
                yield _loads(rest)
            if status != 200:
                raise ProtocolError(f"{self.address}: a stream was answered with status {status}")
        finally:
            self.close()

    async def _ask(self, path: str, body: object, headers: Mapping[str, str]) -> tuple[int, AsyncIterator[bytes]]:
        if self._writer is None or self._reader is None:
            await self.open()
        assert self._writer is not None
        assert self._reader is not None
        data = orjson.dumps(body)
        lines = {
            "Host": str(self.address),
            "Content-Type": "application/json",
            "Content-Length": str(len(data)),
            **headers,
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self._writer.write(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + data)
        await self._writer.drain()
        return await self._read_head(self._reader)

    async def _read_head(self, reader: asyncio.StreamReader) -> tuple[int, AsyncIterator[bytes]]:
        try:
            text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.LimitOverrunError as error:
            raise ProtocolError(f"{self.address}: got a head of more than {HEAD_SIZE_MAX} bytes") from error
        first, *rest = text.split("\r\n")
        version, _, status = first.partition(" ")
        fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
        if not version.startswith("HTTP/1.") or not status[:3].isdigit():
            raise ProtocolError(
                f"{self.address}: got {first[:80]!r}, wanted HTTP/1.1: is this an engine's client port?"
            )
        if fields.get("transfer-encoding", "").lower() == "chunked":
            return int(status[:3]), self._chunks(reader)
        return int(status[:3]), self._counted(reader, fields.get("content-length", "0"))

    async def _counted(self, reader: asyncio.StreamReader, size: str) -> AsyncIterator[bytes]:
        if not size.isdigit() or int(size) > BODY_SIZE_MAX:
            raise ProtocolError(f"{self.address}: got a body of {size!r} bytes, wanted {BODY_SIZE_MAX} at most")
        yield await reader.readexactly(int(size))

    async def _chunks(self, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
        while True:
            text = (await reader.readline()).split(b";")[0].strip()
            try:
                size = int(text, 16)
            except ValueError:
                raise ProtocolError(f"{self.address}: got {text[:40]!r}, wanted the size of a chunk") from None
            if size > BODY_SIZE_MAX:
                raise ProtocolError(f"{self.address}: got a chunk of {size} bytes, wanted {BODY_SIZE_MAX} at most")
            if size == 0:
                # Trailers, and the empty line.
                while (await reader.readline()).strip():
                    pass
                return
            yield await reader.readexactly(size)
            await reader.readexactly(2)


def _loads(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ProtocolError(f"got {text[:200]!r}, wanted JSON: {error}") from error
