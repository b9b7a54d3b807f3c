"""The broker's locks on queues, by which an orderly group makes sure that only one member consumes a queue.

A lock lives 60 s at the broker; it is renewed every 20 s and not relied upon for longer than 30 s without renewal.
Source: RocketMQ RebalanceImpl.java, lock, lockAll, unlock.
"""

from __future__ import annotations

import logging
from collections import defaultdict

from mqcore import clock
from mqcore.cause_log import CauseLog
from mqcore.client.consume.membership import HeldQueue, Membership
from mqcore.client.session.tasks import Periodic
from mqcore.errors import MQError
from mqcore.protocol.message import MessageQueue

log = CauseLog(logging.getLogger(__name__))

FIRST_RENEWAL_S = 1.0


class QueueLocks:
    """The locks of one orderly member."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        every_s = membership.settings.lock_interval_s
        self._renewal = Periodic(
            f"locks of {membership.group}", self.renew, first_s=min(FIRST_RENEWAL_S, every_s), every_s=every_s
        )

    def start(self) -> None:
        self._renewal.start()

    async def stop(self) -> None:
        await self._renewal.stop()

    async def lock(self, held: HeldQueue) -> bool:
        """Lock one queue; return whether it is locked now. A broker that does not answer has not locked it."""
        try:
            address = await self._membership.hub.master_address(held.queue)
            granted = await self._membership.hub.api.lock(address, self._membership.group, [held.queue])
        except MQError as error:
            log.warning("lock failed", group=self._membership.group, queue=held.queue, error=error)
            return False
        self._note(held, held.queue in granted)
        return held.locked

    async def renew(self) -> None:
        """Lock everything held, one request per broker."""
        by_broker: defaultdict[str, list[HeldQueue]] = defaultdict(list)
        for held in self._membership.held.values():
            if not held.dropped:
                by_broker[held.queue.broker_name].append(held)
        for broker_name, queues in by_broker.items():
            try:
                address = await self._membership.hub.master_address(queues[0].queue)
                wanted = [held.queue for held in queues]
                granted = await self._membership.hub.api.lock(address, self._membership.group, wanted)
            except MQError as error:
                log.warning("locks not renewed", group=self._membership.group, broker=broker_name, error=error)
                continue
            for held in queues:
                self._note(held, held.queue in granted)

    async def unlock(self, queues: list[MessageQueue]) -> None:
        """Let others have *queues*, which lie on one broker. A failure costs them the lock's remaining life."""
        try:
            address = await self._membership.hub.master_address(queues[0])
            await self._membership.hub.api.unlock(address, self._membership.group, queues)
        except MQError as error:
            log.warning("unlock failed", group=self._membership.group, queues=queues, error=error)

    async def unlock_all(self) -> None:
        by_broker: defaultdict[str, list[MessageQueue]] = defaultdict(list)
        for queue in self._membership.held:
            by_broker[queue.broker_name].append(queue)
        for queues in by_broker.values():
            await self.unlock(queues)

    def _note(self, held: HeldQueue, granted: bool) -> None:
        if held.locked and not granted:
            log.warning("lost the lock of a queue", group=self._membership.group, queue=held.queue)
        held.locked = granted
        if granted:
            held.last_lock_s = clock.now_s()
