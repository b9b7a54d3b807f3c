"""The names of OpenTelemetry's semantic conventions for messaging, and what they are of our messages.

https://opentelemetry.io/docs/specs/semconv/messaging/ and .../messaging/rocketmq/. They are written down here, as the
package that has them changes what is not stable yet with each release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mqcore.client.model.messages import Message, MessageKind, ReceivedMessage
from mqcore.client.model.selectors import ShardKey
from mqcore.protocol import properties as names
from mqcore.protocol.message import MessageQueue

Value = str | int | Sequence[str]
Attributes = dict[str, Value]

SCOPE: Final = "mqcore"

SYSTEM: Final = "messaging.system"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
PARTITION: Final = "messaging.destination.partition.id"
GROUP: Final = "messaging.consumer.group.name"
CLIENT_ID: Final = "messaging.client.id"
MESSAGE_ID: Final = "messaging.message.id"
CONVERSATION_ID: Final = "messaging.message.conversation_id"
BODY_SIZE: Final = "messaging.message.body.size"
BATCH_COUNT: Final = "messaging.batch.message_count"
NAMESPACE: Final = "messaging.rocketmq.namespace"
TAG: Final = "messaging.rocketmq.message.tag"
KEYS: Final = "messaging.rocketmq.message.keys"
KIND: Final = "messaging.rocketmq.message.type"
DELAY_LEVEL: Final = "messaging.rocketmq.message.delay_time_level"
DELIVERY_MS: Final = "messaging.rocketmq.message.delivery_timestamp"
MESSAGE_GROUP: Final = "messaging.rocketmq.message.group"
CONSUMPTION_MODEL: Final = "messaging.rocketmq.consumption_model"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
ERROR_TYPE: Final = "error.type"
RECONSUME_TIMES: Final = "mqcore.message.reconsume_times"
"""How often the message has failed before: the conventions have no name for it."""

SENT_MESSAGES: Final = "messaging.client.sent.messages"
CONSUMED_MESSAGES: Final = "messaging.client.consumed.messages"
OPERATION_DURATION: Final = "messaging.client.operation.duration"
PROCESS_DURATION: Final = "messaging.process.duration"
DURATION_BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)

CREATE, SEND, RECEIVE, PROCESS, SETTLE = "create", "send", "receive", "process", "settle"
"""Types of operations. The names of most are the same."""


def operation(name: str, kind: str, topic: str) -> Attributes:
    """Return what every span and measurement has."""
    return {SYSTEM: "rocketmq", OPERATION_NAME: name, OPERATION_TYPE: kind, DESTINATION: topic}


def error_type(kind: type[BaseException]) -> str:
    """Return what an error is called: its class, with its module unless that is Python's own."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def of_outgoing(message: Message, shard_key: ShardKey | None) -> Attributes:
    """Return what is known of a message before it is sent."""
    found: Attributes = {BODY_SIZE: len(message.body), KIND: kind_of(message.properties, message.delay_level)}
    if shard_key is not None:
        found |= {KIND: "fifo", MESSAGE_GROUP: str(shard_key)}
    if message.tag:
        found[TAG] = message.tag
    if message.keys:
        found[KEYS] = tuple(message.keys)
    if message.delay_level:
        found[DELAY_LEVEL] = message.delay_level
    elif (due := message.properties.get(names.PROPERTY_TIMER_DELIVER_MS, "")).isdecimal():
        found[DELIVERY_MS] = int(due)
    return found


def of_received(message: ReceivedMessage) -> Attributes:
    """Return what is known of a message that was received."""
    found: Attributes = {
        MESSAGE_ID: message.msg_id,
        PARTITION: partition(message.queue),
        BODY_SIZE: message.body_size,
        KIND: kind_of(message.properties, 0),
    }
    if message.tag:
        found[TAG] = message.tag
    if message.keys:
        found[KEYS] = tuple(message.keys)
    if message.reconsume_times:
        found[RECONSUME_TIMES] = message.reconsume_times
    return found


def kind_of(properties: Mapping[str, str], delay_level: int) -> str:
    """Return what kind of message that is, as the conventions call it."""
    kind = MessageKind.DELAY if delay_level else MessageKind.of(properties)
    return {MessageKind.DELAY: "delay", MessageKind.HALF: "transaction"}.get(kind, "normal")


def partition(queue: MessageQueue) -> str:
    """Return a queue's name among those of its topic."""
    return f"{queue.broker_name}/{queue.queue_id}"
