"""What brokers tell about their clients.

Source: RocketMQ common/protocol/body/*Connection.java, ProducerInfo.java, QuerySubscriptionResponseBody.java.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from mqcore.codes import LanguageCode
from mqcore.protocol.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from mqcore.protocol.json_body import JsonBody


@dataclass(slots=True)
class ClientConnection(JsonBody):
    """A client as the connection lists show it."""

    client_id: str = ""
    client_addr: str = ""
    language: LanguageCode = LanguageCode.UNKNOWN
    version: int = 0


@dataclass(slots=True)
class SubscriptionConflict(JsonBody):
    """Two members of a group that want different things of a topic. No part of RocketMQ's protocol."""

    group: str = ""
    topic: str = ""
    first_client: str = ""
    first: str = ""
    """Type and expression, or "nothing"."""
    second_client: str = ""
    second: str = ""

    def __str__(self) -> str:
        return (
            f"the members of group [{self.group}] subscribe differently: of topic [{self.topic}] "
            f"[{self.first_client}] wants [{self.first}] and [{self.second_client}] wants [{self.second}]"
        )


@dataclass(slots=True)
class ConsumerConnection(JsonBody):
    """Body of the answer to GET_CONSUMER_CONNECTION_LIST; ``subscription_conflict`` is mqcore's own, seldom there."""

    connection_set: list[ClientConnection] = field(default_factory=list)
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    subscription_conflict: SubscriptionConflict | None = None


@dataclass(slots=True)
class ProducerConnection(JsonBody):
    """Body of the answer to GET_PRODUCER_CONNECTION_LIST."""

    connection_set: list[ClientConnection] = field(default_factory=list)


@dataclass(slots=True)
class ProducerInfo(JsonBody):
    """One producer in the answer to GET_ALL_PRODUCER_INFO; ``remote_ip`` reads ``/ip:port``."""

    JSON_NAMES: ClassVar = {"remote_ip": "remoteIP"}

    client_id: str = ""
    remote_ip: str = ""
    language: LanguageCode = LanguageCode.UNKNOWN
    version: int = 0
    last_update_timestamp: int = 0


@dataclass(slots=True)
class ProducerTableInfo(JsonBody):
    """Body of the answer to GET_ALL_PRODUCER_INFO: producer group -> its clients."""

    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)


@dataclass(slots=True)
class QuerySubscriptionResponseBody(JsonBody):
    """Body of the answer to QUERY_SUBSCRIPTION_BY_CONSUMER."""

    subscription_data: SubscriptionData | None = None
    group: str = ""
    topic: str = ""
