"""Stored records to columns: the same columns, batches and errors from both twins, also for damaged bytes."""

from __future__ import annotations

import itertools
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import lz4.frame
import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from mqcore._fast.columns.decoder import ColumnDecoder as FastDecoder
from mqcore.codes import SysFlag
from mqcore.errors import ConfigError, CorruptRecordError
from mqcore.layout import BLANK_MAGIC, BLANK_RECORD, MESSAGE_MAGIC_V2, RECORD_HEAD
from mqcore.protocol.message_decoder import decode_messages
from mqcore.store import column_codes
from mqcore.store.column_decoder import ColumnDecoder as PlainDecoder
from mqcore.store.log.record import PackedHost, Record, encode, record_size
from mqcore.store.message_columns import (
    COLUMNS,
    ColumnBuffers,
    ColumnCode,
    ColumnKind,
    MessageBatch,
    Selection,
)
from tests.rows import walked

DECODERS = [pytest.param(PlainDecoder, id="python"), pytest.param(FastDecoder, id="cython")]
decoders = pytest.mark.parametrize("make", DECODERS)
ALL_NAMES = [column.name for column in COLUMNS]
V4 = PackedHost(b"\x0a\x00\x01\xff", 10911)
V6 = PackedHost(bytes(range(1, 17)), 65535)
MAPPED_V6 = PackedHost(bytes(10) + b"\xff\xff\x01\x02\x03\x04", 1)


def properties_text(pairs: dict[str, str] | None = None, **named: str) -> bytes:
    return "\x02".join(f"{name}\x01{value}" for name, value in ((pairs or {}) | named).items()).encode()


def make_record(number: int = 0, **changes: Any) -> Record:
    return replace(
        Record(
            queue_id=number % 3,
            flag=-number,
            queue_offset=number,
            physical_offset=0,
            sys_flag=0,
            born_timestamp=1_700_000_000_000 + number,
            born_host=V4,
            store_timestamp=1_700_000_000_100 + number,
            store_host=PackedHost(b"\x7f\x00\x00\x01", 10911),
            reconsume_times=number % 5,
            prepared_transaction_offset=number * 7,
            body=b"body %d" % number,
            topic=b"Orders",
            properties=properties_text(TAGS=f"T{number % 2}", KEYS=f"k{number} all", UNIQ_KEY=f"U{number:05d}"),
        ),
        **changes,
    )


def lay_out(records: list[Record], start: int = 0) -> bytes:
    """Encode *records* one after the other, as at *start* of the commit log."""
    out = b""
    for record in records:
        out += encode(replace(record, physical_offset=start + len(out)))
    return out


def to_v2(data: bytes) -> bytes:
    """Return the one record *data*, with IPv4 hosts, in the layout with a topic length of two bytes."""
    body_size = int.from_bytes(data[84:88], "big")
    at = 88 + body_size
    wide = data[:at] + b"\x00" + data[at:]
    return (len(wide)).to_bytes(4, "big") + MESSAGE_MAGIC_V2.to_bytes(4, "big", signed=True) + wide[8:]


def texts(column: ColumnBuffers) -> list[bytes | None]:
    assert column.offsets is not None
    data = column.values.tobytes()
    count = len(column.offsets) - 1
    valid = np.ones(count, bool)
    if column.validity is not None:
        valid = np.unpackbits(column.validity, bitorder="little")[:count].astype(bool)
    assert column.null_count == count - int(valid.sum())
    return [data[column.offsets[i] : column.offsets[i + 1]] if valid[i] else None for i in range(count)]


def values_of(column: ColumnBuffers) -> list[Any]:
    if column.kind is ColumnKind.MAP:
        assert column.map_keys is not None
        assert column.map_values is not None
        assert column.offsets is not None
        pairs = list(zip(texts(column.map_keys), texts(column.map_values), strict=True))
        ends = column.offsets.tolist()
        return [dict(pairs[start:end]) for start, end in itertools.pairwise(ends)]
    return column.values.tolist() if column.offsets is None else texts(column)


def plain(batch: MessageBatch) -> dict[str, list[Any]]:
    values = {name: values_of(column) for name, column in batch.columns.items()}
    assert all(len(column) == batch.row_count for column in values.values())
    return values


def decode_all(make: Any, data: bytes, columns: list[str] | None = None, **options: Any) -> dict[str, list[Any]]:
    place = options.pop("physical_offset", None)
    decoder = make(columns, **options)
    assert decoder.feed(data, 0, place) == len(data)
    return plain(decoder.take())


VARIED = [
    make_record(0),
    make_record(1, body=b"", properties=b""),
    make_record(2, topic=b"x" * 127, born_host=V6, store_host=V6),
    make_record(3, topic="訂單".encode(), properties=properties_text({"TAGS": "標籤", "müller": "straße"})),
    make_record(
        4, topic=b"bad\xff\xe6\x9c", properties=b"TAGS\x01\xe6\xa8\x02\xed\xa0\x80x\x01\xf5y\x02KEYS\x01\xc0\x80"
    ),
    make_record(
        5, properties=b"a\x01b\x02\x02=\x02\x01v\x02n\x01\x02a\x01c\x02TAGS\x01one\x02TAGS\x01two\x02z\x01e=\x01f\x02"
    ),
    make_record(6, sys_flag=int(SysFlag.COMPRESSED), body=zlib.compress(b"plain " * 100)),
    make_record(7, sys_flag=int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB), body=zlib.compress(b"typed")),
    make_record(8, sys_flag=int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_LZ4), body=lz4.frame.compress(b"lz4")),
    make_record(9, sys_flag=int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZSTD), body=zstandard.compress(b"zstd")),
    make_record(10, born_host=MAPPED_V6, born_timestamp=-1, store_timestamp=(1 << 63) - 1),
    make_record(11, born_timestamp=-(1 << 63), queue_offset=-5, queue_id=-1, born_host=PackedHost(bytes(4), -1)),
]


@decoders
def test_records_of_dropped_queues_are_left_out(make):
    records = [make_record(number, topic=b"Orders" if number % 2 else b"Events") for number in range(30)]
    data = lay_out(records, 1000)
    places = [1000 + at for at in itertools.accumulate([0, *map(record_size, records)])]
    births = {"Orders": {1: places[16], 0: places[4]}, "Logs": {0: 1 << 60}}
    decoder = make(["topic", "queue_id", "queue_offset"], selection=Selection(births=births))
    decoder.feed(data, 0, 1000)
    found = [int(number) for number in decoder.take().to_dict()["queue_offset"]]
    wanted = [number for number in range(30) if not number % 2 or places[number] >= births["Orders"].get(number % 3, 0)]
    assert found == wanted
    assert 0 < len(wanted) < 30


@decoders
def test_columns_have_what_the_records_say(make):
    data = lay_out(VARIED)
    columns = decode_all(make, data, ALL_NAMES, broker_name="broker-a")
    messages = decode_messages(data)
    assert columns["topic"] == [message.topic.encode() for message in messages]
    assert columns["broker_name"] == [b"broker-a"] * len(VARIED)
    assert columns["body"] == [message.body for message in messages]
    assert columns["queue_offset"] == [record.queue_offset for record in VARIED]
    assert columns["flag"] == [record.flag for record in VARIED]
    wanted = [{k.encode(): v.encode() for k, v in message.properties.items()} for message in messages]
    assert columns["properties"] == wanted
    assert columns["msg_id"] == [message.msg_id.encode() for message in messages]
    assert columns["offset_msg_id"] == [message.offset_msg_id.encode() for message in messages]
    assert columns["tags"] == [message.tags and message.tags.encode() for message in messages]
    assert columns["keys"] == [message.keys and message.keys.encode() for message in messages]
    assert columns["unique_key"] == [message.unique_id and message.unique_id.encode() for message in messages]
    assert columns["born_host"] == [str(message.born_host).encode() for message in messages]
    assert columns["store_host"] == [str(message.store_host).encode() for message in messages]
    assert columns["store_size"] == [record_size(record) for record in VARIED]
    assert columns["body_size"] == [len(record.body) for record in VARIED]
    assert columns["body_crc"] == columns["computed_body_crc"] == [message.body_crc for message in messages]
    assert columns["born_timestamp"][:2] == [1_700_000_000_000_000, 1_700_000_000_001_000]


@decoders
def test_times_that_microseconds_cannot_hold_become_the_nearest(make):
    columns = decode_all(make, lay_out(VARIED[10:]), ["born_timestamp", "store_timestamp"])
    assert columns["born_timestamp"] == [-1000, -((1 << 63) - 1)]
    assert columns["store_timestamp"][0] == (1 << 63) - 1


@decoders
@walked("name", ALL_NAMES)
def test_one_column_alone_is_the_same_as_among_all(make, name):
    data = lay_out(VARIED)
    assert decode_all(make, data, [name]) == {name: decode_all(PlainDecoder, data, ALL_NAMES)[name]}


@decoders
def test_default_columns_are_those_of_the_table(make):
    assert list(decode_all(make, lay_out(VARIED[:1]))) == [column.name for column in COLUMNS if column.by_default]


@decoders
def test_records_with_a_long_topic_are_read(make):
    data = to_v2(lay_out([VARIED[3]]))
    assert decode_all(make, data, physical_offset=0) == decode_all(make, lay_out([VARIED[3]]))


@decoders
def test_stored_bodies_stay_as_they_are_when_asked(make):
    bodies = decode_all(make, lay_out(VARIED), ["body"], decompress=False)["body"]
    assert bodies == [record.body for record in VARIED]


@decoders
def test_without_a_broker_name_the_column_is_null(make):
    assert decode_all(make, lay_out(VARIED[:2]), ["broker_name"])["broker_name"] == [None, None]


@decoders
def test_nothing_collected_gives_an_empty_batch(make):
    decoder = make(ALL_NAMES)
    assert decoder.feed(b"") == 0
    assert plain(decoder.take()) == {name: [] for name in ALL_NAMES}


@decoders
def test_many_small_buffers_gather_in_one_batch(make):
    records = [make_record(number) for number in range(200)]
    decoder = make(["queue_offset", "tags"])
    for record in records:
        assert decoder.feed(encode(record)) == record_size(record)
    assert decoder.row_count == 200
    assert decoder.last_queue_offset == 199
    assert plain(decoder.take())["queue_offset"] == list(range(200))
    assert decoder.row_count == 0


@decoders
@pytest.mark.parametrize("limits", [{"batch_bytes": 1000}, {"batch_rows": 7}, {"batch_bytes": 1}])
def test_full_batches_are_given_away_and_nothing_is_lost_or_twice(make, limits):
    data = lay_out([make_record(number) for number in range(100)])
    decoder = make(ALL_NAMES, **limits)
    offsets: list[int] = []
    position = 0
    while position < len(data):
        position = decoder.feed(data, position)
        assert decoder.is_full or position == len(data)
        before = decoder.row_count
        if decoder.is_full:
            assert decoder.feed(data, position) == position
            assert decoder.row_count == before
        offsets += plain(decoder.take())["queue_offset"]
    assert offsets == list(range(100))


@decoders
def test_a_batch_ends_behind_the_row_that_fills_it(make):
    data = lay_out([make_record(number, body=bytes(1000)) for number in range(10)])
    decoder = make(["body"], batch_bytes=2500)
    decoder.feed(data)
    assert decoder.row_count == 3
    assert decoder.size == 3 * (1000 + 4)


def test_the_twins_fill_batches_alike(chance):
    records = [chance.choice(VARIED) for _ in range(300)]
    data = lay_out(records)
    fast, slow = FastDecoder(ALL_NAMES, batch_bytes=3000), PlainDecoder(ALL_NAMES, batch_bytes=3000)
    position = 0
    while position < len(data):
        end = fast.feed(data, position)
        assert slow.feed(data, position) == end
        assert (fast.size, fast.row_count, fast.is_full) == (slow.size, slow.row_count, slow.is_full)
        assert plain(fast.take()) == plain(slow.take())
        position = end


def test_buffers_outlive_their_decoder_and_are_read_only():
    decoder = FastDecoder(["body", "queue_offset", "properties"])
    decoder.feed(lay_out([make_record(number) for number in range(1000)]))
    batch = decoder.take()
    decoder.feed(lay_out([make_record(number, body=b"other" * 9) for number in range(1000)]))
    del decoder
    assert plain(batch)["body"] == [b"body %d" % number for number in range(1000)]
    with pytest.raises(ValueError, match="read-only"):
        batch.columns["body"].values[0] = 1


SELECTIONS = {
    "everything": (Selection(), range(30)),
    "topics": (Selection(topics=frozenset({"Orders", "none"})), range(0, 30, 2)),
    "pattern": (Selection(topic_pattern="Ev.*"), range(1, 30, 2)),
    "pattern matches the whole name": (Selection(topic_pattern="Ev"), ()),
    "queues": (Selection(queue_ids=frozenset({0, 2})), [n for n in range(30) if n % 3 != 1]),
    "no queues": (Selection(queue_ids=frozenset()), ()),
    "offsets": (Selection(offset_min=5, offset_max=9), range(5, 9)),
    "ranges": (
        Selection(ranges={"Orders": {0: (0, 7), 2: (8, 9)}}),
        [n for n in range(30) if n % 2 or n % 3 == 1 or (n % 3 == 0 and n < 7) or n == 8],
    ),
    "only ranges": (
        Selection(ranges={"Orders": {0: (0, 7), 2: (8, 9)}}, only_ranges=True, topics=frozenset({"Orders"})),
        (0, 6, 8),
    ),
    "tags": (Selection(tags=frozenset({"T1", "標籤"})), range(1, 30, 2)),
    "no tags": (Selection(tags=frozenset()), ()),
    "times": (
        Selection(store_timestamp_min=1_700_000_000_110, store_timestamp_max=1_700_000_000_115),
        range(10, 15),
    ),
}


@decoders
@pytest.mark.parametrize("name", SELECTIONS)
def test_only_what_is_selected_becomes_a_row(make, name):
    selection, wanted = SELECTIONS[name]
    data = lay_out([make_record(n, topic=b"Events" if n % 2 else b"Orders") for n in range(30)])
    decoder = make(["queue_offset"], selection=selection)
    assert decoder.feed(data) == len(data)
    assert decoder.last_queue_offset == 29
    assert plain(decoder.take())["queue_offset"] == list(wanted)


@decoders
def test_hundreds_of_topics_are_told_apart(make):
    data = lay_out([make_record(number, topic=b"T%03d" % (number * 7 % 500)) for number in range(2000)])
    selection = Selection(topic_pattern="T..[05]")
    topics = decode_all(make, data, ["topic"], selection=selection)["topic"]
    assert topics == [b"T%03d" % t for n in range(2000) if (t := n * 7 % 500) % 5 == 0]


def test_a_bad_pattern_is_named():
    with pytest.raises(ConfigError, match=r"topic pattern '\('"):
        Selection(topic_pattern="(").wants_topic("x")


@decoders
def test_a_filler_ends_a_log_buffer_and_is_an_error_elsewhere(make):
    data = lay_out([make_record(0)], start=4096)
    end = len(data)
    data += BLANK_RECORD.struct.pack(100, BLANK_MAGIC) + bytes(92)
    decoder = make(["queue_offset"])
    assert decoder.feed(data, 0, 4096) == len(data)
    assert decoder.row_count == 1
    with pytest.raises(CorruptRecordError, match="filler of 100 bytes"):
        decoder.feed(data)
    assert decoder.position == end


@decoders
def test_a_record_that_says_that_it_lies_elsewhere_is_refused_in_a_log(make):
    decoder = make(["queue_offset"])
    with pytest.raises(CorruptRecordError, match=r"lies elsewhere.*physical_offset=8192\)"):
        decoder.feed(lay_out([make_record(0)], start=4096), 0, 8192)
    assert decoder.row_count == 0


@decoders
def test_a_broken_crc_is_seen_when_asked(make):
    data = bytearray(lay_out([make_record(0), make_record(1)], start=500))
    first = record_size(make_record(0))
    data[first + 88] ^= 1
    assert make(["body"]).feed(bytes(data)) == len(data)
    decoder = make(["body"], check_crc=True)
    with pytest.raises(CorruptRecordError, match="CRC") as caught:
        decoder.feed(bytes(data))
    assert caught.value.physical_offset == 500 + first
    assert (decoder.row_count, decoder.position) == (1, first)


@decoders
@pytest.mark.parametrize(
    ("flag", "body"),
    [(SysFlag.COMPRESSED, b"nonsense"), (SysFlag(0x701), b"unknown type"), (SysFlag.COMPRESSED, b"")],
)
def test_a_body_that_does_not_decompress_names_its_record(make, flag, body):
    data = lay_out([make_record(0), make_record(1, sys_flag=int(flag), body=body)], start=64)
    decoder = make(["body"])
    with pytest.raises(CorruptRecordError, match="cannot be decompressed") as caught:
        decoder.feed(data, 0, 64)
    assert caught.value.physical_offset == 64 + record_size(make_record(0))
    assert decoder.row_count == 1


def outcome(make: Any, data: bytes, place: int | None) -> tuple[Any, ...]:
    decoder = make(ALL_NAMES)
    error = None
    try:
        decoder.feed(data, 0, place)
    except CorruptRecordError as caught:
        error = str(caught)
    return error, decoder.position, plain(decoder.take())


DAMAGED = lay_out([VARIED[0], replace(VARIED[3], born_host=V6), VARIED[5]], start=77)


@pytest.mark.parametrize("place", [None, 77])
def test_records_cut_at_any_byte_fail_alike(place):
    for cut in range(len(DAMAGED)):
        fast = outcome(FastDecoder, DAMAGED[:cut], place)
        assert fast == outcome(PlainDecoder, DAMAGED[:cut], place)
        assert (fast[0] is None) == (fast[1] == cut)


@pytest.mark.parametrize("bits", [0x01, 0x80, 0xFF])
def test_records_with_any_byte_changed_fail_alike(bits):
    for at in range(len(DAMAGED)):
        damaged = bytearray(DAMAGED)
        damaged[at] ^= bits
        assert outcome(FastDecoder, bytes(damaged), 77) == outcome(PlainDecoder, bytes(damaged), 77)


@given(st.binary(max_size=300), st.integers(0, 60))
@settings(max_examples=100, deadline=None)
def test_any_bytes_behind_a_good_head_give_the_same(tail, cut):
    data = GOOD_HEAD[: len(GOOD_HEAD) - cut] + tail
    for magic in (GOOD_HEAD[4:8], MESSAGE_MAGIC_V2.to_bytes(4, "big", signed=True)):
        sized = len(data).to_bytes(4, "big") + magic + data[8:]
        assert outcome(FastDecoder, sized, None) == outcome(PlainDecoder, sized, None)


GOOD_HEAD = lay_out([make_record(0)])


@given(st.binary(max_size=40))
@settings(max_examples=150, deadline=None)
def test_any_properties_text_gives_the_same(text):
    data = lay_out([make_record(0, properties=text), make_record(1, properties=b"a\x01b\x02" + text)])
    assert decode_all(FastDecoder, data, ALL_NAMES) == decode_all(PlainDecoder, data, ALL_NAMES)


@decoders
@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"columns": ["topic", "nothing"]}, "nothing"),
        ({"columns": ["topic", "topic"]}, "twice"),
        ({"batch_bytes": 0}, "batch bytes"),
        ({"batch_rows": 0}, "batch rows"),
    ],
)
def test_wrong_arguments_are_named(make, arguments, match):
    with pytest.raises(ConfigError, match=match):
        make(**arguments)


@decoders
def test_a_position_outside_the_buffer_is_refused(make):
    with pytest.raises(IndexError, match="position 9"):
        make().feed(b"12345678", 9)


def test_the_numbers_of_columns_are_those_of_the_table():
    assert [column.code for column in COLUMNS] == list(ColumnCode)
    assert len({column.spark_name for column in COLUMNS}) == len(COLUMNS)
    assert RECORD_HEAD.offsets["physical_offset"] == 28


def test_the_fast_decoders_numbers_are_those_of_the_table(tmp_path: Path) -> None:
    assert not column_codes.is_stale(column_codes.ROOT)
    column_codes.path_in(tmp_path).parent.mkdir(parents=True)
    with pytest.raises(SystemExit, match="stale"):
        column_codes.main(tmp_path, ["--check"])
    column_codes.main(tmp_path, ["--write"])
    column_codes.main(tmp_path, ["--check"])
    with pytest.raises(SystemExit, match="usage"):
        column_codes.main(tmp_path, [])
