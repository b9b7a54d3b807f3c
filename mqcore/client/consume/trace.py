"""Traces of what a consumer does: a record before and one after each call of a handler, or of each pull.

Source: RocketMQ client/trace/hook/ConsumeMessageTraceHookImpl.java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqcore import clock
from mqcore.client.model.messages import ReceivedMessage
from mqcore.client.model.receipt import REGION_DEFAULT
from mqcore.client.produce.core import ProducerCore
from mqcore.client.telemetry.consumer_hooks import ConsumeContext, ConsumerHook
from mqcore.client.telemetry.trace import (
    TraceBean,
    TraceContext,
    TraceDispatcher,
    TraceKind,
    TraceSide,
)
from mqcore.protocol import properties as names

if TYPE_CHECKING:
    from mqcore.client.consume.membership import Membership
    from mqcore.client.session.session import Session
    from mqcore.client.settings.classes import ConsumerSettings
    from mqcore.client.settings.pull_consumer import PullConsumerSettings


def trace_consumer(membership: Membership, settings: ConsumerSettings | PullConsumerSettings) -> TraceDispatcher:
    """Return what sends a consumer's traces, to be started and closed with it."""
    dispatcher = TraceDispatcher(
        ProducerCore, membership.hub, membership.group, TraceSide.CONSUME, settings.trace_topic
    )
    membership.hooks.add(ConsumeTraceHook(membership.hub, dispatcher))
    return dispatcher


class ConsumeTraceHook(ConsumerHook):
    """Offers records to *dispatcher*; messages whose sender switched tracing off leave none."""

    def __init__(self, hub: Session, dispatcher: TraceDispatcher) -> None:
        self._hub = hub
        self._dispatcher = dispatcher

    def before_consume(self, context: ConsumeContext) -> None:
        traced = [message for message in context.messages if self._is_traced(message)]
        if not traced:
            return
        before = TraceContext(
            kind=TraceKind.SUB_BEFORE,
            group=context.group,
            beans=[bean_of(message) for message in traced],
            region_id=traced[0].properties.get(names.PROPERTY_MSG_REGION, REGION_DEFAULT),
            request_id=self._hub.unique_ids.next_id(),
        )
        context.attributes[self] = before
        self._dispatcher.offer(before)

    def after_consume(self, context: ConsumeContext) -> None:
        before = context.attributes.get(self)
        if not isinstance(before, TraceContext):
            return
        now_ms = clock.now_ms()
        self._dispatcher.offer(
            TraceContext(
                kind=TraceKind.SUB_AFTER,
                group=before.group,
                beans=before.beans,
                timestamp_ms=now_ms,
                region_id=before.region_id,
                cost_ms=(now_ms - before.timestamp_ms) // len(before.beans),
                success=context.is_success,
                request_id=before.request_id,
                context_code=context.code,
            )
        )

    def _is_traced(self, message: ReceivedMessage) -> bool:
        if self._dispatcher.is_own(message.topic):
            return False
        return message.properties.get(names.PROPERTY_TRACE_SWITCH) != "false"


def bean_of(message: ReceivedMessage) -> TraceBean:
    """Return what the records say of *message*."""
    ext = message.ext
    return TraceBean(
        topic=message.topic,
        msg_id=message.msg_id,
        tags=ext.tags,
        keys=ext.keys,
        body_length=message.body_size,
        offset_msg_id=message.offset_msg_id,
        retry_times=message.reconsume_times,
    )
