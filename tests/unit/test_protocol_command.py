"""Frames and their headers, in both forms: to the byte of what Java writes, and safe against whatever arrives."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_golden import GOLDEN

from mqcore.codes import LanguageCode, SerializeType
from mqcore.errors import FrameError, HeaderError, ProtocolError
from mqcore.protocol.command import APART_SIZE, FRAME_SIZE_MAX, FrameBuffer, FrameSplitter, RemotingCommand, next_opaque

JSON, BINARY = SerializeType.JSON, SerializeType.ROCKETMQ

COMMANDS = {
    "response": RemotingCommand(0, 5, 1, ext_fields={"offset": "7"}),
    "refusal": RemotingCommand(1, -1, 1, 'remark 中"\n', body=b"body"),
    "oneway": RemotingCommand(34, 6, 2, language=LanguageCode.GO),
    "emptyExtFields": RemotingCommand(0, 8, 1, ext_fields={}),
}
CASES = [pytest.param(name, kind, id=f"{name}-{kind.name}") for name in COMMANDS for kind in (JSON, BINARY)]


def command(name: str, kind: SerializeType) -> RemotingCommand:
    found = COMMANDS[name]
    ext_fields = found.ext_fields
    if kind is BINARY and not ext_fields:
        ext_fields = None  # the binary form cannot tell an empty map from none
    return RemotingCommand(
        found.code, found.opaque, found.flag, found.remark, ext_fields, found.body, found.language, serialize_type=kind
    )


def golden(name: str, kind: SerializeType) -> bytes:
    return GOLDEN[f"frame.{name}.{kind.name}"]


def json_frame(header: bytes, body: bytes = b"") -> bytes:
    """Return a payload: a frame without its length field."""
    return struct.pack(">i", len(header)) + header + body


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_frames_are_written_as_java_writes_them(name: str, kind: SerializeType) -> None:
    assert command(name, kind).encode() == golden(name, kind)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_frames_that_java_wrote_are_read(name: str, kind: SerializeType) -> None:
    frame = golden(name, kind)
    (payload,) = FrameSplitter().feed(frame)
    assert payload == frame[4:]
    assert RemotingCommand.decode(payload) == command(name, kind)
    assert RemotingCommand.decode(memoryview(bytearray(payload))) == command(name, kind)


def test_the_observed_request_is_written_to_the_byte() -> None:
    ext_fields = {"queueId": "0", "bname": "broker-a", "topic": "TopicT1", "consumerGroup": "g_push"}
    header = (
        b'{"code":14,"extFields":{"queueId":"0","bname":"broker-a","topic":"TopicT1","consumerGroup":"g_push"},'
        b'"flag":0,"language":"JAVA","opaque":29,"serializeTypeCurrentRPC":"JSON","version":409}'
    )
    assert RemotingCommand(14, 29, ext_fields=ext_fields).encode()[8:] == header


def test_the_observed_binary_reply_is_written_to_the_byte() -> None:
    reply = RemotingCommand(0, 5, 1, ext_fields={"offset": "7"}, serialize_type=BINARY)
    assert reply.encode() == bytes.fromhex(
        "00000026 01000022 0000 00 0199 00000005 00000001 00000000 0000000D 0006 6F6666736574 00000001 37"
    )


TOLERATED = [
    (b'{"code":11,"extFields":{"queueId":3,"b":true,"n":null,"d":1.5}}', {"queueId": "3", "b": "true", "d": "1.5"}),
    (b'{"code":11,"extFields":{"o":{"x":[1]}}}', {"o": '{"x":[1]}'}),
    (b'{"code":11,"extFields":{}}', {}),
    (b'{"code":11,"extFields":null}', None),
    (b'{"code":11}', None),
    (b"{code:11,extFields:{'a':'b'}}", {"a": "b"}),
    (b'{"code":"11","extFields":{1:"x"}}\n', {"1": "x"}),
    (b'{"code":11,"unknown":[1,{}],"extFields":{"a":""}}', {"a": ""}),
]


@pytest.mark.parametrize(("header", "ext_fields"), TOLERATED)
def test_loose_headers_are_read(header: bytes, ext_fields: dict[str, str] | None) -> None:
    found = RemotingCommand.decode(json_frame(header))
    assert found == RemotingCommand(11, ext_fields=ext_fields, version=0)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        (b'"GO"', LanguageCode.GO),
        (b"9", LanguageCode.GO),
        (b'"NODE_JS"', LanguageCode.NODE_JS),
        (b'"KLINGON"', LanguageCode.UNKNOWN),
        (b"77", LanguageCode.UNKNOWN),
        (b"null", LanguageCode.UNKNOWN),
        (b"[]", LanguageCode.UNKNOWN),
    ],
)
def test_any_language_is_read(text: bytes, language: LanguageCode) -> None:
    assert RemotingCommand.decode(json_frame(b'{"code":1,"language":' + text + b"}")).language == language


def test_an_unknown_language_is_not_written() -> None:
    frame = RemotingCommand(1, language=LanguageCode.UNKNOWN).encode()
    assert b"language" not in frame
    binary = RemotingCommand(1, language=LanguageCode.UNKNOWN, serialize_type=BINARY)
    assert RemotingCommand.decode(binary.encode()[4:]).language == LanguageCode.OTHER


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b"7",
        b'"x"',
        b"{",
        b'{"code":"x"}',
        b'{"code":[]}',
        b'{"code":4294967296}',
        b'{"opaque":2147483648}',
        b'{"flag":1e99}',
        b'{"extFields":[]}',
        b'{"extFields":"x"}',
    ],
)
def test_unreadable_headers_are_refused(header: bytes) -> None:
    with pytest.raises(HeaderError, match="wanted"):
        RemotingCommand.decode(json_frame(header))


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_header_cut_at_any_byte_is_refused(name: str, kind: SerializeType) -> None:
    payload = golden(name, kind)[4:]
    header_end = 4 + int.from_bytes(payload[1:4], "big")
    for cut in range(header_end):
        with pytest.raises(ProtocolError):
            RemotingCommand.decode(payload[:cut])


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_header_that_says_it_is_shorter_is_refused(name: str, kind: SerializeType) -> None:
    payload = golden(name, kind)[4:]
    size = int.from_bytes(payload[1:4], "big")
    for shorter in range(size):
        with pytest.raises(ProtocolError):
            RemotingCommand.decode(payload[:1] + shorter.to_bytes(3, "big") + payload[4:])


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_frame_with_any_changed_byte_is_read_or_refused(name: str, kind: SerializeType) -> None:
    payload = golden(name, kind)[4:]
    for at in range(len(payload)):
        for change in (0x01, 0x20, 0x80, 0xFF):
            damaged = bytearray(payload)
            damaged[at] ^= change
            try:
                found = RemotingCommand.decode(damaged)
            except ProtocolError:
                continue
            assert isinstance(found, RemotingCommand)


@given(st.binary(max_size=80))
def test_any_payload_is_read_or_refused(payload: bytes) -> None:
    try:
        RemotingCommand.decode(payload)
    except ProtocolError:
        pass


@pytest.mark.parametrize("kind", [2, 7, 255])
def test_an_unknown_serialize_type_is_refused(kind: int) -> None:
    with pytest.raises(FrameError, match=f"got {kind}, wanted 0 or 1"):
        RemotingCommand.decode(bytes([kind, 0, 0, 2]) + b"{}")


TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT16 = st.integers(-(2**15), 2**15 - 1)


@given(
    st.builds(
        RemotingCommand,
        code=INT32,
        opaque=INT32,
        flag=INT32,
        remark=st.none() | TEXT,
        ext_fields=st.none() | st.dictionaries(TEXT, TEXT, max_size=5),
        body=st.binary(max_size=50),
        language=st.sampled_from([code for code in LanguageCode if code is not LanguageCode.UNKNOWN]),
        version=INT32,
    )
)
def test_json_frames_read_back(sent: RemotingCommand) -> None:
    assert RemotingCommand.decode(sent.encode()[4:]) == sent


@given(
    st.builds(
        RemotingCommand,
        code=INT16,
        opaque=INT32,
        flag=INT32,
        remark=st.none() | TEXT.filter(bool),
        ext_fields=st.none() | st.dictionaries(TEXT.filter(bool), TEXT.filter(bool), min_size=1, max_size=5),
        body=st.binary(max_size=50),
        language=st.sampled_from([code for code in LanguageCode if code is not LanguageCode.UNKNOWN]),
        version=INT16,
        serialize_type=st.just(BINARY),
    )
)
def test_binary_frames_read_back(sent: RemotingCommand) -> None:
    assert RemotingCommand.decode(sent.encode()[4:]) == sent


def test_an_empty_value_is_missing_in_the_binary_form() -> None:
    sent = RemotingCommand(1, remark="", ext_fields={"a": "", "b": "c"}, serialize_type=BINARY)
    found = RemotingCommand.decode(sent.encode()[4:])
    assert found.remark is None
    assert found.ext_fields == {"b": "c"}


@pytest.mark.parametrize("code", [32768, 200050, -32769])
def test_a_code_beyond_16_bits_has_no_binary_form(code: int) -> None:
    with pytest.raises(HeaderError, match=r"code: got .*, wanted a 16-bit integer"):
        RemotingCommand(code, serialize_type=BINARY).encode()
    assert RemotingCommand.decode(RemotingCommand(code).encode()[4:]).code == code


def test_a_name_beyond_16_bits_of_length_has_no_binary_form() -> None:
    with pytest.raises(HeaderError, match="32768 bytes"):
        RemotingCommand(1, ext_fields={"n" * 32768: "v"}, serialize_type=BINARY).encode()


@pytest.mark.parametrize("serialize_type", SerializeType)
@pytest.mark.parametrize("size", [0, 1, APART_SIZE - 1, APART_SIZE, 3 * APART_SIZE])
def test_a_frame_in_two_parts_is_the_frame(serialize_type: SerializeType, size: int) -> None:
    body = bytes(size)
    command = RemotingCommand(10, 7, remark="r", ext_fields={"a": "b"}, body=body, serialize_type=serialize_type)
    head, apart = command.encode_apart()
    assert head + apart == command.encode()
    assert (apart is body) == (size >= APART_SIZE or not size), "a large body is not copied"


def test_a_frame_in_two_parts_is_no_larger_than_others() -> None:
    with pytest.raises(FrameError, match="frame too large"):
        RemotingCommand(10, body=bytes(FRAME_SIZE_MAX)).encode_apart()


def test_a_frame_beyond_the_limit_is_not_written() -> None:
    with pytest.raises(FrameError, match="frame too large"):
        RemotingCommand(1, body=bytes(FRAME_SIZE_MAX)).encode()


@pytest.mark.parametrize("kind", [JSON, BINARY])
def test_a_reply_answers_its_request(kind: SerializeType) -> None:
    request = RemotingCommand(11, 42, 0, language=LanguageCode.GO, version=317, serialize_type=kind)
    reply = request.reply(19, "nothing", {"a": "b"}, b"body")
    assert reply == RemotingCommand(19, 42, 1, "nothing", {"a": "b"}, b"body", serialize_type=kind)
    assert reply.is_response
    assert not reply.is_oneway
    assert not request.is_response


def test_opaques_are_not_given_twice() -> None:
    given_ = [next_opaque() for _ in range(100)]
    assert len(set(given_)) == 100
    assert all(0 < opaque < 2**31 for opaque in given_)


# The splitter


FRAMES = [golden(name, kind) for name in COMMANDS for kind in (JSON, BINARY)]


@given(st.lists(st.sampled_from(FRAMES), max_size=8), st.lists(st.integers(1, 60), max_size=80))
@settings(max_examples=200)
def test_frames_come_out_whole_however_the_stream_is_cut(frames: list[bytes], sizes: list[int]) -> None:
    stream = b"".join(frames)
    splitter = FrameSplitter()
    payloads: list[bytes] = []
    at = 0
    for size in [*sizes, len(stream)]:
        payloads += splitter.feed(stream[at : at + size])
        at += size
    assert payloads == [frame[4:] for frame in frames]
    assert splitter.pending_size == 0


@pytest.mark.parametrize("frame", FRAMES)
def test_no_frame_comes_out_of_a_part_of_it(frame: bytes) -> None:
    for cut in range(len(frame)):
        splitter = FrameSplitter()
        assert list(splitter.feed(frame[:cut])) == []
        assert splitter.pending_size == cut
        assert list(splitter.feed(frame[cut:])) == [frame[4:]]


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 3, FRAME_SIZE_MAX - 3, 2**31 - 1])
def test_an_impossible_length_is_refused_after_the_frames_before_it(length: int) -> None:
    splitter = FrameSplitter()
    payloads = splitter.feed(FRAMES[0] + struct.pack(">i", length))
    assert next(payloads) == FRAMES[0][4:]
    with pytest.raises(FrameError, match=f"got {length}, wanted 4 to 16777212"):
        next(payloads)


def test_the_largest_frame_is_accepted() -> None:
    splitter = FrameSplitter()
    largest = struct.pack(">i", FRAME_SIZE_MAX - 4) + bytes(FRAME_SIZE_MAX - 4)
    assert [len(payload) for payload in splitter.feed(largest)] == [FRAME_SIZE_MAX - 4]


def test_frames_that_were_not_taken_are_not_lost() -> None:
    splitter = FrameSplitter()
    splitter.feed(FRAMES[0])
    assert list(splitter.feed(FRAMES[1])) == [FRAMES[0][4:], FRAMES[1][4:]]


# Frames from memory that stays


def read_into(buffer: FrameBuffer, data: bytes) -> list[bytes]:
    """Let a socket read *data* as far as there is room, as often as it takes."""
    found: list[bytes] = []
    while data:
        room = buffer.room()
        size = min(len(room), len(data))
        assert size > 0
        room[:size] = data[:size]
        found += [bytes(payload) for payload in buffer.added(size)]
        data = data[size:]
    return found


@pytest.mark.parametrize("sizes", [[0], [5, 0, 70_000, 1], [1_000_000], [300_000, 10, 5_000_000, 10, 600_000]])
@pytest.mark.parametrize("piece", [997, 65_536, 10_000_000])
def test_a_frame_buffer_gives_the_frames_of_a_splitter(sizes: list[int], piece: int) -> None:
    frames = [RemotingCommand(1, number, body=bytes([number]) * size).encode() for number, size in enumerate(sizes)]
    data = b"".join(frames)
    buffer, splitter = FrameBuffer(), FrameSplitter()
    for at in range(0, len(data), piece):
        assert read_into(buffer, data[at : at + piece]) == list(splitter.feed(data[at : at + piece]))
        assert buffer.pending_size == splitter.pending_size
    assert buffer.pending_size == 0
    assert read_into(buffer, frames[0]) == [frames[0][4:]]


def test_a_frame_buffer_that_has_grown_reads_large_frames_without_moving_them() -> None:
    frame = RemotingCommand(1, 1, body=bytes(1_000_000)).encode()
    buffer = FrameBuffer()
    assert len(read_into(buffer, frame)) == 1
    rooms: list[int] = []
    data = frame * 3
    while data:
        room = buffer.room()
        rooms.append(len(room))
        room[:], data = data[: len(room)], data[len(room) :]
        assert all(payload == frame[4:] for payload in buffer.added(len(room)))
    # A piece to see how long the frame is, and then exactly the rest of it.
    assert len(rooms) == 6
    assert sum(rooms[:2]) == sum(rooms[2:4]) == sum(rooms[4:]) == len(frame)


def test_a_command_splits_into_its_head_and_a_view_of_its_body() -> None:
    payload = bytearray(RemotingCommand(11, 5, ext_fields={"a": "b"}, body=b"body").encode()[4:])
    command, body = RemotingCommand.split(payload)
    assert (command, bytes(body)) == (RemotingCommand(11, 5, ext_fields={"a": "b"}), b"body")
    payload[-1:] = b"Y"
    assert bytes(body) == b"bodY"


@pytest.mark.parametrize("length", [-1, 0, 3, FRAME_SIZE_MAX])
def test_a_frame_buffer_refuses_impossible_lengths_after_the_good_frames(length: int) -> None:
    good = RemotingCommand(1, 1).encode()
    data = good + length.to_bytes(4, "big", signed=True)
    buffer = FrameBuffer()
    buffer.room()[: len(data)] = data
    payloads = buffer.added(len(data))
    assert bytes(next(payloads)) == good[4:]
    with pytest.raises(FrameError, match=f"bad frame length: got {length}"):
        next(payloads)


def test_a_frame_buffer_does_not_believe_a_length() -> None:
    buffer = FrameBuffer()
    assert read_into(buffer, (FRAME_SIZE_MAX - 4).to_bytes(4, "big") + bytes(100)) == []
    assert len(buffer.room()) < 1 << 20
