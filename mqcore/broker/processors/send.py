"""SEND_MESSAGE, its V2 and its batch form: every check, and every case that the send worker leaves to this process.

Source: RocketMQ broker/processor/SendMessageProcessor.java, AbstractSendMessageProcessor.java.
"""

from __future__ import annotations

from typing import Any, Final

from mqcore.broker.context import BrokerContext
from mqcore.broker.java_text import bool_text
from mqcore.broker.ports import Channel, InnerMessage, PutResult, PutStatus
from mqcore.broker.processors.refused import Refused
from mqcore.broker.processors.send_checks import SendChecks, answer_fields, chosen_queue
from mqcore.broker.remarks import transaction_forbidden
from mqcore.broker.services.timers import TimerRefusedError
from mqcore.broker.topics import DLQ_QUEUE_COUNT, READ_WRITE
from mqcore.broker.transaction_records import half_message, is_half
from mqcore.codes import MQVersion, RequestCode, ResponseCode, SysFlag
from mqcore.protocol import headers
from mqcore.protocol.bodies import TopicConfig, TopicFilterType
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.message_id import HostAddress
from mqcore.protocol.names import (
    RETRY_GROUP_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TOPIC_LENGTH_MAX,
    dlq_topic,
    is_retry_topic,
)
from mqcore.protocol.properties import (
    PROPERTY_CLUSTER,
    PROPERTY_WAIT_STORE_MSG_OK,
    decode_properties,
    encode_properties,
)

STATUS_CODES: Final = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutStatus.CREATE_MAPEDFILE_FAILED: ResponseCode.SYSTEM_ERROR,
    PutStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.OS_PAGECACHE_BUSY: ResponseCode.SYSTEM_ERROR,
    PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED: ResponseCode.SYSTEM_ERROR,
    PutStatus.UNKNOWN_ERROR: ResponseCode.SYSTEM_ERROR,
    PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: ResponseCode.SYSTEM_ERROR,
    PutStatus.WHEEL_TIMER_MSG_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.WHEEL_TIMER_FLOW_CONTROL: ResponseCode.SYSTEM_ERROR,
    PutStatus.WHEEL_TIMER_NOT_ENABLE: ResponseCode.SYSTEM_ERROR,
}


TIMER_STATUSES: Final = (
    PutStatus.WHEEL_TIMER_MSG_ILLEGAL,
    PutStatus.WHEEL_TIMER_FLOW_CONTROL,
    PutStatus.WHEEL_TIMER_NOT_ENABLE,
)


class SendProcessor:
    """Stores what producers send."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._checks = SendChecks(broker)

    async def send_message(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer codes 10, 310 and 320. The batch flag of the header, not the code, makes it a batch."""
        header = headers.decode_request(request.code, request.ext_fields)
        reply = request.reply(ext_fields=answer_fields(self._broker))
        try:
            config = await self._checks.check(channel, header)
            queue_id = chosen_queue(header, config)
            message = await self._message(channel, request, header | {"queue_id": queue_id}, config)
            if header["batch"]:
                result = await self._broker.sink.put_batch(message)
            else:
                message, result = await self._put(message)
            self._fill(reply, result, queue_id)
            handle = self._broker.timers.handle_of(message)
            if result.is_stored and handle is not None and request.code != RequestCode.SEND_BATCH_MESSAGE:
                assert reply.ext_fields is not None
                reply.ext_fields["recallHandle"] = handle
            self._count(message.topic, result)
        except Refused as refusal:
            reply.code, reply.remark = refusal.code, refusal.remark
        return reply

    async def _put(self, message: InnerMessage) -> tuple[InnerMessage, PutResult]:
        """Store *message*, or the half, waiting or delayed one that stands for it now; and that is returned, too."""
        broker = self._broker
        if is_half(message.properties):
            await broker.transactions.make_topics()
            message = half_message(message)
            return message, await broker.sink.put(message)
        try:
            message = broker.timers.rewrite(message)
        except TimerRefusedError as refusal:
            return message, PutResult(refusal.status)
        if message.topic == TIMER_TOPIC:
            return message, await broker.timers.put(message)
        message = broker.schedule.rewrite(message)
        return message, await broker.schedule.put(message)

    async def _message(
        self, channel: Channel, request: RemotingCommand, header: dict[str, Any], config: TopicConfig
    ) -> InnerMessage:
        """Return what is to be stored. A retry that has had its tries goes to the dead letters instead."""
        broker = self._broker
        is_batch = header["batch"]
        if is_batch and len(header["topic"]) > TOPIC_LENGTH_MAX:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(header['topic'])}")
        topic, queue_id, sys_flag = header["topic"], header["queue_id"], header["sys_flag"]
        if config.topic_filter_type is TopicFilterType.MULTI_TAG:
            sys_flag |= int(SysFlag.MULTI_TAGS)
        properties = decode_properties(header["properties"])
        if not is_batch:
            dead = await self._dead_letter_topic(request, header)
            if dead is not None:
                topic, queue_id = dead, 0
            if is_half(properties) and broker.settings.broker.reject_transaction_message:
                raise Refused(ResponseCode.NO_PERMISSION, transaction_forbidden(broker.settings.broker.broker_ip1))
        properties[PROPERTY_CLUSTER] = broker.settings.broker.broker_cluster_name
        stored = properties
        if not is_batch:  # a batch keeps WAIT in every member's text
            stored = {name: value for name, value in properties.items() if name != PROPERTY_WAIT_STORE_MSG_OK}
        return InnerMessage(
            topic=topic,
            queue_id=queue_id,
            body=request.body,
            flag=header["flag"],
            sys_flag=sys_flag,
            born_timestamp=header["born_timestamp"],
            born_host=HostAddress(channel.remote_ip, channel.remote_port),
            store_host=broker.address,
            properties=properties,
            properties_text=encode_properties(stored),
            reconsume_times=header["reconsume_times"] or 0,
            wait_store_ok=properties.get(PROPERTY_WAIT_STORE_MSG_OK, "true").lower() == "true",
        )

    async def _dead_letter_topic(self, request: RemotingCommand, header: dict[str, Any]) -> str | None:
        """Return the dead letter topic for a message to %RETRY%group that has been tried often enough."""
        topic = header["topic"]
        if not is_retry_topic(topic):
            return None
        group = topic[len(RETRY_GROUP_TOPIC_PREFIX) :]
        config = await self._broker.groups.find_or_create(group)
        if config is None:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group}")
        tries_max = config.retry_max_times
        if request.version >= MQVersion.V3_4_9 and header["max_reconsume_times"] is not None:
            tries_max = header["max_reconsume_times"]
        if (header["reconsume_times"] or 0) < tries_max:
            return None
        dead = dlq_topic(group)
        await self._broker.topics.create(dead, DLQ_QUEUE_COUNT, READ_WRITE, 0)
        return dead

    def _fill(self, reply: RemotingCommand, result: PutResult, queue_id: int) -> None:
        """Write the outcome into the reply. The queue is the one that was asked for, wherever the message went."""
        reply.code = int(STATUS_CODES[result.status])
        if not result.is_stored:
            reply.remark = refusal_remark(self._broker, result.status)
            return
        assert reply.ext_fields is not None
        reply.ext_fields |= {
            "msgId": result.message_id,
            "queueId": str(queue_id),
            "queueOffset": str(result.queue_offset),
        }

    def _count(self, topic: str, result: PutResult) -> None:
        """Count a stored message. A delayed one has been counted for the schedule topic where it was put."""
        if result.is_stored:
            self._broker.statistics.count_broker_put(result.count)
            if topic != SCHEDULE_TOPIC:
                self._broker.statistics.count_topic_put(topic, result.count, result.size)


def refusal_remark(broker: BrokerContext, status: PutStatus) -> str:
    """Return what a producer is told when its message was not stored."""
    if status in (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED):
        return (
            "the message is illegal, maybe msg body or properties length not matched. "
            f"msg body length limit {broker.settings.store.max_message_size}B, msg properties length limit 32KB."
        )
    if status is PutStatus.SERVICE_NOT_AVAILABLE:
        return (
            "service not available now. It may be caused by one of the following reasons: "
            f"the broker's disk is full [{disk_use(broker)}], messages are put to the slave, "
            f"message store has been shut down, etc.{cause_of_refusal(broker)}"
        )
    if status in TIMER_STATUSES:
        return timer_remark(broker, status)
    return {
        PutStatus.CREATE_MAPEDFILE_FAILED: "create mapped file failed, server is busy or broken.",
        PutStatus.OS_PAGECACHE_BUSY: "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
        PutStatus.UNKNOWN_ERROR: "UNKNOWN_ERROR",
        PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: (
            "in-sync replicas not enough: fewer members than minInSyncReplicas have all of the log, or (ASYNC_MASTER) "
            "this broker reaches neither etcd nor all of them"
        ),
        PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED: (
            "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]broker config enableLmq and enableMultiDispatch, "
            "lmq consumeQueue num exceed maxLmqConsumeQueueNum config num, default limit 2w."
        ),
    }[status]


def timer_remark(broker: BrokerContext, status: PutStatus) -> str:
    """Return why a message cannot wait as it asks to."""
    store = broker.settings.store
    if status is PutStatus.WHEEL_TIMER_NOT_ENABLE:
        return f"accurate timer message is not enabled, timerWheelEnable is {bool_text(store.timer_wheel_enable)}"
    if status is PutStatus.WHEEL_TIMER_MSG_ILLEGAL:
        return (
            "timer message illegal, the delay time should not be bigger than the max delay "
            f"{store.timer_max_delay_sec * 1000}ms; or if set del msg, the delay time should be bigger than the "
            "current time"
        )
    limit = store.timer_congest_num_each_slot
    return (
        f"timer message is under flow control, max num limit is {limit * 2} or the current value is greater than "
        f"{limit} and less than {limit * 2}, trigger random flow control"
    )


def cause_of_refusal(broker: BrokerContext) -> str:
    """Return which of the reasons it is, to be put behind RocketMQ's words; "" if it has passed meanwhile."""
    causes = broker.store.facts().refusal_causes
    return f", cause: {causes[0]}" if causes else ""


def disk_use(broker: BrokerContext) -> str:
    """Return the used shares of the store's directories as a refusal shows them."""
    facts = broker.store.facts()
    commit_log = min((space.ratio for space in facts.commit_log_spaces), default=-1.0)
    return f"CL: {commit_log:5.2f} CQ: {facts.consume_queue_space.ratio:5.2f} INDEX: {facts.index_space.ratio:5.2f}"
