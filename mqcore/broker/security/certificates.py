"""The name in a client's certificate: the common name of its subject, as OpenSSL writes subjects (RFC 2253)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

COMMON_NAME: Final = "CN="
HEX: Final = frozenset("0123456789ABCDEFabcdef")


def common_name(subject: str) -> str:
    """The one common name in *subject*; empty if it has none, or several, of which none is more the client's."""
    found = [part.removeprefix(COMMON_NAME) for part in _parts(subject) if part.startswith(COMMON_NAME)]
    # What begins with # is no text, but bytes of some other type.
    return _unescaped(found[0]) if len(found) == 1 and not found[0].startswith("#") else ""


def _parts(subject: str) -> Iterator[str]:
    """The attributes of all relative names, escaped as they are."""
    begin = at = 0
    while at < len(subject):
        if subject[at] == "\\":
            at += 1
        elif subject[at] in ",+":
            yield subject[begin:at]
            begin = at + 1
        at += 1
    yield subject[begin:]


def _unescaped(value: str) -> str:
    """*value* as it was: a backslash stands before what is special, or before two digits of a byte of UTF-8."""
    out, at = bytearray(), 0
    while at < len(value):
        if value[at] != "\\":
            out += value[at].encode()
            at += 1
        elif len(digits := value[at + 1 : at + 3]) == 2 and HEX.issuperset(digits):
            out.append(int(digits, 16))
            at += 3
        else:
            out += value[at + 1 : at + 2].encode()
            at += 2
    try:
        return out.decode()
    except UnicodeDecodeError:
        return ""
