"""What every send has to pass, ordinary and replying, and what every answer to one carries.

Source: RocketMQ broker/processor/AbstractSendMessageProcessor.java (msgCheck).
"""

from __future__ import annotations

import logging
import random
from typing import Any

from mqcore.broker.consumers import channel_address
from mqcore.broker.context import BrokerContext
from mqcore.broker.java_text import bool_text, human_time, topic_config_text
from mqcore.broker.ports import Channel
from mqcore.broker.processors.refused import Refused
from mqcore.broker.remarks import sending_forbidden, topic_not_exist
from mqcore.broker.topics import READ_WRITE
from mqcore.codes import ResponseCode, TopicSysFlag
from mqcore.protocol.bodies import TopicConfig
from mqcore.protocol.names import is_forbidden_topic, is_retry_topic, validate_topic
from mqcore.protocol.properties import PROPERTY_MSG_REGION, PROPERTY_TRACE_SWITCH

logger = logging.getLogger(__name__)


class SendChecks:
    """The checks, in their order."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    async def check(self, channel: Channel, header: dict[str, Any]) -> TopicConfig:
        """Return the topic of a send, created if need be; raise Refused if a check says no."""
        broker, topic = self._broker, str(header["topic"])
        start = broker.settings.broker.start_accept_send_request_time_stamp_ms
        if broker.clock() < start:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {human_time(start)}")
        if not broker.is_writeable and broker.topics.is_order(topic):
            raise Refused(ResponseCode.NO_PERMISSION, sending_forbidden(broker.settings.broker.broker_ip1))
        fault = validate_topic(topic)
        if fault is not None:
            raise Refused(ResponseCode.SYSTEM_ERROR, fault)
        if is_forbidden_topic(topic):
            raise Refused(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
        config = broker.topics.find(topic) or await self._create(header, channel)
        if config is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, topic_not_exist(topic))
        queue_id = header["queue_id"]
        if queue_id >= max(config.read_queue_nums, config.write_queue_nums):
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"request queueId[{queue_id}] is illegal, {topic_config_text(config)} "
                f"Producer: {channel_address(channel)}",
            )
        return config

    async def _create(self, header: dict[str, Any], channel: Channel) -> TopicConfig | None:
        topic = header["topic"]
        sys_flag = 0
        if header["unit_mode"]:
            sys_flag = int(TopicSysFlag.UNIT_SUB if is_retry_topic(topic) else TopicSysFlag.UNIT)
        logger.warning("topic does not exist topic=%s producer=%s", topic, channel_address(channel))
        config = await self._broker.topics.create_by_template(
            topic, header["default_topic"], header["default_topic_queue_nums"], sys_flag
        )
        if config is None and is_retry_topic(topic):
            config = await self._broker.topics.create(topic, 1, READ_WRITE, sys_flag)
        return config


def chosen_queue(header: dict[str, Any], config: TopicConfig) -> int:
    """Return the queue that a send asks for; any, if it asks for none."""
    queue_id: int = header["queue_id"]
    return queue_id if queue_id >= 0 else random.randrange(max(config.write_queue_nums, 1))


def answer_fields(broker: BrokerContext) -> dict[str, str]:
    """Return what the answer to a send carries, refused or not: where it went, and whether it is to be traced."""
    settings = broker.settings.broker
    return {PROPERTY_MSG_REGION: settings.region_id, PROPERTY_TRACE_SWITCH: bool_text(settings.trace_on)}
