"""Java properties files: reading and writing.

The syntax is that of java.util.Properties.load: ``key=value``, ``key:value`` or ``key value``; comments begin with
``#`` or ``!``; a line ending in an odd number of backslashes goes on in the next; ``\\t \\n \\r \\f \\uXXXX`` are
escapes, and any other escaped character stands for itself. Java reads such files as ISO 8859-1. Here a file that is
valid UTF-8 is read as UTF-8, since that is what people write, and any other as ISO 8859-1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mqcore.errors import ConfigError

BLANKS = " \t\f"
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
UNESCAPES = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One key with its value, and the natural lines it stands on: ``[first_line, last_line]``, counted from 1."""

    key: str
    value: str
    first_line: int
    last_line: int


def decode_properties(data: bytes) -> str:
    """The text of a properties file. A byte order mark is dropped."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("iso-8859-1")


def read_entries(text: str, where: str = "properties") -> Iterator[Entry]:
    """The entries of *text* in order, repeated keys included.

    Raises ConfigError for a malformed ``\\uXXXX``, as Java does, naming ``where:line``.
    """
    lines = split_lines(text)
    at = 0
    while at < len(lines):
        first = at
        logical = lines[at].lstrip(BLANKS)
        at += 1
        if not logical or logical[0] in "#!":
            continue
        while _is_continued(logical):
            logical = logical[:-1]
            if at == len(lines):
                break
            logical += lines[at].lstrip(BLANKS)
            at += 1
        if logical:
            key, value = _split_key(logical)
            place = f"{where}:{first + 1}"
            yield Entry(_unescape(key, place), _unescape(value, place), first + 1, at)


def split_lines(text: str) -> list[str]:
    """The natural lines of *text*; only LF, CR and CRLF end a line, unlike str.splitlines."""
    lines = re.split(r"\r\n|\r|\n", text)
    if lines[-1] == "":
        lines.pop()
    return lines


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split_key(line: str) -> tuple[str, str]:
    at = 0
    while at < len(line) and line[at] not in "=:" + BLANKS:
        at += 2 if line[at] == "\\" else 1
    rest = line[at:].lstrip(BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(BLANKS)
    return line[:at], rest


def _unescape(text: str, place: str) -> str:
    def one(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) == 5:
            return chr(int(escaped[1:], 16))
        if escaped == "u":
            raise ConfigError(f"malformed \\uXXXX escape: got {text[match.start() : match.start() + 6]!r} ({place})")
        return ESCAPES.get(escaped, escaped)

    if "\\" not in text:
        return text
    unescaped = re.sub(r"\\(u[0-9A-Fa-f]{4}|.|$)", one, text, flags=re.DOTALL)
    # Java writes a character beyond the basic plane as two \uXXXX; join them again.
    return unescaped.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def parse_properties(text: str, where: str = "properties") -> dict[str, str]:
    """Key to value; the last of a repeated key wins, as in Java."""
    return {entry.key: entry.value for entry in read_entries(text, where)}


def format_entry(key: str, value: str) -> str:
    """One line without its end, in ASCII, that Java and ``read_entries`` read back as *key* and *value*."""
    return f"{_escape(key, is_key=True)}={_escape(value, is_key=False)}"


def _escape(text: str, *, is_key: bool) -> str:
    written = []
    for at, character in enumerate(text):
        if character in UNESCAPES:
            written.append(UNESCAPES[character])
        elif is_key and character in "=:# !":
            written.append("\\" + character)
        elif character == " " and at == 0:
            written.append("\\ ")
        elif " " <= character <= "~":
            written.append(character)
        else:
            units = character.encode("utf-16-be", "surrogatepass")
            written.extend(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))
    return "".join(written)


def format_properties(values: Mapping[str, str]) -> str:
    """``key=value`` lines, each with its LF, in the order of *values*."""
    return "".join(format_entry(key, value) + "\n" for key, value in values.items())
