"""A body for people: as text, as JSON, or as bytes. Bodies are anybody's: what is shown of one has a bound."""

from __future__ import annotations

import json
import string
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

TEXT_SHOWN_MAX: Final = 64 << 10
HEX_SHOWN_MAX: Final = 8 << 10
LINE_BYTES: Final = 16
GLIMPSE_MAX: Final = 80

_PRINTABLE: Final = frozenset(string.printable.encode()) - frozenset(b"\t\n\r\x0b\x0c")


class BodyForm(StrEnum):
    """How a body is shown."""

    TEXT = "text"
    JSON = "json"
    HEX = "hex"


@dataclass(frozen=True, slots=True)
class ShownBody:
    """A body in one form; *note* says what is not as it seems: cut, or not of that form."""

    form: BodyForm
    text: str
    size: int
    note: str = ""


def shown_body(body: bytes, form: BodyForm | None = None) -> ShownBody:
    """Show *body* as *form*, or as what it is."""
    form = form_of(body) if form is None else form
    match form:
        case BodyForm.HEX:
            cut = f"The first {HEX_SHOWN_MAX} of {len(body)} bytes." if len(body) > HEX_SHOWN_MAX else ""
            return ShownBody(form, hex_dump(body[:HEX_SHOWN_MAX]), len(body), cut)
        case BodyForm.JSON:
            try:
                text = json.dumps(json.loads(body), indent=2, ensure_ascii=False)
            except (ValueError, RecursionError) as error:
                plain = shown_body(body, BodyForm.TEXT)
                return ShownBody(form, plain.text, len(body), f"This is not JSON ({_reason(error)}). {plain.note}")
            return _cut(form, text, len(body), "")
        case BodyForm.TEXT:
            text = body[: 4 * TEXT_SHOWN_MAX].decode("utf-8", "replace")
            odd = "" if is_utf8(body) else "This is not UTF-8: what could not be read stands as \ufffd."
            return _cut(form, text, len(body), odd)


def form_of(body: bytes) -> BodyForm:
    """Return the form in which *body* reads best."""
    if not is_utf8(body) or b"\x00" in body:
        return BodyForm.HEX
    if body.lstrip()[:1] in (b"{", b"[") and len(body) <= TEXT_SHOWN_MAX:
        try:
            json.loads(body)
        except (ValueError, RecursionError):
            return BodyForm.TEXT
        return BodyForm.JSON
    return BodyForm.TEXT


def is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def glimpse(body: bytes) -> str:
    """Return the begin of a body in one line."""
    if form_of(body[:GLIMPSE_MAX]) is BodyForm.HEX and not is_utf8(body[: GLIMPSE_MAX - 3]):
        return body[: GLIMPSE_MAX // 4].hex(" ")
    return " ".join(body[: 4 * GLIMPSE_MAX].decode("utf-8", "replace").split())[:GLIMPSE_MAX]


def hex_dump(body: bytes) -> str:
    """Return lines of offset, bytes and the characters that can be printed."""
    lines = []
    for at in range(0, len(body), LINE_BYTES):
        piece = body[at : at + LINE_BYTES]
        seen = "".join(chr(byte) if byte in _PRINTABLE else "." for byte in piece)
        lines.append(f"{at:08x}  {piece.hex(' '):<{3 * LINE_BYTES - 1}}  {seen}")
    return "\n".join(lines)


def _cut(form: BodyForm, text: str, size: int, note: str) -> ShownBody:
    if len(text) <= TEXT_SHOWN_MAX:
        return ShownBody(form, text, size, note)
    return ShownBody(form, text[:TEXT_SHOWN_MAX], size, f"The first {TEXT_SHOWN_MAX} characters. {note}".strip())


def _reason(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)
