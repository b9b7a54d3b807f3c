"""Java's String.hashCode, on which tag filters and the index file stand."""

from __future__ import annotations


def java_string_hash(text: str) -> int:
    """Return ``text.hashCode()``: h = 31 * h + unit over the UTF-16 units, wrapped to a signed 32-bit integer."""
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    value = 0
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 0x100000000 if value >= 0x80000000 else value


def tags_code(tags: str | None) -> int:
    """Return the code that a message's TAGS property has in the consume queue: its hash, or 0 without a tag.

    Source: RocketMQ common/message/MessageExtBrokerInner.java, tagsString2tagsCode.
    """
    return java_string_hash(tags) if tags else 0
