"""Heart-beats, good-byes, and the question whether a subscription would be understood.

Source: RocketMQ broker/processor/ClientManageProcessor.java.
"""

from __future__ import annotations

import logging

from mqcore.broker.consumers import ClientChannelInfo
from mqcore.broker.context import BrokerContext
from mqcore.broker.filters import not_supported_remark
from mqcore.broker.ports import Channel
from mqcore.broker.topics import READ_WRITE
from mqcore.codes import ResponseCode, TopicSysFlag
from mqcore.errors import FilterSyntaxError
from mqcore.protocol import headers
from mqcore.protocol.bodies import CheckClientRequestBody, ConsumerData, HeartbeatData
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.heartbeat import is_tag_type
from mqcore.protocol.names import retry_topic

logger = logging.getLogger(__name__)


class ClientManageProcessor:
    """Keeps the client tables."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    async def heart_beat(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 34: neither ext fields nor body.

        The remark, which RocketMQ's clients pass over, names conflicts that the sender's groups are in.
        """
        heartbeat = HeartbeatData.decode(request.body)
        info = ClientChannelInfo(channel, heartbeat.client_id, request.language, request.version, self._broker.clock())
        for consumer in heartbeat.consumer_data_set:
            await self._consumer(consumer, info)
        if channel.is_open:  # it may have closed while a topic was being written; nobody would take it out again
            for producer in heartbeat.producer_data_set:
                self._broker.producers.register(producer.group_name, info)
        found = [self._broker.consumers.conflicts.of(consumer.group_name) for consumer in heartbeat.consumer_data_set]
        return request.reply(remark="\n".join(str(conflict) for conflict in found if conflict is not None) or None)

    async def _consumer(self, consumer: ConsumerData, info: ClientChannelInfo) -> None:
        broker, group = self._broker, consumer.group_name
        answers = await broker.filters.compile_new(group, consumer.subscription_data_set)
        config = await broker.groups.find_or_create(group)
        notify = True
        if config is not None:
            notify = config.notify_consumer_ids_changed_enable
            sys_flag = int(TopicSysFlag.UNIT_SUB) if consumer.unit_mode else 0
            await broker.topics.create(retry_topic(group), config.retry_queue_nums, READ_WRITE, sys_flag)
        if info.channel.is_open:
            broker.consumers.register(
                group,
                info,
                consumer.consume_type,
                consumer.message_model,
                consumer.consume_from_where,
                consumer.subscription_data_set,
                notify,
            )
            broker.filters.register(group, consumer.subscription_data_set, answers)

    async def unregister_client(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 35."""
        header = headers.decode_request(request.code, request.ext_fields)
        producer_group, consumer_group = header["producer_group"], header["consumer_group"]
        if producer_group is not None:
            self._broker.producers.unregister(producer_group, channel)
        if consumer_group is not None:
            config = self._broker.groups.find(consumer_group)
            notify = config is None or config.notify_consumer_ids_changed_enable
            self._broker.consumers.unregister(consumer_group, channel, notify)
        return request.reply(ext_fields={})

    async def check_client_config(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 46: whether a subscription would be understood."""
        subscription = CheckClientRequestBody.decode(request.body).subscription_data
        if is_tag_type(subscription.expression_type):
            return request.reply()
        if not self._broker.settings.broker.enable_property_filter:
            return request.reply(ResponseCode.SYSTEM_ERROR, not_supported_remark(subscription.expression_type))
        try:
            await self._broker.filters.compiler.compile(subscription.expression_type, subscription.sub_string)
        except FilterSyntaxError as error:
            logger.warning("a client's filter is not understood expression=%s error=%s", subscription.sub_string, error)
            return request.reply(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))
        return request.reply()
