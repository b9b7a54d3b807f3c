"""Blocking connections to brokers and name servers, for executors and for the driver's planning.

A ``Link`` is one socket over which requests go out several at a time and answers come back in any order. Links are kept
per process for the next task (``borrow``); a forked worker never uses those of its parent. There is no thread and no
event loop: a Python worker has one thing to do at a time, and a fork must not find half of a loop.
"""

from __future__ import annotations

import atexit
import logging
import os
import ssl
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

from mqcore.codes import LanguageCode, RequestCode
from mqcore.errors import FrameError, RemotingSendError, RemotingTimeoutError
from mqcore.layout import FRAME_LENGTH_MAX, HEADER_LENGTH_MAX
from mqcore.protocol.command import RemotingCommand, next_opaque
from mqcore.protocol.frame import HEADER_MARK_SIZE, LENGTH_SIZE
from mqcore.protocol.headers import REQUEST_HEADERS, encode_request
from mqcore.spark.options import TLS_OPTIONS
from mqcore.transport.blocking import connected, is_quiet
from mqcore.transport.client_tls import ClientTls

logger = logging.getLogger(__name__)

BUFFER_SIZE: Final = 1 << 19
"""The buffer of a link; it becomes larger for the first answer that does not fit."""
IDLE_LINKS_MAX: Final = 4
"""Links to one address that are kept while nobody uses them."""
IDLE_S_MAX: Final = 60.0
"""A link unused for longer is not used again: brokers close connections that are idle for 120 s."""

_HEAD: Final = struct.Struct(">ii")


Sign = Callable[[RemotingCommand], None]
"""Adds key and signature to a request."""


class Answer(NamedTuple):
    """A response: *fields* are its ext fields, *body* a copy of its own."""

    code: int
    opaque: int
    remark: str
    fields: Mapping[str, str]
    body: bytes


class Link:
    """One connection. Not for use by several threads at once.

    Every method raises RemotingSendError when the connection broke and RemotingTimeoutError when nothing came within
    *timeout_s*; the link is of no use after either.
    """

    def __init__(self, address: str, timeout_s: float, tls: ClientTls | None = None) -> None:
        """Connect, with TLS if *tls* says how. Raises TlsError when the other end's certificate is not trusted."""
        self.address = address
        self.under_way = 0
        self.idle_since_s = 0.0
        self._buffer = memoryview(bytearray(BUFFER_SIZE))
        self._at = 0  # what was read and not yet taken is between the two
        self._end = 0
        self._frame_size = LENGTH_SIZE  # of the frame at _at, as far as is known
        self._socket = connected(address, timeout_s, None if tls is None else _context(tls))
        self._socket.settimeout(timeout_s)

    def close(self) -> None:
        self._socket.close()

    @property
    def is_closed(self) -> bool:
        return self._socket.fileno() < 0

    def fileno(self) -> int:
        """The socket's descriptor, for select; what is buffered does not show there, see ``has_answer``."""
        return self._socket.fileno()

    @property
    def has_answer(self) -> bool:
        """Whether ``receive`` would not have to wait: a whole frame was read already, or what can be none."""
        try:
            while not self._has_frame():
                if not self._pending():
                    return False
                self._read()
        except FrameError:
            return True
        return True

    @property
    def is_stale(self) -> bool:
        """Whether something has come though nothing is under way: mostly the end of the connection."""
        return not is_quiet(self._socket)

    def _pending(self) -> int:
        """How many bytes have been decrypted that nobody has read: select says nothing of them."""
        return self._socket.pending() if isinstance(self._socket, ssl.SSLSocket) else 0

    def set_timeout(self, timeout_s: float) -> None:
        self._socket.settimeout(timeout_s)

    def send(self, frames: bytes, count: int) -> None:
        """Write *count* requests."""
        try:
            self._socket.sendall(frames)
        except TimeoutError as error:
            raise RemotingTimeoutError(f"{self.address} takes no request") from error
        except OSError as error:
            raise RemotingSendError(f"connection to {self.address} broke: {error}") from error
        self.under_way += count

    def receive(self) -> Answer:
        """Wait for the next answer, to whichever request."""
        while True:
            while (payload := self._next_payload()) is None:
                self._read()
            answer = _parse(payload)
            # Brokers ask their clients things too (reset an offset, check a transaction): not this one.
            if answer is not None:
                self.under_way -= 1
                return answer

    def call(self, command: RemotingCommand) -> Answer:
        """Send one request and return its answer; nothing else may be under way."""
        self.send(command.encode(), 1)
        while True:
            answer = self.receive()
            if answer.opaque == command.opaque:
                return answer

    def _next_payload(self) -> memoryview | None:
        """Return what is in the next frame, valid until more is read; None if it is not there yet."""
        if not self._has_frame():
            return None
        start, self._at = self._at + LENGTH_SIZE, self._at + self._frame_size
        return self._buffer[start : self._at]

    def _has_frame(self) -> bool:
        """Whether the next frame is there, whose size is noted as far as it is known."""
        have = self._end - self._at
        self._frame_size = LENGTH_SIZE
        if have < LENGTH_SIZE:
            return False
        length = int.from_bytes(self._buffer[self._at : self._at + LENGTH_SIZE], "big", signed=True)
        if not HEADER_MARK_SIZE <= length <= FRAME_LENGTH_MAX:
            raise FrameError(f"bad frame length from {self.address}: got {length}, wanted at most {FRAME_LENGTH_MAX}")
        self._frame_size = LENGTH_SIZE + length
        return have >= self._frame_size

    def _read(self) -> None:
        self._make_room()
        try:
            count = self._socket.recv_into(self._buffer[self._end :])
        except TimeoutError as error:
            raise RemotingTimeoutError(f"no answer from {self.address} in {self._socket.gettimeout():g} s") from error
        except OSError as error:
            raise RemotingSendError(f"connection to {self.address} broke: {error}") from error
        if not count:
            raise RemotingSendError(f"{self.address} closed the connection")
        self._end += count

    def _make_room(self) -> None:
        """Let the frame under way fit behind _at. The memory is used again and again: fresh pages cost more than a
        copy, and what was begun is copied only where the end of the buffer cuts it."""
        if self._at == self._end:
            self._at = self._end = 0
        if self._frame_size > len(self._buffer) - self._at:
            begun = bytes(self._buffer[self._at : self._end])
            if self._frame_size > len(self._buffer):
                self._buffer = memoryview(bytearray(self._frame_size))
            self._buffer[: len(begun)] = begun
            self._at, self._end = 0, len(begun)


@lru_cache(maxsize=8)
def _context(tls: ClientTls) -> ssl.SSLContext:
    """Files are read once in a process."""
    return tls.context(TLS_OPTIONS.__getitem__)


def _parse(payload: memoryview) -> Answer | None:
    """Return the response in *payload*, or None for a request."""
    header_end = HEADER_MARK_SIZE + (int.from_bytes(payload[:HEADER_MARK_SIZE], "big") & HEADER_LENGTH_MAX)
    if payload[0] == 0 and header_end <= len(payload):
        try:
            header = orjson.loads(payload[HEADER_MARK_SIZE:header_end])
            if not header["flag"] & 1:
                return None
            return Answer(
                header["code"],
                header["opaque"],
                header.get("remark") or "",
                header.get("extFields") or {},
                bytes(payload[header_end:]),
            )
        except (orjson.JSONDecodeError, KeyError, TypeError):
            pass  # what fastjson writes is not always JSON; the tolerant reader decides
    command = RemotingCommand.decode(payload)
    if not command.is_response:
        return None
    return Answer(command.code, command.opaque, command.remark or "", command.ext_fields or {}, command.body)


def request(code: RequestCode, values: Mapping[str, Any] | None = None, body: bytes = b"") -> RemotingCommand:
    """Return a request of ours with a new opaque; without *values* it has no ext fields."""
    return RemotingCommand(
        code,
        next_opaque(),
        ext_fields=None if values is None else encode_request(code, **values),
        body=body,
        language=LanguageCode.PYTHON,
    )


class RequestTemplate:
    """A request that is sent many times with a few numbers changed: its frame is encoded once and filled in.

    *slots* names the fields to fill; the opaque is always one of them. With *sign* each frame is encoded anew, since a
    signature is of all that is in it.
    """

    # Numbers that are not found elsewhere in a header, all of the longest length, so that none is part of another.
    _MARK: Final = 9_100_000_000_000_000_000
    _OPAQUE_MARK: Final = 2_100_000_007

    def __init__(
        self, code: RequestCode, values: Mapping[str, Any], slots: tuple[str, ...], sign: Sign | None = None
    ) -> None:
        self._code = code
        self._values = values
        self._sign = sign
        marks = {slot: self._MARK + number for number, slot in enumerate(slots)}
        fields = encode_request(code, **{**values, **dict.fromkeys(slots, 0)})
        names = {slot: _wire_name(code, slot) for slot in slots}
        fields |= {names[slot]: str(mark) for slot, mark in marks.items()}
        command = RemotingCommand(code, self._OPAQUE_MARK, ext_fields=fields, language=LanguageCode.PYTHON)
        header = command.encode()[_HEAD.size :].replace(b"%", b"%%")
        for slot, mark in marks.items():
            header = _replaced(header, str(mark), f"%({slot})d")
        self._header = _replaced(header, str(self._OPAQUE_MARK), "%(opaque)d")

    def frame(self, opaque: int, **numbers: int) -> bytes:
        """Return the frame with *numbers* in the slots, without a body."""
        if self._sign is not None:
            command = request(self._code, {**self._values, **numbers})
            command.opaque = opaque
            self._sign(command)
            return command.encode()
        header = self._header % {b"opaque": opaque, **{name.encode(): value for name, value in numbers.items()}}
        return _HEAD.pack(HEADER_MARK_SIZE + len(header), len(header)) + header


def _wire_name(code: RequestCode, field: str) -> str:
    return next(row.wire_name for row in REQUEST_HEADERS[code].fields if row.name == field)


def _replaced(header: bytes, mark: str, slot: str) -> bytes:
    before, found, after = header.partition(mark.encode())
    assert found, mark
    return before + slot.encode() + after


# Links per process: (pid, address, TLS) -> those that nobody uses.
_idle: defaultdict[tuple[int, str, ClientTls | None], list[Link]] = defaultdict(list)


@contextmanager
def borrow(address: str, timeout_s: float, tls: ClientTls | None = None) -> Iterator[Link]:
    """Give a link to *address*, a kept one or a new one. It is kept for the next borrower unless an error passed by
    or answers are still under way."""
    idle = _idle[(os.getpid(), address, tls)]
    link: Link | None = None
    while idle and link is None:
        candidate = idle.pop()
        if time.monotonic() - candidate.idle_since_s < IDLE_S_MAX and not candidate.is_stale:
            link = candidate
        else:
            candidate.close()
    if link is None:
        link = Link(address, timeout_s, tls)
    else:
        link.set_timeout(timeout_s)
    try:
        yield link
    except BaseException:
        link.close()
        raise
    if not link.is_closed and link.under_way == 0 and len(idle) < IDLE_LINKS_MAX:
        link.idle_since_s = time.monotonic()
        idle.append(link)
    else:
        link.close()


def close_idle_links() -> None:
    """Close the kept links of this process."""
    for (pid, _, _), links in _idle.items():
        while pid == os.getpid() and links:
            links.pop().close()


atexit.register(close_idle_links)
