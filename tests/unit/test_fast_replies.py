"""The workers' replies against their readable twin, mqcore.protocol.command, to the byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcore._fast.wire.replies import encode
from mqcore.codes import RemotingFlag, ResponseCode, SerializeType
from mqcore.layout import FRAME_HEAD
from mqcore.protocol.command import FrameSplitter, RemotingCommand
from tests.rows import walked

JSON, BINARY = SerializeType.JSON, SerializeType.ROCKETMQ
BOTH = pytest.mark.parametrize("kind", [JSON, BINARY], ids=lambda kind: kind.name)
FIELDS_MAX = 16
NAME_MAX = 50
AWKWARD = [
    'quote " and backslash \\',
    "".join(map(chr, range(0x20))),
    "".join(map(chr, range(0x7F, 0xA1))),
    "line separators \u2027\u2028\u2029\u202a",
    "é 中 😀 \ufffd",
    "a/b<c>&'d",
    "KEYS\x01k1 k2\x02TAGS\x01a",
]


def by_twin(
    kind: SerializeType, code: int, opaque: int, remark: str | None, fields: dict[str, str] | None, body: bytes = b""
) -> bytes:
    # A field without a value is left out by the workers; in the binary form a header object without fields is none.
    ext_fields = None if fields is None else {name: value for name, value in fields.items() if value}
    return RemotingCommand(
        code, opaque, int(RemotingFlag.RESPONSE), remark, ext_fields, body, serialize_type=kind
    ).encode()


def by_worker(
    kind: SerializeType, code: int, opaque: int, remark: str | None, fields: dict[str, str] | None, body: bytes = b""
) -> bytes:
    pairs = None if fields is None else [(name.encode(), value.encode()) for name, value in fields.items()]
    return encode(kind, code, opaque, None if remark is None else remark.encode(), pairs, len(body)) + body


@BOTH
@walked("fields", [None, {}, {"msgId": "0A"}, {"queueId": "3", "empty": "", "queueOffset": "-7"}])
@walked("remark", [None, "FOUND", *AWKWARD])
def test_replies_are_written_as_the_twin_writes_them(
    kind: SerializeType, fields: dict[str, str] | None, remark: str | None
) -> None:
    arguments = (kind, ResponseCode.PULL_NOT_FOUND, 77, remark, fields)
    assert by_worker(*arguments) == by_twin(*arguments)


@BOTH
@pytest.mark.parametrize("value", AWKWARD)
def test_field_values_are_escaped_as_the_twin_escapes_them(kind: SerializeType, value: str) -> None:
    arguments = (kind, 0, 1, None, {"MSG_REGION": value, "queueId": "1"})
    assert by_worker(*arguments) == by_twin(*arguments)


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=60)
names = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_", min_size=1, max_size=NAME_MAX)


@BOTH
@given(
    code=st.integers(-(2**15), 2**15 - 1),
    opaque=st.integers(-(2**31), 2**31 - 1),
    # An empty remark has no form of its own in binary, and no worker writes one.
    remark=st.none() | texts.filter(bool),
    fields=st.none() | st.dictionaries(names, texts, max_size=FIELDS_MAX),
    body=st.binary(max_size=100),
)
def test_any_reply_is_written_as_the_twin_writes_it(
    kind: SerializeType, code: int, opaque: int, remark: str | None, fields: dict[str, str] | None, body: bytes
) -> None:
    arguments = (kind, code, opaque, remark, fields, body)
    frame = by_worker(*arguments)
    assert frame == by_twin(*arguments)
    (payload,) = FrameSplitter().feed(frame)
    assert RemotingCommand.decode(payload).body == body


@BOTH
@pytest.mark.parametrize("opaque", [0, -1, 9, 10, -(2**31), 2**31 - 1])
def test_every_opaque_comes_back(kind: SerializeType, opaque: int) -> None:
    assert RemotingCommand.decode(by_worker(kind, 0, opaque, None, None)[4:]).opaque == opaque


@BOTH
def test_the_length_counts_a_body_that_is_not_there_yet(kind: SerializeType) -> None:
    head = encode(kind, 0, 1, None, [], 15_000_000)
    length, mark = FRAME_HEAD.struct.unpack_from(head)
    assert length == 4 + (mark & 0xFFFFFF) + 15_000_000
    assert len(head) == FRAME_HEAD.size + (mark & 0xFFFFFF)


@BOTH
def test_a_value_of_escapes_only_has_room(kind: SerializeType) -> None:
    arguments = (kind, 0, 1, "\x01" * 5000, {"msgId": "\x02" * 5000})
    assert by_worker(*arguments) == by_twin(*arguments)


def test_more_than_a_reply_has_room_for_is_refused() -> None:
    full = [(b"n%d" % number, b"v") for number in range(FIELDS_MAX)]
    assert encode(JSON, 0, 1, None, full)
    with pytest.raises(ValueError, match=f"at most {FIELDS_MAX} fields"):
        encode(JSON, 0, 1, None, [*full, (b"more", b"v")])
    with pytest.raises(ValueError, match="at most 50 bytes"):
        encode(JSON, 0, 1, None, [(b"n" * (NAME_MAX + 1), b"v")])
