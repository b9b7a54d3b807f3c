"""Messages: properties, ids, hashes, compression, batches and stored records."""

from __future__ import annotations

import io
import ipaddress
import multiprocessing
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from datetime import datetime

import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol_golden import GOLDEN, rows

from mqcore.codes import SysFlag
from mqcore.errors import HeaderError, ProtocolError
from mqcore.protocol import message_id, properties
from mqcore.protocol.batch import decode_batch, encode_batch
from mqcore.protocol.compression import BODY_SIZE_MAX, CompressionType, compress, decompress
from mqcore.protocol.hashing import java_string_hash, tags_code
from mqcore.protocol.message import HostAddress, Message, MessageExt, MessageQueue, UniqueIdGenerator
from mqcore.protocol.message_decoder import decode_message, decode_messages, encode_message
from mqcore.protocol.message_id import (
    decode_offset_message_id,
    encode_offset_message_id,
    unique_id_ip,
    unique_id_time_ms,
)
from mqcore.protocol.properties import decode_properties, encode_properties

# Properties


def test_properties_are_written_without_a_separator_at_the_end() -> None:
    assert encode_properties({"KEYS": "k1 k2", "TAGS": "TagA"}) == "KEYS\x01k1 k2\x02TAGS\x01TagA"
    assert encode_properties({}) == ""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        (None, {}),
        ("a\x01b", {"a": "b"}),
        ("a\x01b\x02", {"a": "b"}),
        (b"a\x01\xe4\xb8\xad\x02c\x01d", {"a": "中", "c": "d"}),
        ("a\x01b\x02a\x01c", {"a": "c"}),
        ("a\x01\x02b\x01c", {"b": "c"}),
        ("\x01x\x02b\x01c", {"b": "c"}),
        ("nothing\x02b\x01c", {"b": "c"}),
        ("\x02\x02b\x01c\x02\x02", {"b": "c"}),
        ("a\x01b\x01c", {"a": "b\x01c"}),
        (b"a\x01\xff", {"a": "\ufffd"}),
    ],
)
def test_properties_are_read_from_any_writer(text: str | bytes | None, found: dict[str, str]) -> None:
    assert decode_properties(text) == found


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=10)


@given(st.dictionaries(NAMES, NAMES, max_size=6))
def test_properties_read_back(sent: dict[str, str]) -> None:
    text = encode_properties(sent)
    assert decode_properties(text) == sent
    assert decode_properties(text.encode()) == sent
    assert decode_properties(text + "\x02") == sent


@pytest.mark.parametrize("sent", [{"a": "b\x02c"}, {"a\x01": "b"}, {"a\x02": "b"}])
def test_properties_that_would_read_back_differently_are_refused(sent: dict[str, str]) -> None:
    with pytest.raises(HeaderError, match="a separator inside"):
        encode_properties(sent)


def test_reserved_names_are_those_of_java() -> None:
    assert "UNIQ_KEY" in properties.RESERVED_NAMES
    assert "CHECK_IMMUNITY_TIME_IN_SECONDS" not in properties.RESERVED_NAMES
    assert len(properties.RESERVED_NAMES) == 31


# Hashes


@pytest.mark.parametrize("name", rows("hash."))
def test_hashes_are_java_s(name: str) -> None:
    assert java_string_hash(name.removeprefix("hash.")) == int(GOLDEN[name])


@pytest.mark.parametrize(("tags", "code"), [(None, 0), ("", 0), ("TagA", 2598919)])
def test_a_message_without_tag_has_tags_code_0(tags: str | None, code: int) -> None:
    assert tags_code(tags) == code


# Ids


@pytest.mark.parametrize(
    ("name", "ip", "physical_offset"),
    [("offsetMessageId", "127.0.0.1", 0x123456789), ("offsetMessageId.v6", "2001:db8::1", 5)],
)
def test_offset_ids_are_java_s(name: str, ip: str, physical_offset: int) -> None:
    text = GOLDEN[name].decode()
    assert encode_offset_message_id(HostAddress(ip, 10911), physical_offset) == text
    assert decode_offset_message_id(text) == (HostAddress(ip, 10911), physical_offset)
    assert decode_offset_message_id(text.lower()) == (HostAddress(ip, 10911), physical_offset)


@pytest.mark.parametrize("text", ["", "7F", "Z" * 32, "0" * 31, "0" * 34, "0" * 58])
def test_a_text_that_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match="bad message id"):
        decode_offset_message_id(text)


@pytest.mark.parametrize(("ip", "size"), [("192.0.2.2", 32), ("2001:db8::7", 56)])
def test_a_unique_id_says_where_and_when_it_was_made(ip: str, size: int) -> None:
    before_ms = time.time_ns() // 1_000_000
    made = UniqueIdGenerator(ip).next_id()
    after_ms = time.time_ns() // 1_000_000
    assert len(made) == size
    assert made == made.upper()
    assert unique_id_ip(made) == ip
    assert before_ms <= unique_id_time_ms(made, after_ms) <= after_ms


def test_unique_ids_do_not_repeat_across_threads() -> None:
    generator = UniqueIdGenerator("192.0.2.2")
    made: list[list[str]] = [[] for _ in range(4)]

    def make(into: list[str]) -> None:
        into.extend(generator.next_id() for _ in range(5000))

    threads = [threading.Thread(target=make, args=(into,)) for into in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id_ for into in made for id_ in into}) == 20_000


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_makes_other_ids() -> None:
    generator = UniqueIdGenerator("192.0.2.2")
    ours = generator.next_id()
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=lambda: send.send(generator.next_id()))
    child.start()
    theirs = receive.recv()
    child.join()
    receive.close()
    send.close()
    assert theirs[8:20] != ours[8:20]  # pid and loader bytes
    assert generator.next_id()[:20] == ours[:20]


@pytest.fixture
def clock_ms(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """A clock whose one element is the time, in ms, in Shanghai."""
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    now = [0]
    monkeypatch.setattr(message_id.clock, "now_ms", lambda: now[0])
    yield now
    monkeypatch.undo()
    time.tzset()


def local_ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize("moment", ["2026-01-01 00:00:00", "2026-12-31 23:59:59.999", "2028-02-29 12:00:00"])
def test_the_time_in_an_id_counts_from_the_local_start_of_the_month(clock_ms: list[int], moment: str) -> None:
    clock_ms[0] = local_ms(moment)
    made = UniqueIdGenerator("192.0.2.2").next_id()
    month = datetime.fromisoformat(moment).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    assert int(made[20:28], 16) == clock_ms[0] - int(month.timestamp() * 1000)


def test_ids_start_again_with_the_month(clock_ms: list[int]) -> None:
    generator = UniqueIdGenerator("192.0.2.2")
    clock_ms[0] = local_ms("2026-11-30 23:59:59.999")
    last = generator.next_id()
    clock_ms[0] += 1
    first = generator.next_id()
    assert int(first[20:28], 16) == 0
    # Read in the new month, the old id is from the month before.
    assert unique_id_time_ms(last, clock_ms[0]) == clock_ms[0] - 1
    assert unique_id_time_ms(first, clock_ms[0]) == clock_ms[0]


def test_a_clock_that_is_set_back_does_not_repeat_times(clock_ms: list[int]) -> None:
    generator = UniqueIdGenerator("192.0.2.2")
    clock_ms[0] = local_ms("2026-11-21 10:00:00")
    before = generator.next_id()
    clock_ms[0] -= 3_600_000
    after = generator.next_id()
    assert after[20:28] == before[20:28]
    assert after != before


# Compression


@pytest.mark.parametrize("kind", list(CompressionType))
def test_bodies_compress_and_decompress(kind: CompressionType) -> None:
    body = b"hello " * 1000
    packed = compress(body, kind)
    assert len(packed) < len(body)
    assert decompress(packed, kind.sys_flag) == body
    assert decompress(memoryview(packed), kind.sys_flag | SysFlag.MULTI_TAGS) == body


def test_the_sys_flag_of_zlib_is_the_observed_one() -> None:
    assert CompressionType.ZLIB.sys_flag == 0x301


def test_a_body_without_the_bit_is_left_alone() -> None:
    assert decompress(b"x", 0x300) == b"x"


def test_lz4_frames_have_blocks_that_stand_alone() -> None:
    frame = lz4.frame.get_frame_info(compress(bytes(500_000), CompressionType.LZ4))
    assert not frame["block_linked"]  # the Java client reads no others


def test_old_clients_compress_without_a_type() -> None:
    assert decompress(zlib.compress(b"x"), 0x1) == b"x"


@pytest.mark.parametrize("kind", list(CompressionType))
def test_a_compressed_body_cut_at_any_byte_is_refused(kind: CompressionType) -> None:
    packed = compress(b"hello world, hello", kind)
    for cut in range(len(packed)):
        with pytest.raises(ProtocolError):
            decompress(packed[:cut], kind.sys_flag)


@pytest.mark.parametrize("kind", list(CompressionType))
def test_a_body_that_is_not_compressed_is_refused(kind: CompressionType) -> None:
    with pytest.raises(ProtocolError, match=r"body does not decompress|cut short"):
        decompress(b"plain text", kind.sys_flag)


@pytest.mark.parametrize("number", [4, 5, 6, 7])
def test_an_unknown_compression_type_is_refused(number: int) -> None:
    with pytest.raises(ProtocolError, match=f"unknown compression type: got {number}"):
        decompress(b"", 1 | number << 8)


@pytest.mark.parametrize("kind", list(CompressionType))
def test_a_body_that_grows_beyond_the_limit_is_refused(kind: CompressionType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert BODY_SIZE_MAX >= 16 * 2**20
    monkeypatch.setattr("mqcore.protocol.compression.BODY_SIZE_MAX", 1_000_000)
    assert len(decompress(compress(bytes(1_000_000), kind), kind.sys_flag)) == 1_000_000
    with pytest.raises(ProtocolError, match="grows beyond 1000000 bytes"):
        decompress(compress(bytes(1_000_001), kind), kind.sys_flag)


# Batches


BATCH = [Message("T", b"hello", flag=3, properties={"a": "1"}), Message("T")]


def test_batches_are_java_s() -> None:
    assert encode_batch(BATCH) == GOLDEN["batch"]
    assert decode_batch(GOLDEN["batch"], "T") == BATCH
    assert decode_batch(b"") == []


def test_a_batch_cut_at_any_byte_is_refused() -> None:
    whole = GOLDEN["batch"]
    first = struct.unpack_from(">i", whole)[0]
    for cut in set(range(1, len(whole))) - {first}:
        with pytest.raises(ProtocolError):
            decode_batch(whole[:cut])


def test_a_batch_with_any_changed_length_is_refused() -> None:
    whole = GOLDEN["batch"]
    for at in (0, 16, 20 + 5):  # total size, body size, properties size
        for value in (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0"):
            size = 2 if at == 25 else 4
            damaged = whole[:at] + value[:size] + whole[at + size :]
            with pytest.raises(ProtocolError):
                decode_batch(damaged)


MESSAGES = st.builds(
    Message,
    st.just("T"),
    st.binary(max_size=20),
    flag=st.integers(-(2**31), 2**31 - 1),
    properties=st.dictionaries(NAMES, NAMES, max_size=3),
)


@given(st.lists(MESSAGES, max_size=5))
def test_batches_read_back(messages: list[Message]) -> None:
    assert decode_batch(encode_batch(messages), "T") == messages


def test_properties_beyond_16_bits_of_length_are_refused() -> None:
    big = {"a": "x" * 32766}
    with pytest.raises(ProtocolError, match="properties too long: got 32768 bytes"):
        encode_batch([Message("T", properties=big)])
    with pytest.raises(ProtocolError, match="properties too long: got 32768 bytes"):
        encode_message(MessageExt("T", properties=big))


# Records


def record(**changes: object) -> MessageExt:
    values: dict[str, object] = {
        "flag": 9,
        "properties": {"KEYS": "k1 k2"},
        "queue_id": 2,
        "queue_offset": 3,
        "physical_offset": 77,
        "born_timestamp": 0x1A1FCF72706,
        "born_host": HostAddress("127.0.0.1", 0xA2CC),
        "store_timestamp": 0x1A1FCF727DD,
        "store_host": HostAddress("127.0.0.1", 10911),
        "reconsume_times": 1,
        "prepared_transaction_offset": 5,
        "body_crc": 0x3610A686,
    }
    return MessageExt("TopicT1", b"hello", **(values | changes))  # type: ignore[arg-type]


PLAIN = record(store_size=len(GOLDEN["record"]))
PACKED = record(born_host=HostAddress("2001:db8::1", 5), sys_flag=0x311, store_size=len(GOLDEN["record.v6.zlib"]))


def test_records_that_java_wrote_are_read() -> None:
    assert decode_messages(GOLDEN["record"]) == [PLAIN]
    assert decode_messages(GOLDEN["record"] + GOLDEN["record.v6.zlib"] + GOLDEN["record"]) == [PLAIN, PACKED, PLAIN]
    assert decode_messages(b"") == []
    assert decode_message(memoryview(GOLDEN["record.v6.zlib"])) == PACKED


def test_records_are_written_as_java_writes_them() -> None:
    assert encode_message(PLAIN) == GOLDEN["record"]
    assert decode_message(encode_message(PACKED, compress_body=True)) == PACKED


def test_a_body_can_be_left_compressed() -> None:
    found = decode_message(GOLDEN["record.v6.zlib"], decompress_body=False)
    assert zlib.decompress(found.body) == b"hello"


def test_the_captured_record_is_read() -> None:
    head = bytes.fromhex(
        "000000D4 DAA320A7 3610A686 00000002 00000000 0000000000000000 0000000000000000 00000000 000001A1FCF72706"
        "7F000001 0000A2CC 000001A1FCF727DD 7F000001 00002A9F 00000000 0000000000000000 00000005"
    )
    unique = "FD" + "0" * 54
    text = f"KEYS\x01k1 k2\x02UNIQ_KEY\x01{unique}\x02CLUSTER\x01DefaultCluster\x02TAGS\x01TagA".encode()
    (found,) = decode_messages(head + b"hello\x07TopicT1" + len(text).to_bytes(2, "big") + text)
    assert (found.topic, found.body, found.store_size) == ("TopicT1", b"hello", 212)
    assert (found.keys, found.tags, found.msg_id) == ("k1 k2", "TagA", unique)
    assert found.offset_msg_id == "7F00000100002A9F0000000000000000"
    assert zlib.crc32(found.body) & 0x7FFFFFFF == found.body_crc
    assert found.queue == MessageQueue("TopicT1", "", 2)


def test_a_long_topic_makes_a_record_of_version_2() -> None:
    sent = MessageExt("t" * 128, b"x")
    data = encode_message(sent)
    assert data[4:8] == bytes.fromhex("DAA320AB")
    sent.store_size = len(data)
    assert decode_message(data) == sent


@pytest.mark.parametrize("name", ["record", "record.v6.zlib"])
def test_a_record_cut_at_any_byte_is_refused(name: str) -> None:
    for cut in range(1, len(GOLDEN[name])):
        with pytest.raises(ProtocolError, match=r"cut short|bad record size"):
            decode_messages(GOLDEN["record"] + GOLDEN[name][:cut])
    with pytest.raises(ProtocolError, match="cut short"):
        decode_message(b"")


@pytest.mark.parametrize("name", ["record", "record.v6.zlib"])
def test_a_record_that_says_it_is_shorter_is_refused(name: str) -> None:
    whole = GOLDEN[name]
    for size in range(len(whole)):
        with pytest.raises(ProtocolError):
            decode_messages(size.to_bytes(4, "big") + whole[4:size])


def plain_reading(data: bytes) -> tuple[object, ...]:
    """The fields of the one record that *data* is, read without the layout tables. Raises whatever if it is none."""
    size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born = struct.unpack_from(
        ">5i2qiq", data
    )
    assert (size, magic) == (len(data), struct.unpack(">i", bytes.fromhex("DAA320A7"))[0])
    rest = io.BytesIO(data[48:])

    def number(size: int) -> int:
        return int.from_bytes(whole(size), "big", signed=True)

    def whole(size: int) -> bytes:
        assert size >= 0
        found = rest.read(size)
        assert len(found) == size
        return found

    def host(bit: int) -> HostAddress:
        return HostAddress(str(ipaddress.ip_address(whole(16 if sys_flag & bit else 4))), number(4))

    born_host, store_time, store_host, reconsumed, prepared = host(16), number(8), host(32), number(4), number(8)
    body, topic, properties = whole(number(4)), whole(number(1)), whole(number(2))
    if sys_flag & 1:
        # Bits 8 to 10 name the way; 0 and 3 are zlib.
        assert (sys_flag >> 8) & 7 in (0, 3)
        body = zlib.decompress(body)
    pairs = [pair.partition("\1") for pair in properties.decode("utf-8", "replace").split("\2")]
    return (
        *(topic.decode("utf-8", "replace"), body, flag, {key: value for key, _, value in pairs if key and value}),
        *(queue_id, queue_offset, physical_offset, sys_flag, born, born_host, store_time, store_host),
        *(reconsumed, prepared, crc, size),
    )


def fields(message: MessageExt) -> tuple[object, ...]:
    """The fields of *message* in the order of ``plain_reading``."""
    return (
        *(message.topic, message.body, message.flag, message.properties),
        *(message.queue_id, message.queue_offset, message.physical_offset, message.sys_flag),
        *(message.born_timestamp, message.born_host, message.store_timestamp, message.store_host),
        *(message.reconsume_times, message.prepared_transaction_offset, message.body_crc, message.store_size),
    )


@pytest.mark.parametrize("name", ["record", "record.v6.zlib"])
def test_a_record_with_any_changed_byte_is_refused_or_read_as_what_it_says(name: str) -> None:
    readable = 0
    for at in range(len(GOLDEN[name])):
        for change in (0x01, 0x10, 0x80, 0xFF):
            damaged = bytearray(GOLDEN[name])
            damaged[at] ^= change
            try:
                found = [fields(message) for message in decode_messages(damaged)]
            except ProtocolError:
                found = []
            try:
                wanted = [plain_reading(bytes(damaged))]
            except (AssertionError, ValueError, zlib.error):
                wanted = []
            assert found == wanted, f"byte {at} changed by {change:#x}"
            readable += len(found)
    assert readable > len(GOLDEN[name])


@pytest.mark.parametrize("magic", [0, 0xCBD43194, 0xDAA320A8])
def test_a_record_with_another_magic_code_is_refused(magic: int) -> None:
    damaged = GOLDEN["record"][:4] + magic.to_bytes(4, "big") + GOLDEN["record"][8:]
    with pytest.raises(ProtocolError, match=f"bad magic code: got 0x{magic:08X}, wanted 0xDAA320A7"):
        decode_messages(damaged)


# Values


def test_a_message_keeps_tags_and_keys_among_its_properties() -> None:
    message = Message("T", b"x", tags="TagA", keys=["k1", "k2"])
    assert message.properties == {"TAGS": "TagA", "KEYS": "k1 k2"}
    message.delay_time_level = 3
    message.wait_store_msg_ok = False
    assert (message.delay_time_level, message.wait_store_msg_ok) == (3, False)
    assert message.properties["DELAY"] == "3"
    assert message.properties["WAIT"] == "false"


def test_a_message_without_properties_has_their_defaults() -> None:
    message = Message("T")
    assert (message.tags, message.keys, message.unique_id) == (None, None, None)
    assert (message.delay_time_level, message.wait_store_msg_ok) == (0, True)
    message.properties["DELAY"] = "soon"
    assert message.delay_time_level == 0


def test_messages_are_equal_by_value() -> None:
    assert Message("T", b"x") == Message("T", b"x")
    assert Message("T", b"x") != Message("T", b"y")
    assert Message("T") != MessageExt("T")
    assert record() == record()
    assert record() != record(queue_offset=4)
    assert "physical_offset=77" in repr(record())


def test_an_id_is_made_of_the_place_if_the_sender_gave_none() -> None:
    assert record().msg_id == record().offset_msg_id == "7F00000100002A9F000000000000004D"


def test_queues_order_by_topic_broker_and_id() -> None:
    queues = [
        MessageQueue("T", "b", 1),
        MessageQueue("S", "b", 9),
        MessageQueue("T", "a", 2),
        MessageQueue("T", "a", 1),
    ]
    assert [(queue.topic, queue.broker_name, queue.queue_id) for queue in sorted(queues)] == [
        ("S", "b", 9),
        ("T", "a", 1),
        ("T", "a", 2),
        ("T", "b", 1),
    ]


def test_host_addresses_read_as_people_write_them() -> None:
    assert str(HostAddress("127.0.0.1", 5)) == "127.0.0.1:5"
    assert str(HostAddress("::1", 5)) == "[::1]:5"
