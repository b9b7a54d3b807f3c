"""Groups and their clients, as administrators see and change them.

Source: RocketMQ broker/processor/AdminBrokerProcessor.java.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

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
    QuerySubscriptionResponseBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
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
        return await self._update(channel, request, [SubscriptionGroupConfig.decode(request.body)])

    async def update_groups(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 225 of 5.x tools: as many of code 200, all or none."""
        if self._broker.is_slave:
            return request.reply(ResponseCode.SYSTEM_ERROR, SLAVE_IS_READ_ONLY)
        return await self._update(channel, request, SubscriptionGroupList.decode(request.body).group_config_list)

    async def _update(
        self, channel: Channel, request: RemotingCommand, configs: Sequence[SubscriptionGroupConfig]
    ) -> RemotingCommand:
        names = [config.group_name for config in configs]
        for name in names:
            if not is_legal_group(name):
                return request.reply(
                    ResponseCode.SYSTEM_ERROR, f"the group name[{name}] is illegal, allowing only ^[%|a-zA-Z0-9_-]+$"
                )
        logger.info("update of groups asked for groups=%s by=%s", names, channel_address(channel))
        await self._broker.groups.update(*configs)
        return request.reply()

    async def one_group(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 352 of 5.x tools."""
        group = headers.decode_request(request.code, request.ext_fields)["group"]
        config = await self._broker.groups.find_or_create(group)
        if config is None:
            return request.reply(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return request.reply(body=config.encode())

    async def subscription(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 345 of 5.x tools: what a group's members say of a topic; nothing if none is online."""
        header = headers.decode_request(request.code, request.ext_fields)
        group, topic = header["group"], header["topic"]
        found = self._broker.consumers.find_subscription(group, topic)
        return request.reply(body=QuerySubscriptionResponseBody(found, group, topic).encode())

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
