"""One send and its answer on a blocking socket: the readable twin of ``mqcore._fast.client.exchange``.

A thread that waits for its answer anyway needs no event loop in between: that would cost two hand-overs between threads
for each message. Which of the twins runs is chosen in ``codec``.
"""

from __future__ import annotations

import socket
import struct
from typing import Final, Protocol

from mqcore import clock
from mqcore.codes import STORED_CODES, RemotingFlag, RequestCode
from mqcore.errors import RemotingSendError, RemotingTimeoutError
from mqcore.layout import FRAME_LENGTH_MAX
from mqcore.protocol.buffer import Buffer
from mqcore.protocol.frame import HEADER_MARK_SIZE, LENGTH_SIZE, decode_frame
from mqcore.protocol.headers import RESPONSE_HEADERS
from mqcore.transport.blocking import is_quiet

READ_SIZE: Final = 16384
_LENGTH: Final = struct.Struct(">i")

SendAnswer = tuple[int, str | None, str, int, int, str | None, str | None, str | None]
"""code, remark, offset message id, queue id, queue offset, transaction id, region id, trace switch.

A send that was not stored has only the first two.
"""


def decode_send_answer(payload: Buffer) -> SendAnswer:
    """Return what a broker answered to a send. Raises FrameError or HeaderError when it cannot be read."""
    code, _, _, remark, ext_fields, *_ = decode_frame(payload)
    if code not in STORED_CODES:
        return (code, remark, "", 0, 0, None, None, None)
    values = RESPONSE_HEADERS[RequestCode.SEND_MESSAGE_V2].decode(ext_fields)
    return (
        code,
        None,
        values["msg_id"],
        values["queue_id"],
        values["queue_offset"],
        values["transaction_id"],
        values["msg_region"],
        values["trace_on"],
    )


def answer_of(payload: Buffer, opaque: int) -> SendAnswer | None:
    """Return the answer to the send with *opaque*, or None when *payload* is something else, such as a request."""
    _, answered, flag, *_ = decode_frame(payload)
    if not flag & RemotingFlag.RESPONSE or answered != opaque:
        return None
    return decode_send_answer(payload)


class Head(Protocol):
    """Writes the sends of one group to one queue: a SendHead, or one that signs them."""

    def encode(
        self, opaque: int, sys_flag: int, born_timestamp: int, flag: int, properties: dict[str, str], body: bytes
    ) -> bytes:
        """Return the whole frame of one send. Raises HeaderError, ProtocolError or FrameError when it cannot travel."""
        ...


class SocketExchange:
    """One connected socket object, which stays the caller's. One request at a time."""

    def __init__(self, connection: socket.socket, peer: str) -> None:
        self._socket = connection
        self._peer = peer
        self._unread = bytearray()
        self.answers = 0

    def send(
        self,
        head: Head,
        opaque: int,
        sys_flag: int,
        born_timestamp: int,
        flag: int,
        properties: dict[str, str],
        body: bytes,
        timeout_s: float,
    ) -> SendAnswer | None:
        """Send one message and return the answer, or None when the connection was closed before anything was sent.

        Raises RemotingSendError or RemotingTimeoutError; ProtocolError when the message cannot travel or the answer
        cannot be read. After an error the socket must be closed, because an answer may still be on its way.
        """
        frame = head.encode(opaque, sys_flag, born_timestamp, flag, properties, body)
        deadline_s = clock.monotonic_s() + timeout_s
        try:
            if not self._is_clean() or not self._transmit(frame, deadline_s):
                return None
            while True:
                answer = self._answer_of(self._receive(deadline_s), opaque)
                if answer is not None:
                    self.answers += 1
                    return answer
        except TimeoutError as error:
            raise RemotingTimeoutError(f"no response from {self._peer} within {timeout_s * 1000:.0f} ms") from error
        except OSError as error:
            raise RemotingSendError(f"connection to {self._peer} was closed{self._why(error)}") from error

    def _answer_of(self, payload: Buffer, opaque: int) -> SendAnswer | None:
        return answer_of(payload, opaque)

    def _why(self, error: OSError) -> str:
        """What an error says that a connection which merely was closed would not."""
        return ""

    def _is_clean(self) -> bool:
        """Whether the peer has neither closed the connection nor said something that nobody asked for."""
        return not self._unread and is_quiet(self._socket)

    def _transmit(self, frame: bytes, deadline_s: float) -> bool:
        view = memoryview(frame)
        while view:
            self._wait_at_most(deadline_s)
            try:
                view = view[self._socket.send(view) :]
            except TimeoutError:
                raise
            except OSError:
                if len(view) == len(frame):
                    return False
                raise
        return True

    def _receive(self, deadline_s: float) -> bytes:
        while True:
            if len(self._unread) >= LENGTH_SIZE:
                (length,) = _LENGTH.unpack_from(self._unread)
                if not HEADER_MARK_SIZE <= length <= FRAME_LENGTH_MAX:
                    raise RemotingSendError(f"connection to {self._peer}: got a frame of length {length}")
                if len(self._unread) >= LENGTH_SIZE + length:
                    payload = bytes(self._unread[LENGTH_SIZE : LENGTH_SIZE + length])
                    del self._unread[: LENGTH_SIZE + length]
                    return payload
            self._wait_at_most(deadline_s)
            data = self._socket.recv(READ_SIZE)
            if not data:
                raise ConnectionResetError("closed by the peer")
            self._unread += data

    def _wait_at_most(self, deadline_s: float) -> None:
        left_s = deadline_s - clock.monotonic_s()
        if left_s <= 0:
            raise TimeoutError
        self._socket.settimeout(left_s)


class Exchange(SocketExchange):
    """One connected blocking socket, given by its descriptor, which stays the caller's. One request at a time."""

    def __init__(self, descriptor: int, peer: str) -> None:
        # A second descriptor of the same connection: a socket object closes its own.
        super().__init__(socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM), peer)

    def __del__(self) -> None:
        self._socket.close()
