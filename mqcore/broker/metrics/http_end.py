"""A port that answers GET and nothing else, for scrapers and probes: each connection has one request.

It trusts nobody: a request has a length and a time to come in, an answer a time to be taken, and of connections there
are few; one that has said nothing yet makes room for the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

logger = logging.getLogger(__name__)

REQUEST_SIZE_MAX: Final = 8192
REQUEST_S_MAX: Final = 5.0
"""Within this time a request has come."""

ANSWER_S_MAX: Final = 30.0
"""Within this time an answer has been made and taken."""

CONNECTIONS_MAX: Final = 32
CHUNK: Final = 1 << 16
HEAD_END: Final = b"\r\n\r\n"
METHODS: Final = ("GET", "HEAD")
PLAIN: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What is answered, before HTTP."""

    status: HTTPStatus
    body: Sequence[bytes]
    """In parts, which lie behind one another."""
    content_type: str = PLAIN

    @classmethod
    def refusal(cls, status: HTTPStatus, words: str) -> HttpAnswer:
        return cls(status, [f"{words}\n".encode()])


Route = Callable[[], Awaitable[HttpAnswer]]


class HttpEnd:
    """Answers the paths of *routes* on *listener*, which it closes in the end."""

    def __init__(self, listener: socket.socket, routes: dict[str, Route]) -> None:
        self._listener = listener
        self._routes = routes
        self._server: asyncio.Server | None = None
        self._reading: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, sock=self._listener, limit=REQUEST_SIZE_MAX)

    async def stop(self) -> None:
        """Close the port and every connection."""
        assert self._server is not None
        self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if len(self._connections) <= CONNECTIONS_MAX or self._make_room():
                await self._answer(task, reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # it was slow, or has gone: nobody is there to be told
        except asyncio.CancelledError:
            pass  # it had to make room, or all of this ends
        finally:
            self._reading.pop(task, None)
            self._connections.discard(task)
            writer.close()

    def _make_room(self) -> bool:
        """Close the connection that has let its request be waited for longest; False if none has."""
        oldest = next(iter(self._reading), None)
        if oldest is not None:
            del self._reading[oldest]
            oldest.cancel()
        return oldest is not None

    async def _answer(
        self, task: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._reading[task] = writer
        try:
            async with asyncio.timeout(REQUEST_S_MAX):
                head = await reader.readuntil(HEAD_END)
        except asyncio.LimitOverrunError:
            words = f"got more than {REQUEST_SIZE_MAX} bytes of headers"
            answer, has_body = HttpAnswer.refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, words), True
        else:
            del self._reading[task]
            async with asyncio.timeout(ANSWER_S_MAX):
                answer, has_body = await self._answer_of(head)
        async with asyncio.timeout(ANSWER_S_MAX):
            await write_answer(writer, answer, has_body=has_body)

    async def _answer_of(self, head: bytes) -> tuple[HttpAnswer, bool]:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return HttpAnswer.refusal(HTTPStatus.BAD_REQUEST, "wanted a request of HTTP/1.1"), True
        method, target, _ = words
        if method not in METHODS:
            return HttpAnswer.refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"wanted one of {', '.join(METHODS)}"), True
        route = self._routes.get(target.partition("?")[0])
        if route is None:
            known = ", ".join(self._routes)
            return HttpAnswer.refusal(HTTPStatus.NOT_FOUND, f"nothing is here; there are {known}"), method != "HEAD"
        try:
            return await route(), method != "HEAD"
        except Exception:  # the top of a request: whatever it is, who asks gets an answer
            logger.exception("request failed path=%s", target)
            return HttpAnswer.refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "it failed; the broker's log says why"), True


async def write_answer(writer: asyncio.StreamWriter, answer: HttpAnswer, *, has_body: bool) -> None:
    """Write *answer* and close; a peer that does not take it costs a chunk of memory, and not a copy of all."""
    headers = [
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {sum(map(len, answer.body))}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    ]
    if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
        headers.append(f"Allow: {', '.join(METHODS)}")
    writer.write("\r\n".join([*headers, "", ""]).encode("latin-1"))
    for part in answer.body if has_body else ():
        for at in range(0, len(part), CHUNK):
            writer.write(part[at : at + CHUNK])
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()
    await writer.drain()
