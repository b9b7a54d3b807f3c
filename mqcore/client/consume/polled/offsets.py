"""Commits that the application asked for: unlike those in the background, they say when they fail."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime

from mqcore.client.consume.offsets import MASTER_WAIT_S, RemoteOffsets
from mqcore.protocol.message import MessageQueue


class CommitOffsets(RemoteOffsets):
    """Offsets at the brokers, with commits that are answered for."""

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Store *offsets*, smaller ones than before too, and return when every broker has; MQError when one has not.

        One after the other for each broker, and never beside a commit of the background: a broker may work on two of
        them in any order.
        """
        for queue, offset in offsets.items():
            self.update(queue, offset, increase_only=False)
        by_broker: defaultdict[str, list[MessageQueue]] = defaultdict(list)
        for queue in offsets:
            by_broker[queue.broker_name].append(queue)
        async with self._persisting:
            outcomes = await asyncio.gather(
                *(self._commit_at_one_broker(queues, offsets) for queues in by_broker.values()), return_exceptions=True
            )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _commit_at_one_broker(self, queues: list[MessageQueue], offsets: Mapping[MessageQueue, int]) -> None:
        wait_until_s = asyncio.get_running_loop().time() + MASTER_WAIT_S
        for queue in queues:
            await self._store(queue, offsets[queue], wait_until_s)


def timestamp_ms(when: datetime | float) -> int:
    """Return *when*, a datetime or seconds since 1970, as ms since 1970."""
    return int((when if isinstance(when, int | float) else when.timestamp()) * 1000)
