"""CONSUMER_SEND_MSG_BACK: a consumer could not deal with a message, and wants it again later or never.

Source: RocketMQ broker/processor/AbstractSendMessageProcessor.java, consumerSendMsgBack.
"""

from __future__ import annotations

import logging
import random
from typing import Any

from mqcore.broker.context import BrokerContext
from mqcore.broker.ports import Channel, InnerMessage, PutStatus
from mqcore.broker.remarks import sending_forbidden
from mqcore.broker.statistics import StatsName
from mqcore.broker.topics import DLQ_QUEUE_COUNT, READ_WRITE
from mqcore.codes import MQVersion, PermName, ResponseCode, TopicSysFlag
from mqcore.delay_levels import FIRST_RETRY_LEVEL
from mqcore.protocol import headers
from mqcore.protocol.bodies import SubscriptionGroupConfig
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.message import MessageExt
from mqcore.protocol.message_decoder import decode_message
from mqcore.protocol.names import dlq_topic, retry_topic
from mqcore.protocol.properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_WAIT_STORE_MSG_OK,
    encode_properties,
)

logger = logging.getLogger(__name__)


class SendBackProcessor:
    """Copies messages to the retry topic or to the dead letters of their group."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    async def send_back(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 36. The reply has neither ext fields nor body.

        A copy that is stored but not yet safe is a failure here, so that the consumer tries again.
        """
        broker = self._broker
        header = headers.decode_request(request.code, request.ext_fields)
        group = str(header["group"])
        config = await broker.groups.find_or_create(group)
        if config is None:
            return request.reply(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group}")
        if not broker.is_writeable:
            return request.reply(ResponseCode.NO_PERMISSION, sending_forbidden(broker.settings.broker.broker_ip1))
        if config.retry_queue_nums <= 0:
            return request.reply()
        target = retry_topic(group)
        sys_flag = int(TopicSysFlag.UNIT_SUB) if header["unit_mode"] else 0
        topic = await broker.topics.create(target, config.retry_queue_nums, READ_WRITE, sys_flag)
        if not PermName.is_writeable(topic.perm):
            return request.reply(ResponseCode.NO_PERMISSION, f"the topic[{target}] sending message is forbidden")
        record = broker.store.look_message(header["offset"])
        if record is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header['offset']}")
        return await self._store(request, header, config, decode_message(record, decompress_body=False))

    async def _store(
        self, request: RemotingCommand, header: dict[str, Any], config: SubscriptionGroupConfig, stored: MessageExt
    ) -> RemotingCommand:
        broker, group = self._broker, str(header["group"])
        properties = dict(stored.properties)
        properties.setdefault(PROPERTY_RETRY_TOPIC, stored.topic)
        properties[PROPERTY_WAIT_STORE_MSG_OK] = "false"
        if not properties.get(PROPERTY_ORIGIN_MESSAGE_ID, "").strip():
            properties[PROPERTY_ORIGIN_MESSAGE_ID] = stored.offset_msg_id
        level = header["delay_level"]
        if stored.reconsume_times >= self._tries_max(request, header, config) or level < 0:
            topic, queue_id, level = dlq_topic(group), 0, 0
            await broker.topics.create(topic, DLQ_QUEUE_COUNT, READ_WRITE, 0)
        else:
            topic, queue_id = retry_topic(group), random.randrange(config.retry_queue_nums)
            level = level or FIRST_RETRY_LEVEL + stored.reconsume_times
        properties[PROPERTY_DELAY_TIME_LEVEL] = str(level)
        message = InnerMessage(
            topic=topic,
            queue_id=queue_id,
            body=stored.body,
            flag=stored.flag,
            sys_flag=stored.sys_flag,
            born_timestamp=stored.born_timestamp,
            born_host=stored.born_host,
            store_host=broker.address,
            properties=properties,
            properties_text=encode_properties(properties),
            reconsume_times=stored.reconsume_times + 1,
            wait_store_ok=False,
        )
        result = await broker.schedule.put(broker.schedule.rewrite(message))
        if result.status is not PutStatus.PUT_OK:
            logger.error("send back failed group=%s topic=%s status=%s", group, stored.topic, result.status)
            return request.reply(ResponseCode.SYSTEM_ERROR, str(result.status))
        broker.statistics.add(StatsName.SNDBCK_PUT_NUMS, f"{properties[PROPERTY_RETRY_TOPIC]}@{group}", 1)
        return request.reply()

    @staticmethod
    def _tries_max(request: RemotingCommand, header: dict[str, Any], config: SubscriptionGroupConfig) -> int:
        if request.version >= MQVersion.V3_4_9 and header["max_reconsume_times"] is not None:
            return int(header["max_reconsume_times"])
        return config.retry_max_times
