"""The body of a batch send (code 320): the messages one after the other.

Each is int32 total size, int32 magic 0, int32 body CRC 0, int32 flag, int32 + body, int16 + properties text. Topic and
queue are those of the request. Source: RocketMQ common/message/MessageDecoder.java, encodeMessage, decodeMessage.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from mqcore.errors import ProtocolError
from mqcore.layout import BATCH_MEMBER_HEAD, PROPERTIES_SIZE_MAX
from mqcore.protocol.buffer import Buffer
from mqcore.protocol.message import Message
from mqcore.protocol.properties import decode_properties, encode_properties

_PROPERTIES_SIZE: Final = struct.Struct(">h")

FIXED_SIZE: Final = BATCH_MEMBER_HEAD.size + _PROPERTIES_SIZE.size
"""Bytes of a message without body and properties."""

assert FIXED_SIZE == 22


def encode_batch(messages: Iterable[Message]) -> bytes:
    """Return the body of a batch; raise ProtocolError if a message's properties are too long."""
    parts: list[bytes] = []
    for message in messages:
        properties = encode_properties(message.properties).encode("utf-8", "replace")
        if len(properties) > PROPERTIES_SIZE_MAX:
            raise ProtocolError(
                f"properties too long: got {len(properties)} bytes, wanted at most {PROPERTIES_SIZE_MAX}"
            )
        size = FIXED_SIZE + len(message.body) + len(properties)
        parts += (
            BATCH_MEMBER_HEAD.struct.pack(size, 0, 0, message.flag, len(message.body)),
            message.body,
            _PROPERTIES_SIZE.pack(len(properties)),
            properties,
        )
    return b"".join(parts)


def decode_batch(buffer: Buffer, topic: str = "") -> list[Message]:
    """Return the messages of a batch, all with *topic*; raise ProtocolError if a length does not fit."""
    view = memoryview(buffer)
    messages: list[Message] = []
    at = 0
    while at < len(view):
        left = len(view) - at
        if left < FIXED_SIZE:
            raise ProtocolError(f"batch cut short: got {left} bytes, wanted at least {FIXED_SIZE} (position={at})")
        size, _, _, flag, body_size = BATCH_MEMBER_HEAD.struct.unpack_from(view, at)
        if not FIXED_SIZE <= size <= left:
            raise ProtocolError(f"bad size in batch: got {size}, wanted {FIXED_SIZE} to {left} (position={at})")
        if not 0 <= body_size <= size - FIXED_SIZE:
            raise ProtocolError(f"bad body size in batch: got {body_size} in {size} bytes (position={at})")
        body_at = at + BATCH_MEMBER_HEAD.size
        properties_at = body_at + body_size + _PROPERTIES_SIZE.size
        (properties_size,) = _PROPERTIES_SIZE.unpack_from(view, body_at + body_size)
        if properties_size != at + size - properties_at:
            raise ProtocolError(f"bad properties size in batch: got {properties_size} (position={at})")
        properties = decode_properties(view[properties_at : properties_at + properties_size])
        messages.append(Message(topic, bytes(view[body_at : body_at + body_size]), flag=flag, properties=properties))
        at += size
    return messages
