"""The client's codec beside its Python twins and kafka-python's: ``pytest benchmarks/client --benchmark-enable``.

All in one process, without a broker. Each benchmark checks its result before it times it. Figures are per call: a batch
or a pull of COUNT messages of 1 KiB.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from mqcore._fast.client import batch as fast_batch
from mqcore._fast.client import exchange as fast_exchange
from mqcore._fast.client import frames as fast_frames
from mqcore._fast.client import records as fast_records
from mqcore.client.model.messages import Message, ReceivedMessage
from mqcore.client.produce import batch_body, exchange
from mqcore.protocol import frame, pulled, send_frames
from mqcore.protocol.batch import decode_batch
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.message import HostAddress, MessageExt, MessageQueue
from mqcore.protocol.message_decoder import encode_message

COUNT = 200
BODY = random.Random(1).randbytes(1024)
PROPERTIES = {"UNIQ_KEY": "7F00000100001B28DAB15D0BD7C80000", "TAGS": "TagA"}
QUEUE = MessageQueue("Bench", "broker-a", 0)
ANSWER = RemotingCommand(
    0,
    7,
    1,
    ext_fields={"msgId": "7F00000100002A9F00000000000004D2", "queueId": "3", "queueOffset": "12", "TRACE_ON": "true"},
).encode()[4:]


@pytest.mark.parametrize(
    "head_class",
    [pytest.param(fast_frames.SendHead, id="cython"), pytest.param(send_frames.SendHead, id="python")],
)
def bench_write_a_send(benchmark: Any, head_class: Callable[..., Any]) -> None:
    head = head_class("bench", "Bench", "TBW102", 4, 3, "broker-a")
    written = head.encode(7, 0, 1795245418616, 0, PROPERTIES, BODY)
    assert RemotingCommand.decode(written[4:]).body == BODY
    benchmark.group = "write a send of 1 KiB"
    benchmark(head.encode, 7, 0, 1795245418616, 0, PROPERTIES, BODY)


@pytest.mark.parametrize(
    "decode",
    [
        pytest.param(fast_exchange.decode_send_answer, id="cython"),
        pytest.param(exchange.decode_send_answer, id="python"),
    ],
)
def bench_read_the_answer_to_a_send(benchmark: Any, decode: Callable[[bytes], Any]) -> None:
    assert decode(ANSWER)[3:5] == (3, 12)
    benchmark.group = "read the answer to a send"
    benchmark(decode, ANSWER)


@pytest.mark.parametrize(
    "decode", [pytest.param(fast_frames.decode_frame, id="cython"), pytest.param(frame.decode_frame, id="python")]
)
def bench_read_any_answer(benchmark: Any, decode: Callable[[bytes], Any]) -> None:
    assert decode(ANSWER)[4]["queueId"] == "3"
    benchmark.group = "read any answer"
    benchmark(decode, ANSWER)


@pytest.mark.parametrize("twin", [pytest.param(fast_batch, id="cython"), pytest.param(batch_body, id="python")])
def bench_fill_a_batch(benchmark: Any, twin: Any) -> None:
    ids, room, message = twin.UniqueIdGenerator("127.0.0.1"), twin.Room(1 << 40, 1 << 60), Message("Bench", BODY)

    def fill() -> bytes:
        body = twin.BatchBody(1 << 20, 1 << 20, True)
        for _ in range(COUNT):
            body.try_join(message, Message, ids, room)
        return bytes(body.take())

    assert [member.body for member in decode_batch(fill())] == [BODY] * COUNT
    benchmark.group = f"fill a batch with {COUNT} messages of 1 KiB"
    benchmark(fill)


def bench_fill_a_batch_of_kafka_python(benchmark: Any) -> None:
    records = pytest.importorskip("kafka.record.memory_records")

    def fill() -> bytes:
        builder = records.MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1 << 20)
        for _ in range(COUNT):
            builder.append(timestamp=1795245418616, key=None, value=BODY, headers=[])
        builder.close()
        return bytes(builder.buffer())

    (batch,) = list(batches(records, fill()))
    assert [record.value for record in batch] == [BODY] * COUNT
    benchmark.group = f"fill a batch with {COUNT} messages of 1 KiB"
    benchmark(fill)


def pulled_body() -> bytes:
    host = HostAddress("127.0.0.1", 10911)
    return b"".join(
        encode_message(
            MessageExt("Bench", BODY, properties=PROPERTIES, queue_offset=at, born_host=host, store_host=host)
        )
        for at in range(COUNT)
    )


@pytest.mark.parametrize(
    ("decode", "kind"),
    [
        pytest.param(fast_records.decode_pulled, ReceivedMessage, id="cython"),
        pytest.param(pulled.decode_pulled, pulled.RecordFields, id="python"),
    ],
)
def bench_read_a_pull(benchmark: Any, decode: Callable[..., list[Any]], kind: type) -> None:
    data = pulled_body()

    def read() -> int:
        return sum(len(message.body) for message in decode(kind, data, QUEUE, None, 0, COUNT, None, None, None))

    assert read() == COUNT * len(BODY)
    benchmark.group = f"read a pull of {COUNT} messages of 1 KiB"
    benchmark(read)


def bench_read_a_fetch_of_kafka_python(benchmark: Any) -> None:
    records = pytest.importorskip("kafka.record.memory_records")
    builder = records.MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1 << 20)
    for _ in range(COUNT):
        builder.append(timestamp=1795245418616, key=None, value=BODY, headers=[])
    builder.close()
    data = bytes(builder.buffer())

    def read() -> int:
        return sum(len(record.value) for batch in batches(records, data) for record in batch)

    assert read() == COUNT * len(BODY)
    benchmark.group = f"read a pull of {COUNT} messages of 1 KiB"
    benchmark(read)


def batches(records: Any, data: bytes) -> Any:
    """Iterate over the record batches of a fetch as kafka-python's consumer does."""
    found = records.MemoryRecords(data)
    while (batch := found.next_batch()) is not None:
        yield batch
