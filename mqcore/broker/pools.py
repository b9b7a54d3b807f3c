"""RocketMQ's thread pools by name: what its tools ask for. Ours are worker processes, and mostly have no queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Pool:
    """One of RocketMQ's thread pools. None: unbounded."""

    name: str
    capacity: int | None


POOLS: Final = {
    pool.name: pool
    for pool in (
        Pool("send", 10_000),
        Pool("pull", 100_000),
        Pool("reply", 10_000),
        Pool("query", 20_000),
        Pool("client_manage", 1_000_000),
        Pool("heartbeat", 50_000),
        Pool("consumer_manage", None),
        Pool("end_transaction", 100_000),
        Pool("admin", None),
    )
}


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """What waits in front of one kind of work."""

    queue_size: int = 0
