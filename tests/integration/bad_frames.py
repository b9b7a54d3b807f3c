"""Frames and headers that no honest client sends, for whatever server is to stand them."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Set

import pytest

from mqcore.protocol import headers
from mqcore.protocol.command import FRAME_SIZE_MAX
from mqcore.protocol.headers import FieldType

CHANGES_MAX = 4
RUBBISH = [b"", b"\0\xff\xfe", b"{", b"[]", b"null", b'{"a":', b"{}", b'"text"', b"17"]
"""Bodies that are no list, table or document that any request asks for."""


def frame(length: int, mark: int, header: bytes = b"", body: bytes = b"") -> bytes:
    """A frame whose two length fields say what the caller wants."""
    return struct.pack(">iI", length, mark & 0xFFFFFFFF) + header + body


def honest(mark_type: int, header: bytes) -> bytes:
    return frame(4 + len(header), mark_type << 24 | len(header), header)


IMPOSSIBLE_FRAMES = [
    pytest.param(frame(-1, 0), id="negative length"),
    pytest.param(frame(-(2**31), 0), id="smallest length"),
    pytest.param(frame(0, 0), id="length 0"),
    pytest.param(frame(3, 0), id="length without a header mark"),
    pytest.param(frame(FRAME_SIZE_MAX - 3, 0), id="a byte too long"),
    pytest.param(frame(2**31 - 1, 0), id="largest length"),
    pytest.param(frame(4, 1), id="header longer than the frame"),
    pytest.param(frame(14, 0xFFFFFF, b"{}", b"12345678"), id="header of 16 MiB in 14 bytes"),
    pytest.param(frame(6, -1 & 0xFFFFFF, b"{}"), id="all bits of the header length"),
    pytest.param(honest(2, b"{}"), id="serialize type 2"),
    pytest.param(honest(255, b"{}"), id="serialize type 255"),
    pytest.param(honest(0, b""), id="no header"),
    pytest.param(honest(0, b"{"), id="unfinished JSON"),
    pytest.param(honest(0, b"[1]"), id="JSON that is no object"),
    pytest.param(honest(0, b'{"code":10,"extFields":3}'), id="extFields that are no object"),
    pytest.param(honest(0, b"\xff\xfe\xfd\x00"), id="no JSON at all"),
    pytest.param(honest(1, b""), id="empty binary header"),
    pytest.param(honest(1, struct.pack(">hBhiii", 10, 0, 409, 1, 0, 2**31 - 1)), id="binary remark of 2 GiB"),
    pytest.param(honest(1, struct.pack(">hBhiii", 10, 0, 409, 1, 0, -5)), id="negative binary remark"),
    pytest.param(honest(1, struct.pack(">hBhiiii", 10, 0, 409, 1, 0, 0, 2**31 - 1)), id="binary fields of 2 GiB"),
    pytest.param(
        honest(1, struct.pack(">hBhiiiih", 10, 0, 409, 1, 0, 0, 2, 30_000)), id="binary field name of 30,000 bytes"
    ),
]


def changed(frame: bytes, rng: random.Random) -> bytes:
    """A good frame with some of its bytes changed, but for its length."""
    data = bytearray(frame)
    for _ in range(rng.randint(1, CHANGES_MAX)):
        data[rng.randrange(4, len(data))] = rng.choice([rng.randrange(256), 0, 0xFF, *b'"{}\\'])
    return bytes(data)


def broken_headers(code: int, unused: Set[str] = frozenset()) -> Iterator[tuple[str, dict[str, str] | None]]:
    """(what is wrong, ext fields) for all ways to break a request's header; nobody looks at the *unused* fields."""
    fields = headers.REQUEST_HEADERS[code].fields
    texts = {FieldType.STRING: "Target", FieldType.BOOLEAN: "false"}
    good = {field.wire_name: texts.get(field.type, "0") for field in fields}
    fields = tuple(field for field in fields if field.wire_name not in unused)
    required = [field for field in fields if field.is_required and not field.is_primitive]
    if required:
        yield "no fields", None
        yield "empty fields", {}
    for field in required:
        yield f"{field.wire_name} missing", {name: text for name, text in good.items() if name != field.wire_name}
    for field in fields:
        if field.type in (FieldType.INT, FieldType.LONG):
            for text in ("", "abc", "1.5", "0x10", "99999999999999999999", " 1"):
                yield f"{field.wire_name}={text!r}", good | {field.wire_name: text}
