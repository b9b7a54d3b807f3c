"""A namespace: names that an application uses, and what brokers know them by.

Two applications with namespaces of their own may both have a topic ``Orders`` on the same brokers, which know
``shop%Orders`` and ``bank%Orders``. Inside the client every topic and group has the application's name; requests say
the long one, and what comes back is made short where it comes in.
Source: RocketMQ common/protocol/NamespaceUtil.java.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from mqcore.protocol.heartbeat import ConsumerData, HeartbeatData, SubscriptionData
from mqcore.protocol.message import MessageQueue
from mqcore.protocol.names import (
    CID_RMQ_SYS_PREFIX,
    CLIENT_INNER_PRODUCER_GROUP,
    DLQ_GROUP_TOPIC_PREFIX,
    NAMESPACE_SEPARATOR,
    RETRY_GROUP_TOPIC_PREFIX,
    TOOLS_CONSUMER_GROUP,
    is_system_topic,
)

OUR_GROUPS = frozenset({CLIENT_INNER_PRODUCER_GROUP, TOOLS_CONSUMER_GROUP})
"""Groups of clients themselves, which are of no namespace."""


class Namespace:
    """The namespace *name*; ``""`` is none, and leaves all names alone."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._prefix = f"{name}{NAMESPACE_SEPARATOR}"
        self._common: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self.name)

    def leave_alone(self, topic: str) -> None:
        """Let *topic* be one that all namespaces share: that of traces, or of answers."""
        self._common.add(topic)

    def wrap(self, name: str) -> str:
        """Return what brokers call the topic or group *name*. One that has the namespace already is left alone."""
        if not self.name or not name or self._is_common(name):
            return name
        kind, rest = _split(name)
        return name if rest.startswith(self._prefix) else f"{kind}{self._prefix}{rest}"

    def unwrap(self, name: str) -> str:
        """Return what the application calls *name*; a name of another namespace stays as it is."""
        if not self.name:
            return name
        kind, rest = _split(name)
        return f"{kind}{rest.removeprefix(self._prefix)}"

    def wrap_queue(self, queue: MessageQueue) -> MessageQueue:
        return replace(queue, topic=self.wrap(queue.topic)) if self.name else queue

    def unwrap_queue(self, queue: MessageQueue) -> MessageQueue:
        return replace(queue, topic=self.unwrap(queue.topic)) if self.name else queue

    def wrap_subscription(self, subscription: SubscriptionData) -> SubscriptionData:
        return replace(subscription, topic=self.wrap(subscription.topic)) if self.name else subscription

    def wrap_heartbeat(self, heartbeat: HeartbeatData) -> HeartbeatData:
        if not self.name:
            return heartbeat
        producers = [
            replace(producer, group_name=self.wrap(producer.group_name)) for producer in heartbeat.producer_data_set
        ]
        consumers = list(map(self._wrap_consumer, heartbeat.consumer_data_set))
        return replace(heartbeat, producer_data_set=producers, consumer_data_set=consumers)

    def _wrap_consumer(self, consumer: ConsumerData) -> ConsumerData:
        subscriptions = list(map(self.wrap_subscription, consumer.subscription_data_set))
        return replace(consumer, group_name=self.wrap(consumer.group_name), subscription_data_set=subscriptions)

    def wrap_queues(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        return [self.wrap_queue(queue) for queue in queues]

    def _is_common(self, name: str) -> bool:
        return (
            name in self._common or name in OUR_GROUPS or is_system_topic(name) or name.startswith(CID_RMQ_SYS_PREFIX)
        )


def _split(name: str) -> tuple[str, str]:
    """Return the prefix of a retry or dead letter topic, or nothing, and the rest."""
    for prefix in (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX):
        if name.startswith(prefix):
            return prefix, name.removeprefix(prefix)
    return "", name
