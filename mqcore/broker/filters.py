"""What a subscription asks of the queue-level filter.

Source: RocketMQ store/DefaultMessageFilter.java, broker/filter/ExpressionMessageFilter.java.
"""

from __future__ import annotations

from mqcore.protocol.bodies import SubscriptionData
from mqcore.protocol.heartbeat import SUB_ALL


def not_supported_remark(expression_type: str) -> str:
    """Return the refusal of every expression that is not of tags, as a broker without property filters gives it."""
    return f"The broker does not support consumer to filter message by {expression_type}"


def matches_all(subscription: SubscriptionData) -> bool:
    """Tell whether every message passes at queue level."""
    return subscription.class_filter_mode or subscription.sub_string == SUB_ALL
