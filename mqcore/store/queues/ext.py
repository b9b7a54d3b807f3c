"""Units of a consume queue ext file: what the 20-byte unit cannot hold. The twin of _fast/queues/ext.pyx.

The unit of the consume queue then holds the ext unit's address in the place of the tags code; no hash of 32 bits is as
small as an address. Source: RocketMQ store/ConsumeQueueExt.java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mqcore.layout import CONSUME_QUEUE_EXT_UNIT, EXT_FILE_END_MIN_BLANK_SIZE, EXT_FILE_SIZE

if TYPE_CHECKING:
    from typing_extensions import Buffer

EXT_ADDRESS_MAX = -(1 << 31) - 1
EXT_ADDRESS_BASE = -(1 << 63)
EXT_OFFSET_MAX = EXT_ADDRESS_MAX - EXT_ADDRESS_BASE
EXT_UNIT_SIZE_MAX = (1 << 15) - 1
# No hash of 32 bits is as small as an address, and a file has room for the longest unit.
assert EXT_ADDRESS_MAX < -(1 << 31)
assert EXT_UNIT_SIZE_MAX + EXT_FILE_END_MIN_BLANK_SIZE <= EXT_FILE_SIZE


class ExtUnit(NamedTuple):
    """One unit: the real tags code, the message's store time in ms, and a filter bitmap or nothing."""

    tags_code: int
    store_timestamp: int
    bitmap: bytes

    @property
    def size(self) -> int:
        return CONSUME_QUEUE_EXT_UNIT.size + len(self.bitmap)


def is_ext_address(tags_code: int) -> bool:
    """Whether what stands in the place of a tags code is the address of an ext unit."""
    return tags_code <= EXT_ADDRESS_MAX


def ext_address(offset: int) -> int:
    """Return the address of the ext unit at *offset*, bytes, of its stream."""
    return offset + EXT_ADDRESS_BASE


def ext_offset(address: int) -> int:
    """Return where in its stream, bytes, the ext unit of *address* starts."""
    return address - EXT_ADDRESS_BASE


def encode_ext_unit(tags_code: int, store_timestamp: int, bitmap: bytes = b"") -> bytes:
    """Return the bytes of one ext unit. Raises ValueError for a bitmap that is too long."""
    size = CONSUME_QUEUE_EXT_UNIT.size + len(bitmap)
    if size > EXT_UNIT_SIZE_MAX:
        raise ValueError(f"bitmap: got {len(bitmap)} bytes, wanted at most {EXT_UNIT_SIZE_MAX - size + len(bitmap)}")
    return CONSUME_QUEUE_EXT_UNIT.struct.pack(size, tags_code, store_timestamp, len(bitmap)) + bitmap


def decode_ext_unit(buffer: Buffer, position: int = 0) -> ExtUnit | None:
    """Return the ext unit at *position* of *buffer*; None if no whole one starts there."""
    data = memoryview(buffer).cast("B")
    if not 0 <= position <= len(data) - CONSUME_QUEUE_EXT_UNIT.size:
        return None
    size, tags_code, store_timestamp, bitmap_size = CONSUME_QUEUE_EXT_UNIT.struct.unpack_from(data, position)
    if bitmap_size < 0 or size != CONSUME_QUEUE_EXT_UNIT.size + bitmap_size or size > len(data) - position:
        return None
    bitmap_at = position + CONSUME_QUEUE_EXT_UNIT.size
    return ExtUnit(tags_code, store_timestamp, bytes(data[bitmap_at : bitmap_at + bitmap_size]))


def ext_end(buffer: Buffer) -> int:
    """Return the position in *buffer*, a file from its start on, behind the last of the ext units that follow it.

    The sizes alone are followed, as RocketMQ does; one that cannot be, or the mark of a full file, ends the units.
    """
    data = memoryview(buffer).cast("B")
    at = 0
    while len(data) - at >= CONSUME_QUEUE_EXT_UNIT.size:
        size = int.from_bytes(data[at : at + 2], "big", signed=True)
        if size < CONSUME_QUEUE_EXT_UNIT.size or size > len(data) - at:
            break
        at += size
    return at
