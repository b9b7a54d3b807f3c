"""Looks into queues, and orders to clean up. Source: RocketMQ broker/processor/AdminBrokerProcessor.java."""

from __future__ import annotations

import base64
import json
import logging
from typing import Final

from mqcore.broker.consumer_filters import ConsumerFilter
from mqcore.broker.consumers import channel_address
from mqcore.broker.context import BrokerContext
from mqcore.broker.filters import matches_all
from mqcore.broker.ports import Channel, QueueUnit
from mqcore.broker.remarks import NOT_SET
from mqcore.codes import ResponseCode
from mqcore.protocol import fastjson, headers
from mqcore.protocol.bodies import ConsumeQueueData, QueryConsumeQueueResponseBody, SubscriptionData
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.heartbeat import is_tag_type
from mqcore.store.queues.ext import ExtUnit

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
            known = self._broker.filters.find(topic, group)
            body.filter_data = f"{group}@{topic} is not online!"
            if body.subscription_data:
                # Java's text of no filter is "null".
                shown = self._broker.filters.rendered(known) if known is not None else None
                body.filter_data = fastjson.dumps(shown, pretty=True).decode()
        count = min(max(header["count"], 0), UNITS_MAX)
        units = store.read_units(topic, queue_id, index, max(count, 1))
        if not units:
            return request.reply(remark=f"Index {index} of {queue_id}@{topic} is not exist!")
        known = None if group is None else self._broker.filters.find(topic, group)
        body.queue_data = [_unit_data(unit, body.subscription_data, known) for unit in units[:count]]
        return request.reply(remark=NOT_SET, body=body.encode())

    async def clean_consume_queues(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 306."""
        logger.warning("cleaning of consume queues asked for by=%s", channel_address(channel))
        await self._broker.store.clean_expired_consume_queues()
        return request.reply()

    async def clean_unused_topics(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 316."""
        logger.warning("cleaning of unused topics asked for by=%s", channel_address(channel))
        await self._broker.store.clean_unused_topics(self._broker.topics.names)
        return request.reply()

    async def delete_expired_commit_log(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 329."""
        logger.warning("deletion of expired commit log files asked for by=%s", channel_address(channel))
        self._broker.store.delete_expired_commit_log()
        return request.reply()


def _unit_data(
    unit: QueueUnit, subscription: SubscriptionData | None, known: ConsumerFilter | None
) -> ConsumeQueueData:
    data = ConsumeQueueData(unit.physical_offset, unit.record_size, unit.tags_code)
    if unit.ext is not None:
        data.extend_data_json = _ext_json(unit.ext)
        data.bit_map = _bitmap_text(unit.ext.bitmap) if unit.ext.bitmap else None
        # Upstream asks the subscription about units with an ext unit only.
        if subscription is not None and not is_tag_type(subscription.expression_type):
            data.eval = known is None or not known.rules_out(unit.physical_offset, unit.ext.bitmap)
        elif subscription is not None:
            data.eval = matches_all(subscription) or unit.ext.tags_code in subscription.code_set
    elif unit.real_tags_code is None:
        data.msg = f"Cq extend not exist!addr: {unit.tags_code}"
    return data


def _ext_json(unit: ExtUnit) -> str:
    members: dict[str, int | str] = {
        "msgStoreTime": unit.store_timestamp,
        "size": unit.size,
        "tagsCode": unit.tags_code,
    }
    if unit.bitmap:
        members = {"filterBitMap": base64.b64encode(unit.bitmap).decode(), **members}
    return json.dumps(members, separators=(",", ":"))


def _bitmap_text(bitmap: bytes) -> str:
    """Return the bits, the highest first, in lines of 64, as Java's BitsArray does."""
    return "".join(f"{byte:08b}" + "\n" * (at % 8 == 0) for at, byte in reversed(list(enumerate(bitmap))))
