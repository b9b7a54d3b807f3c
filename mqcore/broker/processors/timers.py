"""RECALL_MESSAGE, GET_TIMER_CHECK_POINT and GET_TIMER_METRICS.

Source: RocketMQ 5 broker/processor/RecallMessageProcessor.java, AdminBrokerProcessor.java.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from mqcore.broker.context import BrokerContext
from mqcore.broker.ports import Channel, InnerMessage
from mqcore.broker.processors.refused import Refused
from mqcore.broker.services.timers import RecallHandle, TimerRefusedError, delete_key
from mqcore.codes import ResponseCode
from mqcore.errors import WorkerError
from mqcore.protocol import headers
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.message_id import HostAddress
from mqcore.protocol.names import TIMER_TOPIC
from mqcore.protocol.properties import (
    PROPERTY_BORN_TIMESTAMP,
    PROPERTY_MSG_REGION,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
    encode_properties,
)

logger = logging.getLogger(__name__)

RECALL_TAG: Final = "_RECALL_TAG_"
RECALL_BODY: Final = b"0"
UNAVAILABLE: Final = "recall failed, broker service not available"


class TimerProcessor:
    """Takes messages back that wait for their time, and tells of those that wait."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    async def recall(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 370. Success means that the deletion is stored: it meets the message when that is due, or not."""
        header = headers.decode_request(request.code, request.ext_fields)
        reply = request.reply(ext_fields={PROPERTY_MSG_REGION: self._broker.settings.broker.region_id})
        try:
            handle = self._check(header)
            await self._store(self._deletion(channel, header, handle))
            assert reply.ext_fields is not None
            reply.ext_fields["msgId"] = handle.unique_key
        except Refused as refusal:
            reply.code, reply.remark = int(refusal.code), refusal.remark
        return reply

    def _check(self, header: dict[str, Any]) -> RecallHandle:
        broker, topic = self._broker, str(header["topic"])
        settings = broker.settings.broker
        if not settings.recall_message_enable:
            raise Refused(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if broker.is_slave:
            raise Refused(ResponseCode.SLAVE_NOT_AVAILABLE, UNAVAILABLE)
        if broker.clock() < settings.start_accept_send_request_time_stamp_ms:
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, UNAVAILABLE)
        if not broker.is_writeable and not settings.allow_recall_when_broker_not_writeable:
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, UNAVAILABLE)
        if broker.topics.find(topic) is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{topic}] not exist")
        try:
            handle = RecallHandle.decode(str(header["recall_handle"]))
        except ValueError as error:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, str(error)) from None
        if handle.topic != topic:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
        if handle.broker_name != settings.broker_name:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, UNAVAILABLE)
        left = handle.timestamp - broker.clock()
        if left <= 0 or left >= broker.settings.store.timer_max_delay_sec * 1000:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
        return handle

    def _deletion(self, channel: Channel, header: dict[str, Any], handle: RecallHandle) -> InnerMessage:
        now = self._broker.clock()
        properties = {
            PROPERTY_TAGS: RECALL_TAG,
            PROPERTY_TIMER_DEL_UNIQKEY: delete_key(handle.topic, handle.unique_key),
            PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX: handle.unique_key,
            PROPERTY_TIMER_DELIVER_MS: str(handle.timestamp),
            PROPERTY_BORN_TIMESTAMP: str(now),
        }
        if header["producer_group"]:
            properties[PROPERTY_PRODUCER_GROUP] = header["producer_group"]
        return InnerMessage(
            topic=handle.topic,
            queue_id=0,
            body=RECALL_BODY,
            born_timestamp=now,
            born_host=HostAddress(channel.remote_ip, channel.remote_port),
            store_host=self._broker.address,
            properties=properties,
            properties_text=encode_properties(properties),
        )

    async def _store(self, deletion: InnerMessage) -> None:
        broker = self._broker
        try:
            waiting = broker.timers.rewrite(deletion)
            result = await broker.timers.put(waiting)
        except (TimerRefusedError, WorkerError) as error:
            logger.warning("recall failed topic=%s error=%s", deletion.topic, error)
            raise Refused(ResponseCode.SYSTEM_ERROR, "recall failed, execute error") from None
        if not result.is_stored:
            raise Refused(ResponseCode.SYSTEM_ERROR, "recall failed, execute error")
        broker.statistics.count_broker_put(result.count)
        broker.statistics.count_topic_put(TIMER_TOPIC, result.count, result.size)

    async def check_point(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 60."""
        if not self._broker.settings.store.timer_wheel_enable:
            return request.reply(ResponseCode.SYSTEM_ERROR, "The checkpoint is null")
        return request.reply(body=self._broker.timers.checkpoint())

    async def metrics(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 61."""
        if not self._broker.settings.store.timer_wheel_enable:
            return request.reply(ResponseCode.SYSTEM_ERROR, "The timer message store is null")
        return request.reply(body=self._broker.timers.metrics())
