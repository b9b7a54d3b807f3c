"""The binary form of a command's header (serialize type 1, called ROCKETMQ).

    int16 code, int8 language, int16 version, int32 opaque, int32 flag,
    int32 length + remark, int32 length + entries of (int16 length + name, int32 length + value)

All big-endian, texts UTF-8. A text of length 0 is null, so an empty value and a missing one are the same here.
Source: RocketMQ remoting/protocol/RocketMQSerializable.java.
"""

from __future__ import annotations

import struct
from typing import Final

from mqcore.codes import LanguageCode
from mqcore.errors import HeaderError
from mqcore.layout import BINARY_HEADER
from mqcore.protocol.buffer import Buffer
from mqcore.protocol.header_fields import INT16_MAX, HeaderFields, check_int16, check_int32

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")

FIXED_SIZE: Final = BINARY_HEADER.size + 2 * _INT32.size
"""Bytes of a header without remark and entries."""

assert FIXED_SIZE == 21


def encode_header(fields: HeaderFields) -> bytes:
    """Return the binary header.

    Raises HeaderError for a code or version beyond 16 bits and for a name longer than 32,767 bytes.
    """
    remark = b"" if fields.remark is None else fields.remark.encode("utf-8", "replace")
    entries: list[bytes] = []
    for name, value in (fields.ext_fields or {}).items():
        if value is None:
            continue
        name_bytes = name.encode("utf-8", "replace")
        value_bytes = value.encode("utf-8", "replace")
        if len(name_bytes) > INT16_MAX:
            raise HeaderError("extFields", f"a name of {len(name_bytes)} bytes", f"at most {INT16_MAX}")
        entries += (_INT16.pack(len(name_bytes)), name_bytes, _INT32.pack(len(value_bytes)), value_bytes)
    ext = b"".join(entries)
    language = fields.language if fields.language != LanguageCode.UNKNOWN else LanguageCode.OTHER
    head = BINARY_HEADER.struct.pack(
        check_int16("code", fields.code),
        language,
        check_int16("version", fields.version),
        check_int32("opaque", fields.opaque),
        check_int32("flag", fields.flag),
    )
    return b"".join((head, _INT32.pack(len(remark)), remark, _INT32.pack(len(ext)), ext))


def decode_header(data: Buffer) -> HeaderFields:
    """Read a binary header that fills *data*. Bytes after the entries are ignored, as Java ignores them.

    Raises HeaderError naming the field whose length does not fit.
    """
    view = memoryview(data)
    if len(view) < FIXED_SIZE:
        raise HeaderError("header", f"{len(view)} bytes", f"at least {FIXED_SIZE} bytes")
    code, language, version, opaque, flag = BINARY_HEADER.struct.unpack_from(view)
    (remark_size,) = _INT32.unpack_from(view, BINARY_HEADER.size)
    end = len(view)
    at = BINARY_HEADER.size + _INT32.size
    remark, at = _text(view, at, remark_size, end - _INT32.size, "remark")
    (ext_size,) = _INT32.unpack_from(view, at)
    at += _INT32.size
    if not 0 <= ext_size <= end - at:
        raise HeaderError("extFields", f"length {ext_size}", f"0 to {end - at}")
    ext_fields = _entries(view, at, at + ext_size) if ext_size else None
    return HeaderFields(code, LanguageCode(language), version, opaque, flag, remark, ext_fields)


def _entries(view: memoryview, at: int, end: int) -> dict[str, str]:
    entries: dict[str, str] = {}
    while at < end:
        name, at = _sized_text(view, at, end, _INT16)
        value, at = _sized_text(view, at, end, _INT32)
        if name is not None and value is not None:
            entries[name] = value
    return entries


def _sized_text(view: memoryview, at: int, end: int, size_code: struct.Struct) -> tuple[str | None, int]:
    if end - at < size_code.size:
        raise HeaderError("extFields", f"{end - at} bytes left", f"a length of {size_code.size} bytes")
    (size,) = size_code.unpack_from(view, at)
    return _text(view, at + size_code.size, size, end, "extFields")


def _text(view: memoryview, at: int, size: int, end: int, field: str) -> tuple[str | None, int]:
    if not 0 <= size <= end - at:
        raise HeaderError(field, f"length {size}", f"0 to {max(end - at, 0)}")
    if size == 0:
        return None, at
    return str(view[at : at + size], "utf-8", "replace"), at + size
