"""One frame of the remoting protocol as a value, and the splitter that cuts a byte stream into frames.

``mqcore.protocol.frame`` says what the bytes mean; the workers' scanner means the same.
Source: RocketMQ remoting/protocol/RemotingCommand.java, remoting/netty/NettyDecoder.java.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from mqcore.codes import CURRENT_VERSION, LanguageCode, RemotingFlag, SerializeType
from mqcore.errors import FrameError
from mqcore.layout import FRAME_LENGTH_MAX
from mqcore.protocol.buffer import Buffer
from mqcore.protocol.codec import decode_frame, decode_head, encode_frame
from mqcore.protocol.frame import HEADER_MARK_SIZE, LENGTH_SIZE

FRAME_SIZE_MAX: Final = LENGTH_SIZE + FRAME_LENGTH_MAX
"""Largest frame, length field included; the default of com.rocketmq.remoting.frameMaxLength."""

ROOM_SIZE: Final = 64 * 1024
"""What a FrameBuffer begins with."""
KEPT_SIZE_MAX: Final = 4 * 1024 * 1024
"""A FrameBuffer that grew larger for one frame shrinks again."""

APART_SIZE: Final = 32 * 1024
"""A body of so many bytes is not copied into its frame, but sent behind it."""

_LENGTH: Final = struct.Struct(">i")

_opaques = itertools.count(1)


def next_opaque() -> int:
    """Return the next request id of this process, from 1, wrapping before it outgrows an int32."""
    return next(_opaques) & 0x7FFFFFFF


@dataclass(slots=True)
class RemotingCommand:
    """A request or a response.

    ``ext_fields`` None means that the header has no such member; an empty dict is written as ``{}``. An absent body and
    an empty one are the same thing.
    """

    code: int
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    ext_fields: dict[str, str] | None = None
    body: bytes = b""
    language: int = LanguageCode.JAVA
    version: int = CURRENT_VERSION
    serialize_type: SerializeType = SerializeType.JSON

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RemotingFlag.RESPONSE)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & RemotingFlag.ONEWAY)

    def encode(self) -> bytes:
        """Return the whole frame, its length field included.

        Raises HeaderError if a header field cannot be carried, FrameError if the frame is over FRAME_SIZE_MAX.
        """
        return encode_frame(
            self.code,
            self.opaque,
            self.flag,
            self.remark,
            self.ext_fields,
            self.body,
            self.language,
            self.version,
            self.serialize_type,
        )

    def encode_apart(self) -> tuple[bytes, bytes]:
        """Return the whole frame in two parts, of which the second may be empty: a large body is not copied.

        Raises as ``encode`` does.
        """
        if len(self.body) < APART_SIZE:
            return self.encode(), b""
        head = replace(self, body=b"").encode()
        length = len(head) - LENGTH_SIZE + len(self.body)
        if length > FRAME_LENGTH_MAX:
            raise FrameError(f"frame too large: got {length} bytes, wanted at most {FRAME_LENGTH_MAX}")
        return _LENGTH.pack(length) + head[LENGTH_SIZE:], self.body

    @staticmethod
    def decode(payload: Buffer) -> RemotingCommand:
        """Read a frame without its length field, from any buffer; the body is copied out of it.

        Raises FrameError if the header does not fit or the serialize type is unknown, HeaderError if it cannot be read.
        """
        return RemotingCommand(*decode_frame(payload))

    @staticmethod
    def split(payload: Buffer) -> tuple[RemotingCommand, memoryview]:
        """Read a frame like ``decode``, but return its body beside the command, not copied: a view of *payload*."""
        head, body_at = decode_head(payload)
        return RemotingCommand(*head), memoryview(payload)[body_at:]

    def reply(
        self,
        code: int = 0,
        remark: str | None = None,
        ext_fields: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> RemotingCommand:
        """Return the response to this request: its opaque, its serialize type, our language and version."""
        return RemotingCommand(
            code=code,
            opaque=self.opaque,
            flag=int(RemotingFlag.RESPONSE),
            remark=remark,
            ext_fields=ext_fields,
            body=body,
            serialize_type=self.serialize_type,
        )


class FrameSplitter:
    """Cuts the bytes of one connection into frames. It keeps at most one unfinished frame and what was read with it."""

    def __init__(self, frame_size_max: int = FRAME_SIZE_MAX) -> None:
        self._buffer = bytearray()
        self._at = 0  # where the next frame starts in the buffer; what is before it has been handed out
        self._length_max = frame_size_max - LENGTH_SIZE

    @property
    def pending_size(self) -> int:
        """Bytes that have not been handed out."""
        return len(self._buffer) - self._at

    def feed(self, data: Buffer) -> Iterator[bytes]:
        """Take *data* and iterate over the payloads (frames without their length field) that are now complete.

        Raises FrameError from the iteration, after the good frames before it, when a length is impossible. There is
        no way to find the next frame after that: the connection is to be closed.
        """
        if self._at:
            del self._buffer[: self._at]
            self._at = 0
        self._buffer += data
        return self._complete_frames()

    def _complete_frames(self) -> Iterator[bytes]:
        while self.pending_size >= LENGTH_SIZE:
            (length,) = _LENGTH.unpack_from(self._buffer, self._at)
            if not HEADER_MARK_SIZE <= length <= self._length_max:
                raise FrameError(f"bad frame length: got {length}, wanted {HEADER_MARK_SIZE} to {self._length_max}")
            if length > self.pending_size - LENGTH_SIZE:
                return
            start = self._at + LENGTH_SIZE
            self._at = start + length
            with memoryview(self._buffer) as view:  # released before the next feed resizes the buffer
                payload = bytes(view[start : self._at])
            yield payload


class FrameBuffer:
    """Cuts frames from memory into which a socket reads by itself, and which stays for the next ones.

    Fresh memory for each large answer would be asked of the kernel page by page, which takes longer than to copy it.
    """

    def __init__(self, frame_size_max: int = FRAME_SIZE_MAX) -> None:
        self._buffer = bytearray(ROOM_SIZE)
        self._start = 0  # where the next frame starts
        self._end = 0  # behind what has been read
        self._length_max = frame_size_max - LENGTH_SIZE

    @property
    def pending_size(self) -> int:
        """Bytes that have not been handed out."""
        return self._end - self._start

    def room(self) -> memoryview:
        """Return where to read to; ``added`` is to be told how much was read.

        Behind a frame's begin there is no more room than the frame takes. So the next one begins where the memory does,
        and what has been read of a large frame is not moved to make room for the rest.
        """
        pending = self.pending_size
        if not pending:
            self._start = self._end = 0
            if len(self._buffer) > KEPT_SIZE_MAX:
                self._buffer = bytearray(ROOM_SIZE)
            return memoryview(self._buffer)[:ROOM_SIZE]
        size = self._missing_size()
        if size > len(self._buffer) - self._end:
            # What a peer says about the length is not believed: memory grows with what is there already.
            size = min(size, max(ROOM_SIZE, pending, len(self._buffer) - pending))
            self._move_to_front(pending + size)
        return memoryview(self._buffer)[self._end : self._end + size]

    def _missing_size(self) -> int:
        """How much is missing of the frame that is begun."""
        if self.pending_size < LENGTH_SIZE:
            return ROOM_SIZE
        (length,) = _LENGTH.unpack_from(self._buffer, self._start)
        return LENGTH_SIZE + int(length) - self.pending_size

    def _move_to_front(self, capacity: int) -> None:
        pending = memoryview(self._buffer)[self._start : self._end]
        if capacity > len(self._buffer):
            # A new one, as a view of the old one may still be in somebody's hands, and that cannot grow.
            self._buffer = bytearray(capacity)
        memoryview(self._buffer)[: len(pending)] = pending
        self._start, self._end = 0, len(pending)

    def added(self, size: int) -> Iterator[memoryview]:
        """Iterate over the payloads that are complete with the *size* bytes just read, each good until the next.

        Raises FrameError like ``FrameSplitter.feed``.
        """
        self._end += size
        view = memoryview(self._buffer)
        while self.pending_size >= LENGTH_SIZE:
            (length,) = _LENGTH.unpack_from(view, self._start)
            if not HEADER_MARK_SIZE <= length <= self._length_max:
                raise FrameError(f"bad frame length: got {length}, wanted {HEADER_MARK_SIZE} to {self._length_max}")
            if length > self.pending_size - LENGTH_SIZE:
                return
            start = self._start + LENGTH_SIZE
            self._start = start + length
            yield view[start : self._start]
