"""Members and offsets of groups, as clients ask for them.

Source: RocketMQ broker/processor/ConsumerManageProcessor.java.
"""

from __future__ import annotations

from mqcore.broker.consumers import channel_address
from mqcore.broker.context import BrokerContext
from mqcore.broker.ports import Channel
from mqcore.codes import ResponseCode
from mqcore.protocol import headers
from mqcore.protocol.bodies import ConsumerList
from mqcore.protocol.command import RemotingCommand


class ConsumerManageProcessor:
    """Answers from the consumer table and the offset table."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    async def consumer_list(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 38."""
        group = headers.decode_request(request.code, request.ext_fields)["consumer_group"]
        members = self._broker.consumers.groups.get(group)
        if members is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}", ext_fields={})
        ids = list(dict.fromkeys(info.client_id for info in members.channels.values()))
        return request.reply(ext_fields={}, body=ConsumerList(ids).encode())

    async def query_offset(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 14.

        A group without an offset begins at 0 while the queue still has its first message in memory: a new group on a
        young topic misses nothing, wherever it asked to begin.
        """
        header = headers.decode_request(request.code, request.ext_fields)
        topic, queue_id = header["topic"], header["queue_id"]
        offset = self._broker.offsets.query(header["consumer_group"], topic, queue_id)
        if offset < 0:
            store = self._broker.store
            if store.min_offset(topic, queue_id) > 0 or store.is_on_disk(topic, queue_id, 0):
                return request.reply(
                    ResponseCode.QUERY_NOT_FOUND,
                    "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
                    ext_fields={},
                )
            offset = 0
        return request.reply(ext_fields=headers.encode_response(request.code, offset=offset))

    async def update_offset(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 15. It never fails once the header reads."""
        header = headers.decode_request(request.code, request.ext_fields)
        self._broker.offsets.accept(
            header["consumer_group"],
            header["topic"],
            header["queue_id"],
            header["commit_offset"],
            channel_address(channel),
        )
        return request.reply(ext_fields={})
