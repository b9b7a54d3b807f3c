"""From the records of a pull to messages, Cython beside the Python twin: the same messages, the same damage."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol_golden import GOLDEN

from mqcore._fast.client import records as fast
from mqcore.client.model.messages import ReceivedMessage
from mqcore.errors import ProtocolError
from mqcore.protocol import pulled as python
from mqcore.protocol.codec import PURE
from mqcore.protocol.compression import CompressionType, compress
from mqcore.protocol.message import HostAddress, MessageExt, MessageQueue
from mqcore.protocol.message_decoder import encode_message

TWINS = pytest.mark.parametrize("twin", [pytest.param(python, id="python"), pytest.param(fast, id="cython")])
QUEUE = MessageQueue("T", "broker-a", 2)
RETRY = "%RETRY%G"
HELD, SETTLER = object(), object()


def record(**changes: Any) -> MessageExt:
    values: dict[str, Any] = {
        "flag": -9,
        "properties": {"KEYS": "k1 k2", "TAGS": "a", "UNIQ_KEY": "7F00000100001B28DAB15D0BD7C80000", "é": "ü"},
        "queue_id": 2,
        "queue_offset": 2**40,
        "physical_offset": 77,
        "born_timestamp": 1795245418616,
        "born_host": HostAddress("10.1.2.3", 41676),
        "store_timestamp": 1795245418620,
        "store_host": HostAddress("127.0.0.1", 10911),
        "reconsume_times": 1,
        "prepared_transaction_offset": 5,
        "body_crc": 0x3610A686,
    }
    topic, body = changes.pop("topic", "T"), changes.pop("body", b"hello")
    return MessageExt(topic, body, **(values | changes))


def read(twin: Any, body: bytes, *, tags: frozenset[str] | None = None) -> list[Any]:
    return list(twin.decode_pulled(twin.RecordFields, body, QUEUE, tags, 3, 99, RETRY, HELD, SETTLER))


def shown(message: Any) -> dict[str, Any]:
    """Everything that can be asked of a message: first without its ext, then the ext, then with it."""
    names = (
        *("topic", "body", "body_size", "queue", "queue_offset", "tag", "keys", "msg_id", "born_timestamp"),
        *("store_timestamp", "reconsume_times", "flag", "held", "settler", "settled", "consume_started_s"),
    )
    before = {name: getattr(message, name) for name in names}
    ext = message.ext
    assert {name: getattr(message, name) for name in names} == before
    return before | {"ext": ext}


def outcome(twin: Any, body: bytes, **arguments: Any) -> Any:
    try:
        return [shown(message) for message in read(twin, body, **arguments)]
    except ProtocolError as error:
        return type(error), str(error)


PLAIN = encode_message(record())
SAMPLES = {
    "plain": PLAIN,
    "of java": GOLDEN["record"],
    "compressed, IPv6": GOLDEN["record.v6.zlib"],
    "long topic": encode_message(record(topic="t" * 200)),
    "no body": encode_message(record(body=b"")),
    "no properties": encode_message(record(properties={})),
    "retry": encode_message(record(topic=RETRY, properties={"RETRY_TOPIC": "First"})),
    "retry without its topic": encode_message(record(topic=RETRY)),
    "prepared": encode_message(record(properties={"TRAN_MSG": "TRUE", "UNIQ_KEY": "X"})),
    "compressed": encode_message(
        record(body=b"hello" * 100, sys_flag=CompressionType.ZLIB.sys_flag), compress_body=True
    ),
}


@TWINS
@pytest.mark.parametrize("name", SAMPLES)
def test_every_record_is_read_whole(twin: Any, name: str) -> None:
    body = SAMPLES["plain"] + SAMPLES[name] + SAMPLES["plain"]
    assert outcome(twin, body) == outcome(python, body)
    first, found, last = read(twin, body)
    assert first.ext.properties == record().properties | {"MIN_OFFSET": "3", "MAX_OFFSET": "99"}
    assert (first.tag, first.keys, first.msg_id) == ("a", ("k1", "k2"), "7F00000100001B28DAB15D0BD7C80000")
    assert (first.held, first.settler, first.queue) == (HELD, SETTLER, QUEUE)
    assert shown(first) == shown(last)
    assert found.ext.broker_name == "broker-a"


@TWINS
def test_topics_tags_and_transactions_are_what_a_consumer_expects(twin: Any) -> None:
    assert read(twin, SAMPLES["retry"])[0].topic == "First"
    assert read(twin, SAMPLES["retry without its topic"])[0].topic == RETRY
    assert read(twin, SAMPLES["prepared"])[0].ext.transaction_id == "X"
    assert read(twin, SAMPLES["no properties"])[0].msg_id == "7F00000100002A9F000000000000004D"
    assert read(twin, SAMPLES["compressed"])[0].body == b"hello" * 100
    assert read(twin, b"") == []


@TWINS
def test_only_messages_with_a_wanted_tag_are_kept(twin: Any) -> None:
    body = b"".join(encode_message(record(properties=one)) for one in ({"TAGS": "a"}, {"TAGS": "b"}, {}, {"TAGS": "é"}))
    assert [message.tag for message in read(twin, body, tags=frozenset({"a", "é"}))] == ["a", "é"]
    assert [message.tag for message in read(twin, body)] == ["a", "b", None, "é"]


@TWINS
def test_what_is_changed_in_the_ext_shows_in_the_message(twin: Any) -> None:
    (message,) = read(twin, PLAIN)
    message.ext.reconsume_times += 1
    message.ext.properties["TAGS"] = "new"
    assert (message.reconsume_times, message.tag) == (2, "new")
    other = record(body=b"other")
    message.ext = other
    assert (message.body, message.ext) == (b"other", other)


@TWINS
def test_a_message_is_also_made_of_an_ext(twin: Any) -> None:
    made = twin.RecordFields(record(), QUEUE, topic="Shown", held=HELD, settler=SETTLER)
    assert (made.topic, made.body, made.queue_offset, made.body_size) == ("Shown", b"hello", 2**40, 5)
    assert twin.RecordFields(record(), QUEUE).topic == "T"


@pytest.mark.parametrize("name", SAMPLES)
def test_records_cut_anywhere_are_refused_alike(name: str) -> None:
    whole = SAMPLES[name]
    for cut in range(len(whole)):
        wanted = outcome(python, PLAIN + whole[:cut])
        assert outcome(fast, PLAIN + whole[:cut]) == wanted
        assert (wanted[0] is ProtocolError) == (cut > 0)


@pytest.mark.parametrize("name", ["plain", "compressed", "retry"])
def test_records_with_any_changed_byte_are_read_or_refused_alike(name: str) -> None:
    for at in range(len(SAMPLES[name])):
        for change in (0x01, 0x10, 0x80, 0xFF):
            damaged = bytearray(SAMPLES[name])
            damaged[at] ^= change
            assert outcome(fast, bytes(damaged)) == outcome(python, bytes(damaged)), (at, change)


@given(
    bodies=st.lists(st.binary(max_size=100), max_size=5),
    topic=st.text(min_size=1, max_size=20),
    properties=st.dictionaries(
        st.text(st.characters(exclude_characters="\x01\x02"), min_size=1, max_size=10),
        st.text(st.characters(exclude_characters="\x02"), min_size=1, max_size=10),
        max_size=4,
    ),
)
def test_any_records_are_read_alike(bodies: list[bytes], topic: str, properties: dict[str, str]) -> None:
    data = b"".join(
        encode_message(record(topic=topic, body=body, properties=properties, queue_offset=at))
        for at, body in enumerate(bodies)
    )
    assert outcome(fast, data) == outcome(python, data)


@pytest.mark.skipif(PURE, reason="the plain twin's messages are like all objects")
def test_a_received_message_is_what_a_consumer_hands_out() -> None:
    messages = fast.decode_pulled(ReceivedMessage, PLAIN, QUEUE, None, 0, 1, None, None, None)
    assert [type(message) for message in messages] == [ReceivedMessage]
    assert "queue_offset=1099511627776" in repr(messages[0])
    assert not hasattr(messages[0], "__dict__")


def test_a_body_that_does_not_decompress_is_refused_alike() -> None:
    packed = compress(b"hello" * 100, CompressionType.ZLIB)
    bad = encode_message(record(body=packed[:-6], sys_flag=CompressionType.ZLIB.sys_flag))
    assert outcome(fast, bad) == outcome(python, bad)
    assert outcome(fast, bad)[0] is ProtocolError
