"""JSON in the dialect of fastjson 1.2.69, which RocketMQ writes on the wire and into its configuration files.

What differs from standard JSON, and is kept because peers parse it by hand: integer map keys stand unquoted, a map
keyed by an object has that object's JSON before the colon, doubles are spelled as Java spells them, null members are
left out. Reading accepts that dialect, standard JSON, and the looseness that other clients use (single quotes, bare
keys, trailing commas, NaN).

Values are dict, list, str, int, float, bool and None. For writing, a tuple is a Java array, a list a Java List, a set a
Java Set: they differ only in the pretty form. This module knows nothing of beans; ``bodies`` builds the dicts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, Final

import orjson

from mqcore.errors import ProtocolError

Buffer = bytes | bytearray | memoryview

DEPTH_MAX: Final = 200
"""Deepest nesting that the tolerant reader follows; bodies of the protocol are less than ten deep."""

_ESCAPES: Final = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_SPECIAL: Final = re.compile('[\x00-\x1f"\\\\\x7f-\x9f\u2028\u2029]')
_SPECIAL_BROWSER: Final = re.compile('[^ -.0-~]|["\\\\]')


def _escape(match: re.Match[str]) -> str:
    char = match.group()
    if char in _ESCAPES:
        return _ESCAPES[char]
    return f"\\u{ord(char):04X}"


def _escape_browser(match: re.Match[str]) -> str:
    char = match.group()
    if char == "/":
        return "\\/"
    if ord(char) > 0xFFFF:
        units = char.encode("utf-16-be")
        return f"\\u{units[:2].hex().upper()}\\u{units[2:].hex().upper()}"
    return _escape(match)


def quote(text: str) -> str:
    """Return *text* as a JSON string, escaped as fastjson does by default."""
    if _SPECIAL.search(text) is None:
        return f'"{text}"'
    return f'"{_SPECIAL.sub(_escape, text)}"'


def quote_browser(text: str) -> str:
    """Return *text* as a JSON string in pure ASCII, as fastjson's BrowserCompatible feature does."""
    if _SPECIAL_BROWSER.search(text) is None:
        return f'"{text}"'
    return f'"{_SPECIAL_BROWSER.sub(_escape_browser, text)}"'


def java_double(value: float) -> str:
    """Return *value* as Java's Double.toString spells it; NaN and infinities become ``null``, as fastjson has it."""
    if value != value or value in (float("inf"), float("-inf")):
        return "null"
    if value == 0.0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)  # Python turns to an exponent only below 1e-4 and from 1e16 on
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    power = len(digits) + int(exponent) - 1
    significant = "".join(map(str, digits)).rstrip("0")
    return f"{'-' if sign else ''}{significant[0]}.{significant[1:] or '0'}E{power}"


class _Writer:
    """One document being written; ``parts`` are its pieces of text."""

    def __init__(self, pretty: bool, browser_compatible: bool) -> None:
        self.parts: list[str] = []
        self.pretty = pretty
        self.browser = browser_compatible
        self.quote: Callable[[str], str] = quote_browser if browser_compatible else quote
        self.depth = 0

    def value(self, value: Any) -> None:
        put = self.parts.append
        if isinstance(value, str):
            put(self.quote(value))
        elif value is None:
            put("null")
        elif isinstance(value, bool):
            put("true" if value else "false")
        elif isinstance(value, int):
            put(str(int(value)))
        elif isinstance(value, float):
            put(java_double(value))
        elif isinstance(value, dict):
            self.object(value.items())
        elif isinstance(value, list):
            self.items(value, on_lines=self.pretty)
        elif isinstance(value, tuple | set | frozenset):
            self.items(value, on_lines=False)
        else:
            raise TypeError(f"cannot write {type(value).__name__} as JSON")

    def new_line(self) -> None:
        self.parts.append("\n" + "\t" * self.depth)

    def items(self, values: Iterable[Any], on_lines: bool) -> None:
        self.parts.append("[")
        self.depth += 1
        count = 0
        for value in values:
            if count:
                self.parts.append(",")
            if on_lines:
                self.new_line()
            self.value(value)
            count += 1
        self.depth -= 1
        if on_lines and count:
            self.new_line()
        self.parts.append("]")

    def object(self, members: Iterable[tuple[Any, Any]]) -> None:
        present = [(key, value) for key, value in members if value is not None]
        if self.browser:
            present.sort(key=lambda member: _sort_key(member[0]))
        self.parts.append("{")
        self.depth += 1
        for position, (key, value) in enumerate(present):
            if position:
                self.parts.append(",")
            # fastjson starts a line only for a text key, so consumerOffset.json has its queue ids on one line.
            if self.pretty and isinstance(key, str):
                self.new_line()
            self.key(key)
            self.parts.append(":")
            self.value(value)
        self.depth -= 1
        if self.pretty and present:
            self.new_line()
        self.parts.append("}")

    def key(self, key: Any) -> None:
        if isinstance(key, str):
            self.parts.append(self.quote(key))
        elif isinstance(key, tuple):
            if self.browser:
                self.parts.append(quote_browser(dumps(dict(key)).decode()))
            else:
                self.object(key)
        elif self.browser:
            self.parts.append(f'"{key}"')
        else:
            self.parts.append(str(int(key)))


def _sort_key(key: Any) -> tuple[int, Any]:
    """Order keys as a Java TreeMap does: integers by value, text by UTF-16 units."""
    if isinstance(key, int):
        return 0, key
    return 1, str(key).encode("utf-16-be", "surrogatepass")


def dumps(value: Any, pretty: bool = False, browser_compatible: bool = False) -> bytes:
    """Write *value* as fastjson would, UTF-8.

    Members keep the order of their dict (beans are alphabetical in Java, so the caller lists them so); members that are
    None are left out. Keys: str is quoted, int is bare, a tuple of (name, value) pairs becomes an object key.
    *pretty* is PrettyFormat: one tab a level, text-keyed members on their own lines, no newline at the end.
    *browser_compatible* is BrowserCompatible with MapSortField: pure ASCII, ``\\/``, every key quoted and sorted.

    Raises TypeError for a value of any other type.
    """
    writer = _Writer(pretty, browser_compatible)
    writer.value(value)
    return "".join(writer.parts).encode("utf-8", "replace")


def loads(data: Buffer | str) -> Any:
    """Read one JSON value in any of the dialects that peers send; an empty text is None.

    Member names are str, whether quoted or not; a name that is an object becomes a tuple of its (name, value) pairs,
    sorted by name. The last of duplicate names wins. Bytes that are not UTF-8 become U+FFFD, as in Java.

    Raises ProtocolError, which says what was found and where.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        text = data if isinstance(data, str) else bytes(data).decode("utf-8", "replace")
        return _Reader(text).document()


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


class _Reader:
    """The tolerant reader: recursive descent over one text, taken only after orjson has refused."""

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
