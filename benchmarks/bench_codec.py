"""Codec operations, Cython beside their Python twins: ``pytest benchmarks/bench_codec.py --benchmark-enable``.

Each benchmark checks its result before it times it. Figures for a broker under load come from benchmarks.harness.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from mqcore._fast.base import crc32 as fast_crc32
from mqcore._fast.log import record as fast_record
from mqcore._fast.wire import header as fast_header
from mqcore.codes import RequestCode, SerializeType
from mqcore.protocol.command import RemotingCommand
from mqcore.store.log import record as python_record

BODY = random.Random(1).randbytes(1024)
SEND_FIELDS = {
    "a": "bench", "b": "Bench", "c": "TBW102", "d": "4", "e": "3", "f": "0", "g": "1795245418616", "h": "0",
    "i": "UNIQ_KEY\x017F00000100001B28DAB15D0BD7C80000\x02WAIT\x01true\x02TAGS\x01TagA",
    "j": "0", "k": "false", "m": "false",
}  # fmt: skip


@pytest.mark.parametrize("size", [128, 1024, 65536])
@pytest.mark.parametrize("crc32", [pytest.param(fast_crc32.checksum, id="cython"), pytest.param(zlib.crc32, id="zlib")])
def bench_crc32(benchmark: Any, crc32: Callable[[bytes], int], size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert crc32(data) == zlib.crc32(data)
    benchmark.group = f"crc32 of {size} bytes"
    benchmark.extra_info.update(size=size)
    benchmark(crc32, data)


@pytest.mark.parametrize("serialize_type", list(SerializeType), ids=lambda kind: kind.name)
@pytest.mark.parametrize(
    "read", [pytest.param(fast_header.scan, id="cython"), pytest.param(RemotingCommand.decode, id="python")]
)
def bench_read_send_header(benchmark: Any, read: Callable[[bytes], Any], serialize_type: SerializeType) -> None:
    command = RemotingCommand(RequestCode.SEND_MESSAGE_V2, 7, ext_fields=SEND_FIELDS, body=BODY)
    command.serialize_type = serialize_type
    payload = command.encode()[4:]
    result = read(payload)
    fields = result["ext_fields"] if isinstance(result, dict) else result.ext_fields
    assert fields == SEND_FIELDS
    benchmark.group = f"read a send header, {serialize_type.name}"
    benchmark.extra_info.update(header_size=len(payload) - len(BODY))
    benchmark(read, payload)


@pytest.mark.parametrize("twin", [pytest.param(fast_record, id="cython"), pytest.param(python_record, id="python")])
def bench_decode_record(benchmark: Any, twin: Any) -> None:
    record = python_record.Record(
        queue_id=3, flag=0, queue_offset=42, physical_offset=4096, sys_flag=0, born_timestamp=1795245418616,
        born_host=python_record.PackedHost(bytes([127, 0, 0, 1]), 41676), store_timestamp=1795245418620,
        store_host=python_record.PackedHost(bytes([127, 0, 0, 1]), 10911), reconsume_times=0,
        prepared_transaction_offset=0, body=BODY, topic=b"Bench", properties=SEND_FIELDS["i"].encode(),
    )  # fmt: skip
    data = twin.encode(record)
    assert twin.decode(data, 4096).body == BODY
    benchmark.group = "decode a record of 1 KiB, with its CRC"
    benchmark.extra_info.update(record_size=len(data))
    benchmark(twin.decode, data, 4096)
