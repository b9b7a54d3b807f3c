"""JSON in the dialect of fastjson 1.2.69, which RocketMQ writes on the wire and into its configuration files.

What differs from standard JSON, and is kept because peers parse it by hand: integer map keys stand unquoted, a map
keyed by an object has that object's JSON before the colon, doubles are spelled as Java spells them, null members are
left out. Reading accepts that dialect, standard JSON, and the looseness that other clients use (single quotes, bare
keys, trailing commas, NaN); what is not standard goes to ``fastjson_reader``.

Values are dict, list, str, int, float, bool and None. For writing, a tuple is a Java array, a list a Java List, a set a
Java Set: they differ only in the pretty form. This module knows nothing of beans; ``bodies`` builds the dicts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import orjson

from mqcore.protocol.buffer import Buffer
from mqcore.protocol.fastjson_reader import Reader

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
    from decimal import Decimal  # such numbers are rare

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
        return Reader(text).document()
