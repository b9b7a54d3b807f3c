"""How ``consume -f`` writes a message: texts with marks for its parts, the bodies' bytes as they are.

Marks are those of kcat where it has them for the same thing; what Kafka does not have has letters of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import orjson

from mqcore.client.model.messages import ReceivedMessage

Format = Callable[[ReceivedMessage], bytes]


def _number(value: int) -> bytes:
    return b"%d" % value


def _keys(message: ReceivedMessage) -> bytes:
    return " ".join(message.keys).encode()


def _headers(message: ReceivedMessage) -> bytes:
    return ",".join(f"{name}={value}" for name, value in message.properties.items()).encode()


MARKS: Final[dict[str, tuple[str, Format]]] = {
    "t": ("topic", lambda message: message.topic.encode()),
    "b": ("broker", lambda message: message.queue.broker_name.encode()),
    "q": ("queue id", lambda message: _number(message.queue.queue_id)),
    "o": ("offset", lambda message: _number(message.queue_offset)),
    "i": ("message id", lambda message: message.msg_id.encode()),
    "I": ("offset message id", lambda message: message.offset_msg_id.encode()),
    "g": ("tag", lambda message: (message.tag or "").encode()),
    "k": ("keys", _keys),
    "K": ("size of the keys", lambda message: _number(len(_keys(message)))),
    "T": ("store time in ms", lambda message: _number(message.store_timestamp)),
    "d": ("the same as %T", lambda message: _number(message.store_timestamp)),
    "B": ("born time in ms", lambda message: _number(message.born_timestamp)),
    "r": ("times it failed", lambda message: _number(message.reconsume_times)),
    "h": ("properties as name=value,...", _headers),
    "p": ("properties as JSON", lambda message: orjson.dumps(dict(message.properties))),
    "s": ("body", lambda message: message.body),
    "v": ("the same as %s", lambda message: message.body),
    "S": ("size of the body", lambda message: _number(len(message.body))),
    "R": ("size of the body as 4 bytes, big-endian", lambda message: len(message.body).to_bytes(4, "big")),
    "%": ("a percent sign", lambda message: b"%"),
}
"""By letter: what it stands for, and how it is written."""

ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
HEX_DIGITS: Final = 2
FORMAT_HELP: Final = (
    ", ".join(f"%{letter} {meaning}" for letter, (meaning, _) in MARKS.items()) + r"; \n \t \r \0 \\ and \xHH as usual"
)


def parse_format(text: str) -> Format:
    """Return a function that writes a message as *text* says; ValueError names what is not known."""
    pieces: list[Format] = []
    at = 0
    while at < len(text):
        mark, letter = text[at], text[at + 1 : at + 2]
        if mark == "%":
            if letter not in MARKS:
                raise ValueError(f"unknown %{letter} in the format: {FORMAT_HELP}")
            pieces.append(MARKS[letter][1])
            at += 2
        elif mark == "\\":
            data, size = _escaped(text, at)
            pieces.append(literal(data))
            at += size
        else:
            pieces.append(literal(mark.encode()))
            at += 1
    return lambda message: b"".join([piece(message) for piece in pieces])


def _escaped(text: str, at: int) -> tuple[bytes, int]:
    """Return what the backslash at *at* stands for, and how many characters it takes."""
    letter = text[at + 1 : at + 2]
    if letter == "x":
        digits = text[at + 2 : at + 2 + HEX_DIGITS]
        try:
            if len(digits) == HEX_DIGITS:
                return bytes.fromhex(digits), 2 + HEX_DIGITS
        except ValueError:
            pass
        raise ValueError(f"got \\x{digits} in the format, wanted two hexadecimal digits")
    if letter not in ESCAPES:
        raise ValueError(f"unknown \\{letter} in the format: {FORMAT_HELP}")
    return ESCAPES[letter], 2


def literal(data: bytes) -> Format:
    return lambda message: data
