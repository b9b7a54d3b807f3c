"""Topics, consumer groups and their versions: what brokers keep, register and copy to their slaves.

Source: RocketMQ common/TopicConfig.java, DataVersion.java, subscription/SubscriptionGroupConfig.java,
protocol/body/RegisterBrokerBody.java and the serialize wrappers.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from mqcore.codes import PermName
from mqcore.errors import ProtocolError
from mqcore.protocol import fastjson
from mqcore.protocol.json_body import JsonBody

REGISTER_BODY_SIZE_MAX: Final = 64 * 1024 * 1024
"""A compressed registration that grows beyond this is refused. A million topics take about fifty megabytes."""

REGISTER_COMPRESS_LEVEL: Final = 9

ZLIB_FIRST_BYTE: Final = b"x"
"""First byte of the zlib streams that Java writes. No JSON text begins with it."""

CRC_MASK: Final = 0x7FFFFFFF

_INT32: Final = struct.Struct(">i")


class TopicFilterType(IntEnum):
    """Whether a message of the topic has one tag or several."""

    SINGLE_TAG = 0
    MULTI_TAG = 1


@dataclass(slots=True)
class DataVersion(JsonBody):
    """Version of a table: when it changed last (ms since 1970), and how often.

    ``state_version`` is of 5.x peers, the number of a mastership; None leaves the member out, as 4.9.8 does.
    """

    timestamp: int = 0
    counter: int = 0
    state_version: int | None = None

    def next_version(self, now_ms: int) -> None:
        """Note one more change, at *now_ms*."""
        self.timestamp = now_ms
        self.counter += 1


@dataclass(slots=True)
class TopicConfig(JsonBody):
    """One topic of a broker. ``attributes`` is for 5.x peers: None leaves the member out, as 4.9.8 does."""

    topic_name: str = ""
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = PermName.READ | PermName.WRITE
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] | None = None

    def to_text(self) -> str:
        """Return the five words that a compressed registration holds; order and sysFlag are not in it."""
        return (
            f"{self.topic_name} {self.read_queue_nums} {self.write_queue_nums} {self.perm} "
            f"{TopicFilterType(self.topic_filter_type).name}"
        )

    @classmethod
    def from_text(cls, text: str) -> TopicConfig:
        """Read the words of a compressed registration: five, or six from a 5.x broker.

        Raises ProtocolError if they are fewer or a number is not one.
        """
        words = text.split(" ", 5)
        try:
            name, read_queues, write_queues, perm, filter_type = words[:5]
            return cls(name, int(read_queues), int(write_queues), int(perm), TopicFilterType[filter_type])
        except (ValueError, KeyError) as error:
            raise ProtocolError(f"bad topic in registration: got {text[:80]!r}, wanted five words") from error


@dataclass(slots=True)
class TopicConfigSerializeWrapper(JsonBody):
    """A broker's topic table with its version; also the content of topics.json."""

    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


@dataclass(slots=True)
class SubscriptionGroupConfig(JsonBody):
    """One consumer group of a broker."""

    group_name: str = ""
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True


@dataclass(slots=True)
class SubscriptionGroupWrapper(JsonBody):
    """A broker's group table with its version; also the content of subscriptionGroup.json."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


@dataclass(slots=True)
class CreateTopicListRequestBody(JsonBody):
    """Body of UPDATE_AND_CREATE_TOPIC_LIST; the ``attributes`` of its topics are changes."""

    topic_config_list: list[TopicConfig] = field(default_factory=list)


@dataclass(slots=True)
class SubscriptionGroupList(JsonBody):
    """Body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST."""

    group_config_list: list[SubscriptionGroupConfig] = field(default_factory=list)


@dataclass(slots=True)
class ConsumerOffsetSerializeWrapper(JsonBody):
    """Consumer offsets, ``topic@group`` -> queue id -> offset; also the content of consumerOffset.json."""

    offset_table: dict[str, dict[int, int]] = field(default_factory=dict)


@dataclass(slots=True)
class DelayOffsetSerializeWrapper(JsonBody):
    """Offsets of the delay levels, level -> offset; also the content of delayOffset.json."""

    offset_table: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class KVTable(JsonBody):
    """Names and values, all text."""

    table: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class RegisterBrokerBody(JsonBody):
    """Body of REGISTER_BROKER, plain or compressed."""

    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = field(default_factory=TopicConfigSerializeWrapper)
    filter_server_list: list[str] = field(default_factory=list)

    def encode_body(self, *, compressed: bool) -> bytes:
        """Return the body as it travels: JSON, or one zlib stream of length-prefixed pieces."""
        if not compressed:
            return self.encode()
        wrapper = self.topic_config_serialize_wrapper
        pieces = [_sized(wrapper.data_version.encode()), _INT32.pack(len(wrapper.topic_config_table))]
        pieces += [_sized(topic.to_text().encode()) for topic in wrapper.topic_config_table.values()]
        pieces.append(_sized(fastjson.dumps(self.filter_server_list)))
        return zlib.compress(b"".join(pieces), REGISTER_COMPRESS_LEVEL)

    @classmethod
    def decode_body(cls, body: bytes, *, compressed: bool) -> RegisterBrokerBody:
        """Read the body; what a 5.x broker appends is ignored. Raises ProtocolError if it cannot be read.

        A zlib stream is taken for one even if *compressed* is False: 5.3 brokers compress and say that they have not.
        """
        if not compressed and not body.startswith(ZLIB_FIRST_BYTE):
            return cls.decode(body)
        pieces = _Pieces(_inflate(body))
        version = DataVersion.decode(pieces.take())
        topics: dict[str, TopicConfig] = {}
        for _ in range(pieces.number()):
            topic = TopicConfig.from_text(pieces.take().decode("utf-8", "replace"))
            topics[topic.topic_name] = topic
        servers = fastjson.loads(pieces.take()) or []
        if not isinstance(servers, list):
            raise ProtocolError(f"bad filter server list in registration: got {servers!r}, wanted an array")
        return cls(TopicConfigSerializeWrapper(topics, version), [str(server) for server in servers])


def body_crc32(body: bytes) -> int:
    """Return the CRC that REGISTER_BROKER carries as ``bodyCrc32``: CRC-32 without its sign bit."""
    return zlib.crc32(body) & CRC_MASK


def _sized(piece: bytes) -> bytes:
    return _INT32.pack(len(piece)) + piece


def _inflate(body: bytes) -> bytes:
    decoder = zlib.decompressobj()
    try:
        data = decoder.decompress(body, REGISTER_BODY_SIZE_MAX)
    except zlib.error as error:
        raise ProtocolError(f"bad registration: not a zlib stream ({error})") from error
    if not decoder.eof:
        raise ProtocolError(f"bad registration: cut short or beyond {REGISTER_BODY_SIZE_MAX} bytes")
    return data


class _Pieces:
    """Reads the pieces of a compressed registration in order."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def number(self) -> int:
        if len(self.data) - self.at < _INT32.size:
            raise ProtocolError(f"registration cut short (position={self.at})")
        (number,) = _INT32.unpack_from(self.data, self.at)
        self.at += _INT32.size
        return int(number)

    def take(self) -> bytes:
        size = self.number()
        if not 0 <= size <= len(self.data) - self.at:
            left = len(self.data) - self.at
            raise ProtocolError(f"bad length in registration: got {size}, wanted 0 to {left} (position={self.at})")
        self.at += size
        return self.data[self.at - size : self.at]
