"""Looks into queues, and orders to clean up. Source: RocketMQ broker/processor/AdminBrokerProcessor.java."""

from __future__ import annotations

import logging
from typing import Final

from mqcore.broker.consumers import channel_address
from mqcore.broker.context import BrokerContext
from mqcore.broker.filters import matches_all
from mqcore.broker.ports import Channel, QueueUnit
from mqcore.broker.remarks import NOT_SET
from mqcore.codes import ResponseCode
from mqcore.protocol import headers
from mqcore.protocol.bodies import ConsumeQueueData, QueryConsumeQueueResponseBody, SubscriptionData
from mqcore.protocol.command import RemotingCommand

logger = logging.getLogger(__name__)

UNITS_MAX: Final = 10_000
"""At most so many units of one queue in an answer, whatever is asked for."""


class AdminStoreProcessor:
    """Answers from the store's queues."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    async def offset_by_time(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 29."""
        header = headers.decode_request(request.code, request.ext_fields)
        offset = self._broker.store.offset_by_time(header["topic"], header["queue_id"], header["timestamp"])
        return request.reply(ext_fields=headers.encode_response(request.code, offset=offset))

    async def max_offset(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 30."""
        header = headers.decode_request(request.code, request.ext_fields)
        offset = self._broker.store.max_offset(header["topic"], header["queue_id"])
        return request.reply(ext_fields=headers.encode_response(request.code, offset=offset))

    async def min_offset(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 31."""
        header = headers.decode_request(request.code, request.ext_fields)
        offset = self._broker.store.min_offset(header["topic"], header["queue_id"])
        return request.reply(ext_fields=headers.encode_response(request.code, offset=offset))

    async def earliest_time(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 32."""
        header = headers.decode_request(request.code, request.ext_fields)
        timestamp = self._broker.store.earliest_timestamp(header["topic"], header["queue_id"])
        return request.reply(ext_fields=headers.encode_response(request.code, timestamp=timestamp))

    async def query_consume_queue(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 321. An index without a unit is a success without a body."""
        header = headers.decode_request(request.code, request.ext_fields)
        topic, queue_id, index = header["topic"] or "", header["queue_id"], header["index"]
        store = self._broker.store
        if not store.has_queue(topic, queue_id):
            return request.reply(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        body = QueryConsumeQueueResponseBody(
            max_queue_index=store.max_offset(topic, queue_id), min_queue_index=store.min_offset(topic, queue_id)
        )
        group = header["consumer_group"]
        if group is not None:
            body.subscription_data = self._broker.consumers.find_subscription(group, topic)
            # Without SQL92 there is never filter data; Java's text of that is "null".
            body.filter_data = "null" if body.subscription_data else f"{group}@{topic} is not online!"
        count = min(max(header["count"], 0), UNITS_MAX)
        units = store.read_units(topic, queue_id, index, max(count, 1))
        if not units:
            return request.reply(remark=f"Index {index} of {queue_id}@{topic} is not exist!")
        body.queue_data = [_unit_data(unit, body.subscription_data) for unit in units[:count]]
        return request.reply(remark=NOT_SET, body=body.encode())

    async def clean_consume_queues(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 306."""
        logger.warning("cleaning of consume queues asked for by=%s", channel_address(channel))
        self._broker.store.clean_expired_consume_queues()
        return request.reply()

    async def clean_unused_topics(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 316."""
        logger.warning("cleaning of unused topics asked for by=%s", channel_address(channel))
        self._broker.store.clean_unused_topics(self._broker.topics.names)
        return request.reply()

    async def delete_expired_commit_log(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 329."""
        logger.warning("deletion of expired commit log files asked for by=%s", channel_address(channel))
        self._broker.store.delete_expired_commit_log()
        return request.reply()


def _unit_data(unit: QueueUnit, subscription: SubscriptionData | None) -> ConsumeQueueData:
    is_matched = subscription is not None and (matches_all(subscription) or unit.tags_code in subscription.code_set)
    return ConsumeQueueData(unit.physical_offset, unit.record_size, unit.tags_code, eval=is_matched)
