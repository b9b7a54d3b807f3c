"""Groups that read so far behind that they push the newest messages out of memory, and what is done about them.

With disableConsumeIfConsumerReadSlowly their consumption is switched off, for the sake of all others, until an
administrator switches it on. As in RocketMQ that is not written by itself; it is with the next change of a group.
Source: RocketMQ broker/BrokerController.java (protectBroker).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from mqcore.broker.groups import SubscriptionGroupManager
from mqcore.broker.live_settings import LiveSettings
from mqcore.broker.ports import Clock, OffsetTable

logger = logging.getLogger(__name__)

LOOK_INTERVAL_S: Final = 180.0


class SlowConsumers:
    """Looks every LOOK_INTERVAL_S at what groups have read since it looked before."""

    def __init__(
        self, settings: LiveSettings, groups: SubscriptionGroupManager, offsets: OffsetTable, clock: Clock
    ) -> None:
        self.switched_off = 0
        """How often a group was."""
        self._settings = settings
        self._groups = groups
        self._offsets = offsets
        self._clock = clock
        self._looked_at = clock()

    async def look(self) -> None:
        """Switch off who has read too far behind. RocketMQ also counts who has long ceased to read."""
        since, self._looked_at = self._looked_at, self._clock()
        broker = self._settings.broker
        if not broker.disable_consume_if_consumer_read_slowly:
            return
        threshold = broker.consumer_fallbehind_threshold
        for group in await asyncio.to_thread(self._offsets.slow_groups, threshold, since):
            if await self._groups.switch_off(group):
                self.switched_off += 1
                logger.warning("consumption switched off group=%s behind_bytes_above=%d", group, threshold)

    def figures(self) -> dict[str, str]:
        """Return what the runtime table says; nothing, as RocketMQ's, as long as no group was switched off."""
        return {"slowGroupsSwitchedOff": str(self.switched_off)} if self.switched_off else {}
