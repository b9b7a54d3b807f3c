"""Commit log records: golden bytes, damaged bytes and limits, the same for both twins."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcore._fast.log import record as fast
from mqcore.codes import SysFlag
from mqcore.errors import CorruptRecordError, MessageIllegalError
from mqcore.layout import BLANK_RECORD, RECORD_HEAD
from mqcore.store.log import record as plain
from mqcore.store.log.record import BatchMember, DecodeStatus, PackedHost, Record, ScanOutcome
from tests.rows import walked

TWINS = [pytest.param(plain, id="python"), pytest.param(fast, id="cython")]
twins = pytest.mark.parametrize("twin", TWINS)

UNIQUE_KEY = b"FD00" + b"0" * 52
PROPERTIES = b"KEYS\x01k1 k2\x02UNIQ_KEY\x01" + UNIQUE_KEY + b"\x02CLUSTER\x01DefaultCluster\x02TAGS\x01TagA"
# As Apache's broker 4.9.8 stored it.
GOLDEN = (
    bytes.fromhex(
        "000000D4 DAA320A7 3610A686 00000002 00000000 0000000000000000 0000000000000000 00000000 000001A1FCF72706"
        "7F000001 0000A2CC 000001A1FCF727DD 7F000001 00002A9F 00000000 0000000000000000 00000005"
    )
    + b"hello\x07TopicT1\x00\x6d"
    + PROPERTIES
)
GOLDEN_RECORD = Record(
    queue_id=2,
    flag=0,
    queue_offset=0,
    physical_offset=0,
    sys_flag=0,
    born_timestamp=0x01A1FCF72706,
    born_host=PackedHost(b"\x7f\x00\x00\x01", 41676),
    store_timestamp=0x01A1FCF727DD,
    store_host=PackedHost(b"\x7f\x00\x00\x01", 10911),
    reconsume_times=0,
    prepared_transaction_offset=0,
    body=b"hello",
    topic=b"TopicT1",
    properties=PROPERTIES,
    body_crc=0x3610A686,
    total_size=212,
)
V6 = PackedHost(bytes(range(16)), 65535)
BODY_AT = 88


@twins
def test_golden_bytes_decode_to_the_message_that_was_sent(twin):
    assert len(GOLDEN) == 212
    assert twin.decode(GOLDEN, 0) == GOLDEN_RECORD


@twins
def test_the_message_that_was_sent_encodes_to_golden_bytes(twin):
    assert twin.encode(replace(GOLDEN_RECORD, body_crc=0, total_size=0)) == GOLDEN


@twins
def test_a_record_without_body_and_properties_has_91_bytes_and_a_topic(twin):
    empty = replace(GOLDEN_RECORD, body=b"", properties=b"", topic=b"T")
    data = twin.encode(empty)
    assert len(data) == 92
    assert twin.decode(data, 0) == replace(empty, body_crc=0, total_size=92)


@twins
@pytest.mark.parametrize(
    ("born_host", "store_host", "flags", "size"),
    [
        (GOLDEN_RECORD.born_host, V6, SysFlag.STOREHOST_V6, 224),
        (V6, GOLDEN_RECORD.store_host, SysFlag.BORNHOST_V6, 224),
        (V6, V6, SysFlag.BORNHOST_V6 | SysFlag.STOREHOST_V6, 236),
    ],
)
def test_hosts_of_sixteen_bytes_set_their_flag_and_come_back(twin, born_host, store_host, flags, size):
    record = replace(GOLDEN_RECORD, born_host=born_host, store_host=store_host)
    data = twin.encode(record)
    assert twin.decode(data, 0) == replace(record, sys_flag=int(flags), total_size=size)


@twins
def test_host_flags_follow_the_hosts_and_not_the_caller(twin):
    wrong = replace(GOLDEN_RECORD, sys_flag=int(SysFlag.BORNHOST_V6 | SysFlag.STOREHOST_V6 | SysFlag.COMPRESSED))
    assert twin.decode(twin.encode(wrong), 0).sys_flag == SysFlag.COMPRESSED


@twins
@walked("cut", range(len(GOLDEN)))
def test_record_cut_at_any_byte_is_reported_as_cut_short(twin, cut):
    with pytest.raises(CorruptRecordError, match=r"cut short.*physical_offset=4096"):
        twin.decode(GOLDEN[:cut], 4096)


@twins
def test_bytes_behind_the_record_are_not_looked_at(twin):
    assert twin.decode(GOLDEN + b"\xff" * 100, 0) == GOLDEN_RECORD


def outcome_of(twin, data):
    try:
        return twin.decode(data, 7)
    except CorruptRecordError as error:
        return str(error)


@walked("at", range(len(GOLDEN)))
def test_both_twins_say_the_same_of_any_flipped_bit(at):
    for bit in range(8):
        data = bytearray(GOLDEN)
        data[at] ^= 1 << bit
        assert outcome_of(plain, data) == outcome_of(fast, data)


@twins
@walked("at", [*range(12), *range(84, 93), 93, 101, 102])
def test_a_flipped_byte_in_lengths_magic_crc_or_body_is_refused(twin, at):
    data = bytearray(GOLDEN)
    data[at] ^= 0xFF
    with pytest.raises(CorruptRecordError):
        twin.decode(data, 0)


@twins
def test_a_changed_body_passes_only_without_the_crc_check(twin):
    data = bytearray(GOLDEN)
    data[BODY_AT] ^= 1
    with pytest.raises(CorruptRecordError, match="CRC"):
        twin.decode(data, 0)
    assert twin.decode(data, 0, check_crc=False).body == b"iello"


@twins
@pytest.mark.parametrize(
    ("total_size", "magic", "message"),
    [
        (0, 0, "bad magic code: got 0x00000000"),
        (212, 0xDAA320AB, "bad magic code: got 0xDAA320AB, wanted 0xDAA320A7"),
        (100, 0xCBD43194, "filler of 100 bytes"),
        (90, 0xDAA320A7, "lengths inside the record contradict its total size 90"),
        (-1, 0xDAA320A7, "lengths inside the record contradict its total size -1"),
        (213, 0xDAA320A7, "cut short"),
        (0x7FFFFFFF, 0xDAA320A7, "cut short"),
        (211, 0xDAA320A7, "lengths inside the record contradict"),
    ],
)
def test_what_is_no_record_is_named(twin, total_size, magic, message):
    data = BLANK_RECORD.struct.pack(total_size, magic - (1 << 32) if magic >> 31 else magic) + GOLDEN[8:]
    with pytest.raises(CorruptRecordError, match=message):
        twin.decode(data, 0)


@twins
@pytest.mark.parametrize(
    ("at", "raw"),
    [
        pytest.param(84, b"\xff\xff\xff\xff", id="body -1"),
        pytest.param(84, b"\x7f\xff\xff\xff", id="body 2 GiB"),
        pytest.param(84, b"\x00\x00\x00\x7b", id="body over topic and properties"),
        pytest.param(93, b"\xff", id="topic -1"),
        pytest.param(93, b"\x80", id="topic -128"),
        pytest.param(93, b"\x7f", id="topic too long"),
        pytest.param(101, b"\xff\xff", id="properties -1"),
        pytest.param(101, b"\x00\x6c", id="properties one short"),
        pytest.param(101, b"\x00\x6e", id="properties one long"),
        pytest.param(36, b"\x00\x00\x00\x30", id="hosts said to be IPv6"),
    ],
)
def test_lengths_that_leave_the_record_are_refused(twin, at, raw):
    data = bytearray(GOLDEN)
    data[at : at + len(raw)] = raw
    with pytest.raises(CorruptRecordError, match="lengths inside the record contradict its total size 212"):
        twin.decode(data, 0)


@twins
def test_a_short_record_that_claims_ipv6_hosts_is_refused_before_it_is_read(twin):
    data = bytearray(twin.encode(replace(GOLDEN_RECORD, body=b"", properties=b"", topic=b"T")))
    data[36:40] = b"\x00\x00\x00\x30"
    with pytest.raises(CorruptRecordError, match="contradict"):
        twin.decode(bytes(data), 0)


@twins
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"topic": b""}, "topic has 0 bytes"),
        ({"topic": b"t" * 128}, "topic has 128 bytes"),
        ({"properties": b"p" * 32768}, "properties have 32768 bytes"),
        ({"born_host": PackedHost(b"123", 1)}, "host address has 3 bytes"),
        ({"store_host": PackedHost(b"", 1)}, "host address has 0 bytes"),
    ],
)
def test_the_encoder_refuses_what_breaks_the_layout(twin, changes, message):
    with pytest.raises(MessageIllegalError, match=message):
        twin.encode(replace(GOLDEN_RECORD, **changes))


@twins
def test_the_largest_topic_and_properties_fit(twin):
    record = replace(GOLDEN_RECORD, topic=b"t" * 127, properties=b"p" * 32767)
    decoded = twin.decode(twin.encode(record), 0)
    assert (decoded.topic, decoded.properties) == (record.topic, record.properties)


@twins
@pytest.mark.parametrize(
    ("member", "batch", "joined"),
    [
        (b"a\x01b", b"c\x01d", b"a\x01b\x02c\x01d"),
        (b"a\x01b\x02", b"c\x01d", b"a\x01b\x02c\x01d"),
        (b"", b"c\x01d", b"c\x01d"),
        (b"a\x01b", b"", b"a\x01b"),
        (b"", b"", b""),
    ],
)
def test_properties_of_a_batch_follow_those_of_its_member(twin, member, batch, joined):
    data = twin.encode(replace(GOLDEN_RECORD, properties=member), batch)
    assert twin.decode(data, 0).properties == joined


@twins
def test_joined_properties_are_counted_against_the_limit(twin):
    fits = replace(GOLDEN_RECORD, properties=b"p" * 32765)
    assert len(twin.decode(twin.encode(fits, b"q"), 0).properties) == 32767
    with pytest.raises(MessageIllegalError, match="properties have 32768 bytes"):
        twin.encode(fits, b"qq")


addresses = st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16))
hosts = st.builds(PackedHost, addresses, st.integers(0, 65535))
i32 = st.integers(-(1 << 31), (1 << 31) - 1)
i64 = st.integers(-(1 << 63), (1 << 63) - 1)
records = st.builds(
    Record,
    queue_id=i32,
    flag=i32,
    queue_offset=i64,
    physical_offset=i64,
    sys_flag=i32,
    born_timestamp=i64,
    born_host=hosts,
    store_timestamp=i64,
    store_host=hosts,
    reconsume_times=i32,
    prepared_transaction_offset=i64,
    body=st.binary(max_size=300),
    topic=st.binary(min_size=1, max_size=127),
    properties=st.binary(max_size=300),
)


@given(record=records)
def test_both_twins_write_the_same_bytes_and_read_them_back(record):
    data = plain.encode(record)
    assert fast.encode(record) == data
    decoded = plain.decode(data, 0)
    assert fast.decode(data, 0) == decoded
    assert plain.encode(decoded) == data
    assert replace(decoded, body_crc=0, total_size=0, sys_flag=record.sys_flag) == record


@given(data=st.binary(max_size=300))
def test_both_twins_say_the_same_of_any_bytes(data):
    assert outcome_of(plain, data) == outcome_of(fast, data)


@given(data=st.data())
def test_both_twins_say_the_same_of_a_record_with_any_bytes_overwritten(data):
    raw = bytearray(GOLDEN)
    at = data.draw(st.integers(0, len(raw) - 1))
    patch = data.draw(st.binary(min_size=1, max_size=8))
    raw[at : at + len(patch)] = patch
    raw = raw[: data.draw(st.integers(0, len(raw)))]
    assert outcome_of(plain, raw) == outcome_of(fast, raw)


# ------------------------------------------------------------------------------------------------------- scanning


def record_at(offset: int, store_timestamp: int = 5, body: bytes = b"hello") -> bytes:
    return plain.encode(
        replace(GOLDEN_RECORD, physical_offset=offset, store_timestamp=store_timestamp, body=body, properties=b"")
    )


RUN = record_at(1000, 5) + record_at(1103, 9) + record_at(1206, 7)


@twins
def test_a_scan_ends_with_the_buffer_when_all_records_are_whole(twin):
    assert twin.scan(RUN, 1000) == ScanOutcome(
        valid_size=309, status=DecodeStatus.OK, record_count=3, store_timestamp_max=9
    )


@twins
def test_a_scan_of_nothing_is_whole(twin):
    assert twin.scan(b"", 0) == ScanOutcome(valid_size=0, status=DecodeStatus.OK, record_count=0, store_timestamp_max=0)


@twins
@pytest.mark.parametrize(
    ("tail", "status"),
    [
        (BLANK_RECORD.struct.pack(50, 0xCBD43194 - (1 << 32)), DecodeStatus.BLANK),
        (bytes(50), DecodeStatus.BAD_MAGIC),
        (bytes(7), DecodeStatus.SHORT),
        (record_at(1309)[:-1], DecodeStatus.SHORT),
        (record_at(1310), DecodeStatus.MISPLACED),
    ],
)
def test_a_scan_says_what_ended_it(twin, tail, status):
    outcome = twin.scan(RUN + tail, 1000)
    assert (outcome.valid_size, outcome.status, outcome.record_count) == (309, status, 3)


@twins
def test_a_scan_checks_the_crc_unless_told_otherwise(twin):
    data = bytearray(RUN)
    data[103 + BODY_AT] ^= 1
    assert twin.scan(data, 1000).status == DecodeStatus.BAD_CRC
    assert twin.scan(data, 1000).valid_size == 103
    assert twin.scan(data, 1000, check_crc=False).valid_size == 309


TO_SECTOR_END = 512 - 93  # properties of with_properties() that lie in the record's first sector


def with_properties(properties: bytes) -> bytes:
    return plain.encode(replace(GOLDEN_RECORD, body=b"", topic=b"TT", properties=properties))


@twins
@pytest.mark.parametrize(
    ("properties", "status"),
    [
        (b"p" * TO_SECTOR_END + bytes(10), DecodeStatus.TORN),
        (b"p" * TO_SECTOR_END + b"\0", DecodeStatus.TORN),
        (b"p" * TO_SECTOR_END + bytes(512) + b"p", DecodeStatus.TORN),
        (b"p" * (TO_SECTOR_END + 600) + bytes(1000) + b"p", DecodeStatus.TORN),
        (b"p" * TO_SECTOR_END + bytes(511) + b"p", DecodeStatus.OK),
        (b"p" * TO_SECTOR_END + b"p" + bytes(511) + b"p", DecodeStatus.OK),
        (b"p" * (TO_SECTOR_END - 1) + b"\0" + b"p" * 10, DecodeStatus.OK),
        (bytes(TO_SECTOR_END) + b"p", DecodeStatus.OK),
        (bytes(TO_SECTOR_END), DecodeStatus.OK),
        (b"p" * 300 + bytes(5), DecodeStatus.OK),
        (b"", DecodeStatus.OK),
    ],
)
def test_a_sector_of_zeros_in_topic_or_properties_ends_a_scan(twin, properties, status):
    data = with_properties(properties)
    assert len(data) == 93 + len(properties)
    assert twin.scan(data, 0).status == status


@given(data=st.data())
def test_both_twins_see_the_same_torn_sectors(data):
    size = data.draw(st.integers(0, 1500))
    properties = bytearray(b"p" * size)
    for _ in range(3):
        start = data.draw(st.integers(0, 1500))
        stop = data.draw(st.integers(start, 1500))
        properties[start:stop] = bytes(min(stop, size) - min(start, size))
    offset = data.draw(st.integers(0, 2000))
    record = plain.encode(
        replace(GOLDEN_RECORD, body=b"", topic=b"TT", properties=bytes(properties[:size]), physical_offset=offset)
    )
    assert plain.scan(record, offset) == fast.scan(record, offset)


@walked("at", range(206))
def test_both_twins_end_a_scan_of_damaged_records_alike(at):
    data = bytearray(RUN)
    data[at] ^= 0x81
    assert plain.scan(data, 1000) == fast.scan(data, 1000)


# ----------------------------------------------------------------------------------------------------- properties

PROPERTY_CASES = [
    (b"TAGS\x01a", b"a"),
    (b"TAGS\x01a\x02", b"a"),
    (b"KEYS\x01k\x02TAGS\x01a\x02X\x01y", b"a"),
    (b"TAGS\x01a\x02TAGS\x01b", b"b"),
    (b"TAGS\x01a\x02TAGS\x01", b"a"),
    (b"TAGS\x01a\x01b", b"a\x01b"),
    (b"TAGS\x01", None),
    (b"TAGS", None),
    (b"\x01TAGS", None),
    (b"XTAGS\x01a", None),
    (b"TAGSX\x01a", None),
    (b"TAG\x01S", None),
    (b"", None),
    (b"\x02\x02\x02", None),
    (b"\x02TAGS\x01a", b"a"),
    (b"a\x01TAGS\x01b", None),
]


@twins
@walked("properties, value", PROPERTY_CASES)
def test_a_property_is_found_by_its_whole_name_and_the_last_one_wins(twin, properties, value):
    assert twin.property_value(properties, b"TAGS") == value


@twins
def test_an_empty_name_is_never_found(twin):
    assert twin.property_value(b"\x01value", b"") is None


@given(properties=st.lists(st.sampled_from([b"\x01", b"\x02", b"A", b"B", b"AB"])).map(b"".join))
def test_both_twins_find_the_same_property_in_any_text(properties):
    for name in (b"A", b"B", b"AB"):
        assert plain.property_value(properties, name) == fast.property_value(properties, name)


# ----------------------------------------------------------------------------------------------------------- hash


@twins
@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"", 0),
        (b"a", 97),
        (b"TagA", 2598919),
        (b"TopicA#U1", -1903241331),
        (b"polygenelubricants", -2147483648),
        ("müllerstraße".encode(), -925871214),
        ("標籤".encode(), 873835),
        ("😀".encode(), 1772899),
    ],
)
def test_string_hash_is_that_of_java(twin, text, value):
    assert twin.string_hash(text) == value


@twins
@walked(
    "raw, text",
    [
        (b"\xff", "\ufffd"),
        (b"\xc3", "\ufffd"),
        (b"\xc3A", "\ufffdA"),
        (b"\xc0\x80", "\ufffd\ufffd"),
        (b"\xe2\x82", "\ufffd"),
        (b"\xe2\x82A", "\ufffdA"),
        (b"\xe0\x80\x80", "\ufffd\ufffd\ufffd"),
        (b"\xed\xa0\x80", "\ufffd"),
        (b"\xed\xa0\x80\xed\xb0\x80x", "\ufffd\ufffdx"),
        (b"\xed\xa0", "\ufffd"),
        (b"\xed\xa0A", "\ufffdA"),
        (b"\xf0\x90\x80", "\ufffd"),
        (b"\xf0\x90\x80A", "\ufffdA"),
        (b"\xf0\x80\x80\x80", "\ufffd" * 4),
        (b"\xf4\x90\x80\x80", "\ufffd" * 4),
        (b"\xf5\x80\x80\x80", "\ufffd" * 4),
        (b"a\x80b", "a\ufffdb"),
    ],
)
def test_malformed_utf8_hashes_as_java_decodes_it(twin, raw, text):
    assert twin.string_hash(raw) == twin.string_hash(text.encode())


@given(raw=st.binary(max_size=40))
def test_both_twins_hash_any_bytes_alike(raw):
    assert plain.string_hash(raw) == fast.string_hash(raw)


@given(
    raw=st.lists(
        st.sampled_from([b"\xed", b"\xa0", b"\x80", b"\xf0", b"\x90", b"\xe0", b"\xbf", b"\xf4", b"A", b"\xc3"])
    ).map(b"".join)
)
def test_both_twins_hash_nearly_valid_utf8_alike(raw):
    assert plain.string_hash(raw) == fast.string_hash(raw)


@given(text=st.text(alphabet=st.characters(codec="utf-8"), max_size=30))
def test_string_hash_of_valid_text_is_that_of_its_utf16_units(text):
    value = 0
    units = text.encode("utf-16-be")
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) % (1 << 32)
    assert fast.string_hash(text.encode()) % (1 << 32) == value


# ---------------------------------------------------------------------------------------------------------- batch


def member_bytes(flag: int, body: bytes, properties: bytes, total: int | None = None) -> bytes:
    size = 22 + len(body) + len(properties) if total is None else total
    head = b"".join(value.to_bytes(4, "big", signed=True) for value in (size, 0, 0, flag, len(body)))
    return head + body + len(properties).to_bytes(2, "big") + properties


MEMBERS = [BatchMember(flag=1, body=b"one", properties=b"TAGS\x01a"), BatchMember(flag=-2, body=b"", properties=b"")]
BATCH = b"".join(member_bytes(member.flag, member.body, member.properties) for member in MEMBERS)


@twins
def test_members_of_a_batch_come_in_order(twin):
    assert twin.batch_members(BATCH) == MEMBERS
    assert twin.batch_members(b"") == []


@twins
def test_the_stated_total_size_of_a_member_is_not_looked_at(twin):
    assert twin.batch_members(member_bytes(0, b"x", b"", total=999)) == [BatchMember(flag=0, body=b"x", properties=b"")]


@twins
@walked("cut", [at for at in range(1, len(BATCH)) if at != 31])
def test_a_batch_cut_inside_a_member_is_refused(twin, cut):
    with pytest.raises(MessageIllegalError, match=r"batch member [01] at byte (0|31) is cut short"):
        twin.batch_members(BATCH[:cut])


@twins
def test_negative_lengths_in_a_batch_are_refused(twin):
    body = bytearray(BATCH)
    body[16:20] = b"\xff\xff\xff\xff"
    with pytest.raises(MessageIllegalError, match="negative length"):
        twin.batch_members(body)
    properties = bytearray(BATCH)
    properties[23:25] = b"\xff\xff"
    with pytest.raises(MessageIllegalError, match="negative length"):
        twin.batch_members(properties)


def batch_outcome(twin, data):
    try:
        return twin.batch_members(data)
    except MessageIllegalError as error:
        return str(error)


@given(data=st.one_of(st.binary(max_size=100), st.lists(st.binary(max_size=8)).map(lambda p: BATCH + b"".join(p))))
def test_both_twins_say_the_same_of_any_batch(data):
    assert batch_outcome(plain, data) == batch_outcome(fast, data)


def test_head_positions_are_those_of_the_layout():
    assert (RECORD_HEAD.offsets["physical_offset"], RECORD_HEAD.offsets["queue_offset"]) == (28, 20)
