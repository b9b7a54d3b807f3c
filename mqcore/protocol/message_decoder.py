"""Stored records on the wire: the body of a pull, a query, a transaction check.

Record layout (big-endian): total size, magic, body CRC, queue id, flag (int32 each), queue offset, physical offset
(int64), sysFlag (int32), born timestamp (int64), born host, store timestamp (int64), store host, reconsume times
(int32), prepared transaction offset (int64), int32 + body, topic, int16 + properties. A host is 4 or 16 address bytes
and an int32 port, by a bit of sysFlag. The topic's length is one byte in V1 and an int16 in V2.

The store has its own, faster reader of its files; this one serves clients. The CRC is not checked: a broker that
sends a transaction check compresses the body again and leaves the old CRC.
Source: RocketMQ common/message/MessageDecoder.java.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterator
from typing import Final

from mqcore.codes import SysFlag
from mqcore.errors import ProtocolError
from mqcore.layout import (
    MESSAGE_MAGIC_V1,
    MESSAGE_MAGIC_V2,
    PROPERTIES_SIZE_MAX,
    RECORD_HEAD,
    RECORD_MIDDLE,
    RECORD_STORE_TIME,
    TOPIC_SIZE_MAX,
)
from mqcore.protocol.buffer import Buffer
from mqcore.protocol.compression import CompressionType, compress, decompress
from mqcore.protocol.message import MessageExt
from mqcore.protocol.message_id import IPV4_SIZE, IPV6_SIZE, HostAddress
from mqcore.protocol.properties import decode_properties, encode_properties

_PORT: Final = struct.Struct(">i")
_INT32: Final = struct.Struct(">i")
_INT16: Final = struct.Struct(">h")
_INT8: Final = struct.Struct(">b")


class _Cursor:
    """Reads one record; every length is checked before it is used."""

    def __init__(self, view: memoryview, physical_offset: int) -> None:
        self.view = view
        self.at = 0
        self.physical_offset = physical_offset

    def take(self, size: int, field: str) -> memoryview:
        if not 0 <= size <= len(self.view) - self.at:
            raise ProtocolError(
                f"record cut short at {field}: got {size} bytes to read, {len(self.view) - self.at} left "
                f"(physical_offset={self.physical_offset})"
            )
        self.at += size
        return self.view[self.at - size : self.at]

    def numbers(self, layout: struct.Struct, field: str) -> tuple[int, ...]:
        return layout.unpack(self.take(layout.size, field))

    def host(self, is_v6: bool, field: str) -> HostAddress:
        address = bytes(self.take(IPV6_SIZE if is_v6 else IPV4_SIZE, field))
        (port,) = self.numbers(_PORT, field)
        return HostAddress(str(ipaddress.ip_address(address)), port)


def iterate_messages(buffer: Buffer, decompress_body: bool = True) -> Iterator[MessageExt]:
    """Decode the records that lie one after the other in *buffer*, in order.

    Raises ProtocolError at the first record that contradicts the layout or whose body does not decompress. (The Java
    client stops there in silence, and its consumer then steps over the rest.)
    """
    view = memoryview(buffer)
    at = 0
    while at < len(view):
        if len(view) - at < RECORD_HEAD.size:
            raise ProtocolError(f"record cut short: got {len(view) - at} bytes, wanted at least {RECORD_HEAD.size}")
        (size,) = _INT32.unpack_from(view, at)
        if not RECORD_HEAD.size <= size <= len(view) - at:
            raise ProtocolError(
                f"bad record size: got {size}, wanted {RECORD_HEAD.size} to {len(view) - at} (position={at})"
            )
        yield _decode(view[at : at + size], decompress_body)
        at += size


def decode_messages(buffer: Buffer, decompress_body: bool = True) -> list[MessageExt]:
    """Return the messages of *buffer*; see ``iterate_messages``."""
    return list(iterate_messages(buffer, decompress_body))


def decode_message(buffer: Buffer, decompress_body: bool = True) -> MessageExt:
    """Return the one message at the start of *buffer*; raise ProtocolError if there is none."""
    for message in iterate_messages(buffer, decompress_body):
        return message
    raise ProtocolError("record cut short: got 0 bytes")


def _decode(view: memoryview, decompress_body: bool) -> MessageExt:
    (size, magic, body_crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born) = (
        RECORD_HEAD.struct.unpack_from(view)
    )
    if magic not in (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2):
        raise ProtocolError(
            f"bad magic code: got 0x{magic & 0xFFFFFFFF:08X}, wanted 0x{MESSAGE_MAGIC_V1 & 0xFFFFFFFF:08X} "
            f"(physical_offset={physical_offset})"
        )
    cursor = _Cursor(view, physical_offset)
    cursor.at = RECORD_HEAD.size
    born_host = cursor.host(bool(sys_flag & SysFlag.BORNHOST_V6), "born host")
    (store_timestamp,) = cursor.numbers(RECORD_STORE_TIME.struct, "store timestamp")
    store_host = cursor.host(bool(sys_flag & SysFlag.STOREHOST_V6), "store host")
    reconsume_times, prepared_transaction_offset = cursor.numbers(RECORD_MIDDLE.struct, "reconsume times")
    (body_size,) = cursor.numbers(_INT32, "body")
    body = cursor.take(body_size, "body")
    (topic_size,) = cursor.numbers(_INT8 if magic == MESSAGE_MAGIC_V1 else _INT16, "topic")
    topic = str(cursor.take(topic_size, "topic"), "utf-8", "replace")
    (properties_size,) = cursor.numbers(_INT16, "properties")
    properties = decode_properties(cursor.take(properties_size, "properties"))
    return MessageExt(
        topic,
        decompress(body, sys_flag) if decompress_body else bytes(body),
        flag=flag,
        properties=properties,
        queue_id=queue_id,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        sys_flag=sys_flag,
        born_timestamp=born,
        born_host=born_host,
        store_timestamp=store_timestamp,
        store_host=store_host,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
        body_crc=body_crc,
        store_size=size,
    )


def encode_message(message: MessageExt, compress_body: bool = False) -> bytes:
    """Return the record of *message* in V1, or in V2 if its topic is longer than 127 bytes.

    *compress_body* compresses a body whose sysFlag says that it was compressed, by the type it names.
    The host bits of sysFlag follow the hosts. Raises ProtocolError if the properties are too long.
    """
    sys_flag = message.sys_flag & ~(SysFlag.BORNHOST_V6 | SysFlag.STOREHOST_V6)
    born_host, store_host = message.born_host.packed, message.store_host.packed
    if len(born_host) == IPV6_SIZE:
        sys_flag |= SysFlag.BORNHOST_V6
    if len(store_host) == IPV6_SIZE:
        sys_flag |= SysFlag.STOREHOST_V6
    body = message.body
    if compress_body and sys_flag & SysFlag.COMPRESSED:
        body = compress(body, CompressionType.of(sys_flag))
    topic = message.topic.encode("utf-8", "replace")
    properties = encode_properties(message.properties).encode("utf-8", "replace")
    if len(properties) > PROPERTIES_SIZE_MAX:
        raise ProtocolError(f"properties too long: got {len(properties)} bytes, wanted at most {PROPERTIES_SIZE_MAX}")
    is_v1 = len(topic) <= TOPIC_SIZE_MAX
    tail = b"".join(
        (
            born_host,
            _PORT.pack(message.born_host.port),
            RECORD_STORE_TIME.struct.pack(message.store_timestamp),
            store_host,
            _PORT.pack(message.store_host.port),
            RECORD_MIDDLE.struct.pack(message.reconsume_times, message.prepared_transaction_offset),
            _INT32.pack(len(body)),
            body,
            (_INT8 if is_v1 else _INT16).pack(len(topic)),
            topic,
            _INT16.pack(len(properties)),
            properties,
        )
    )
    head = RECORD_HEAD.struct.pack(
        RECORD_HEAD.size + len(tail),
        MESSAGE_MAGIC_V1 if is_v1 else MESSAGE_MAGIC_V2,
        message.body_crc,
        message.queue_id,
        message.flag,
        message.queue_offset,
        message.physical_offset,
        sys_flag,
        message.born_timestamp,
    )
    return head + tail
