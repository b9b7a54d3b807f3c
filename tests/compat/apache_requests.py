"""The few requests that these tests send to a running Apache broker, as plain values."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from tests.rigs.wire import SUCCESS, Answer, call

SEND_MESSAGE = 10
PULL_MESSAGE = 11
QUERY_MESSAGE = 12
SEARCH_OFFSET_BY_TIMESTAMP = 29
GET_MAX_OFFSET = 30
GET_MIN_OFFSET = 31
VIEW_MESSAGE_BY_ID = 33
END_TRANSACTION = 37
SEND_BATCH_MESSAGE = 320
QUERY_CONSUME_QUEUE = 321
PULL_RETRY_IMMEDIATELY = 20
PULL_SUSPEND = 2
PULL_SUBSCRIPTION = 4
FAR_FUTURE = 1 << 60
PRODUCER_GROUP = "P"


def properties_text(properties: dict[str, str]) -> str:
    return "\x02".join(f"{name}\x01{value}" for name, value in properties.items())


def send(
    broker: str, topic: str, queue_id: int, body: bytes, born_timestamp: int, properties: dict[str, str], **more: int
) -> Answer:
    """Send one message; *more*: sys_flag, flag."""
    return call(
        broker,
        SEND_MESSAGE,
        {
            "producerGroup": PRODUCER_GROUP,
            "topic": topic,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4",
            "queueId": str(queue_id),
            "sysFlag": str(more.get("sys_flag", 0)),
            "bornTimestamp": str(born_timestamp),
            "flag": str(more.get("flag", 0)),
            "properties": properties_text(properties),
            "reconsumeTimes": "0",
            "unitMode": "false",
        },
        body,
        timeout_s=30,
    )


def batch_body(members: Sequence[tuple[int, bytes, dict[str, str]]]) -> bytes:
    """Return the body of a batch: flag, body and properties of each member."""
    parts = []
    for flag, body, properties in members:
        text = properties_text(properties).encode()
        size = 4 * 5 + len(body) + 2 + len(text)
        parts.append(struct.pack(">iiiii", size, 0, 0, flag, len(body)) + body + struct.pack(">h", len(text)) + text)
    return b"".join(parts)


def send_batch(broker: str, topic: str, queue_id: int, body: bytes, born_timestamp: int) -> Answer:
    """Send a batch body; its header has the short field names."""
    fields = (PRODUCER_GROUP, topic, "TBW102", "4", str(queue_id), "0", str(born_timestamp), "0", "WAIT\x01true", "0")
    header = dict(zip("abcdefghij", fields, strict=True)) | {"k": "false", "m": "true"}
    return call(broker, SEND_BATCH_MESSAGE, header, body, timeout_s=30)


def end_transaction(broker: str, half: Answer, unique_key: str, outcome: int) -> Answer:
    """Commit (8) or roll back (12) the half message that *half* answered."""
    return call(
        broker,
        END_TRANSACTION,
        {
            "producerGroup": PRODUCER_GROUP,
            "tranStateTableOffset": half.ext_fields["queueOffset"],
            "commitLogOffset": str(int(half.ext_fields["msgId"][-16:], 16)),
            "commitOrRollback": str(outcome),
            "fromTransactionCheck": "false",
            "msgId": unique_key,
            "transactionId": unique_key,
        },
    )


def bounds(broker: str, topic: str, queue_id: int) -> tuple[int, int]:
    """Return min and max offset of a queue."""
    queue = {"topic": topic, "queueId": str(queue_id)}
    low, high = (call(broker, code, queue) for code in (GET_MIN_OFFSET, GET_MAX_OFFSET))
    return int(low.ext_fields["offset"]), int(high.ext_fields["offset"])


def offset_by_time(broker: str, topic: str, queue_id: int, timestamp: int) -> int:
    fields = {"topic": topic, "queueId": str(queue_id), "timestamp": str(timestamp)}
    return int(call(broker, SEARCH_OFFSET_BY_TIMESTAMP, fields).ext_fields["offset"])


def query(broker: str, topic: str, key: str) -> bytes:
    """Return the records of a key, one behind the other; empty if there are none."""
    answer = call(
        broker,
        QUERY_MESSAGE,
        {
            "topic": topic,
            "key": key,
            "maxNum": "32",
            "beginTimestamp": "0",
            "endTimestamp": str(FAR_FUTURE),
            "_UNIQUE_KEY_QUERY": "false",
        },
        timeout_s=30,
    )
    return answer.body if answer.code == SUCCESS else b""


def view(broker: str, physical_offset: int) -> bytes:
    """Return the record at an offset; empty if the broker finds none."""
    answer = call(broker, VIEW_MESSAGE_BY_ID, {"offset": str(physical_offset)}, timeout_s=30)
    return answer.body if answer.code == SUCCESS else b""


def pull(
    broker: str, topic: str, queue_id: int, at: int, subscription: str = "*", group: str = "C", suspend_ms: int = 0
) -> Answer:
    """Ask once for what lies at an offset; with *suspend_ms* the broker may keep the request for so long."""
    return call(
        broker,
        PULL_MESSAGE,
        {
            "consumerGroup": group,
            "topic": topic,
            "queueId": str(queue_id),
            "queueOffset": str(at),
            "maxMsgNums": "32",
            "sysFlag": str(PULL_SUBSCRIPTION | (PULL_SUSPEND if suspend_ms else 0)),
            "commitOffset": "0",
            "suspendTimeoutMillis": str(suspend_ms),
            "subscription": subscription,
            "subVersion": "0",
            "expressionType": "TAG",
        },
        timeout_s=30 + suspend_ms / 1000,
    )


def pull_all(broker: str, topic: str, queue_id: int, subscription: str = "*", group: str = "C") -> bytes:
    """Return all records of a queue that a subscription gets of the broker, one behind the other."""
    at, records = bounds(broker, topic, queue_id)[0], b""
    while True:
        answer = pull(broker, topic, queue_id, at, subscription, group)
        if answer.code not in (SUCCESS, PULL_RETRY_IMMEDIATELY):
            return records
        records += answer.body
        at = int(answer.ext_fields["nextBeginOffset"])


def queue_units(
    broker: str, topic: str, queue_id: int, count: int, group: str = "C", first: int = 0
) -> list[dict[str, Any]]:
    """Return what the broker tells of the units of a queue from *first* on: not of very many at a time."""
    fields = {
        "topic": topic, "queueId": str(queue_id), "index": str(first), "count": str(count), "consumerGroup": group
    }  # fmt: skip
    answer = call(broker, QUERY_CONSUME_QUEUE, fields, timeout_s=30)
    units: list[dict[str, Any]] = answer.json()["queueData"]
    return units


def split_records(data: bytes) -> Iterator[bytes]:
    """Give the records of a body one by one, by their total sizes."""
    while data:
        size = int.from_bytes(data[:4], "big")
        yield data[:size]
        data = data[size:]
