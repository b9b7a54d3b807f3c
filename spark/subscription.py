"""Which queues a query reads: ``subscribe``, ``subscribePattern`` and ``assign``, looked up at the name servers."""

from __future__ import annotations

import re
from typing import Final

from mqcore.errors import ConfigError
from mqcore.protocol.message import MessageQueue
from mqcore.protocol.names import (
    REPLY_TOPIC_POSTFIX,
    is_dlq_topic,
    is_retry_topic,
    is_system_topic,
    validate_topic,
)
from mqcore.spark.cluster import Cluster
from mqcore.spark.offsets import parse_assign, queue_key
from mqcore.spark.settings import SourceSettings

GROUP_TOPIC_MARK: Final = "%"


def matching_topics(pattern: str, topics: list[str], own: set[str]) -> list[str]:
    """Return the topics whose whole name matches *pattern*.

    What brokers keep for themselves is never meant: system topics and *own*, the topics named like a broker or a
    cluster. Retry and dead letter topics are meant only by a pattern that spells their mark, ``%``.
    """
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"option subscribePattern: got {pattern!r}, wanted a regular expression: {error}") from error
    return [
        topic
        for topic in topics
        if wanted.fullmatch(topic)
        and not is_system_topic(topic)
        and topic not in own
        and not topic.endswith(REPLY_TOPIC_POSTFIX)
        and (GROUP_TOPIC_MARK in pattern or not (is_retry_topic(topic) or is_dlq_topic(topic)))
    ]


def find_queues(settings: SourceSettings, cluster: Cluster, *, only_known: bool = False) -> list[MessageQueue]:
    """Return the queues to be read now, sorted; with *only_known* assigned queues may be missing for now.

    Raises TopicRouteError for a topic that does not exist, ConfigError for an assigned queue that its topic does not
    have. A pattern that no topic matches gives no queues.
    """
    if settings.assign is not None:
        return _assigned(parse_assign(settings.assign), cluster, only_known)
    if settings.subscribe is not None:
        topics = sorted({name.strip() for name in settings.subscribe.split(",") if name.strip()})
        for topic in topics:
            fault = validate_topic(topic)
            if fault is not None:
                raise ConfigError(f"option subscribe: got {topic!r}: {fault}")
        if not topics:
            raise ConfigError("option subscribe: got no topic")
        return sorted(queue for topic in topics for queue in cluster.queues(topic))
    assert settings.subscribe_pattern is not None
    topics = matching_topics(settings.subscribe_pattern, cluster.topics(), cluster.own_topics())
    return sorted(queue for topic in topics for queue in cluster.queues(topic))


def _assigned(wanted: list[MessageQueue], cluster: Cluster, only_known: bool) -> list[MessageQueue]:
    known = {queue for topic in sorted({queue.topic for queue in wanted}) for queue in cluster.queues(topic)}
    for queue in wanted:
        if queue not in known and not only_known:
            raise ConfigError(f"option assign: the topic has no readable queue {queue_key(queue)}")
    return [queue for queue in wanted if queue in known]
