"""Traces of what a producer does. Source: RocketMQ SendMessageTraceHookImpl.java, EndTransactionTraceHookImpl.java."""

from __future__ import annotations

from mqcore import clock
from mqcore.client.model.messages import MessageKind
from mqcore.client.model.receipt import REGION_DEFAULT
from mqcore.client.telemetry.producer_hooks import EndTransactionContext, ProducerHook, SendContext
from mqcore.client.telemetry.trace import TraceBean, TraceContext, TraceDispatcher, TraceKind
from mqcore.codes import ResponseCode
from mqcore.protocol import properties as names

TRACE_OFF = "false"


class ProducerTraceHook(ProducerHook):
    """Gives a dispatcher a record of each send that was answered, and of each decision about a transaction.

    A batch has one record, whose id is the ids of its messages joined by commas, as Java writes it. Sends that failed
    leave none, nor do those of which the broker says that they are not to be traced.
    """

    def __init__(self, dispatcher: TraceDispatcher) -> None:
        self._dispatcher = dispatcher

    def before_send(self, context: SendContext) -> None:
        context.attributes[self] = clock.now_ms()

    def after_send(self, context: SendContext) -> None:
        response, begin_ms = context.response, context.attributes.get(self)
        if response is None or not isinstance(begin_ms, int) or self._dispatcher.is_own(context.topic):
            return
        if response.trace_on == TRACE_OFF:
            return
        bean = TraceBean(
            topic=context.topic,
            msg_id=context.msg_id,
            tags=context.properties.get(names.PROPERTY_TAGS),
            keys=context.properties.get(names.PROPERTY_KEYS),
            store_host=context.broker_address,
            body_length=len(context.body),
            message_kind=context.kind,
            offset_msg_id=response.offset_msg_id,
        )
        self._dispatcher.offer(
            TraceContext(
                kind=TraceKind.PUB,
                timestamp_ms=begin_ms,
                group=context.group,
                region_id=response.region_id or REGION_DEFAULT,
                cost_ms=clock.now_ms() - begin_ms,
                success=response.code == ResponseCode.SUCCESS,
                beans=(bean,),
            )
        )

    def end_transaction(self, context: EndTransactionContext) -> None:
        if self._dispatcher.is_own(context.topic):
            return
        bean = TraceBean(
            topic=context.topic,
            msg_id=context.msg_id,
            tags=context.properties.get(names.PROPERTY_TAGS),
            keys=context.properties.get(names.PROPERTY_KEYS),
            store_host=context.broker_address,
            message_kind=MessageKind.COMMIT,
            transaction_id=context.transaction_id,
            transaction_state=context.state.java_name,
            from_transaction_check=context.from_check,
        )
        region_id = context.properties.get(names.PROPERTY_MSG_REGION) or REGION_DEFAULT
        self._dispatcher.offer(
            TraceContext(kind=TraceKind.END_TRANSACTION, group=context.group, region_id=region_id, beans=(bean,))
        )
