"""What a consumer wants of a topic: all messages, those with certain tags, or those that match an SQL92 expression."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mqcore import clock
from mqcore.errors import ConfigError, ProtocolError
from mqcore.protocol.heartbeat import EXPRESSION_SQL92, EXPRESSION_TAG, SUB_ALL, SubscriptionData, is_tag_type


@dataclass(frozen=True, slots=True)
class Sql:
    """An SQL92 expression over message properties, such as ``Sql("price > 3 AND color IN ('red')")``."""

    text: str


Expression = str | Sql
Topics = str | Iterable[str] | Mapping[str, Expression]
"""A topic, several topics, or topics with their expressions; no expression means all messages."""


def topics_with_expressions(topics: Topics) -> dict[str, Expression]:
    """Return *topics* in the one form that the rest uses."""
    if isinstance(topics, str):
        return {topics: SUB_ALL}
    if isinstance(topics, Mapping):
        return dict(topics)
    return dict.fromkeys(topics, SUB_ALL)


def subscription_data(topic: str, expression: Expression, version_ms: int | None = None) -> SubscriptionData:
    """Build the subscription that heart-beats and pulls carry; tags are separated by ``||``, ``*`` and "" are all.

    ConfigError when a tag expression has no tag in it, or an SQL expression is empty.
    """
    version_ms = now_ms() if version_ms is None else version_ms
    if not isinstance(expression, str | Sql):
        raise ConfigError(f"subscription of {topic}: got {expression!r}, wanted tags or an Sql; '*' is all messages")
    text = expression.text.strip() if isinstance(expression, Sql) else expression.strip()
    kind = EXPRESSION_SQL92 if isinstance(expression, Sql) else EXPRESSION_TAG
    try:
        return SubscriptionData.build(topic, text, kind, sub_version=version_ms)
    except ProtocolError as error:
        raise ConfigError(f"subscription of {topic}: {error}") from error


def tags_wanted(subscription: SubscriptionData) -> frozenset[str] | None:
    """Return the tags to compare by text, as the broker compares hashes only; None when there is nothing to compare."""
    if not is_tag_type(subscription.expression_type) or not subscription.tags_set or subscription.class_filter_mode:
        return None
    return frozenset(subscription.tags_set)


def now_ms() -> int:
    """Return the time in ms since 1970."""
    return int(clock.now_s() * 1000)
