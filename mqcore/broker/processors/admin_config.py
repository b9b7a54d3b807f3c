"""Settings and the runtime table. Source: RocketMQ broker/processor/AdminBrokerProcessor.java."""

from __future__ import annotations

import logging

from mqcore.broker.consumers import channel_address
from mqcore.broker.context import BrokerContext
from mqcore.broker.ports import Channel
from mqcore.broker.runtime_info import DETAILS
from mqcore.codes import ResponseCode
from mqcore.config import BrokerSettings, find, parse_properties
from mqcore.protocol import headers
from mqcore.protocol.bodies import KVTable
from mqcore.protocol.command import RemotingCommand

logger = logging.getLogger(__name__)

ALWAYS_BLACK = frozenset({"brokerConfigPath", "configBlackList", "rocketmqHome"})
BLACK_LISTED = "Can not update config in black list."


class AdminConfigProcessor:
    """Shows and changes settings."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    async def update_config(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 25: all of the changes, or none.

        Unknown keys are ignored, as upstream does. A key that exists but cannot change while the broker runs is
        refused; upstream writes it into its object, where nothing reads it again before the next start.
        """
        changes = parse_properties(request.body.decode("utf-8", "replace"))
        settings = self._broker.settings
        refused = settings.current.unchangeable_among(changes)
        if refused:
            # What upstream refuses too is refused in its words.
            black_list = settings.current.black_list | ALWAYS_BLACK
            fixed = [key for key in refused if key not in black_list]
            named = f" Not changeable while it runs: {', '.join(fixed)}" if fixed else ""
            return request.reply(ResponseCode.NO_PERMISSION, BLACK_LISTED + named)
        known = {key: value for key, value in changes.items() if find(key) is not None}
        logger.info("update of settings asked for changes=%s by=%s", known, channel_address(channel))
        if known:
            before = settings.broker
            await settings.update(known)
            await self._tell_name_servers(before, settings.broker)
        return request.reply()

    async def _tell_name_servers(self, before: BrokerSettings, after: BrokerSettings) -> None:
        """Register anew what has changed of it."""
        if _template(before) != _template(after):
            await self._broker.topics.follow_template()
        elif before.broker_permission == after.broker_permission:
            return
        await self._broker.topics.bump_version()
        await self._broker.registration.register_all(check_order=False, oneway=False, force=True)

    async def get_config(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 26: every setting as properties text, and the version of the settings as JSON in the header."""
        settings = self._broker.settings
        ext_fields = headers.encode_response(request.code, version=settings.version.encode().decode())
        return request.reply(ext_fields=ext_fields, body=settings.current.as_properties().encode())

    async def runtime_info(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer code 28."""
        info = self._broker.runtime_info
        wanted = headers.decode_request(request.code, request.ext_fields)["details"]
        return request.reply(body=KVTable(info.table() | (info.details() if wanted == DETAILS else {})).encode())


def _template(settings: BrokerSettings) -> tuple[bool, int]:
    return settings.auto_create_topic_enable, settings.default_topic_queue_nums
