"""fastjson's dialect: written to the byte, read with all its looseness."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol_golden import GOLDEN, rows

from mqcore.errors import ProtocolError
from mqcore.protocol import fastjson
from mqcore.protocol.message import MessageQueue
from tests.rows import walked

CHARACTERS = "".join(map(chr, range(0x180))) + "\u2028\u2029中😀/\ud800x"
QUEUES = [MessageQueue("T", "broker-a", number) for number in (0, 1)]
DOCUMENT: dict[str, Any] = {
    "offsetTable": {"t@g": {0: 3, 1: 6}},
    "emptyMap": {},
    "list": [1, 2],
    "maps": [{"a": 1}, {"b": "x/y"}],
    "emptyList": [],
    "array": (45, 91),
    "set": ("a", "b"),
    "queues": {QUEUES[0].json_key(): 5, QUEUES[1].json_key(): 6},
    "nested": {"x": [[1, 2], True]},
    "null": None,
    "nullInList": [1, None],
}


def test_every_character_is_escaped_as_java_does() -> None:
    assert fastjson.dumps(CHARACTERS) == GOLDEN["json.characters"]


def test_every_character_is_escaped_in_browser_form_as_java_does() -> None:
    assert fastjson.dumps(CHARACTERS, browser_compatible=True) == GOLDEN["json.characters.browser"]


@pytest.mark.parametrize("name", rows("json.double."))
def test_doubles_are_spelled_as_java_does(name: str) -> None:
    (value,) = struct.unpack(">d", struct.pack(">q", int(name.rpartition(".")[2])))
    assert fastjson.dumps(value) == GOLDEN[name]


def test_a_document_is_compact_by_default() -> None:
    assert fastjson.dumps(DOCUMENT) == GOLDEN["json.compact"]


def test_a_pretty_document_has_java_s_lines_and_tabs() -> None:
    assert fastjson.dumps(DOCUMENT, pretty=True) == GOLDEN["json.pretty"]


def test_a_browser_document_has_quoted_sorted_keys() -> None:
    assert fastjson.dumps(DOCUMENT, browser_compatible=True) == GOLDEN["json.browser"]


def test_integer_keys_of_a_browser_document_sort_by_value() -> None:
    assert fastjson.dumps({10: 1, 9: 2, -1: 3}, browser_compatible=True) == b'{"-1":3,"9":2,"10":1}'


def test_a_set_is_written_on_one_line() -> None:
    assert fastjson.dumps({"s": {7}}, pretty=True) == b'{\n\t"s":[7]\n}'


def test_a_value_without_json_form_is_refused() -> None:
    with pytest.raises(TypeError, match="bytes"):
        fastjson.dumps({"a": b"x"})


@pytest.mark.parametrize("name", ["json.compact", "json.pretty"])
def test_what_java_wrote_is_read(name: str) -> None:
    expected = {key: value for key, value in DOCUMENT.items() if value is not None}
    expected["offsetTable"] = {"t@g": {"0": 3, "1": 6}}
    expected["array"], expected["set"] = [45, 91], ["a", "b"]
    assert fastjson.loads(GOLDEN[name]) == expected


TOLERATED: list[tuple[bytes, Any]] = [
    (b"", None),
    (b" \n", None),
    (b'{"a":1}\n', {"a": 1}),
    (b"{a:1,$b:2,c.d:3}", {"a": 1, "$b": 2, "c.d": 3}),
    (b"{'a':'it\\'s'}", {"a": "it's"}),
    (b"{0:'x',-1:'y'}", {"0": "x", "-1": "y"}),
    (b"[1,2,]", [1, 2]),
    (b'{"a":1,}', {"a": 1}),
    (b'{"a":NaN,"b":undefined,"c":null}', {"a": None, "b": None, "c": None}),
    (b"[1L,2.5D,3B,+4,.5]", [1, 2.5, 3, 4, 0.5]),
    (b"/* c */ {'a' /* d */ : 1} // end\n", {"a": 1}),
    (b"\xef\xbb\xbf{'a':1}", {"a": 1}),
    (b"{'a':'\\u4E2d\\x41\\0\\v\\/'}", {"a": "中A\0\v/"}),
    (b"{'a':'\\ud83d\\ude00'}", {"a": "😀"}),
    (b"{'a':'\\ud83d'}", {"a": "\ufffd"}),
    (b"{'a':'\xff'}", {"a": "\ufffd"}),
    (b'{"a":"line\nbreak"}', {"a": "line\nbreak"}),
    (b'{"a":1,"a":2}', {"a": 2}),
    (b"{a:1,a:2}", {"a": 2}),
    (b'{{"queueId":1,"topic":"T"}:5}', {(("queueId", 1), ("topic", "T")): 5}),
    ("{'a':'中'}".encode(), {"a": "中"}),
]


@pytest.mark.parametrize(("text", "value"), TOLERATED)
def test_loose_json_is_read(text: bytes, value: Any) -> None:
    assert fastjson.loads(text) == value
    assert fastjson.loads(memoryview(text)) == value


REFUSED = [
    b"{",
    b"[1",
    b"{a}",
    b"{a:}",
    b"{'a':1 'b':2}",
    b"{'a':1}}",
    b"{'a':wrong}",
    b"'open",
    b"'bad \\q'",
    b"'bad \\u12G4'",
    b"'bad \\x4",
    b"'ends in \\",
    b"{:1}",
    b"[,]",
    b"1 2",
    b"<html>",
    b"9" * 5000 + b"L",
    b"[" * 100_000,
    b"{'a':" * 100_000,
]


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:20].decode())
def test_what_is_not_json_is_refused(text: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"bad JSON: got .*, wanted .* \(position="):
        fastjson.loads(text)


@walked("cut", range(1, len(GOLDEN["json.compact"])))
def test_a_document_cut_at_any_byte_is_refused(cut: int) -> None:
    with pytest.raises(ProtocolError):
        fastjson.loads(GOLDEN["json.compact"][:cut])


def standard(text: str) -> Any:
    """What *text* says as standard JSON; ValueError if it is none."""
    return json.loads(text, strict=False, parse_constant=lambda _name: None)


JSON_LIKE = st.text("{}[]\":,'01 .-truefalsn", max_size=30).map(str.encode)


@given(st.binary(max_size=60) | JSON_LIKE)
def test_any_bytes_are_refused_or_say_what_they_say_in_json(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    try:
        found = fastjson.loads(data)
    except ProtocolError:
        with pytest.raises(ValueError):
            standard(text)
        return
    assert fastjson.loads(fastjson.dumps(found)) == found
    with contextlib.suppress(ValueError):
        assert found == standard(text)


PLAIN = fastjson.dumps({"tag": {"0": 3, "1": -6}, "list": [1, 2.5, True, None], "maps": [{}, {"b": "x/y"}]})
NUMBER = re.compile(r"(?<=[:,\[])[\s\0]*\+?(-?)0*(\d*)(?:\.(\d*))?[LSBFD]?[\s\0]*(?=[,\]}])")


def in_standard_words(text: str) -> str:
    """Return *text*, PLAIN with a changed byte, as JSON: the dialect may give it numbers like +6, .5 and 2.L."""
    return NUMBER.sub(
        lambda found: f"{found[1]}{found[2] or 0}" + ("" if found[3] is None else f".{found[3] or 0}"), text
    )


def test_a_document_with_any_changed_byte_is_refused_or_says_what_it_says_in_json() -> None:
    for at, change in itertools.product(range(len(PLAIN)), range(1, 256)):
        damaged = bytearray(PLAIN)
        damaged[at] ^= change
        text = damaged.decode("utf-8", "replace")
        try:
            found = fastjson.loads(damaged)
        except ProtocolError:
            with pytest.raises(ValueError):
                standard(text)
        else:
            assert found == standard(in_standard_words(text)), f"byte {at} changed by {change}"


@given(st.integers(0, len(GOLDEN["json.compact"]) - 1), st.integers(1, 255))
def test_a_document_of_the_dialect_with_a_changed_byte_is_refused_or_another_one(at: int, change: int) -> None:
    damaged = bytearray(GOLDEN["json.compact"])
    damaged[at] ^= change
    with contextlib.suppress(ProtocolError):
        assert fastjson.loads(damaged) != fastjson.loads(GOLDEN["json.compact"])


LEAVES = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
)


@given(VALUES)
def test_what_is_written_reads_back(value: Any) -> None:
    assert fastjson.loads(fastjson.dumps(value)) == value


@given(VALUES)
def test_what_is_written_for_browsers_is_standard_ascii_json(value: Any) -> None:
    data = fastjson.dumps(value, browser_compatible=True)
    assert data.isascii()
    assert fastjson.loads(data) == value


BLANKS = st.sampled_from(["", "", " ", "\t\n", "\0", "/* , */", "// ]\n"])
BARE_NAME = re.compile(r"[^\W\d][\w$.]*|\d+")


def spelled(value: Any, draw: Callable[[st.SearchStrategy[Any]], Any]) -> str:
    """One of the ways in which fastjson's dialect may spell *value*."""
    blank = draw(BLANKS)
    if isinstance(value, dict):
        names = [name if BARE_NAME.fullmatch(name) and draw(st.booleans()) else spelled(name, draw) for name in value]
        inner = [f"{name}{blank}:{spelled(member, draw)}" for name, member in zip(names, value.values(), strict=True)]
        return "{" + listed(inner, blank, draw) + "}"
    if isinstance(value, list):
        return "[" + listed([spelled(member, draw) for member in value], blank, draw) + "]"
    if isinstance(value, str):
        quote = draw(st.sampled_from("\"'"))
        return f"{blank}{quote}{''.join(spelled_char(char, quote, draw) for char in value)}{quote}"
    if isinstance(value, bool):
        return f"{blank}{value}".lower()
    if value is None:
        return blank + draw(st.sampled_from(["null", "undefined", "NaN"]))
    sign = draw(st.sampled_from(["", "+"])) if value >= 0 and math.copysign(1, value) > 0 else ""
    return f"{blank}{sign}{value!r}{draw(st.sampled_from(['', 'L' if isinstance(value, int) else 'D']))}"


def listed(members: list[str], blank: str, draw: Callable[[st.SearchStrategy[Any]], Any]) -> str:
    return ",".join(members) + (draw(st.sampled_from(["", ","])) if members else "") + blank


def spelled_char(char: str, quote: str, draw: Callable[[st.SearchStrategy[Any]], Any]) -> str:
    units = [int.from_bytes(unit, "big") for unit in batched_bytes(char.encode("utf-16-be"), 2)]
    if char in (quote, "\\") or draw(st.integers(0, 3)) == 0:
        return "".join(f"\\u{unit:04x}" for unit in units)
    return char


def batched_bytes(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@given(st.data(), VALUES | st.none())
def test_every_spelling_of_a_value_is_read_as_it(data: st.DataObject, value: Any) -> None:
    assert fastjson.loads(spelled(value, data.draw)) == value


@given(st.dictionaries(st.text(max_size=5), st.dictionaries(st.integers(-9, 99), VALUES, max_size=4), max_size=4))
def test_pretty_and_compact_say_the_same(value: Any) -> None:
    assert fastjson.loads(fastjson.dumps(value, pretty=True)) == fastjson.loads(fastjson.dumps(value))
