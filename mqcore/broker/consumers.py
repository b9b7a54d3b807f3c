"""Who consumes: group -> its members' connections and what the group subscribes to.

Source: RocketMQ broker/client/ConsumerManager.java, ConsumerGroupInfo.java, DefaultConsumerIdsChangeListener.java.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from mqcore.broker.ports import Channel, Clock
from mqcore.broker.subscription_conflicts import SubscriptionConflicts
from mqcore.codes import RemotingFlag, RequestCode
from mqcore.protocol.bodies import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from mqcore.protocol.command import RemotingCommand

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ClientChannelInfo:
    """One client on one connection."""

    channel: Channel
    client_id: str
    language: int
    version: int
    updated: int

    @property
    def address(self) -> str:
        return channel_address(self.channel)


def channel_address(channel: Channel) -> str:
    """Return the peer's ``ip:port``."""
    return f"{channel.remote_ip}:{channel.remote_port}"


@dataclass(slots=True)
class ConsumerGroupInfo:
    """One group. The last heart-beat of any member decides the three names."""

    group: str
    consume_type: ConsumeType
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    channels: dict[int, ClientChannelInfo] = field(default_factory=dict)

    def update_channel(self, info: ClientChannelInfo) -> bool:
        """Add a member or note that it is alive; True if the connection is new to the group."""
        known = self.channels.get(info.channel.channel_id)
        if known is None:
            logger.info("consumer connected group=%s client=%s address=%s", self.group, info.client_id, info.address)
        elif known.client_id != info.client_id:
            logger.error(
                "a connection changed its client id group=%s from=%s to=%s", self.group, known.client_id, info.client_id
            )
        self.channels[info.channel.channel_id] = info
        return known is None

    def update_subscriptions(self, subscriptions: Iterable[SubscriptionData]) -> tuple[bool, bool]:
        """Take the set of one member for the group's; return whether topics came or went, and whether anything differs.

        Members that subscribe differently so evict each other's topics, heart-beat by heart-beat.
        """
        wanted = {subscription.topic: subscription for subscription in subscriptions}
        topics_changed = differs = False
        for topic, subscription in wanted.items():
            known = self.subscriptions.get(topic)
            if known is None:
                topics_changed = True
                logger.info("subscription added group=%s topic=%s", self.group, topic)
            elif subscription.sub_version <= known.sub_version:
                continue
            self.subscriptions[topic] = subscription
            differs = True
        for topic in self.subscriptions.keys() - wanted.keys():
            topics_changed = differs = True
            logger.warning("subscription removed group=%s topic=%s", self.group, topic)
            del self.subscriptions[topic]
        return topics_changed, differs


class ConsumerManager:
    """The consumer table."""

    def __init__(
        self,
        clock: Clock,
        bump: Callable[[str], None],
        may_notify: Callable[[], bool],
        conflicts: SubscriptionConflicts,
    ) -> None:
        """*bump*: a group's pull checks may have another answer. *may_notify*: the broker's own switch for notices."""
        self.groups: dict[str, ConsumerGroupInfo] = {}
        self.conflicts = conflicts
        self.on_left: Callable[[str], None] = lambda group: None
        """Called with a group that has no members left."""
        self._clock = clock
        self._bump = bump
        self._may_notify = may_notify

    def register(
        self,
        group: str,
        info: ClientChannelInfo,
        consume_type: ConsumeType,
        message_model: MessageModel,
        consume_from_where: ConsumeFromWhere,
        subscriptions: Iterable[SubscriptionData],
        notify: bool,
    ) -> bool:
        """Take one group's part of a heart-beat; return whether members or topics changed.

        *notify* is the group's own switch for telling the members, the sender among them.
        """
        known = self.groups.get(group)
        before = (known.message_model,) if known is not None else None
        entry = known or ConsumerGroupInfo(group, consume_type, message_model, consume_from_where)
        self.groups[group] = entry
        entry.consume_type, entry.message_model = consume_type, message_model
        entry.consume_from_where = consume_from_where
        is_new_member = entry.update_channel(info)
        subscriptions = list(subscriptions)
        self.conflicts.heard(group, info.channel.channel_id, info.client_id, subscriptions)
        topics_changed, differs = entry.update_subscriptions(subscriptions)
        if differs or before != (message_model,):
            self._bump(group)
        changed = is_new_member or topics_changed
        if changed and notify:
            self.notify(group)
        return changed

    def unregister(self, group: str, channel: Channel, notify: bool) -> None:
        """A member says good-bye."""
        if self._remove_member(group, channel.channel_id) and notify:
            self.notify(group)

    def channel_closed(self, channel_id: int) -> list[str]:
        """Take a connection out of every group, tell the others, and return the groups."""
        left = [group for group in list(self.groups) if self._remove_member(group, channel_id)]
        for group in left:
            self.notify(group)
        return left

    def remove_silent(self, age_max_ms: int) -> None:
        """Take out, and close, connections silent for *age_max_ms*. The other members are not told, as upstream.

        What has been a difference between subscriptions for long becomes a conflict now, if no heart-beat made it one.
        """
        now = self._clock()
        for entry in list(self.groups.values()):
            for info in list(entry.channels.values()):
                if now - info.updated > age_max_ms:
                    logger.warning(
                        "consumer is silent group=%s client=%s address=%s", entry.group, info.client_id, info.address
                    )
                    self._remove_member(entry.group, info.channel.channel_id)
                    info.channel.close()
        self.conflicts.scan()

    def _remove_member(self, group: str, channel_id: int) -> bool:
        entry = self.groups.get(group)
        if entry is None or entry.channels.pop(channel_id, None) is None:
            return False
        self.conflicts.left(group, channel_id)
        if not entry.channels:
            del self.groups[group]
            self._bump(group)
            logger.info("consumer group has no members left group=%s", group)
            self.on_left(group)
        return True

    def notify(self, group: str) -> None:
        """Tell every member that the members changed, so that they share out the queues anew."""
        entry = self.groups.get(group)
        if entry is None or not self._may_notify():
            return
        for info in entry.channels.values():
            info.channel.send(
                RemotingCommand(
                    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
                    flag=int(RemotingFlag.ONEWAY),
                    ext_fields={"consumerGroup": group},
                )
            )

    def find_client(self, group: str, client_id: str) -> ClientChannelInfo | None:
        """Return the member called *client_id*."""
        entry = self.groups.get(group)
        if entry is None:
            return None
        return next((info for info in entry.channels.values() if info.client_id == client_id), None)

    def find_subscription(self, group: str, topic: str) -> SubscriptionData | None:
        entry = self.groups.get(group)
        return entry.subscriptions.get(topic) if entry is not None else None

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups with members that subscribe to *topic*."""
        return [group for group, entry in self.groups.items() if topic in entry.subscriptions]
