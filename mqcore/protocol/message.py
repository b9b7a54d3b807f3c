"""Messages as applications see them, and the queue that a message lies in.

This module holds the values only. Their bytes: ``message_decoder`` (stored records, as pulled), ``batch`` (the body of
a batch send), ``properties``, ``compression``, ``message_id``; their names are given again here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from mqcore.errors import ProtocolError
from mqcore.protocol import fastjson
from mqcore.protocol import properties as names
from mqcore.protocol.compression import CompressionType, compress, decompress
from mqcore.protocol.hashing import java_string_hash, tags_code
from mqcore.protocol.message_id import (
    HostAddress,
    OffsetMessageId,
    UniqueIdGenerator,
    decode_offset_message_id,
    encode_offset_message_id,
)
from mqcore.protocol.properties import decode_properties, encode_properties

__all__ = [
    "CompressionType",
    "HostAddress",
    "Message",
    "MessageExt",
    "MessageQueue",
    "OffsetMessageId",
    "UniqueIdGenerator",
    "compress",
    "decode_offset_message_id",
    "decode_properties",
    "decompress",
    "encode_offset_message_id",
    "encode_properties",
    "java_string_hash",
    "tags_code",
]

UNKNOWN_HOST = HostAddress("0.0.0.0", 0)


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """One queue of a topic on one broker name. Ordered by topic, broker name, queue id, as in Java."""

    topic: str
    broker_name: str
    queue_id: int

    def to_json(self) -> dict[str, object]:
        """Return the members of the queue's JSON object."""
        return {"brokerName": self.broker_name, "queueId": self.queue_id, "topic": self.topic}

    def json_key(self) -> tuple[tuple[str, object], ...]:
        """Return the queue as a member name, for ``fastjson.dumps``."""
        return (("brokerName", self.broker_name), ("queueId", self.queue_id), ("topic", self.topic))

    @classmethod
    def from_json(cls, value: object) -> MessageQueue:
        """Read a queue from its JSON object, from a member name, or from a text that holds its JSON.

        Raises ProtocolError if a member is missing or of another type.
        """
        try:
            members: dict[str, Any] = dict(fastjson.loads(value) if isinstance(value, str) else cast("Any", value))
            return cls(str(members["topic"]), str(members["brokerName"]), int(members["queueId"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"bad message queue: got {value!r}, wanted brokerName, queueId and topic") from error


class Message:
    """What an application sends: a topic, a body, and properties. Tags, keys and the like are properties too."""

    __slots__ = ("body", "flag", "properties", "topic", "transaction_id")

    def __init__(
        self,
        topic: str,
        body: bytes = b"",
        *,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        flag: int = 0,
        properties: Mapping[str, str] | None = None,
        transaction_id: str | None = None,
    ) -> None:
        self.topic = topic
        self.body = body
        self.flag = flag
        self.properties: dict[str, str] = dict(properties or {})
        self.transaction_id = transaction_id
        if tags:
            self.tags = tags
        if keys:
            self.keys = keys if isinstance(keys, str) else names.KEY_SEPARATOR.join(keys)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    __hash__ = None  # type: ignore[assignment]  # a message is mutable

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self._values().items())
        return f"{type(self).__name__}({shown})"

    def _values(self) -> dict[str, Any]:
        slots = [name for kind in type(self).__mro__ for name in getattr(kind, "__slots__", ())]
        return {name: getattr(self, name) for name in sorted(slots)}

    @property
    def tags(self) -> str | None:
        return self.properties.get(names.PROPERTY_TAGS)

    @tags.setter
    def tags(self, tags: str) -> None:
        self.properties[names.PROPERTY_TAGS] = tags

    @property
    def keys(self) -> str | None:
        """The business keys in one text, separated by blanks."""
        return self.properties.get(names.PROPERTY_KEYS)

    @keys.setter
    def keys(self, keys: str) -> None:
        self.properties[names.PROPERTY_KEYS] = keys

    @property
    def delay_time_level(self) -> int:
        """The delay level, 0 for none; a property that is no number counts as none."""
        text = self.properties.get(names.PROPERTY_DELAY_TIME_LEVEL, "0")
        return int(text) if text.lstrip("-").isdecimal() else 0

    @delay_time_level.setter
    def delay_time_level(self, level: int) -> None:
        self.properties[names.PROPERTY_DELAY_TIME_LEVEL] = str(level)

    @property
    def wait_store_msg_ok(self) -> bool:
        """Whether the sender waits for flush and replication; yes unless the property says otherwise."""
        return self.properties.get(names.PROPERTY_WAIT_STORE_MSG_OK, "true").lower() == "true"

    @wait_store_msg_ok.setter
    def wait_store_msg_ok(self, wait: bool) -> None:
        self.properties[names.PROPERTY_WAIT_STORE_MSG_OK] = "true" if wait else "false"

    @property
    def unique_id(self) -> str | None:
        """The id that the sending client gave the message."""
        return self.properties.get(names.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)


class MessageExt(Message):
    """A message that a broker has stored: what was sent, and where and when it lies.

    Times are ms since 1970; ``physical_offset`` is the record's start in the commit log, ``store_size`` the bytes of
    the whole record, ``body_crc`` that of the body as stored.
    """

    __slots__ = (
        "body_crc",
        "born_host",
        "born_timestamp",
        "broker_name",
        "physical_offset",
        "prepared_transaction_offset",
        "queue_id",
        "queue_offset",
        "reconsume_times",
        "store_host",
        "store_size",
        "store_timestamp",
        "sys_flag",
    )

    def __init__(
        self,
        topic: str,
        body: bytes = b"",
        *,
        flag: int = 0,
        properties: Mapping[str, str] | None = None,
        transaction_id: str | None = None,
        broker_name: str = "",
        queue_id: int = 0,
        queue_offset: int = 0,
        physical_offset: int = 0,
        sys_flag: int = 0,
        born_timestamp: int = 0,
        born_host: HostAddress = UNKNOWN_HOST,
        store_timestamp: int = 0,
        store_host: HostAddress = UNKNOWN_HOST,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        body_crc: int = 0,
        store_size: int = 0,
    ) -> None:
        super().__init__(topic, body, flag=flag, properties=properties, transaction_id=transaction_id)
        self.broker_name = broker_name
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.physical_offset = physical_offset
        self.sys_flag = sys_flag
        self.born_timestamp = born_timestamp
        self.born_host = born_host
        self.store_timestamp = store_timestamp
        self.store_host = store_host
        self.reconsume_times = reconsume_times
        self.prepared_transaction_offset = prepared_transaction_offset
        self.body_crc = body_crc
        self.store_size = store_size

    @property
    def offset_msg_id(self) -> str:
        """The id that says where the record lies."""
        return encode_offset_message_id(self.store_host, self.physical_offset)

    @property
    def msg_id(self) -> str:
        """The unique id when the sender gave one, else the offset id."""
        return self.unique_id or self.offset_msg_id

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(self.topic, self.broker_name, self.queue_id)
