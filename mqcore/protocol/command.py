"""One frame of the remoting protocol as a value, and the splitter that cuts a byte stream into frames.

    int32 length of what follows | int8 serialize type, int24 header length | header | body

This is the readable statement of the frame; the workers' scanner means the same.
Source: RocketMQ remoting/protocol/RemotingCommand.java, remoting/netty/NettyDecoder.java.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from mqcore.codes import CURRENT_VERSION, LanguageCode, RemotingFlag, SerializeType
from mqcore.errors import FrameError
from mqcore.layout import FRAME_HEAD, FRAME_LENGTH_MAX, HEADER_LENGTH_MAX
from mqcore.protocol import binary_header, json_header
from mqcore.protocol.fastjson import Buffer
from mqcore.protocol.header_fields import HeaderFields

LENGTH_SIZE: Final = 4
HEADER_MARK_SIZE: Final = FRAME_HEAD.size - LENGTH_SIZE

FRAME_SIZE_MAX: Final = LENGTH_SIZE + FRAME_LENGTH_MAX
"""Largest frame, length field included; the default of com.rocketmq.remoting.frameMaxLength."""

_LENGTH: Final = struct.Struct(">i")

_CODECS: Final = {
    SerializeType.JSON: (json_header.encode_header, json_header.decode_header),
    SerializeType.ROCKETMQ: (binary_header.encode_header, binary_header.decode_header),
}

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
        encode_header, _ = _CODECS[self.serialize_type]
        header = encode_header(
            HeaderFields(self.code, self.language, self.version, self.opaque, self.flag, self.remark, self.ext_fields)
        )
        length = HEADER_MARK_SIZE + len(header) + len(self.body)
        if length > FRAME_LENGTH_MAX or len(header) > HEADER_LENGTH_MAX:
            raise FrameError(f"frame too large: got {length} bytes, wanted at most {FRAME_LENGTH_MAX}")
        return b"".join((FRAME_HEAD.struct.pack(length, self.serialize_type << 24 | len(header)), header, self.body))

    @staticmethod
    def decode(payload: Buffer) -> RemotingCommand:
        """Read a frame without its length field, from any buffer; the body is copied out of it.

        Raises FrameError if the header does not fit or the serialize type is unknown, HeaderError if it cannot be read.
        """
        view = memoryview(payload)
        if len(view) < HEADER_MARK_SIZE:
            raise FrameError(f"frame cut short: got {len(view)} bytes, wanted at least {HEADER_MARK_SIZE}")
        mark = int.from_bytes(view[:HEADER_MARK_SIZE], "big")
        header_end = HEADER_MARK_SIZE + (mark & HEADER_LENGTH_MAX)
        if header_end > len(view):
            raise FrameError(f"header too long: got {mark & HEADER_LENGTH_MAX} bytes in a frame of {len(view)}")
        if mark >> 24 not in (SerializeType.JSON, SerializeType.ROCKETMQ):
            raise FrameError(f"unknown serialize type: got {mark >> 24}, wanted 0 or 1")
        serialize_type = SerializeType(mark >> 24)
        _, decode_header = _CODECS[serialize_type]
        fields = decode_header(view[HEADER_MARK_SIZE:header_end])
        return RemotingCommand(
            code=fields.code,
            opaque=fields.opaque,
            flag=fields.flag,
            remark=fields.remark,
            ext_fields=fields.ext_fields,
            body=bytes(view[header_end:]),
            language=fields.language,
            version=fields.version,
            serialize_type=serialize_type,
        )

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
