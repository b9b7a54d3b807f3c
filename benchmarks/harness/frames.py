"""Request frames as templates: whole frames with the places that change from request to request.

Both brokers of a comparison get the same bytes: what Apache's Java client 4.9.8 sends, with a unique key in each
message, because brokers index it. Only opaque, born timestamp and unique keys are patched, and a pull's queue offset.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final

from mqcore.codes import PullSysFlag, RequestCode, SerializeType, SysFlag
from mqcore.protocol.batch import encode_batch
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.message import Message
from mqcore.protocol.properties import (
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
    PROPERTY_WAIT_STORE_MSG_OK,
    encode_properties,
)

OPAQUE_MARK: Final = 1_762_539_408
"""Stands where the opaque goes, ten digits like every opaque of the load."""
BORN_TIMESTAMP_MARK: Final = "1987654321098"
UNIQUE_PREFIX: Final = "7F0000010BE700001234"
"""Stands for a client's address, process and class loader; then come 4 digits of time, here the repetition."""
UNIQUE_MARK: Final = "89ABCDEF"

QUEUE_OFFSET_DIGITS_MAX: Final = 12
HALF_OFFSET_DIGITS: Final = 15
PRODUCER_GROUP: Final = "benchmark_producer"
CONSUMER_GROUP: Final = "benchmark_consumer"
BROKER_NAME: Final = "broker-a"


@dataclass(frozen=True, slots=True)
class FrameTemplate:
    """One frame, and where the loop writes into it; all places are bytes from the frame's start."""

    data: bytes
    opaque_at: int
    opaque_is_text: bool
    """Decimal digits in a JSON header, or four bytes in a binary one."""
    born_timestamp_at: int | None
    unique_keys_at: tuple[int, ...]
    queue_offset_at: int | None = None
    half_at: tuple[int, int] | None = None
    """The end of a transaction: the half's queue offset and its physical offset, HALF_OFFSET_DIGITS each."""


def places_of(needle: bytes, data: bytes) -> tuple[int, ...]:
    """Return every place where *needle* starts in *data*."""
    places = []
    at = data.find(needle)
    while at >= 0:
        places.append(at)
        at = data.find(needle, at + len(needle))
    return tuple(places)


def _only_place(name: str, needle: bytes, data: bytes) -> int:
    places = places_of(needle, data)
    if len(places) != 1:
        raise ValueError(f"{name} mark: got {len(places)} in the frame, wanted 1")
    return places[0]


def _after_name(name: str, serialize_type: SerializeType, data: bytes) -> int:
    """Return where the text of the extension field *name* starts."""
    start = f'"{name}":"'.encode() if serialize_type == SerializeType.JSON else name.encode()
    value_length_size = 0 if serialize_type == SerializeType.JSON else 4
    return _only_place(name, start, data) + len(start) + value_length_size


def template_of(command: RemotingCommand) -> FrameTemplate:
    """Encode *command*, which holds the marks of what changes, and note where they are."""
    data = replace(command, opaque=OPAQUE_MARK).encode()
    is_text = command.serialize_type == SerializeType.JSON
    opaque = str(OPAQUE_MARK).encode() if is_text else OPAQUE_MARK.to_bytes(4, "big")
    fields = command.ext_fields or {}
    return FrameTemplate(
        data=data,
        opaque_at=_only_place("opaque", opaque, data),
        opaque_is_text=is_text,
        born_timestamp_at=(
            _only_place("born timestamp", BORN_TIMESTAMP_MARK.encode(), data)
            if BORN_TIMESTAMP_MARK in fields.values()
            else None
        ),
        unique_keys_at=places_of(UNIQUE_MARK.encode(), data),
        queue_offset_at=_after_name("queueOffset", command.serialize_type, data) if "queueOffset" in fields else None,
        half_at=(
            (
                _after_name("tranStateTableOffset", command.serialize_type, data),
                _after_name("commitLogOffset", command.serialize_type, data),
            )
            if "commitLogOffset" in fields
            else None
        ),
    )


def body_of(size: int) -> bytes:
    """Return *size* bytes that do not compress, the same in every run."""
    return random.Random(size).randbytes(size)


def _unique_properties(repetition: int) -> dict[str, str]:
    unique_key = f"{UNIQUE_PREFIX}{repetition & 0xFFFF:04X}{UNIQUE_MARK}"
    return {PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX: unique_key, PROPERTY_WAIT_STORE_MSG_OK: "true"}


def send_templates(
    topic: str, *, queue_count: int, body: bytes, batch_size: int, serialize_type: SerializeType, repetition: int
) -> list[FrameTemplate]:
    """Return one send request per queue; with *batch_size* above 1 each carries that many messages.

    Unique keys are counted from 0 again in each *repetition* (below 65,536), and hold its number.
    Source: RocketMQ client/impl/MQClientAPIImpl.java, SendMessageRequestHeaderV2.java.
    """
    is_batch = batch_size > 1
    unique_properties = _unique_properties(repetition)
    if is_batch:
        body = encode_batch([Message(topic, body, properties=unique_properties)] * batch_size)

    properties = encode_properties({PROPERTY_WAIT_STORE_MSG_OK: "true"} if is_batch else unique_properties)
    requests = send_requests(topic, queue_count, properties, body, serialize_type, is_batch=is_batch)
    return [template_of(request) for request in requests]


def send_requests(
    topic: str, queue_count: int, properties: str, body: bytes, serialize_type: SerializeType, *, is_batch: bool = False
) -> list[RemotingCommand]:
    """Return a send request for each queue, with the marks of what changes."""
    return [
        RemotingCommand(
            code=RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2,
            ext_fields={
                "a": PRODUCER_GROUP,
                "b": topic,
                "c": "TBW102",
                "d": str(queue_count),
                "e": str(queue_id),
                "f": "0",
                "g": BORN_TIMESTAMP_MARK,
                "h": "0",
                "i": properties,
                "j": "0",
                "k": "false",
                "m": "true" if is_batch else "false",
                "n": BROKER_NAME,
            },
            body=body,
            serialize_type=serialize_type,
        )
        for queue_id in range(queue_count)
    ]


def transaction_templates(topic: str, *, queue_count: int, body: bytes, repetition: int) -> list[FrameTemplate]:
    """Return one half message per queue, and behind them the commit of any of them.

    Clients send the commit without waiting for an answer; here one is asked for, or a broker that puts commits off
    would seem fast. Offsets have zeros in front, which both brokers read as decimal. JSON only.
    Source: RocketMQ client/impl/producer/DefaultMQProducerImpl.java, sendMessageInTransaction.
    """
    properties = {
        **_unique_properties(repetition),
        PROPERTY_TRANSACTION_PREPARED: "true",
        PROPERTY_PRODUCER_GROUP: PRODUCER_GROUP,
    }
    halves = []
    for template in send_requests(topic, queue_count, encode_properties(properties), body, SerializeType.JSON):
        fields = dict(template.ext_fields or {}) | {"f": str(int(SysFlag.TRANSACTION_PREPARED))}
        halves.append(template_of(replace(template, ext_fields=fields)))
    commit = {
        "producerGroup": PRODUCER_GROUP,
        "tranStateTableOffset": "1" * HALF_OFFSET_DIGITS,
        "commitLogOffset": "2" * HALF_OFFSET_DIGITS,
        "commitOrRollback": str(int(SysFlag.TRANSACTION_COMMIT)),
        "fromTransactionCheck": "false",
        "msgId": UNIQUE_PREFIX,
        "transactionId": UNIQUE_PREFIX,
        "bname": BROKER_NAME,
    }
    return [*halves, template_of(RemotingCommand(code=RequestCode.END_TRANSACTION, ext_fields=commit))]


def pull_templates(
    topic: str, *, queue_count: int, message_count_max: int, serialize_type: SerializeType
) -> list[FrameTemplate]:
    """Return, per queue, one pull request for each number of digits of the queue offset: 1 to QUEUE_OFFSET_DIGITS_MAX.

    The subscription `*` travels in the request, so no heart-beat is needed; the request does not wait for messages.
    Source: RocketMQ client/impl/consumer/PullAPIWrapper.java, PullMessageRequestHeader.java.
    """

    def request(queue_id: int, digits: int) -> RemotingCommand:
        fields = {
            "consumerGroup": CONSUMER_GROUP,
            "topic": topic,
            "queueId": str(queue_id),
            "queueOffset": "1" * digits,
            "maxMsgNums": str(message_count_max),
            "sysFlag": str(int(PullSysFlag.SUBSCRIPTION)),
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
            "bname": BROKER_NAME,
        }
        return RemotingCommand(code=RequestCode.PULL_MESSAGE, ext_fields=fields, serialize_type=serialize_type)

    return [
        template_of(request(queue_id, digits))
        for queue_id in range(queue_count)
        for digits in range(1, QUEUE_OFFSET_DIGITS_MAX + 1)
    ]
