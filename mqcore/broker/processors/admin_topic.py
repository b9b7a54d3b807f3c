"""Topics, as administrators see and change them. Source: RocketMQ broker/processor/AdminBrokerProcessor.java."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from mqcore.broker.consumers import channel_address
from mqcore.broker.context import BrokerContext
from mqcore.broker.ports import Channel
from mqcore.broker.remarks import NOT_SET, SLAVE_IS_READ_ONLY, system_topic
from mqcore.codes import ResponseCode
from mqcore.errors import HeaderError, ProtocolError
from mqcore.protocol import headers, topic_attributes
from mqcore.protocol.bodies import (
    CreateTopicListRequestBody,
    GroupList,
    TopicConfig,
    TopicFilterType,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.names import SYSTEM_TOPICS, is_lmq, validate_topic

logger = logging.getLogger(__name__)


class AdminTopicProcessor:
    """Reads and changes the topic table."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    def _refusal(self, topic: str) -> str | None:
        """Return why *topic* may not be changed from outside, None if it may."""
        if self._broker.is_slave:
            return SLAVE_IS_READ_ONLY
        fault = validate_topic(topic)
        if fault is None and self._broker.topics.is_system(topic):
            fault = system_topic(topic)
        return fault

    async def update_topic(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 17. On success the topic is on disk, and with the name servers that answered.

        ``order`` is ignored, as RocketMQ ignores it: which topics are in order stands in the name servers' table.
        """
        header = headers.decode_request(request.code, request.ext_fields)
        topic = str(header["topic"])
        refusal = self._refusal(topic)
        if refusal is not None:
            return request.reply(ResponseCode.SYSTEM_ERROR, refusal)
        logger.info("update of a topic asked for topic=%s by=%s", topic, channel_address(channel))
        config = TopicConfig(
            topic,
            header["read_queue_nums"],
            header["write_queue_nums"],
            header["perm"],
            _filter_type(header["topic_filter_type"]),
            header["topic_sys_flag"] or 0,
        )
        try:
            config.attributes = topic_attributes.parse_changes(header["attributes"])
        except ProtocolError as error:
            return request.reply(ResponseCode.SYSTEM_ERROR, str(error))
        return await self._update(request, [config])

    async def _update(self, request: RemotingCommand, configs: Sequence[TopicConfig]) -> RemotingCommand:
        try:
            updated = await self._broker.topics.update(*configs)
        except ProtocolError as error:  # of attributes that cannot be changed so, in RocketMQ's words
            return request.reply(ResponseCode.SYSTEM_ERROR, str(error))
        if updated:
            await self._broker.registration.register_topics(*updated)
        return request.reply(remark=NOT_SET)

    async def update_topics(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 18 of 5.x tools: as many of code 17, all or none."""
        configs = CreateTopicListRequestBody.decode(request.body).topic_config_list
        for config in configs:
            refusal = self._refusal(config.topic_name)
            if refusal is not None:
                return request.reply(ResponseCode.INVALID_PARAMETER, refusal)
        names = [config.topic_name for config in configs]
        logger.info("update of topics asked for topics=%s by=%s", names, channel_address(channel))
        return await self._update(request, configs)

    async def delete_topic(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 215. Queues, offsets and counters of the topic go with it; its messages go with their files."""
        topic = str(headers.decode_request(request.code, request.ext_fields)["topic"])
        refusal = self._refusal(topic)
        if refusal is not None:
            return request.reply(ResponseCode.SYSTEM_ERROR, refusal)
        logger.warning("deletion of a topic asked for topic=%s by=%s", topic, channel_address(channel))
        await self._broker.topics.delete(topic)
        # Before the queues: these may be long in going, and a new topic of the name must not go on with old offsets.
        await self._broker.offsets.remove_topic(topic)
        self._broker.statistics.forget_topic(topic)
        if is_lmq(topic):
            await self._broker.store.drop_light_queue(topic)
        else:
            await self._broker.store.clean_unused_topics(self._broker.topics.names)
        return request.reply()

    async def all_topics(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 21."""
        return request.reply(ext_fields={}, body=self._broker.topics.wrapper.encode())

    async def one_topic(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 351 of 5.x tools, which they send after statistics."""
        topic = headers.decode_request(request.code, request.ext_fields)["topic"]
        config = self._broker.topics.find(topic)
        if config is None:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
        return request.reply(body=config.encode())

    async def system_topics(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 305."""
        topics = sorted(SYSTEM_TOPICS | self._broker.topics.system_topics)
        return request.reply(body=TopicList(topics).encode())

    async def topic_stats(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 202."""
        topic = headers.decode_request(request.code, request.ext_fields)["topic"]
        config = self._broker.topics.find(topic)
        if config is None:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        queues = range(config.write_queue_nums)
        table = {self._broker.queue(topic, queue_id): self._offsets(topic, queue_id) for queue_id in queues}
        return request.reply(body=TopicStatsTable(table).encode())

    def _offsets(self, topic: str, queue_id: int) -> TopicOffset:
        store = self._broker.store
        lowest = max(store.min_offset(topic, queue_id), 0)
        highest = max(store.max_offset(topic, queue_id), 0)
        updated = store.store_timestamp(topic, queue_id, highest - 1) if highest > 0 else 0
        return TopicOffset(lowest, highest, updated)

    async def consumed_of(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 343 of 5.x tools: the topics that a group has offsets for."""
        group = headers.decode_request(request.code, request.ext_fields)["group"]
        topics = sorted(await self._broker.offsets.topics_of(group))
        return request.reply(body=TopicList(topics, self._broker.registration.address).encode())

    async def consumed_by(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 300: groups with members that subscribe to the topic, and groups with offsets for it."""
        topic = headers.decode_request(request.code, request.ext_fields)["topic"]
        groups = {*self._broker.consumers.groups_of(topic), *await self._broker.offsets.groups_of(topic)}
        return request.reply(body=GroupList(sorted(groups)).encode())


def _filter_type(name: str) -> TopicFilterType:
    try:
        return TopicFilterType[name]
    except KeyError as error:
        raise HeaderError("topicFilterType", repr(name), "SINGLE_TAG or MULTI_TAG") from error
