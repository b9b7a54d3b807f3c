"""Which member of a group holds which queue, for orderly consumption. In memory only: a restart frees every lock.

Source: RocketMQ broker/client/rebalance/RebalanceLockManager.java.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mqcore.broker.ports import Clock
from mqcore.protocol.message import MessageQueue

LOCK_LIVE_TIME_MAX_MS: Final = 60_000
"""A lock that was not renewed for this long may be taken over; clients renew every 20 s."""


@dataclass(slots=True)
class _Lock:
    client_id: str
    updated: int


class QueueLocks:
    """The lock table."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Take or renew the locks of *queues* and return those that *client_id* now holds, in the order asked."""
        now = self._clock()
        held = self._groups.setdefault(group, {})
        granted = []
        for queue in queues:
            lock = held.get(queue)
            if lock is None or lock.client_id == client_id or now - lock.updated > LOCK_LIVE_TIME_MAX_MS:
                held[queue] = _Lock(client_id, now)
                granted.append(queue)
        return granted

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Free those of *queues* that *client_id* holds."""
        held = self._groups.get(group, {})
        for queue in queues:
            lock = held.get(queue)
            if lock is not None and lock.client_id == client_id:
                del held[queue]
        if not held:
            self._groups.pop(group, None)
