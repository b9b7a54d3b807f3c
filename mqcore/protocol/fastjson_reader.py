"""The tolerant reader of fastjson's dialect: what ``fastjson.loads`` falls back to when a text is not standard JSON.

It accepts bare and single-quoted names, integers and objects as names, trailing commas, comments, NaN and undefined
(read as None, which is how fastjson writes them), number suffixes, and Java's escapes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from mqcore.errors import ProtocolError

DEPTH_MAX: Final = 200
"""Deepest nesting that is followed; bodies of the protocol are less than ten deep."""

_BLANK: Final = re.compile(r"(?:[\s\0\ufeff]+|/\*.*?\*/|//[^\n]*)*", re.DOTALL)
_NUMBER: Final = re.compile(r"([+-]?(?:\d+(\.\d*)?|(\.\d+))([eE][+-]?\d+)?)[LSBFD]?")
_WORD: Final = re.compile(r"[^\W\d][\w$.]*|\$[\w$.]*")
_UNESCAPES: Final = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", "v": "\v"}
_WORDS: Final[dict[str, Any]] = {
    "true": True,
    "false": False,
    "null": None,
    "undefined": None,
    "NaN": None,
    "Infinity": None,
}


class Reader:
    """The tolerant reader: recursive descent over one text, taken only after the fast reader has refused it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0

    def document(self) -> Any:
        self.skip_blank()
        if self.at == len(self.text):
            return None
        value = self.value()
        self.skip_blank()
        if self.at < len(self.text):
            raise self.error("the end of the text")
        return value

    def error(self, wanted: str) -> ProtocolError:
        got = repr(self.text[self.at : self.at + 20]) if self.at < len(self.text) else "the end of the text"
        return ProtocolError(f"bad JSON: got {got}, wanted {wanted} (position={self.at})")

    def skip_blank(self) -> None:
        blank = _BLANK.match(self.text, self.at)
        if blank is not None:
            self.at = blank.end()

    def peek(self) -> str:
        self.skip_blank()
        return self.text[self.at] if self.at < len(self.text) else ""

    def value(self) -> Any:
        char = self.peek()
        if char == "{":
            return self.nested(self.object)
        if char == "[":
            return self.nested(self.array)
        if char in ('"', "'"):
            return self.string(char)
        number = _NUMBER.match(self.text, self.at)
        if number is not None:
            return self.number(number)
        word = _WORD.match(self.text, self.at)
        if word is None or word.group() not in _WORDS:
            raise self.error("a value")
        self.at = word.end()
        return _WORDS[word.group()]

    def nested(self, read: Callable[[], Any]) -> Any:
        if self.depth >= DEPTH_MAX:
            raise self.error(f"at most {DEPTH_MAX} levels")
        self.depth += 1
        value = read()
        self.depth -= 1
        return value

    def object(self) -> dict[Any, Any]:
        members: dict[Any, Any] = {}
        self.at += 1
        while self.peek() != "}":
            key = self.key()
            if self.peek() != ":":
                raise self.error("':'")
            self.at += 1
            members[key] = self.value()
            self.separator("}")
        self.at += 1
        return members

    def array(self) -> list[Any]:
        values: list[Any] = []
        self.at += 1
        while self.peek() != "]":
            values.append(self.value())
            self.separator("]")
        self.at += 1
        return values

    def separator(self, closing: str) -> None:
        char = self.peek()
        if char == ",":
            self.at += 1
        elif char != closing:
            raise self.error(f"',' or '{closing}'")

    def key(self) -> Any:
        char = self.peek()
        if char == "{":
            return object_key(self.nested(self.object))
        if char in ('"', "'"):
            return self.string(char)
        found = _NUMBER.match(self.text, self.at) or _WORD.match(self.text, self.at)
        if found is None:
            raise self.error("a member name")
        self.at = found.end()
        return found.group()

    def number(self, found: re.Match[str]) -> int | float:
        literal, fraction, bare_fraction, exponent = found.groups()
        try:
            number = float(literal) if fraction or bare_fraction or exponent else int(literal)
        except ValueError as error:  # Python refuses integers of more than 4,300 digits
            raise self.error("a number of reasonable length") from error
        self.at = found.end()
        return number

    def string(self, delimiter: str) -> str:
        start = self.at + 1
        stop = self.text.find(delimiter, start)
        escape = self.text.find("\\", start, stop if stop >= 0 else len(self.text))
        if stop >= 0 and escape < 0:
            self.at = stop + 1
            return self.text[start:stop]
        return self.escaped_string(delimiter)

    def escaped_string(self, delimiter: str) -> str:
        plain = re.compile(f"[^\\\\{delimiter}]*")
        parts: list[str] = []
        self.at += 1
        while True:
            run = plain.match(self.text, self.at)
            assert run is not None  # the pattern matches the empty text too
            parts.append(run.group())
            self.at = run.end()
            if self.at >= len(self.text):
                raise self.error(f"a closing {delimiter}")
            if self.text[self.at] == delimiter:
                self.at += 1
                break
            parts.append(self.escape())
        # Escaped surrogate pairs meet here; half of a pair alone becomes U+FFFD.
        return "".join(parts).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def escape(self) -> str:
        char = self.text[self.at + 1 : self.at + 2]
        digits = {"u": 4, "x": 2}.get(char, 0)
        if digits:
            code = self.text[self.at + 2 : self.at + 2 + digits]
            if len(code) != digits or not all(digit in "0123456789abcdefABCDEF" for digit in code):
                raise self.error(f"{digits} hexadecimal digits")
            self.at += 2 + digits
            return chr(int(code, 16))
        if not char or (char.isalnum() and char not in _UNESCAPES and char not in "01234567"):
            raise self.error("an escape")
        self.at += 2
        return chr(int(char)) if char in "01234567" else _UNESCAPES.get(char, char)


def object_key(members: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return the hashable form of an object that stands as a member name: its pairs, sorted by name."""
    return tuple(sorted(members.items()))
