"""Watching topics for queues that come and go. Source: RocketMQ TopicMessageQueueChangeListener.java."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from mqcore.cause_log import CauseLog
from mqcore.client.consume.polled.assignment import tell
from mqcore.client.model.rebalance import sorted_queues
from mqcore.client.session.tasks import Periodic
from mqcore.errors import MQError
from mqcore.protocol.message import MessageQueue

if TYPE_CHECKING:
    from mqcore.client.session.session import Session

log = CauseLog(logging.getLogger(__name__))

FIRST_LOOK_MAX_S = 10.0

TopicCallback = Callable[[str, Sequence[MessageQueue]], Awaitable[None] | None]
"""Called with a topic and all its readable queues, sorted, when these have changed."""


class RouteWatch:
    """Compares the queues of the watched topics with those of the last look."""

    def __init__(self, hub: Session, group: str, interval_s: float) -> None:
        self._hub = hub
        self._callbacks: defaultdict[str, list[TopicCallback]] = defaultdict(list)
        self._seen: dict[str, list[MessageQueue]] = {}
        first_s = min(FIRST_LOOK_MAX_S, interval_s)
        self._looking = Periodic(f"topic check of {group}", self.look, first_s=first_s, every_s=interval_s)

    def add(self, topic: str, callback: TopicCallback) -> None:
        """Watch *topic*. What the first look finds is what later ones are compared with; it comes at once."""
        self._callbacks[topic].append(callback)
        self._looking.wake()

    def start(self) -> None:
        self._looking.start()

    async def stop(self) -> None:
        await self._looking.stop()

    async def look(self) -> None:
        """Look once at every watched topic; one without a route counts as unchanged."""
        for topic, callbacks in list(self._callbacks.items()):
            try:
                await self._hub.routes.refresh(topic)
                queues = sorted_queues(await self._hub.routes.subscribe_queues(topic))
            except MQError as error:
                log.warning("topic not checked", topic=topic, error=error)
                continue
            if not queues:
                continue
            before = self._seen.get(topic)
            self._seen[topic] = queues
            if before is not None and before != queues:
                for callback in list(callbacks):
                    await tell(callback, topic, queues)
