"""A blocking connection with several requests under way, whose answers come back in any order.

There is no thread and no event loop: for programs that have one thing to do at a time, and that fork.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final, NamedTuple

import orjson

from mqcore.errors import FrameError, RemotingSendError, RemotingTimeoutError
from mqcore.layout import FRAME_LENGTH_MAX, HEADER_LENGTH_MAX
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.frame import HEADER_MARK_SIZE, LENGTH_SIZE
from mqcore.transport.blocking import connected, is_quiet

BUFFER_SIZE: Final = 1 << 19
"""The buffer of a link; it becomes larger for the first answer that does not fit."""


class BlockingAnswer(NamedTuple):
    """A response: *fields* are its ext fields, *body* a copy of its own."""

    code: int
    opaque: int
    remark: str
    fields: Mapping[str, str]
    body: bytes


class BlockingLink:
    """One connection. Not for use by several threads at once.

    Every method raises RemotingSendError when the connection broke and RemotingTimeoutError when nothing came within
    *timeout_s*; the link is of no use after either.
    """

    def __init__(self, address: str, timeout_s: float, tls: ssl.SSLContext | None = None) -> None:
        """Connect, by *tls* if there is one. Raises RemotingConnectError; TlsError for a peer that is not trusted."""
        self.address = address
        self.under_way = 0
        self.idle_since_s = 0.0
        self._buffer = memoryview(bytearray(BUFFER_SIZE))
        self._at = 0  # what was read and not yet taken is between the two
        self._end = 0
        self._frame_size = LENGTH_SIZE  # of the frame at _at, as far as is known
        self._socket = connected(address, timeout_s, tls)
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

    def receive(self) -> BlockingAnswer:
        """Wait for the next answer, to whichever request."""
        while True:
            while (payload := self._next_payload()) is None:
                self._read()
            answer = _parse(payload)
            # Brokers ask their clients things too (reset an offset, check a transaction): not this one.
            if answer is not None:
                self.under_way -= 1
                return answer

    def call(self, command: RemotingCommand) -> BlockingAnswer:
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


def _parse(payload: memoryview) -> BlockingAnswer | None:
    """Return the response in *payload*, or None for a request."""
    header_end = HEADER_MARK_SIZE + (int.from_bytes(payload[:HEADER_MARK_SIZE], "big") & HEADER_LENGTH_MAX)
    if payload[0] == 0 and header_end <= len(payload):
        try:
            header = orjson.loads(payload[HEADER_MARK_SIZE:header_end])
            if not header["flag"] & 1:
                return None
            return BlockingAnswer(
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
    return BlockingAnswer(command.code, command.opaque, command.remark or "", command.ext_fields or {}, command.body)
