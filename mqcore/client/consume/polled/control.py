"""What a broker may ask of a pull consumer on behalf of a tool. Source: RocketMQ DefaultLitePullConsumerImpl.java."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import fields

from mqcore.client.consume.membership import Membership
from mqcore.client.consume.polled.assignment import LiteAssignment
from mqcore.client.consume.polled.queues import PollService
from mqcore.client.consume.remote_control import RemoteControl, setting_text
from mqcore.client.settings.pull_consumer import PullConsumerSettings
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.heartbeat import ConsumeType
from mqcore.protocol.message import MessageQueue

logger = logging.getLogger(__name__)


class PullRemoteControl(RemoteControl):
    """Answers as every consumer does, but says that it pulls; a reset of offsets is a seek."""

    def __init__(
        self, membership: Membership, settings: PullConsumerSettings, service: PollService, assignment: LiteAssignment
    ) -> None:
        super().__init__(membership, service, assignment.forget)
        self._settings = settings
        self._assignment = assignment

    async def reset_offset(self, command: RemotingCommand) -> None:
        """Go on at the offsets in the request's body. (Java's pull consumers take no notice of it.)"""
        topic, offsets = self._read_reset(command)
        affected = [queue for queue in self._assignment.queues if queue.topic == topic and queue in offsets]
        logger.info("offsets are reset group=%s queues=%s", self._membership.group, affected)
        for queue in affected:
            assigned = self._assignment.queues.get(queue)
            if assigned is not None:
                self._membership.offsets.update(queue, offsets[queue], increase_only=False)
                await self._assignment.seek(assigned, offsets[queue])
        await self._membership.offsets.persist(affected)

    def _properties(self) -> dict[str, str]:
        own = {row.name: setting_text(getattr(self._settings, row.name)) for row in fields(self._settings)}
        kept = {
            name: text for name, text in super()._properties().items() if not hasattr(self._membership.settings, name)
        }
        return own | kept | {"PROP_CONSUME_TYPE": ConsumeType.CONSUME_ACTIVELY.name}

    def _paused(self) -> Iterable[MessageQueue]:
        return [queue for queue, assigned in self._assignment.queues.items() if assigned.paused]
