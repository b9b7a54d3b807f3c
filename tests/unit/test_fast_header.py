"""The header scanner of the workers against its readable twin, mqcore.protocol.frame: same frames, same damage."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from protocol_golden import GOLDEN

from mqcore._fast.wire.header import parse_i64, scan
from mqcore.codes import LanguageCode, RequestCode, SerializeType
from mqcore.errors import FrameError, ProtocolError
from mqcore.layout import BINARY_HEADER, FRAME_HEAD
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.frame import decode_frame

JSON, BINARY = SerializeType.JSON, SerializeType.ROCKETMQ
FIELDS_MAX = 32
I64_MIN, I64_MAX = -(2**63), 2**63 - 1
KNOWN_LANGUAGES = ("JAVA", "CPP", "GO", "PYTHON")
UNKNOWN = int(LanguageCode.UNKNOWN)
PLAIN_LITERAL = re.compile("true|false|0|-?[1-9][0-9]{0,15}")

SEND_FIELDS = {
    "a": "producers",
    "b": "orders",
    "c": "TBW102",
    "d": "4",
    "e": "3",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": "UNIQ_KEY\x017F0000010B1C18B4AAC2000000000000\x02WAIT\x01true\x02TAGS\x01a<b>&é",
    "j": "0",
    "k": "false",
    "m": "false",
}


def payload_of(header: bytes, body: bytes = b"", kind: int = JSON) -> bytes:
    """A frame without its length field."""
    return struct.pack(">i", kind << 24 | len(header)) + header + body


def as_java(fields: Mapping[str, str]) -> bytes:
    """RemotingCommand.java: alphabetical, compact, written by fastjson."""
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, 17, ext_fields=dict(fields), body=b"body").encode()[4:]


def as_go(fields: Mapping[str, str]) -> bytes:
    """rocketmq-client-go: struct order, an empty remark, encoding/json's escapes of < > and &."""
    header = {"code": 310, "language": "GO", "version": 317, "opaque": 17, "flag": 0, "remark": "", "extFields": fields}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return payload_of(text.encode(), b"body")


def as_cpp(fields: Mapping[str, str]) -> bytes:
    """rocketmq-client-cpp: jsoncpp's FastWriter, alphabetical, what is not ASCII escaped, a line feed at the end."""
    header = {"code": 310, "extFields": fields, "flag": 0, "language": "CPP", "opaque": 17, "version": 333}
    return payload_of(json.dumps(header, separators=(",", ":")).encode() + b"\n", b"body")


def as_node(fields: Mapping[str, str]) -> bytes:
    """A Node client: JSON.stringify, with numbers and booleans standing bare in extFields."""
    plain: dict[str, Any] = {
        name: json.loads(value) if PLAIN_LITERAL.fullmatch(value) else value for name, value in fields.items()
    }
    header = {"code": 310, "flag": 0, "language": "JAVA", "opaque": 17, "version": 78, "extFields": plain}
    return payload_of(json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode(), b"body")


def as_binary(fields: Mapping[str, str]) -> bytes:
    return RemotingCommand(310, 17, ext_fields=dict(fields), body=b"body", serialize_type=BINARY).encode()[4:]


WRITERS = {"java": as_java, "go": as_go, "cpp": as_cpp, "node": as_node, "binary": as_binary}
BY_WRITER = pytest.mark.parametrize("write", [pytest.param(write, id=name) for name, write in WRITERS.items()])


def read_by_twin(payload: bytes) -> RemotingCommand | None:
    """What the readable twin makes of *payload*; None if it refuses. Nothing else may come out of it."""
    try:
        return RemotingCommand(*decode_frame(payload))
    except ProtocolError:
        return None


def assert_agrees(payload: bytes) -> str:
    """The scanner says what its twin says, or leaves the frame to it. Returns which of the two happened."""
    wanted = read_by_twin(payload)
    try:
        got = scan(payload)
    except FrameError:
        assert wanted is None, "the scanner closes a connection that its twin would serve"
        return "bad"
    if got is None:
        return "unusual"
    assert wanted is not None, f"the scanner serves what its twin refuses: {got}"
    assert got == {
        "code": wanted.code,
        "language": got["language"] if got["language"] == UNKNOWN else wanted.language,
        "version": wanted.version,
        "opaque": wanted.opaque,
        "flag": wanted.flag,
        "serialize_type": wanted.serialize_type,
        "ext_fields": wanted.ext_fields,
        "body": wanted.body,
    }
    return "ok"


# What clients write ----------------------------------------------------------------------------------------------


@BY_WRITER
def test_the_request_of_each_client_is_read_without_asking_the_twin(
    write: Callable[[Mapping[str, str]], bytes],
) -> None:
    payload = write(SEND_FIELDS)
    assert assert_agrees(payload) == "ok"
    got = scan(payload)
    assert got is not None
    assert (got["code"], got["opaque"], got["ext_fields"], got["body"]) == (310, 17, SEND_FIELDS, b"body")


@pytest.mark.parametrize("name", sorted(name for name in GOLDEN if name.startswith("frame.")))
def test_frames_that_java_wrote_are_read_as_the_twin_reads_them(name: str) -> None:
    assert assert_agrees(GOLDEN[name][4:]) == "ok"


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
# A name with an escape, or an empty one, is for the twin.
names = st.text(st.characters(min_codepoint=0x20, exclude_categories=("Cs",), exclude_characters='"\\'), min_size=1)
plain_names = st.text(st.characters(codec="ascii", min_codepoint=0x20, exclude_characters='"\\<>&\x7f'), min_size=1)


@BY_WRITER
@given(fields=st.dictionaries(plain_names, texts.filter(bool), max_size=FIELDS_MAX))
def test_any_text_passes_unharmed(write: Callable[[Mapping[str, str]], bytes], fields: dict[str, str]) -> None:
    payload = write(fields)
    assert assert_agrees(payload) == "ok"
    got = scan(payload)
    assert got is not None
    assert (got["ext_fields"] or {}) == fields


@given(
    code=st.integers(-(2**31), 2**31 - 1),
    opaque=st.integers(-(2**31), 2**31 - 1),
    flag=st.integers(0, 3),
    version=st.integers(0, 500),
    language=st.sampled_from(list(LanguageCode)),
    fields=st.none() | st.dictionaries(names, texts, max_size=FIELDS_MAX),
    remark=st.none() | texts,
    body=st.binary(max_size=50),
)
def test_any_command_in_json(
    code: int,
    opaque: int,
    flag: int,
    version: int,
    language: LanguageCode,
    fields: dict[str, str] | None,
    remark: str | None,
    body: bytes,
) -> None:
    command = RemotingCommand(code, opaque, flag, remark, fields, body, language, version)
    # fastjson escapes DEL and a few more in names too.
    has_escaped_name = any(not json_safe(name) for name in fields or {})
    assert assert_agrees(command.encode()[4:]) == ("unusual" if has_escaped_name else "ok")


def json_safe(name: str) -> bool:
    return all(ord(char) >= 0x20 and not 0x7F <= ord(char) <= 0x9F and char not in "\u2028\u2029" for char in name)


@given(
    code=st.integers(-(2**15), 2**15 - 1),
    opaque=st.integers(-(2**31), 2**31 - 1),
    fields=st.none() | st.dictionaries(texts, texts, max_size=FIELDS_MAX),
    remark=st.none() | texts,
    language=st.sampled_from(list(LanguageCode)),
)
def test_any_command_in_binary(
    code: int, opaque: int, fields: dict[str, str] | None, remark: str | None, language: LanguageCode
) -> None:
    command = RemotingCommand(code, opaque, 0, remark, fields, b"", language, serialize_type=BINARY)
    assert assert_agrees(command.encode()[4:]) == "ok"


@pytest.mark.parametrize("language", [*KNOWN_LANGUAGES, "DOTNET", "NODE_JS", "KLINGON"])
def test_a_language_is_known_or_said_to_be_unknown(language: str) -> None:
    got = scan(payload_of(b'{"code":1,"opaque":2,"language":"%s"}' % language.encode()))
    assert got is not None
    assert got["language"] == (LanguageCode[language] if language in KNOWN_LANGUAGES else UNKNOWN)


@pytest.mark.parametrize("write", [as_java, as_binary])
@pytest.mark.parametrize(("count", "wanted"), [(FIELDS_MAX, "ok"), (FIELDS_MAX + 1, "unusual")])
def test_more_fields_than_the_scanner_has_room_for_are_for_the_twin(
    write: Callable[[Mapping[str, str]], bytes], count: int, wanted: str
) -> None:
    assert assert_agrees(write({f"f{number}": "v" for number in range(count)})) == wanted


# What is odd -----------------------------------------------------------------------------------------------------

READ_AT_ONCE = [
    '{"opaque":1}',
    '{"opaque":-1,"code":"310"}',
    ' {\t"code" : 1 ,\r\n"opaque":\t2 } \n',
    '{"code":1,"opaque":2,"extFields":{}}',
    '{"code":1,"opaque":2,"extFields":{"a":true,"b":false,"c":0,"d":-12}}',
    '{"code":1,"opaque":2,"extFields":{"a":"first","a":"second"}}',
    '{"code":1,"code":7,"opaque":2}',
    '{"code":1,"opaque":2,"somethingNew":"x"}',
    '{"code":1,"opaque":2,"extFields":{"a":"\\u00e9\\ud83d\\ude00\\/\\b\\f\\n\\r\\t\\"\\\\"}}',
    '{"opaque":2147483647,"code":-2147483648}',
]
LEFT_TO_THE_TWIN = [
    "{}",
    "",
    "[]",
    "null",
    '{"code":1}',
    '{"code":null,"opaque":2}',
    '{"code":1,"opaque":2,"remark":null}',
    '{"code":1,"opaque":2,"extFields":null}',
    '{"code":1,"opaque":2,"extFields":{"a":null}}',
    '{"code":1,"opaque":2,"extFields":{"a":{"b":1}}}',
    '{"code":1,"opaque":2,"extFields":{"a":1.5}}',
    '{"code":1,"opaque":2,"extFields":{"a":007}}',
    '{"code":1,"opaque":2,"extFields":{"a":-0}}',
    '{"code":1,"opaque":2,"extFields":{"a":1-2}}',
    '{"code":1,"opaque":2,"extFields":{"a":12abc}}',
    '{"code":1,"opaque":2,"extFields":{"a":-}}',
    '{"code":1,"opaque":2,"extFields":{"a":nil}}',
    '{"code":1,"opaque":2,"extFields":{"\\u0061":"x"}}',
    '{"code":1,"opaque":2,"extFields":{"a":"\\ud83d"}}',
    '{"code":1,"opaque":2,"extFields":{"a":"\\ude00"}}',
    '{"code":1,"opaque":2,"extFields":{"a":"\\u12"}}',
    '{"code":1,"opaque":2,"extFields":{"a":"\\q"}}',
    '{"code":1,"opaque":2,"extFields":{"a":"x"},"extFields":{"b":"y"}}',
    "{'code':1,'opaque':2}",
    "{code:1,opaque:2}",
    '{"code":1,"opaque":2,}',
    '{"code":1,"opaque":2}}',
    '{"code":1,"opaque":2} x',
    '{"code":1 "opaque":2}',
    '{"code":2147483648,"opaque":2}',
    '{"code":1e3,"opaque":2}',
    '{"code":true,"opaque":2}',
    '{"code":1,"opaque":2',
    '{"code":1,"opaque":2,"remark":"\\',
    '{"code":1,"opaque":2,"somethingNew":[1,2]}',
]


@pytest.mark.parametrize("header", READ_AT_ONCE)
def test_loose_but_plain_headers_are_read_at_once(header: str) -> None:
    assert assert_agrees(payload_of(header.encode())) == "ok"


@pytest.mark.parametrize("header", LEFT_TO_THE_TWIN)
def test_odd_headers_are_left_to_the_twin(header: str) -> None:
    assert assert_agrees(payload_of(header.encode())) == "unusual"


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\0\0\0", id="half a mark"),
        pytest.param(payload_of(b"{}")[:-1], id="header beyond the frame"),
        pytest.param(payload_of(b"{}", kind=2), id="serialize type 2"),
        pytest.param(payload_of(b"{}", kind=127), id="serialize type 127"),
        pytest.param(payload_of(bytes(20), kind=BINARY), id="binary header of 20 bytes"),
    ],
)
def test_impossible_frames_are_refused_by_both(payload: bytes) -> None:
    assert assert_agrees(payload) == "bad"


def binary_payload(remark_size: int, ext_size: int, rest: bytes) -> bytes:
    head = BINARY_HEADER.struct.pack(310, 0, 409, 17, 0)
    return payload_of(head + struct.pack(">ii", remark_size, ext_size) + rest, kind=BINARY)


@pytest.mark.parametrize("size", [-1, -(2**31), 1, 5, 2**31 - 1])
def test_lying_lengths_of_the_binary_form_are_refused_by_both(size: int) -> None:
    assert assert_agrees(binary_payload(size, 0, b"")) == "bad"
    assert assert_agrees(binary_payload(0, size, b"")) == "bad"
    assert assert_agrees(binary_payload(0, 6, struct.pack(">hi", size % 2**15, size))) == "bad"


def test_bytes_behind_the_entries_of_the_binary_form_are_ignored() -> None:
    assert assert_agrees(binary_payload(0, 0, b"left over")) == "ok"


@pytest.mark.parametrize("mark", ["", '\\"', "\\\\", "\\u0001"], ids=["quote", "escaped_quote", "backslash", "control"])
def test_a_string_may_end_anywhere_in_a_block(mark: str) -> None:
    for before in range(150):
        for behind in (0, 1, 70):
            value = "x" * before + mark + "y" * behind
            header = f'{{"code":310,"extFields":{{"a":"{value}","bc":"{value}"}},"opaque":7}}'
            assert assert_agrees(payload_of(header.encode())) == "ok"


# Damage ----------------------------------------------------------------------------------------------------------


@BY_WRITER
def test_a_frame_cut_anywhere_is_read_as_the_twin_reads_it(write: Callable[[Mapping[str, str]], bytes]) -> None:
    payload = write(SEND_FIELDS)
    for cut in range(len(payload)):
        assert_agrees(payload[:cut])


@BY_WRITER
def test_a_header_cut_anywhere_is_read_as_the_twin_reads_it(write: Callable[[Mapping[str, str]], bytes]) -> None:
    payload = write(SEND_FIELDS)
    _, mark = FRAME_HEAD.struct.unpack(b"\0\0\0\0" + payload[:4])
    header = payload[4 : 4 + (mark & 0xFFFFFF)]
    outcomes = {assert_agrees(payload_of(header[:cut], kind=mark >> 24)) for cut in range(len(header))}
    assert "unusual" in outcomes or "bad" in outcomes


@BY_WRITER
def test_any_flipped_bit_is_read_as_the_twin_reads_it(write: Callable[[Mapping[str, str]], bytes]) -> None:
    payload = bytearray(write(SEND_FIELDS))
    outcomes = set()
    for at in range(len(payload)):
        for bit in range(8):
            payload[at] ^= 1 << bit
            outcomes.add(assert_agrees(bytes(payload)))
            payload[at] ^= 1 << bit
    assert {"ok", "bad"} <= outcomes


@BY_WRITER
@given(
    at=st.integers(0, 2**16),
    junk=st.binary(max_size=6) | st.text(alphabet='{}[]",:\\u0123456789abcdefntr-+.eE \n', max_size=6).map(str.encode),
    dropped=st.integers(0, 6),
)
def test_any_overwritten_part_is_read_as_the_twin_reads_it(
    write: Callable[[Mapping[str, str]], bytes], at: int, junk: bytes, dropped: int
) -> None:
    payload = write({"b": "orders", "e": "3", "i": "KEYS\x01k", "g": "1700000000000"})
    kind = payload[0]
    header = payload[4:-4]
    at %= len(header)
    assert_agrees(payload_of(header[:at] + junk + header[at + dropped :], b"body", kind))


@given(st.binary(max_size=80), st.sampled_from([JSON, BINARY]))
def test_any_bytes_as_a_header_are_read_as_the_twin_reads_them(header: bytes, kind: SerializeType) -> None:
    assert_agrees(payload_of(header, kind=kind))


# Numbers ---------------------------------------------------------------------------------------------------------

NUMBERS = {
    b"0": 0,
    b"-0": 0,
    b"+7": 7,
    b"007": 7,
    b"9223372036854775807": I64_MAX,
    b"-9223372036854775808": I64_MIN,
    b"+9223372036854775807": I64_MAX,
}
NOT_NUMBERS = [
    b"", b"-", b"+", b"--1", b"+-1", b"1-", b"1 ", b" 1", b"1.0", b"1e3", b"0x10", b"1_0", b"1l", b"\xd9\xa1",
    b"9223372036854775808", b"-9223372036854775809", b"9999999999999999999", b"18446744073709551615",
    b"18446744073709551617", b"-9999999999999999999", b"100000000000000000000", b"99999999999999999999999999",
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), NUMBERS.items())
def test_numbers_are_read_as_java_reads_them(text: bytes, value: int) -> None:
    assert parse_i64(text) == value


@pytest.mark.parametrize("text", NOT_NUMBERS)
def test_what_java_does_not_take_for_a_long_is_none(text: bytes) -> None:
    assert parse_i64(text) is None


@given(st.integers(-(2**65), 2**65))
@example(I64_MAX + 1)
@example(I64_MIN - 1)
def test_every_long_and_nothing_else_is_read(value: int) -> None:
    assert parse_i64(b"%d" % value) == (value if I64_MIN <= value <= I64_MAX else None)


@pytest.mark.parametrize(
    "member", [rb'"language":"\JAVA"', rb'"remark":"\u12"', rb'"remark":"\ud800"', rb'"other":"\x"']
)
def test_a_broken_escape_in_a_member_that_nobody_looks_at_is_left_to_the_twin(member: bytes) -> None:
    assert assert_agrees(payload_of(b'{"code":28,"flag":0,"opaque":1,' + member + b',"version":409}')) == "unusual"


def test_an_escaped_member_that_is_whole_is_read() -> None:
    assert assert_agrees(payload_of(rb'{"code":28,"flag":0,"opaque":1,"remark":"a\n\u4e2d","version":409}')) == "ok"
