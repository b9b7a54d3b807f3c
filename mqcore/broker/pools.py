"""RocketMQ's thread pools by name: what its tools ask for. Ours are worker processes, and mostly have no queue."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """What waits in front of one kind of work, and at most how much may.

    A capacity of 0 is unknown; RocketMQ's default is shown then.
    """

    queue_size: int = 0
    capacity: int = 0
