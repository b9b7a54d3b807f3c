"""Commit log records, message properties and the members of a batch body: the twin of _fast/log/record.pyx.

Bytes in, values out, and back. The value classes and the wording of errors are here for both twins. Nothing here opens
a file. Source: RocketMQ store/CommitLog.java, common/message/MessageDecoder.java.
"""

from __future__ import annotations

import codecs
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from mqcore.codes import SysFlag
from mqcore.errors import CorruptRecordError, MessageIllegalError
from mqcore.layout import (
    BATCH_MEMBER_HEAD,
    BLANK_MAGIC,
    BLANK_RECORD,
    BODY_CRC_MASK,
    MESSAGE_MAGIC_V1,
    PROPERTIES_SIZE_MAX,
    RECORD_HEAD,
    RECORD_MIDDLE,
    RECORD_SIZE_MIN,
    RECORD_STORE_TIME,
    TOPIC_SIZE_MAX,
)
from mqcore.protocol import properties as properties_text
from mqcore.store.crc32 import checksum

if TYPE_CHECKING:
    from typing_extensions import Buffer

SECTOR_SIZE = 512
FOLLOWING_SIZE = 8
"""Bytes behind a record by which it is told whether something follows: the length and magic of a record, or blank."""
RECORD_SIZE_MAX = 0x7FFFFFFF
NAME_VALUE_SEPARATOR = properties_text.NAME_VALUE_SEPARATOR.encode()
PROPERTY_SEPARATOR = properties_text.PROPERTY_SEPARATOR.encode()

HOST_BITS = int(SysFlag.BORNHOST_V6 | SysFlag.STOREHOST_V6)
PORT = struct.Struct(">i")
BODY_SIZE = struct.Struct(">i")
TOPIC_SIZE = struct.Struct(">b")
PROPERTIES_SIZE = struct.Struct(">h")


class DecodeStatus(IntEnum):
    """What the bytes at a place in the commit log are. The first six have the numbers of record.pxd."""

    OK = 0
    SHORT = 1
    BLANK = 2
    BAD_MAGIC = 3
    BAD_SIZE = 4
    BAD_CRC = 5
    MISPLACED = 6  # a record that says it belongs elsewhere
    TORN = 7  # a whole sector of topic or properties is zero, or their end is, and so is what follows


@dataclass(frozen=True, slots=True)
class PackedHost:
    """Where a message was born or stored: 4 or 16 address bytes and a port."""

    address: bytes
    port: int

    @property
    def size(self) -> int:
        return len(self.address) + PORT.size

    def encode(self) -> bytes:
        return self.address + PORT.pack(self.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One message as the commit log keeps it. *body_crc* and *total_size* are outputs: the encoder computes them."""

    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: PackedHost
    store_timestamp: int
    store_host: PackedHost
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: bytes
    properties: bytes
    body_crc: int = 0
    total_size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanOutcome:
    """How far the records at the start of a buffer are whole, and why the walk ended (OK: at the buffer's end)."""

    valid_size: int
    status: DecodeStatus
    record_count: int
    store_timestamp_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchMember:
    """One message of a SEND_BATCH_MESSAGE body."""

    flag: int
    body: bytes
    properties: bytes


def decode_error(status: int, magic: int, total_size: int, physical_offset: int) -> CorruptRecordError:
    """Return the error for a record that did not decode; both twins raise it."""
    reasons = {
        DecodeStatus.SHORT: f"record cut short: total size {total_size}",
        DecodeStatus.BLANK: f"filler of {total_size} bytes instead of a record",
        DecodeStatus.BAD_MAGIC: f"bad magic code: got 0x{magic & 0xFFFFFFFF:08X}, wanted 0xDAA320A7",
        DecodeStatus.BAD_SIZE: f"lengths inside the record contradict its total size {total_size}",
        DecodeStatus.BAD_CRC: "body CRC differs from the stored one",
    }
    return CorruptRecordError(reasons[DecodeStatus(status)], physical_offset)


def batch_error(status: int, member: int, at: int) -> MessageIllegalError:
    """Return the error for a batch body whose member number *member*, at byte *at*, did not decode."""
    what = "is cut short" if status == DecodeStatus.SHORT else "has a negative length"
    return MessageIllegalError(f"batch member {member} at byte {at} {what}")


def limit_broken(record: Record, batch_properties: bytes = b"") -> str:
    """Return which limit of the layout *record* breaks; empty when none."""
    if not 1 <= len(record.topic) <= TOPIC_SIZE_MAX:
        return f"topic has {len(record.topic)} bytes, wanted 1..{TOPIC_SIZE_MAX}"
    properties_size = len(join_properties(record.properties, batch_properties))
    if properties_size > PROPERTIES_SIZE_MAX:
        return f"properties have {properties_size} bytes, wanted at most {PROPERTIES_SIZE_MAX}"
    for host in (record.born_host, record.store_host):
        if len(host.address) not in (4, 16):
            return f"host address has {len(host.address)} bytes, wanted 4 or 16"
    if record_size(record, batch_properties) > RECORD_SIZE_MAX:
        return f"record is larger than {RECORD_SIZE_MAX} bytes"
    return ""


def join_properties(member: bytes, batch: bytes) -> bytes:
    """Return a batch member's properties followed by those of the batch."""
    if member and batch and not member.endswith(PROPERTY_SEPARATOR):
        return member + PROPERTY_SEPARATOR + batch
    return member + batch


def record_size(record: Record, batch_properties: bytes = b"") -> int:
    """Return the bytes that encode() gives; the limits of the layout are not looked at."""
    return (
        RECORD_SIZE_MIN
        - 8
        + len(record.born_host.address)
        + len(record.store_host.address)
        + len(record.body)
        + len(record.topic)
        + len(join_properties(record.properties, batch_properties))
    )


def host_size(sys_flag: int, bit: SysFlag) -> int:
    """Return the bytes of a host field: address and port."""
    return (16 if sys_flag & bit else 4) + PORT.size


class _Cursor:
    """Reads one record front to back and refuses to leave it."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        if size < 0 or size > len(self.data) - self.at:
            raise _BadSizeError
        self.at += size
        return bytes(self.data[self.at - size : self.at])

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        return layout.unpack(self.take(layout.size))

    def take_host(self, size: int) -> PackedHost:
        raw = self.take(size)
        return PackedHost(raw[: -PORT.size], PORT.unpack(raw[-PORT.size :])[0])


class _BadSizeError(Exception):
    """A length inside a record points out of it."""


def _read_record(data: memoryview, topic_size: struct.Struct = TOPIC_SIZE) -> Record:
    cursor = _Cursor(data)
    head = dict(zip(RECORD_HEAD.offsets, cursor.unpack(RECORD_HEAD.struct), strict=True))
    born_host = cursor.take_host(host_size(head["sys_flag"], SysFlag.BORNHOST_V6))
    (store_timestamp,) = cursor.unpack(RECORD_STORE_TIME.struct)
    store_host = cursor.take_host(host_size(head["sys_flag"], SysFlag.STOREHOST_V6))
    reconsume_times, prepared_transaction_offset = cursor.unpack(RECORD_MIDDLE.struct)
    body = cursor.take(cursor.unpack(BODY_SIZE)[0])
    topic = cursor.take(cursor.unpack(topic_size)[0])
    properties = cursor.take(cursor.unpack(PROPERTIES_SIZE)[0])
    if cursor.at != len(data):
        raise _BadSizeError
    del head["magic"]
    return Record(
        **head,
        born_host=born_host,
        store_timestamp=store_timestamp,
        store_host=store_host,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
        body=body,
        topic=topic,
        properties=properties,
    )


def _try_decode(data: memoryview, check_crc: bool) -> tuple[DecodeStatus, int, int, Record | None]:
    """Return status, magic, total size, and the record if the status is OK."""
    if len(data) < BLANK_RECORD.size:
        return DecodeStatus.SHORT, 0, 0, None
    total_size, magic = BLANK_RECORD.struct.unpack_from(data)
    if magic == BLANK_MAGIC:
        return DecodeStatus.BLANK, magic, total_size, None
    if magic != MESSAGE_MAGIC_V1:
        return DecodeStatus.BAD_MAGIC, magic, total_size, None
    if total_size < RECORD_SIZE_MIN:
        return DecodeStatus.BAD_SIZE, magic, total_size, None
    if total_size > len(data):
        return DecodeStatus.SHORT, magic, total_size, None
    try:
        record = _read_record(data[:total_size])
    except _BadSizeError:
        return DecodeStatus.BAD_SIZE, magic, total_size, None
    if check_crc and record.body and checksum(record.body) & BODY_CRC_MASK != record.body_crc:
        return DecodeStatus.BAD_CRC, magic, total_size, None
    return DecodeStatus.OK, magic, total_size, record


def peek_status(buffer: Buffer, check_crc: bool = False) -> DecodeStatus:
    """Return what the bytes at the start of *buffer* are."""
    return _try_decode(memoryview(buffer), check_crc)[0]


def decode(buffer: Buffer, physical_offset: int, check_crc: bool = True) -> Record:
    """Return the record at the start of *buffer*; *physical_offset* is used in error messages only.

    Raises CorruptRecordError for anything but a whole V1 record, a filler included.
    """
    status, magic, total_size, record = _try_decode(memoryview(buffer), check_crc)
    if record is None:
        raise decode_error(status, magic, total_size, physical_offset)
    return record


def encode(record: Record, batch_properties: bytes = b"") -> bytes:
    """Return the bytes of *record*, joined with the properties of its batch.

    The IPv6 bits of the sys flag follow the hosts. Raises MessageIllegalError if a limit of the layout is broken.
    """
    broken = limit_broken(record, batch_properties)
    if broken:
        raise MessageIllegalError(broken)
    sys_flag = record.sys_flag & ~HOST_BITS
    sys_flag |= int(SysFlag.BORNHOST_V6) if len(record.born_host.address) == 16 else 0
    sys_flag |= int(SysFlag.STOREHOST_V6) if len(record.store_host.address) == 16 else 0
    properties = join_properties(record.properties, batch_properties)
    head = RECORD_HEAD.struct.pack(
        record_size(record, batch_properties),
        MESSAGE_MAGIC_V1,
        checksum(record.body) & BODY_CRC_MASK,
        record.queue_id,
        record.flag,
        record.queue_offset,
        record.physical_offset,
        sys_flag,
        record.born_timestamp,
    )
    encoded = b"".join(
        (
            head,
            record.born_host.encode(),
            RECORD_STORE_TIME.struct.pack(record.store_timestamp),
            record.store_host.encode(),
            RECORD_MIDDLE.struct.pack(record.reconsume_times, record.prepared_transaction_offset),
            BODY_SIZE.pack(len(record.body)),
            record.body,
            TOPIC_SIZE.pack(len(record.topic)),
            record.topic,
            PROPERTIES_SIZE.pack(len(properties)),
            properties,
        )
    )
    assert len(encoded) == record_size(record, batch_properties)
    return encoded


def is_cut_off(record: Record, behind: Buffer) -> bool:
    """Whether who wrote *record*, or copied it, died before its end: its text ends in zeros, and so does the log.

    The bytes of a log come in their order. Body and lengths are there, or they would not fit; topic and properties are
    guarded by nothing, and none that is stored ends with a zero byte: a broker puts a property of its own, or a
    separator, behind those of a sender. *behind* are the bytes that follow: where something follows, the record was
    whole before. Where nothing does, not even zeros, nobody can tell.
    """
    text = record.properties or record.topic
    following = bytes(memoryview(behind)[:FOLLOWING_SIZE])
    return text[-1:] == b"\0" and following != b"" and not any(following)


def is_torn(record: Record, physical_offset: int) -> bool:
    """Whether a sector that *record* lies across, at *physical_offset*, never reached the disk.

    Body and lengths are safe by CRC and total size, topic and properties by nothing. After a power cut a sector of them
    may be zeros, in the middle or to the end of the record; no sender writes zero bytes there. The sector that the
    record starts in is there, or its magic would not be.
    """
    first_end = physical_offset - physical_offset % SECTOR_SIZE + SECTOR_SIZE
    properties_at = physical_offset + record.total_size - len(record.properties)
    topic_at = properties_at - PROPERTIES_SIZE.size - len(record.topic)
    return _has_zero_sector(record.topic, topic_at, first_end) or _has_zero_sector(
        record.properties, properties_at, first_end
    )


def _has_zero_sector(text: bytes, offset: int, first_end: int) -> bool:
    """Whether the part of *text*, which lies at *offset* of the log, in a sector behind *first_end* is all zeros."""
    at = max(0, first_end - offset)
    while at < len(text):
        size = min(SECTOR_SIZE - (offset + at) % SECTOR_SIZE, len(text) - at)
        if text.count(0, at, at + size) == size:
            return True
        at += size
    return False


def scan(buffer: Buffer, physical_offset: int, check_crc: bool = True) -> ScanOutcome:
    """Walk the records at the start of *buffer*, the commit log from *physical_offset* on, up to the first invalid one.

    A record whose stored physical offset is not its place ends the walk with MISPLACED: it is a leftover. One of which
    a sector is missing, or the end of the last one, ends it with TORN.
    """
    data = memoryview(buffer)
    at = count = newest = 0
    status = DecodeStatus.OK
    while at < len(data):
        status, _, _, record = _try_decode(data[at:], check_crc)
        if record is None:
            break
        if record.physical_offset != physical_offset + at:
            status = DecodeStatus.MISPLACED
            break
        if is_torn(record, physical_offset + at) or is_cut_off(record, data[at + record.total_size :]):
            status = DecodeStatus.TORN
            break
        at += record.total_size
        count += 1
        newest = max(newest, record.store_timestamp)
    return ScanOutcome(valid_size=at, status=status, record_count=count, store_timestamp_max=newest)


def property_value(properties: bytes, name: bytes) -> bytes | None:
    """Return the value of *name* in a properties text, or None; the last duplicate wins."""
    found = None
    for segment in properties.split(PROPERTY_SEPARATOR):
        key, separator, value = segment.partition(NAME_VALUE_SEPARATOR)
        if separator and key and value and key == name:
            found = value
    return found


def _replace_as_java(error: UnicodeError) -> tuple[str, int]:
    """Decode malformed UTF-8 as java.lang.String does: as Python, but an encoded surrogate is one run, not three."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    tail = error.object[error.start : error.start + 3]
    if len(tail) > 1 and tail[0] == 0xED and 0xA0 <= tail[1] <= 0xBF:
        return "\ufffd", error.start + (3 if len(tail) > 2 and tail[2] & 0xC0 == 0x80 else 2)
    return "\ufffd", error.end


codecs.register_error("mqcore.java", _replace_as_java)


def string_hash(utf8: bytes) -> int:
    """Return Java's String.hashCode of UTF-8 text, signed 32 bits; malformed bytes count as Java decodes them."""
    value = 0
    for (unit,) in struct.iter_unpack(">H", utf8.decode("utf-8", "mqcore.java").encode("utf-16-be")):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def batch_members(buffer: Buffer) -> list[BatchMember]:
    """Return the members of a SEND_BATCH_MESSAGE body, in order. Their stated total size and CRC are not looked at.

    Raises MessageIllegalError if a member is cut short or has a negative length.
    """
    data = memoryview(buffer)
    members: list[BatchMember] = []
    at = 0
    while at < len(data):
        status, member, size = _next_member(data[at:])
        if member is None:
            raise batch_error(status, len(members), at)
        members.append(member)
        at += size
    return members


def _next_member(data: memoryview) -> tuple[DecodeStatus, BatchMember | None, int]:
    left = len(data) - BATCH_MEMBER_HEAD.size - PROPERTIES_SIZE.size
    if left < 0:
        return DecodeStatus.SHORT, None, 0
    _, _, _, flag, body_size = BATCH_MEMBER_HEAD.struct.unpack_from(data)
    if body_size < 0:
        return DecodeStatus.BAD_SIZE, None, 0
    if body_size > left:
        return DecodeStatus.SHORT, None, 0
    body_end = BATCH_MEMBER_HEAD.size + body_size
    (properties_size,) = PROPERTIES_SIZE.unpack_from(data, body_end)
    if properties_size < 0:
        return DecodeStatus.BAD_SIZE, None, 0
    if properties_size > left - body_size:
        return DecodeStatus.SHORT, None, 0
    properties_at = body_end + PROPERTIES_SIZE.size
    size = properties_at + properties_size
    body = bytes(data[BATCH_MEMBER_HEAD.size : body_end])
    return DecodeStatus.OK, BatchMember(flag=flag, body=body, properties=bytes(data[properties_at:size])), size
