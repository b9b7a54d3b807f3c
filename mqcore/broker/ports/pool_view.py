"""What waits in front of the workers."""

from __future__ import annotations

from typing import Protocol

from mqcore.broker.pools import PoolFacts


class PoolView(Protocol):
    """How long the queues in front of the workers are; *pool* is a name of ``pools.POOLS``."""

    def facts(self, pool: str) -> PoolFacts: ...
