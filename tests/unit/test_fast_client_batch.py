"""Batches while they are filled, Cython beside the Python twin: the same bytes, ids, room and refusals."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcore._fast.client import batch as fast
from mqcore.client.model.messages import Message
from mqcore.client.model.receipt import SendReceipt, SendStatus
from mqcore.client.produce import batch_body as python
from mqcore.client.produce.request_reply import ReplyMessage
from mqcore.errors import HeaderError, ProtocolError
from mqcore.layout import FRAME_LENGTH_MAX
from mqcore.protocol import message as wire
from mqcore.protocol.batch import decode_batch
from mqcore.protocol.message_id import unique_id_ip, unique_id_time_ms

TWINS = pytest.mark.parametrize("twin", [pytest.param(python, id="python"), pytest.param(fast, id="cython")])
ID = "UNIQ_KEY"
BATCH_BYTES = 4000
BODY_SIZE_MAX = 1000

property_texts = st.text(st.characters(exclude_characters="\x01\x02"), min_size=1, max_size=20).filter(str.strip)
messages = st.builds(
    Message,
    st.just("T"),
    st.binary(min_size=1, max_size=50),
    tag=st.none() | property_texts,
    keys=st.lists(st.text("abcé", min_size=1), max_size=3),
    properties=st.dictionaries(property_texts.filter(lambda name: not name.isupper()), property_texts, max_size=3),
    flag=st.integers(-(2**31), 2**31 - 1),
)


def body_of(twin: Any, *, wait_store_ok: bool = True) -> Any:
    return twin.BatchBody(BATCH_BYTES, BODY_SIZE_MAX, wait_store_ok)


def members(body: bytes) -> list[wire.Message]:
    return decode_batch(body, "T")


@TWINS
def test_what_is_appended_reads_back(twin: Any) -> None:
    body = body_of(twin)
    body.append(7, {"a": "1", ID: "X"}, b"first", "X")
    body.append(-7, {ID: "Y"}, b"", "Y")
    assert (body.ids, body.count, body.bodies_size) == (["X", "Y"], 2, 5)
    size = body.size
    data = body.take()
    assert len(data) == size
    assert members(data) == [
        wire.Message("T", b"first", flag=7, properties={"a": "1", ID: "X"}),
        wire.Message("T", b"", flag=-7, properties={ID: "Y"}),
    ]


@TWINS
def test_a_refused_member_leaves_no_trace(twin: Any) -> None:
    body = body_of(twin)
    body.append(0, {ID: "X"}, b"x", "X")
    with pytest.raises(HeaderError, match="separator"):
        body.append(0, {"a": "1\x02"}, b"bad", "Y")
    with pytest.raises(ProtocolError, match="properties too long: got 32769"):
        body.append(0, {"a": "v" * 32767}, b"bad", "Y")
    with pytest.raises(ProtocolError, match="body too large"):
        body.append(0, {}, bytes(FRAME_LENGTH_MAX + 1), "Y")
    assert (body.ids, body.bodies_size) == (["X"], 1)
    assert [member.body for member in members(body.take())] == [b"x"]


@given(found=st.lists(messages, max_size=10), wait_store_ok=st.booleans())
def test_messages_that_join_are_written_as_the_twin_writes_them(found: list[Message], wait_store_ok: bool) -> None:
    bodies = body_of(fast, wait_store_ok=wait_store_ok), body_of(python, wait_store_ok=wait_store_ok)
    taken: list[list[wire.Message]] = []
    for twin, body in zip((fast, python), bodies, strict=True):
        ids, room = twin.UniqueIdGenerator("127.0.0.1"), twin.Room(1000, 10**9)
        places = [body.try_join(message, Message, ids, room) for message in found]
        assert places == (list(range(len(found))) if wait_store_ok else [-1] * len(found))
        assert (room.messages, room.bytes) == (body.count, body.bodies_size)
        read = members(body.take())
        assert [member.properties.pop(ID) for member in read] == body.ids
        taken.append(read)
    assert taken[0] == taken[1]


@dataclass(frozen=True, slots=True)
class OtherMessage(Message):
    """A kind of message that nobody knows how to batch."""


@TWINS
@pytest.mark.parametrize(
    "message",
    [
        pytest.param(Message("T", b""), id="empty"),
        pytest.param(Message("T", bytes(BODY_SIZE_MAX)), id="large"),
        pytest.param(Message("T", b"x", delay_level=1), id="delayed"),
        pytest.param(Message("T", b"x", wait_store_ok=False), id="does not wait for the store"),
        pytest.param(Message("T", b"x", properties={"INNER_MULTI_DISPATCH": "q"}), id="multi-dispatch"),
        pytest.param(Message("T", b"x", properties={"__STARTDELIVERTIME": "1"}), id="deliver time"),
        pytest.param(Message("T", b"x", properties={"TIMER_DELAY_SEC": "1"}), id="timer"),
        pytest.param(Message("T", b"x", properties={"a": "v" * 32767}), id="long properties"),
        pytest.param(ReplyMessage("T", b"x"), id="reply"),
        pytest.param(OtherMessage("T", b"x"), id="subclass"),
    ],
)
def test_what_may_not_join_takes_nothing(twin: Any, message: Message) -> None:
    body, ids, room = body_of(twin), twin.UniqueIdGenerator("127.0.0.1"), twin.Room(10, 10**6)
    assert body.try_join(message, Message, ids, room) == -1
    assert (body.count, body.size, room.messages, room.bytes) == (0, 0, 0, 0)
    assert body.try_join(Message("T", b"x"), Message, ids, room) == 0


@TWINS
def test_a_batch_is_full_at_its_bytes_and_takes_no_more(twin: Any) -> None:
    body, ids, room = body_of(twin), twin.UniqueIdGenerator("127.0.0.1"), twin.Room(10, 10**6)
    message = Message("T", bytes(BODY_SIZE_MAX - 1))
    places = [body.try_join(message, Message, ids, room) for _ in range(5)]
    assert places == [0, 1, 2, 3, -1]
    assert body.is_full
    assert room.messages == 4


@TWINS
def test_a_batch_is_full_at_its_count(twin: Any) -> None:
    body = twin.BatchBody(10**9, 10, True)
    for number in range(python.MEMBERS_MAX):
        assert not body.is_full
        body.append(0, {ID: str(number)}, b"x", str(number))
    assert body.is_full


@TWINS
def test_nobody_joins_without_room_or_past_those_who_wait(twin: Any) -> None:
    body, ids, room = body_of(twin), twin.UniqueIdGenerator("127.0.0.1"), twin.Room(2, 100)
    assert body.try_join(Message("T", bytes(60)), Message, ids, room) == 0
    assert body.try_join(Message("T", bytes(60)), Message, ids, room) == -1
    room.has_waiters = True
    assert body.try_join(Message("T", b"x"), Message, ids, room) == -1
    room.has_waiters = False
    assert body.try_join(Message("T", b"x"), Message, ids, room) == 1
    assert body.try_join(Message("T", b"x"), Message, ids, room) == -1
    assert (room.messages, room.bytes) == (2, 61)


# Room.


@TWINS
def test_room_is_counted_by_messages_and_bytes(twin: Any) -> None:
    room = twin.Room(2, 100)
    assert room.take(500)  # alone, however large
    assert not room.take(1)
    room.give_back(500, 1)
    assert room.take(50)
    assert room.take(50)
    assert not room.take(0)
    room.has_waiters = True
    assert room.give_back(100, 2) is True
    assert not room.try_take(1)
    assert room.take(1)
    assert (room.messages, room.bytes) == (1, 1)


# Ids.


@TWINS
@pytest.mark.parametrize(("ip", "size"), [("10.1.2.3", 32), ("fe80::1", 56)])
def test_an_id_says_where_and_when_it_was_made(twin: Any, ip: str, size: int, clock_now_ms: int) -> None:
    made = twin.UniqueIdGenerator(ip).next_id()
    assert len(made) == size
    assert unique_id_ip(made) == ip
    assert abs(unique_id_time_ms(made, clock_now_ms + 60_000) - clock_now_ms) < 60_000


@pytest.fixture
def clock_now_ms() -> int:
    from mqcore import clock

    return clock.now_ms()


@TWINS
def test_ids_do_not_repeat_across_threads(twin: Any) -> None:
    ids = twin.UniqueIdGenerator("127.0.0.1")
    made: list[list[str]] = [[] for _ in range(4)]

    def make(found: list[str]) -> None:
        found.extend(ids.next_id() for _ in range(5000))

    threads = [threading.Thread(target=make, args=(found,)) for found in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = [one for found in made for one in found]
    assert len(set(everything)) == len(everything)


@TWINS
def test_a_forked_child_makes_other_ids(twin: Any) -> None:
    ids = twin.UniqueIdGenerator("127.0.0.1")
    ids.next_id()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, ids.next_id().encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    theirs = os.read(reader, 100).decode()
    os.close(reader)
    ours = ids.next_id()
    assert theirs[8:12] == f"{child & 0xFFFF:04X}"
    assert ours[:20] != theirs[:20]


# Values.


@TWINS
def test_a_maker_makes_what_the_class_makes(twin: Any) -> None:
    queue = wire.MessageQueue("T", "b", 1)
    values = (SendStatus.SEND_OK, "id", "offset id", queue, 5, None, "region", False, None)
    made = twin.Maker(SendReceipt).make(*values)
    assert made == SendReceipt(*values)
    assert type(made) is SendReceipt
    with pytest.raises(TypeError):
        twin.Maker(wire.MessageQueue).make("too", "few")
