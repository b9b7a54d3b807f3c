"""The load generator's answer reader gives what the protocol module gives, and refuses what is no answer."""

from __future__ import annotations

import random
import struct

import pytest

from benchmarks.harness.native import answer, pulled_count
from mqcore.codes import SerializeType
from mqcore.protocol.command import RemotingCommand

FORMS = [pytest.param(form, id=form.name) for form in SerializeType]
SEND_FIELDS = {"msgId": "7F00000100002A9F0000000000000000", "queueId": "3", "queueOffset": "77", "TRACE_ON": "true"}
PULL_FIELDS = {"suggestWhichBrokerId": "0", "nextBeginOffset": "123456789012", "minOffset": "0", "maxOffset": "9"}


def frame_of(
    form: SerializeType, fields: dict[str, str] | None, *, code: int = 0, remark: str | None = None, body: bytes = b""
) -> bytes:
    """An answer to request 1,000,000,007."""
    request = RemotingCommand(code=310, opaque=1_000_000_007, serialize_type=form)
    return request.reply(code, remark, fields, body).encode()


def record(queue_id: int, queue_offset: int, size: int = 91) -> bytes:
    """A stored message as far as the reader looks at it."""
    return struct.pack(">iiiiiq", size, 0, 0, queue_id, 0, queue_offset).ljust(size, b"\0")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("fields", [None, {}, SEND_FIELDS, PULL_FIELDS])
@pytest.mark.parametrize("code", [0, 2, 205])
@pytest.mark.parametrize("body", [b"", b"x" * 5000])
def test_answer_reads_as_the_protocol_module_reads_it(
    form: SerializeType, fields: dict[str, str] | None, code: int, body: bytes
) -> None:
    frame = frame_of(form, fields, code=code, remark="[PCBUSY_CLEAN_QUEUE] broker busy", body=body)
    decoded = RemotingCommand.decode(frame[4:])
    text = (decoded.ext_fields or {}).get("nextBeginOffset")
    assert answer(frame) == (decoded.code, decoded.opaque, None if text is None else int(text), decoded.body)


@pytest.mark.parametrize("form", FORMS)
def test_names_inside_a_remark_are_not_taken_for_members(form: SerializeType) -> None:
    remark = '{"code":7,"opaque":8,"flag":0,"nextBeginOffset":"9"}'
    assert answer(frame_of(form, {"a": remark}, remark=remark)) == (0, 1_000_000_007, None, b"")


@pytest.mark.parametrize("form", FORMS)
def test_answer_cut_at_any_byte_is_refused(form: SerializeType) -> None:
    frame = frame_of(form, PULL_FIELDS, body=b"body")
    for cut in range(len(frame)):
        with pytest.raises(ValueError, match="cut short"):
            answer(frame[:cut])


@pytest.mark.parametrize("form", FORMS)
def test_damaged_answer_is_refused_or_read_within_its_frame(form: SerializeType, chance: random.Random) -> None:
    frame = frame_of(form, PULL_FIELDS, remark="FOUND", body=b"body")
    for _ in range(20_000):
        damaged = bytearray(frame)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            body = answer(damaged)[3]
        except ValueError:
            continue
        assert damaged.endswith(body) or len(body) < len(frame)


@pytest.mark.parametrize("form", FORMS)
def test_a_request_is_not_an_answer(form: SerializeType) -> None:
    request = RemotingCommand(code=40, opaque=1_000_000_007, ext_fields={}, serialize_type=form)
    with pytest.raises(ValueError, match="not an answer"):
        answer(request.encode())


@pytest.mark.parametrize("length", [-1, 0, 3, 16 * 1024 * 1024 - 3, 0x7FFFFFFF])
def test_impossible_length_is_not_an_answer(length: int) -> None:
    with pytest.raises(ValueError, match="not an answer"):
        answer(struct.pack(">i", length) + bytes(100))


def test_records_in_place_are_counted() -> None:
    assert pulled_count(record(3, 10) + record(3, 11, size=300) + record(3, 12), 3, 10) == (3, True)


@pytest.mark.parametrize(
    ("body", "count"),
    [
        pytest.param(record(3, 10) + record(3, 12), 1, id="gap"),
        pytest.param(record(3, 10) + record(3, 10), 1, id="repeated"),
        pytest.param(record(3, 10) + record(4, 11), 1, id="other queue"),
        pytest.param(record(3, 10) + record(3, 11)[:-1], 1, id="cut"),
        pytest.param(record(3, 10) + b"\0" * 95, 1, id="size 0"),
        pytest.param(record(3, 10) + b"\xff" * 95, 1, id="size -1"),
        pytest.param(record(3, 9), 0, id="wrong start"),
    ],
)
def test_records_out_of_place_make_a_pull_unsound(body: bytes, count: int) -> None:
    assert pulled_count(body, 3, 10) == (count, False)
