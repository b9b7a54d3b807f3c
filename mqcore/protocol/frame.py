"""The bytes of a command's frame, and what they say: the readable statement of both.

    int32 length of what follows | int8 serialize type, int24 header length | header | body

``mqcore._fast.client.frames`` has the fast twins of these functions; ``mqcore.protocol.codec`` chooses.
Source: RocketMQ remoting/protocol/RemotingCommand.java.
"""

from __future__ import annotations

from typing import Final

from mqcore.codes import SerializeType
from mqcore.errors import FrameError
from mqcore.layout import FRAME_HEAD, FRAME_LENGTH_MAX, HEADER_LENGTH_MAX
from mqcore.protocol import binary_header, json_header
from mqcore.protocol.buffer import Buffer
from mqcore.protocol.header_fields import HeaderFields

LENGTH_SIZE: Final = 4
HEADER_MARK_SIZE: Final = FRAME_HEAD.size - LENGTH_SIZE

_CODECS: Final = {
    SerializeType.JSON: (json_header.encode_header, json_header.decode_header),
    SerializeType.ROCKETMQ: (binary_header.encode_header, binary_header.decode_header),
}

FrameFields = tuple[int, int, int, str | None, dict[str, str] | None, bytes, int, int, SerializeType]
"""code, opaque, flag, remark, ext fields, body, language, version, serialize type: the members of a RemotingCommand."""


def encode_frame(
    code: int,
    opaque: int,
    flag: int,
    remark: str | None,
    ext_fields: dict[str, str] | None,
    body: bytes,
    language: int,
    version: int,
    serialize_type: int,
) -> bytes:
    """Return the whole frame, its length field included.

    Raises HeaderError if a header field cannot be carried, FrameError if the frame is over FRAME_SIZE_MAX.
    """
    encode_header, _ = _CODECS[SerializeType(serialize_type)]
    header = encode_header(HeaderFields(code, language, version, opaque, flag, remark, ext_fields))
    length = HEADER_MARK_SIZE + len(header) + len(body)
    if length > FRAME_LENGTH_MAX or len(header) > HEADER_LENGTH_MAX:
        raise FrameError(f"frame too large: got {length} bytes, wanted at most {FRAME_LENGTH_MAX}")
    return b"".join((FRAME_HEAD.struct.pack(length, serialize_type << 24 | len(header)), header, body))


def decode_frame(payload: Buffer) -> FrameFields:
    """Read a frame without its length field, from any buffer; the body is copied out of it.

    Raises FrameError if the header does not fit or the serialize type is unknown, HeaderError if it cannot be read.
    """
    head, body_at = decode_head(payload)
    return (*head[:5], bytes(memoryview(payload)[body_at:]), *head[6:])


def decode_head(payload: Buffer) -> tuple[FrameFields, int]:
    """Read a frame like ``decode_frame``, but leave its body empty and say where in *payload* it starts."""
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
    head = (
        fields.code,
        fields.opaque,
        fields.flag,
        fields.remark,
        fields.ext_fields,
        b"",
        fields.language,
        fields.version,
        serialize_type,
    )
    return head, header_end
