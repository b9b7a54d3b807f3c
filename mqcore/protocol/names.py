"""Built-in topic and group names, and which names a topic may have.

Source: RocketMQ common/topic/TopicValidator.java, common/MixAll.java, broker/topic/TopicConfigManager.java,
broker/subscription/SubscriptionGroupManager.java.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from mqcore.layout import TOPIC_SIZE_MAX

NOT_MASTER: Final = "not the master"
"""In the remark of a refusal with SERVICE_NOT_AVAILABLE: nothing was done, and another broker is the master."""

AUTO_CREATE_TOPIC_KEY_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT: Final = "OFFSET_MOVED_EVENT"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
"""Where messages wait that have a timer; of RocketMQ 5."""

METADATA_TOPIC: Final = "RMQ_SYS_MQCORE_META"
"""Where the master of a failover group tells of its tables, in its log; of mqcore, and shown to nobody."""

RETRY_GROUP_TOPIC_PREFIX: Final = "%RETRY%"
DLQ_GROUP_TOPIC_PREFIX: Final = "%DLQ%"
LMQ_PREFIX: Final = "%LMQ%"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
REPLY_TOPIC_POSTFIX: Final = "_REPLY_TOPIC"
CID_RMQ_SYS_PREFIX: Final = "CID_RMQ_SYS_"
"""Groups whose names begin so may always be created by use."""

NAMESPACE_SEPARATOR: Final = "%"

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
"""The name server's namespace of topics whose order is kept over all brokers."""

TOPIC_LENGTH_MAX: Final = TOPIC_SIZE_MAX
GROUP_LENGTH_MAX: Final = 255

TOOLS_CONSUMER_GROUP: Final = "TOOLS_CONSUMER"
CLIENT_INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"
TRANS_CONSUMER_GROUP: Final = "CID_RMQ_SYS_TRANS"

SYSTEM_TOPICS: Final = frozenset(
    {
        AUTO_CREATE_TOPIC_KEY_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        TRANS_HALF_TOPIC,
        TRACE_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
    }
)
"""System topics of every broker; a broker adds its own, see ``broker_topics``."""

FORBIDDEN_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
    }
)
"""Topics that clients may not send to."""


@dataclass(frozen=True, slots=True)
class BuiltInGroup:
    """A consumer group that every broker has."""

    name: str
    consume_broadcast_enable: bool = True


BUILT_IN_GROUPS: Final = tuple(
    BuiltInGroup(name)
    for name in (
        TOOLS_CONSUMER_GROUP,
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
    )
)


@dataclass(frozen=True, slots=True)
class BuiltInTopic:
    """A topic that a broker makes for itself: ``queue_count`` is for reading and for writing."""

    name: str
    queue_count: int
    perm: int


SCHEDULE_QUEUE_COUNT: Final = 18
BENCHMARK_QUEUE_COUNT: Final = 1024
CLUSTER_QUEUE_COUNT: Final = 16


def broker_topics(
    cluster_name: str,
    broker_name: str,
    *,
    default_topic_queue_count: int = 8,
    auto_create_topic_enable: bool = True,
    cluster_topic_enable: bool = True,
    broker_topic_enable: bool = True,
    trace_topic_enable: bool = False,
    trace_topic: str = TRACE_TOPIC,
) -> tuple[BuiltInTopic, ...]:
    """Return the topics that a broker with these settings starts with, in the order in which RocketMQ makes them."""
    inherit, read_write = 1, 6
    topics = [BuiltInTopic(SELF_TEST_TOPIC, 1, read_write)]
    if auto_create_topic_enable:
        topics.append(BuiltInTopic(AUTO_CREATE_TOPIC_KEY_TOPIC, default_topic_queue_count, inherit | read_write))
    topics += [
        BuiltInTopic(BENCHMARK_TOPIC, BENCHMARK_QUEUE_COUNT, read_write),
        BuiltInTopic(cluster_name, CLUSTER_QUEUE_COUNT, inherit | (read_write if cluster_topic_enable else 0)),
        BuiltInTopic(broker_name, 1, inherit | (read_write if broker_topic_enable else 0)),
        BuiltInTopic(OFFSET_MOVED_EVENT, 1, read_write),
        BuiltInTopic(SCHEDULE_TOPIC, SCHEDULE_QUEUE_COUNT, read_write),
    ]
    if trace_topic_enable:
        topics.append(BuiltInTopic(trace_topic, 1, read_write))
    topics.append(BuiltInTopic(reply_topic(cluster_name), 1, read_write))
    return tuple(topics)


def is_system_topic(topic: str, own_topics: Collection[str] = ()) -> bool:
    """Whether *topic* belongs to the system; *own_topics* are those that this broker has added at run time."""
    if topic in SYSTEM_TOPICS or topic in own_topics:
        return True
    return topic == METADATA_TOPIC or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_forbidden_topic(topic: str) -> bool:
    """Whether clients may not send to *topic*."""
    return topic in FORBIDDEN_TOPICS or topic == METADATA_TOPIC


_TOPIC_CHARACTERS: Final = re.compile(r"[%|a-zA-Z0-9_-]+")


def validate_topic(topic: str) -> str | None:
    """Return why *topic* cannot be a topic's name, in the broker's words, or None if it can."""
    if not topic.strip():
        return "The specified topic is blank."
    if _TOPIC_CHARACTERS.fullmatch(topic) is None:
        return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(topic) > TOPIC_LENGTH_MAX:
        return "The specified topic is longer than topic max length."
    return None


def retry_topic(group: str) -> str:
    """Return the topic from which *group* consumes again what it has failed to consume."""
    return RETRY_GROUP_TOPIC_PREFIX + group


def dlq_topic(group: str) -> str:
    """Return the topic that keeps what *group* has failed to consume too often."""
    return DLQ_GROUP_TOPIC_PREFIX + group


def reply_topic(cluster_name: str) -> str:
    """Return the topic through which answers of request and reply pass."""
    return cluster_name + REPLY_TOPIC_POSTFIX


def is_retry_topic(topic: str) -> bool:
    return topic.startswith(RETRY_GROUP_TOPIC_PREFIX)


def is_dlq_topic(topic: str) -> bool:
    return topic.startswith(DLQ_GROUP_TOPIC_PREFIX)


def is_namespace(name: str) -> bool:
    """Whether *name* may stand before the names of topics and groups."""
    return _TOPIC_CHARACTERS.fullmatch(name) is not None and NAMESPACE_SEPARATOR not in name


def is_lmq(name: str) -> bool:
    """Whether *name* is that of a light message queue."""
    return name.startswith(LMQ_PREFIX)
