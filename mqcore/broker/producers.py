"""Who produces: group -> its connections, and which connection a client id has.

Source: RocketMQ broker/client/ProducerManager.java.
"""

from __future__ import annotations

import logging

from mqcore.broker.consumers import ClientChannelInfo
from mqcore.broker.ports import Channel, Clock

logger = logging.getLogger(__name__)

CHANNEL_TRIES_MAX = 3


class ProducerManager:
    """The producer table."""

    def __init__(self, clock: Clock) -> None:
        self.groups: dict[str, dict[int, ClientChannelInfo]] = {}
        self._clients: dict[str, Channel] = {}
        self._passing: dict[int, str] = {}
        """By connection: whose answers its send worker pushes to it without asking here."""
        self._clock = clock
        self._turn = 0

    def register(self, group: str, info: ClientChannelInfo) -> None:
        """Take one group's part of a heart-beat."""
        members = self.groups.setdefault(group, {})
        known = members.get(info.channel.channel_id)
        if known is None:
            logger.info("producer connected group=%s client=%s address=%s", group, info.client_id, info.address)
            members[info.channel.channel_id] = info
            self._forget_asker(info.client_id)
            self._clients[info.client_id] = info.channel
        else:
            known.updated = info.updated

    def unregister(self, group: str, channel: Channel) -> None:
        """A member says good-bye."""
        self._remove_member(group, channel.channel_id)

    def channel_closed(self, channel_id: int) -> list[str]:
        """Take a connection out of every group and return the groups."""
        return [group for group in list(self.groups) if self._remove_member(group, channel_id)]

    def remove_silent(self, age_max_ms: int) -> None:
        """Take out, and close, connections without a heart-beat for *age_max_ms*."""
        now = self._clock()
        for group, members in list(self.groups.items()):
            for info in list(members.values()):
                if now - info.updated > age_max_ms:
                    logger.warning(
                        "producer is silent group=%s client=%s address=%s", group, info.client_id, info.address
                    )
                    self._remove_member(group, info.channel.channel_id)
                    info.channel.close()

    def _remove_member(self, group: str, channel_id: int) -> bool:
        members = self.groups.get(group, {})
        info = members.pop(channel_id, None)
        if info is None:
            return False
        if not members:
            del self.groups[group]
        known = self._clients.get(info.client_id)
        if known is not None and known.channel_id == channel_id:
            self._forget_asker(info.client_id)
            del self._clients[info.client_id]
        return True

    def find_channel(self, client_id: str) -> Channel | None:
        """Return the connection that the client *client_id* registered last, to push a reply to."""
        return self._clients.get(client_id)

    def let_answers_pass(self, client_id: str) -> None:
        """Have the send worker push answers to *client_id* by itself, as it has taken one."""
        channel = self._clients.get(client_id)
        if channel is not None and self._passing.get(channel.channel_id) != client_id:
            self._passing[channel.channel_id] = client_id
            channel.take_answers_of(client_id)

    def _forget_asker(self, client_id: str) -> None:
        """The client has another connection, or none: no answer may go over the one that it had."""
        channel = self._clients.get(client_id)
        if channel is not None and self._passing.get(channel.channel_id) == client_id:
            del self._passing[channel.channel_id]
            channel.take_answers_of("")

    def available_channel(self, group: str) -> Channel | None:
        """Return an open connection of *group*, another one each time; None if there is none."""
        channels = [info.channel for info in self.groups.get(group, {}).values()]
        self._turn += 1
        for step in range(min(CHANNEL_TRIES_MAX, len(channels))):
            channel = channels[(self._turn + step) % len(channels)]
            if channel.is_open:
                return channel
        return next((channel for channel in reversed(channels) if channel.is_open), None)
