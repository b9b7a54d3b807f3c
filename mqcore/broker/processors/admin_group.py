"""Groups and their clients, as administrators see and change them.

Source: RocketMQ broker/processor/AdminBrokerProcessor.java.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from mqcore.broker.consumers import ClientChannelInfo, channel_address
from mqcore.broker.context import BrokerContext
from mqcore.broker.groups import is_legal_group
from mqcore.broker.ports import Channel
from mqcore.broker.remarks import SLAVE_IS_READ_ONLY
from mqcore.codes import LanguageCode, ResponseCode
from mqcore.protocol import headers
from mqcore.protocol.bodies import (
    ClientConnection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
    SubscriptionGroupConfig,
)
from mqcore.protocol.command import RemotingCommand

logger = logging.getLogger(__name__)


class AdminGroupProcessor:
    """Reads and changes the group table, and reads the client tables."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    async def update_group(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 200. A name that would not survive in the offset file's keys is refused."""
        if self._broker.is_slave:
            return request.reply(ResponseCode.SYSTEM_ERROR, SLAVE_IS_READ_ONLY)
        config = SubscriptionGroupConfig.decode(request.body)
        if not is_legal_group(config.group_name):
            return request.reply(
                ResponseCode.SYSTEM_ERROR,
                f"the group name[{config.group_name}] is illegal, allowing only ^[%|a-zA-Z0-9_-]+$",
            )
        logger.info("update of a group asked for group=%s by=%s", config.group_name, channel_address(channel))
        await self._broker.groups.update(config)
        return request.reply()

    async def delete_group(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 207. Offsets go too when the 4.9 or the 5.x flag says so."""
        if self._broker.is_slave:
            return request.reply(ResponseCode.SYSTEM_ERROR, SLAVE_IS_READ_ONLY)
        header = headers.decode_request(request.code, request.ext_fields)
        group = str(header["group_name"])
        logger.warning("deletion of a group asked for group=%s by=%s", group, channel_address(channel))
        await self._broker.groups.delete(group)
        if header["remove_offset"] or header["clean_offset"]:
            await self._broker.offsets.remove_group(group)
        self._broker.statistics.forget_group(group)
        return request.reply()

    async def all_groups(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 201."""
        return request.reply(body=self._broker.groups.wrapper.encode())

    async def consumer_connections(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 203."""
        group = headers.decode_request(request.code, request.ext_fields)["consumer_group"]
        members = self._broker.consumers.groups.get(group)
        if members is None:
            return request.reply(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online")
        body = ConsumerConnection(
            _connections(members.channels.values()),
            members.subscriptions,
            members.consume_type,
            members.message_model,
            members.consume_from_where,
            self._broker.consumers.conflicts.of(group),
        )
        return request.reply(body=body.encode())

    async def producer_connections(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 204."""
        group = headers.decode_request(request.code, request.ext_fields)["producer_group"]
        members = self._broker.producers.groups.get(group)
        if members is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
        return request.reply(body=ProducerConnection(_connections(members.values())).encode())

    async def all_producers(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 328."""
        data = {
            group: [
                ProducerInfo(
                    info.client_id, f"/{info.address}", LanguageCode(info.language), info.version, info.updated
                )
                for info in members.values()
            ]
            for group, members in self._broker.producers.groups.items()
        }
        return request.reply(body=ProducerTableInfo(data).encode())


def _connections(members: Iterable[ClientChannelInfo]) -> list[ClientConnection]:
    return [
        ClientConnection(info.client_id, info.address, LanguageCode(info.language), info.version) for info in members
    ]
