"""The members of a command's header, as both header codecs give and take them."""

from __future__ import annotations

from typing import Final, NamedTuple

from mqcore.codes import CURRENT_VERSION, LanguageCode
from mqcore.errors import HeaderError

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
INT16_MIN: Final = -(2**15)
INT16_MAX: Final = 2**15 - 1


class HeaderFields(NamedTuple):
    """One header. ``ext_fields`` is None when the header has none, and an empty dict when it has an empty one."""

    code: int
    language: int = LanguageCode.JAVA
    version: int = CURRENT_VERSION
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    ext_fields: dict[str, str] | None = None


def check_int32(field: str, value: int) -> int:
    """Return *value* if a Java int can hold it; raise HeaderError naming *field* otherwise."""
    if INT32_MIN <= value <= INT32_MAX:
        return value
    raise HeaderError(field, str(value), "a 32-bit integer")


def check_int16(field: str, value: int) -> int:
    """Return *value* if a Java short can hold it; raise HeaderError naming *field* otherwise."""
    if INT16_MIN <= value <= INT16_MAX:
        return value
    raise HeaderError(field, str(value), "a 16-bit integer")
