"""Takes out clients that went away: at once when their connection closes, in time when they fall silent.

Source: RocketMQ broker/client/ClientHousekeepingService.java.
"""

from __future__ import annotations

from typing import Final

from mqcore.broker.consumers import ConsumerManager
from mqcore.broker.ports import Channel
from mqcore.broker.producers import ProducerManager

CHANNEL_EXPIRED_MS: Final = 120_000
SCAN_INTERVAL_S: Final = 10


class ClientHousekeeping:
    """What becomes of the client tables when connections end."""

    def __init__(self, consumers: ConsumerManager, producers: ProducerManager) -> None:
        self._consumers = consumers
        self._producers = producers

    def scan(self) -> None:
        """Take out clients that have not sent a heart-beat for CHANNEL_EXPIRED_MS. To be run every SCAN_INTERVAL_S."""
        self._producers.remove_silent(CHANNEL_EXPIRED_MS)
        self._consumers.remove_silent(CHANNEL_EXPIRED_MS)

    def channel_closed(self, channel: Channel) -> None:
        """A connection was closed, broke, or was idle for too long."""
        self._producers.channel_closed(channel.channel_id)
        self._consumers.channel_closed(channel.channel_id)
