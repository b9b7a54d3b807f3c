"""What mqcore send makes of lines and options, and how consume -f writes."""

from __future__ import annotations

import asyncio
import io
import os
import threading
import time
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from mqcore.admin.consume_command import Start, parse_start
from mqcore.admin.formats import MARKS, parse_format
from mqcore.admin.output import message_json, tsv_text
from mqcore.admin.send_source import JSON_MEMBERS, Template, items, json_maker, numbered_lines, plain_maker, portions
from mqcore.admin.sending import until
from mqcore.client.model.messages import ReceivedMessage
from mqcore.errors import ArgumentError
from mqcore.protocol.message import MessageExt, MessageQueue

TEMPLATE = Template("T", tag="all", keys=("k",), properties={"a": "1"})


def received(body: bytes = b"\xff\x00", **properties: str) -> ReceivedMessage:
    ext = MessageExt(topic="T", body=body, properties={"UNIQ_KEY": "ID", **properties})
    ext.broker_name, ext.queue_id, ext.queue_offset, ext.store_timestamp = "b", 3, 42, 1_700_000_000_000
    return ReceivedMessage(ext, MessageQueue("T", "b", 3))


def test_a_json_line_says_what_a_message_has_and_the_template_the_rest() -> None:
    make = json_maker(TEMPLATE)
    plain = make(1, b'{"body": "x"}')
    assert (plain.message.body, plain.message.tag, plain.message.keys) == (b"x", "all", ("k",))
    full = {
        "body": {"n": 1}, "tag": "t", "keys": ["a", "b"], "properties": {"b": "2"}, "shardKey": 7, "queue": "b:3",
        "delay": "90s",
    }  # fmt: skip
    item = make(2, orjson.dumps(full))
    assert (item.line, item.queue, item.shard_key) == (2, MessageQueue("T", "b", 3), 7)
    assert (item.message.body, item.message.tag, item.message.keys) == (b'{"n":1}', "t", ("a", "b"))
    assert item.message.properties == {"a": "1", "b": "2", "TIMER_DELAY_MS": "90000"}
    assert make(3, b'{"bodyBase64": "/wA=", "delay": 3}').message.delay_level == 3
    at = make(4, b'{"body": "x", "deliverAt": "2026-01-31T12:00"}').message.properties["TIMER_DELIVER_MS"]
    assert int(at) == datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp() * 1000


def test_what_consume_prints_can_be_sent_again() -> None:
    message = received(KEYS="k1 k2", TAGS="t", own="x", WAIT="true")
    item = json_maker(Template("Other"))(1, orjson.dumps(message_json(message)))
    assert (item.message.topic, item.message.body, item.message.tag) == ("Other", b"\xff\x00", "t")
    assert (item.message.keys, item.message.properties, item.queue) == (("k1", "k2"), {"own": "x"}, None)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "no JSON"),
        (b"[1]", "wanted a JSON object"),
        (b'{"bdy": "x"}', "unknown member 'bdy'; did you mean 'body'?"),
        (b"{}", "give body or bodyBase64"),
        (b'{"body": "x", "bodyBase64": "eA=="}', "give body or bodyBase64"),
        (b'{"bodyBase64": "?"}', "bodyBase64: "),
        (b'{"body": "x", "tag": 1}', "tag: got 1, wanted text"),
        (b'{"body": "x", "properties": []}', ""),
        (b'{"body": "x", "properties": {"a": 1}}', "a: got 1, wanted text"),
        (b'{"body": "x", "shardKey": []}', "shardKey: got [], wanted text"),
        (b'{"body": "x", "queue": "b"}', "queue: got 'b', wanted broker:id"),
        (b'{"body": "x", "delay": "soon"}', "delay: got 'soon'"),
        (b'{"body": "x", "delay": 99}', "wanted 0 to 18"),
        (b'{"body": "x", "deliverAt": "soon"}', "deliverAt: got 'soon'"),
        (b'{"body": "x", "delay": 1, "deliverAt": 5}', "not both"),
    ],
)
def test_what_is_wrong_with_a_line_is_said(line: bytes, said: str) -> None:
    make = json_maker(TEMPLATE)
    if not said:
        assert make(1, line).message.properties == {"a": "1"}  # an empty list of them is none
        return
    with pytest.raises(ArgumentError) as caught:
        make(1, line)
    assert said in str(caught.value)


def test_every_member_of_a_json_line_is_known_to_somebody() -> None:
    values: dict[str, Any] = {
        "body": "x", "bodyBase64": "eA==", "tag": "t", "keys": ["k"], "properties": {"a": "b"}, "shardKey": "s",
        "queue": "b:1", "delay": "1s", "deliverAt": 5,
    }  # fmt: skip
    assert values.keys() == JSON_MEMBERS.keys()
    for name, value in values.items():
        body = {} if name.startswith("body") else {"body": "x"}
        json_maker(Template("T"))(1, orjson.dumps({**body, name: value}))


def test_lines_may_begin_with_their_key() -> None:
    make = plain_maker(TEMPLATE, b"\t")
    item = make(1, b"key\tthe\tbody")
    assert (item.message.keys, item.message.body) == (("k", "key"), b"the\tbody")
    with pytest.raises(ArgumentError, match="between key and body"):
        make(2, b"nothing")


async def test_lines_keep_their_numbers_whatever_the_pieces_they_come_in() -> None:
    data = b"one\r\n\n" + b"x" * 200_000 + b"\nlast"
    wanted = [(1, b"one"), (3, b"x" * 200_000), (4, b"last")]
    assert [line for portion in portions(io.BytesIO(data)) for line in portion] == wanted
    got = [
        line
        async for portion in items(numbered_lines(io.BytesIO(data)), plain_maker(TEMPLATE, None))
        for line in portion
    ]
    assert [number for number, _ in got] == [1, 3, 4]


async def test_who_waits_for_a_line_is_stopped() -> None:
    reading, writing = os.pipe()
    stop = asyncio.Event()
    with os.fdopen(reading, "rb") as stream, os.fdopen(writing, "wb") as pipe:
        asyncio.get_running_loop().call_later(0.05, stop.set)
        began = time.monotonic()
        async with asyncio.timeout(30):
            assert [portion async for portion in until(stop, numbered_lines(stream))] == []
        assert time.monotonic() - began >= 0.05
        pipe.close()


async def test_who_stops_reading_lets_the_reading_thread_go() -> None:
    def is_read() -> bool:
        return any(thread.name == "mqcore lines" for thread in threading.enumerate())

    lines = numbered_lines(io.BytesIO(b"x" * 1000 + b"\n" + b"y\n" * (1 << 20)))
    assert (await anext(lines))[0][0] == 1
    assert is_read(), "there is more than may be ahead"
    await lines.aclose()
    async with asyncio.timeout(30):
        while is_read():
            await asyncio.sleep(0.01)


def test_formats_give_exact_bytes() -> None:
    message = received(KEYS="k", TAGS="g", own="x")
    assert parse_format(r"%t %b %q %o %k %K %g %T %S\t%s\x41\n")(message) == (
        b"T b 3 42 k 1 g 1700000000000 2\t\xff\x00A\n"
    )
    assert parse_format("%R")(message) == b"\0\0\0\2"
    assert parse_format("%v%%")(message) == b"\xff\x00%"
    for letter in MARKS:
        assert isinstance(parse_format("%" + letter)(message), bytes)
    for wrong in ("%", "%z", "\\", "\\z", r"\x4", r"\xzz"):
        with pytest.raises(ValueError, match="format"):
            parse_format(wrong)


def test_places_to_begin_at() -> None:
    assert parse_start("earliest") == Start(word="earliest")
    assert parse_start("17") == Start(offset=17)
    assert parse_start("-17") == Start(last=17)
    assert parse_start("2026-01-31T12:00") == Start(time=datetime(2026, 1, 31, 12, tzinfo=UTC))
    hour_ago = parse_start("-1h").time
    assert hour_ago is not None
    assert abs((datetime.now(UTC) - hour_ago).total_seconds() - 3600) < 60


def test_tsv_escapes_what_would_break_it() -> None:
    rows = [{"a": "x\ty\n", "b": None, "c": ["k"]}, {"a": "\\", "b": 1, "c": {}}]
    assert tsv_text(rows) == 'a\tb\tc\nx\\ty\\n\t\t["k"]\n\\\\\t1\t{}\n'
    assert tsv_text({"a": 1}) == "name\tvalue\na\t1\n"
    assert tsv_text(["x"]) == "value\nx\n"
    assert tsv_text([]) == ""
