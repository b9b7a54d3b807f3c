"""The frames of the client, Cython beside their twins: the same bytes out, the same values in, the same damage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol_golden import GOLDEN

from mqcore._fast.client import frames as fast
from mqcore.codes import CURRENT_VERSION, LanguageCode, RequestCode, SerializeType
from mqcore.errors import FrameError, HeaderError, ProtocolError
from mqcore.layout import FRAME_LENGTH_MAX
from mqcore.protocol import frame as python_frame
from mqcore.protocol import send_frames as python_send
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.properties import encode_properties

ENCODERS = [pytest.param(python_frame.encode_frame, id="python"), pytest.param(fast.encode_frame, id="cython")]
DECODERS = [pytest.param(python_frame.decode_frame, id="python"), pytest.param(fast.decode_frame, id="cython")]
HEADS = [pytest.param(python_send.SendHead, id="python"), pytest.param(fast.SendHead, id="cython")]

JSON, BINARY = SerializeType.JSON, SerializeType.ROCKETMQ
PROPERTIES = {"a": "1", "TAGS": 'a"b\\<é😀>', "UNIQ_KEY": "7F00000100001B28DAB15D0BD7C80000", "sep\u2028": "\x7f\x80\t"}

texts = st.text(max_size=30)
property_texts = st.text(st.characters(exclude_characters="\x01\x02"), min_size=1, max_size=20)


def outcome(work: Callable[..., Any], *arguments: Any) -> Any:
    """What a call gives, or the class of the protocol error that it raises."""
    try:
        return work(*arguments)
    except ProtocolError as error:
        return type(error)


def answer(**changes: Any) -> bytes:
    fields = {"msgId": "7F00000100002A9F00000000000004D2", "queueId": "3", "queueOffset": "12", "TRACE_ON": "true"}
    command = RemotingCommand(0, 7, 1, ext_fields=fields, body=b"body")
    for name, value in changes.items():
        setattr(command, name, value)
    return command.encode()[4:]


# Commands.


@pytest.mark.parametrize("name", sorted(name for name in GOLDEN if name.startswith("frame.")))
@pytest.mark.parametrize("decode", DECODERS)
def test_frames_that_java_wrote_are_read_alike(decode: Callable[[bytes], Any], name: str) -> None:
    assert decode(GOLDEN[name][4:]) == python_frame.decode_frame(GOLDEN[name][4:])


@given(
    code=st.integers(-(2**31), 2**31 - 1),
    opaque=st.integers(-(2**31), 2**31 - 1),
    flag=st.integers(0, 3),
    remark=st.none() | texts,
    fields=st.none() | st.dictionaries(texts, texts | st.none(), max_size=5),
    body=st.binary(max_size=50),
    language=st.sampled_from(list(LanguageCode)),
    kind=st.sampled_from([JSON, BINARY]),
)
def test_any_command_is_written_and_read_alike(
    code: int,
    opaque: int,
    flag: int,
    remark: str | None,
    fields: dict[str, str] | None,
    body: bytes,
    language: LanguageCode,
    kind: SerializeType,
) -> None:
    arguments = (code, opaque, flag, remark, fields, body, int(language), 409, kind)
    wanted = outcome(python_frame.encode_frame, *arguments)
    assert outcome(fast.encode_frame, *arguments) == wanted
    if isinstance(wanted, bytes):
        assert fast.decode_frame(wanted[4:]) == python_frame.decode_frame(wanted[4:])


@pytest.mark.parametrize("encode", ENCODERS)
def test_a_frame_over_the_limit_is_refused(encode: Callable[..., bytes]) -> None:
    with pytest.raises(FrameError, match="frame too large"):
        encode(1, 1, 0, None, None, bytes(FRAME_LENGTH_MAX), 0, 409, JSON)


@pytest.mark.parametrize("kind", [JSON, BINARY])
def test_an_answer_cut_anywhere_or_with_any_flipped_bit_is_read_alike(kind: SerializeType) -> None:
    whole = answer(serialize_type=kind, remark='why "not"')
    for cut in range(len(whole)):
        assert outcome(fast.decode_frame, whole[:cut]) == outcome(python_frame.decode_frame, whole[:cut])
        assert outcome(fast.decode_head, whole[:cut]) == outcome(python_frame.decode_head, whole[:cut])
    for at in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[at] ^= 1 << bit
            assert outcome(fast.decode_frame, damaged) == outcome(python_frame.decode_frame, damaged), (at, bit)
            assert outcome(fast.decode_head, damaged) == outcome(python_frame.decode_head, damaged), (at, bit)


@pytest.mark.parametrize("kind", [JSON, BINARY])
@pytest.mark.parametrize("body", [b"", b"body"])
@pytest.mark.parametrize("decode", [python_frame.decode_head, fast.decode_head])
def test_a_head_is_the_frame_without_its_body(decode: Callable[[bytes], Any], body: bytes, kind: SerializeType) -> None:
    whole = answer(serialize_type=kind, body=body)
    head, body_at = decode(whole)
    assert (head[5], whole[body_at:]) == (b"", body)
    assert (*head[:5], body, *head[6:]) == python_frame.decode_frame(whole)


@pytest.mark.parametrize("decode", DECODERS)
def test_a_remark_is_read_also_when_it_is_a_number_or_escaped(decode: Callable[[bytes], Any]) -> None:
    for text, remark in (('"x\\u0041\\n"', "xA\n"), ("12", "12"), ("true", "true"), ("null", None), ('""', "")):
        header = b'{"code":1,"opaque":2,"remark":%s}' % text.encode()
        assert decode(len(header).to_bytes(4, "big") + header)[3] == remark


# Sends.


@pytest.mark.parametrize("is_batch", [False, True])
@pytest.mark.parametrize("head_class", HEADS)
def test_a_send_is_written_as_the_command_that_it_is(head_class: Any, is_batch: bool) -> None:
    head = head_class('g"1', "Tópic", "TBW102", 4, 3, "broker-a", is_batch)
    code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
    fields = {
        "a": 'g"1', "b": "Tópic", "c": "TBW102", "d": "4", "e": "3", "f": "8", "g": "1795245418616", "h": "-5",
        "i": encode_properties(PROPERTIES), "j": "0", "k": "false", "m": str(is_batch).lower(), "n": "broker-a",
    }  # fmt: skip
    wanted = python_frame.encode_frame(code, 77, 0, None, fields, b"body", LanguageCode.PYTHON, CURRENT_VERSION, JSON)
    assert head.encode(77, 8, 1795245418616, -5, PROPERTIES, b"body") == wanted


@given(
    group=texts,
    topic=texts,
    properties=st.dictionaries(property_texts, property_texts, max_size=5),
    body=st.binary(max_size=50),
    opaque=st.integers(0, 2**31 - 1),
    flag=st.integers(-(2**31), 2**31 - 1),
)
def test_any_send_is_written_alike(
    group: str, topic: str, properties: dict[str, str], body: bytes, opaque: int, flag: int
) -> None:
    arguments = (group, topic, "TBW102", 4, 0, "b")
    wanted = python_send.SendHead(*arguments).encode(opaque, 0, 1, flag, properties, body)
    assert fast.SendHead(*arguments).encode(opaque, 0, 1, flag, properties, body) == wanted


@pytest.mark.parametrize("head_class", HEADS)
@pytest.mark.parametrize("properties", [{"a\x01": "b"}, {"a\x02": "b"}, {"a": "b\x02c"}])
def test_a_separator_inside_a_property_is_refused(head_class: Any, properties: dict[str, str]) -> None:
    head = head_class("g", "t", "TBW102", 4, 0, "b")
    with pytest.raises(HeaderError, match="separator"):
        head.encode(1, 0, 1, 0, properties, b"x")


@pytest.mark.parametrize("head_class", HEADS)
def test_what_is_too_long_is_refused_and_the_next_send_is_whole(head_class: Any) -> None:
    head = head_class("g", "t", "TBW102", 4, 0, "b")
    wanted = head.encode(1, 0, 1, 0, {}, b"x")
    with pytest.raises(ProtocolError, match="properties too long: got 32768"):
        head.encode(1, 0, 1, 0, {"a": "é" * 16383}, b"x")
    with pytest.raises(FrameError, match="frame too large"):
        head.encode(1, 0, 1, 0, {}, bytes(FRAME_LENGTH_MAX))
    assert head.encode(1, 0, 1, 0, {}, b"x") == wanted
    assert len(head.encode(1, 0, 1, 0, {"a": "é" * 16382 + "e"}, b"x")) > 32767
