"""What clients tell brokers about themselves, and lock there.

Source: RocketMQ common/protocol/heartbeat/*.java, filter/FilterAPI.java.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import ClassVar, Final

from mqcore.errors import ProtocolError
from mqcore.protocol.hashing import java_string_hash
from mqcore.protocol.json_body import JsonBody
from mqcore.protocol.message import MessageQueue

SUB_ALL: Final = "*"
EXPRESSION_TAG: Final = "TAG"
EXPRESSION_SQL92: Final = "SQL92"


class ConsumeType(IntEnum):
    """How a group gets its messages: it pulls, or they are pushed to its listener."""

    CONSUME_ACTIVELY = 0
    CONSUME_PASSIVELY = 1


class MessageModel(IntEnum):
    """Whether every member of a group gets every message, or one of them."""

    BROADCASTING = 0
    CLUSTERING = 1


class ConsumeFromWhere(IntEnum):
    """Where a group without offsets begins."""

    CONSUME_FROM_LAST_OFFSET = 0
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = 1
    CONSUME_FROM_MIN_OFFSET = 2
    CONSUME_FROM_MAX_OFFSET = 3
    CONSUME_FROM_FIRST_OFFSET = 4
    CONSUME_FROM_TIMESTAMP = 5


def is_tag_type(expression_type: str | None) -> bool:
    """Whether an expression of this type is a list of tags; no type counts as TAG."""
    return expression_type is None or expression_type in ("", EXPRESSION_TAG)


@dataclass(slots=True)
class SubscriptionData(JsonBody):
    """One subscription of a group. ``sub_version`` is ms since 1970; the larger one wins."""

    topic: str = ""
    sub_string: str = ""
    tags_set: set[str] = field(default_factory=set)
    code_set: set[int] = field(default_factory=set)
    sub_version: int = 0
    expression_type: str = EXPRESSION_TAG
    class_filter_mode: bool = False

    @classmethod
    def build(
        cls, topic: str, expression: str | None, expression_type: str | None = None, *, sub_version: int = 0
    ) -> SubscriptionData:
        """Parse a subscription as clients and brokers do.

        Raises ProtocolError for a tag list without tags and for an empty expression of another type.
        """
        if not is_tag_type(expression_type):
            assert expression_type is not None
            if not expression:
                raise ProtocolError("Expression can't be null!")
            return cls(topic, expression, sub_version=sub_version, expression_type=expression_type)
        if not expression or expression == SUB_ALL:
            return cls(topic, SUB_ALL, sub_version=sub_version)
        tags = {tag.strip() for tag in expression.split("||")} - {""}
        if not tags:
            raise ProtocolError(f"subString split error: got {expression!r}, wanted tags between ||")
        return cls(topic, expression, tags, {java_string_hash(tag) for tag in tags}, sub_version)


@dataclass(slots=True)
class ConsumerData(JsonBody):
    """What a client says of one consumer group it belongs to."""

    group_name: str = ""
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscription_data_set: list[SubscriptionData] = field(default_factory=list)
    unit_mode: bool = False


@dataclass(slots=True)
class ProducerData(JsonBody):
    """A producer group that a client belongs to."""

    group_name: str = ""


@dataclass(slots=True)
class HeartbeatData(JsonBody):
    """Body of HEART_BEAT."""

    JSON_NAMES: ClassVar = {"client_id": "clientID"}

    client_id: str = ""
    producer_data_set: list[ProducerData] = field(default_factory=list)
    consumer_data_set: list[ConsumerData] = field(default_factory=list)


@dataclass(slots=True)
class CheckClientRequestBody(JsonBody):
    """Body of CHECK_CLIENT_CONFIG."""

    client_id: str = ""
    group: str = ""
    subscription_data: SubscriptionData = field(default_factory=SubscriptionData)


@dataclass(slots=True)
class ConsumerList(JsonBody):
    """Body of the answer to GET_CONSUMER_LIST_BY_GROUP."""

    consumer_id_list: list[str] = field(default_factory=list)


@dataclass(slots=True)
class LockBatchRequestBody(JsonBody):
    """Body of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

    consumer_group: str = ""
    client_id: str = ""
    mq_set: list[MessageQueue] = field(default_factory=list)


@dataclass(slots=True)
class LockBatchResponseBody(JsonBody):
    """Body of the answer to LOCK_BATCH_MQ: the queues that the client holds now."""

    JSON_NAMES: ClassVar = {"lock_ok_mq_set": "lockOKMQSet"}

    lock_ok_mq_set: list[MessageQueue] = field(default_factory=list)
