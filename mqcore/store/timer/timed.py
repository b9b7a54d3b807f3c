"""By which properties a message says when it is due. The twin is mqcore/_fast/log/timed.pyx.

Source: RocketMQ broker/util/HookUtils.java.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from mqcore.protocol.properties import (
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_OUT_MS,
    TIMER_REQUESTS,
    decode_properties,
)

ILLEGAL: Final = -1
_LONG: Final = re.compile(r"[+-]?[0-9]+")
_TWO_63: Final = 1 << 63


def is_timed(properties: Mapping[str, str]) -> bool:
    """Whether the message asks for a time. One with TIMER_OUT_MS has had it."""
    return PROPERTY_TIMER_OUT_MS not in properties and any(name in properties for name in TIMER_REQUESTS)


def due_time(properties: Mapping[str, str], now: int, max_delay_ms: int) -> int | None:
    """When a message that comes in at *now* is due, ms; None: at once, as nobody asks or the time has come; ILLEGAL.

    Illegal is what is no number, what is too far away, and a deletion that comes too late.
    """
    if not is_timed(properties):
        return None
    name = next(name for name in TIMER_REQUESTS if name in properties)
    value = parse_long(properties[name])
    if value is None:
        return ILLEGAL
    due = {
        PROPERTY_TIMER_DELAY_SEC: now + value * 1000,
        PROPERTY_TIMER_DELAY_MS: now + value,
        PROPERTY_TIMER_DELIVER_MS: value,
    }[name]
    # As in Java, a sum that is too large begins again at the other end.
    due = (due + _TWO_63) % (2 * _TWO_63) - _TWO_63
    if due <= now:
        return ILLEGAL if PROPERTY_TIMER_DEL_UNIQKEY in properties else None
    return ILLEGAL if due - now > max_delay_ms else due


def judge(properties: bytes, now: int, max_delay_ms: int) -> int | None:
    """``due_time`` of a properties text."""
    return due_time(decode_properties(properties), now, max_delay_ms)


def slot_of(due: int, precision_ms: int) -> int:
    """The slot of a message that is due at *due*, ms: it is in (slot, slot + precision]. It becomes TIMER_OUT_MS."""
    return (due - 1) // precision_ms * precision_ms


def parse_long(text: str) -> int | None:
    """Java's Long.parseLong; None where that throws."""
    if _LONG.fullmatch(text) is None:
        return None
    value = int(text)
    return value if -_TWO_63 <= value < _TWO_63 else None
