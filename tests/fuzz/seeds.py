"""What the fuzzers begin with: sound inputs of each kind, made by the readable twins."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mqcore.codes import RequestCode, SerializeType
from mqcore.filter.sql import compile_sql
from mqcore.layout import CONSUME_QUEUE_EXT_UNIT
from mqcore.protocol.batch import encode_batch
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.message import Message
from mqcore.store.log import record

FIELDS: Final = {
    "a": "producers", "b": "orders", "c": "TBW102", "d": "4", "e": "-1", "f": "0", "g": "1700000000000", "h": "0",
    "i": "UNIQ_KEY\x017F0000010B1C18B4AAC2000000000000\x02WAIT\x01true\x02TAGS\x01a<b>&\"é\\", "j": "0", "k": "false",
}  # fmt: skip
PROPERTIES: Final = (
    b"TAGS\x01red\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01C0A80001\x02DELAY\x013\x02",
    b"TIMER_DELAY_SEC\x0110\x02TIMER_OUT_MS\x011700000000000\x02REAL_TOPIC\x01orders\x02REAL_QID\x013",
    b"TIMER_DELIVER_MS\x01-1\x02TIMER_DEL_UNIQKEY\x01C0A80001\x02TAGS\x01\x02TAGS\x01last\x02",
    b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b,c\x02INNER_MULTI_QUEUE_OFFSET\x017,8,9\x02a\x011\x02b\x01x%y\x02c\x01-3.5e2",
    b"",
)
FILTERS: Final = (
    "a > 5 AND (b = 'x%y' OR c <= -3.5)",
    "a BETWEEN 1 AND 10 AND NOT b IS NULL",
    "color IN ('red', 'blue', 'it''s') OR c = TRUE",
    "b CONTAINS '%' AND b STARTSWITH 'x' OR b ENDSWITH 'y'",
    "a = b AND 9223372036854775807 > a",
)
NUMBERS: Final = (
    b"0", b"-1", b"+7", b"2147483648", b"-9223372036854775808", b"1e309", b"0x1.8p3", b"NaN", b"-Infinity", b" 1.5d",
    b"1_0", b"0.30000000000000004", b"4.9E-324",
)  # fmt: skip


def commands() -> list[bytes]:
    body = b"x" * 40
    kinds = (SerializeType.JSON, SerializeType.ROCKETMQ)
    whole = [
        RemotingCommand(code, 17, ext_fields=fields, remark=remark, body=body, serialize_type=kind).encode()[4:]
        for kind in kinds
        for code, fields, remark in (
            (RequestCode.SEND_MESSAGE_V2, FIELDS, None),
            (RequestCode.PULL_MESSAGE, {"topic": "orders", "queueOffset": "12"}, 'a "remark"\n\u2028'),
            (RequestCode.HEART_BEAT, {}, ""),
        )
    ]
    go = (
        b'{"code":310,"language":"GO","version":317,"opaque":1,"flag":0,"remark":"","extFields":{"b":"\\u003c\\u00e9"}}'
    )
    return [*whole, struct.pack(">i", len(go)) + go + b"body"]


def records() -> list[bytes]:
    hosts = record.PackedHost(b"\x7f\0\0\1", 10911), record.PackedHost(b"\0" * 15 + b"\1", 80)
    return [
        record.encode(
            record.Record(
                queue_id=3, flag=0, queue_offset=7, physical_offset=4096, sys_flag=0, born_timestamp=1_700_000_000_000,
                born_host=born, store_timestamp=1_700_000_000_001, store_host=hosts[0], reconsume_times=0,
                prepared_transaction_offset=0, body=b"body" * 10, topic=b"orders", properties=properties,
            )
        )
        for properties in PROPERTIES
        for born in hosts
    ]  # fmt: skip


def batches() -> list[bytes]:
    return [encode_batch([Message("orders", b"b" * size, tags="red", keys=["k"]) for size in (0, 1, 30)])]


def ext_units() -> list[bytes]:
    units = [
        CONSUME_QUEUE_EXT_UNIT.struct.pack(CONSUME_QUEUE_EXT_UNIT.size + size, 12345, 1_700_000_000_000, size)
        for size in (0, 8)
    ]
    return [units[0], units[1] + b"\xff" * 8 + units[0]]


def filters() -> list[bytes]:
    programs = [compile_sql(text).program for text in FILTERS]
    return [struct.pack(">H", len(program)) + program + PROPERTIES[3] for program in programs]


SEEDS: Final[dict[str, Callable[[], list[bytes]]]] = {
    "command": commands,
    "record": records,
    "properties": lambda: list(PROPERTIES),
    "batch": batches,
    "ext": ext_units,
    "numbers": lambda: list(NUMBERS),
    "filter": filters,
    "text": lambda: ['a "text" \\ with\n all sorts \u2028\U0001f600\x7f é'.encode(), b"\xff\xc0 plain"],
    "reply": lambda: [b"\0" + 'value "é" \u2028'.encode(), b"\1value"],
    "record_twins": records,
    "batch_twins": batches,
    "text_twins": lambda: [*PROPERTIES, b"12,0,007,x,99999999999999999999"],
    "ext_twins": ext_units,
    "header_twins": commands,
    "pulled_twins": records,
    "columns_twins": records,
    # The fuzzer's own test: seeds that show nothing.
    "planted_read": lambda: [b"mq\0abc"],
    "planted_lie": lambda: [b"mq\0abc"],
}
REGRESSIONS: Final = Path(__file__).with_name("regressions")


def seeds_of(target: str) -> list[bytes]:
    """Sound inputs, and those that broke something once: regressions/TARGET-WHAT."""
    return SEEDS[target]() + [path.read_bytes() for path in sorted(REGRESSIONS.glob(f"{target}-*"))]


PLANTED: Final = frozenset({"planted_read", "planted_lie"})
TARGETS: Final = tuple(name for name in SEEDS if name not in PLANTED)
