"""Queues that are dropped on all brokers of a failover group, at one place in the log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

Announce = Callable[[int, Sequence[tuple[str, int]]], Awaitable[None]]
"""Told where in the log (topic, queue id) are dropped; returns when ``carry_out`` was called for it, as everywhere.

Raises MetadataNotStoredError if that will not happen, another MetadataError if it is not known."""


class QueueDropper(Protocol):
    """Drops queues when all of a group do."""

    announce: Announce | None

    async def carry_out(self, born: int, queues: Sequence[tuple[str, int]]) -> None:
        """Drop *queues*, those that are there: what starts before *born* is dead. Nothing happens if that was done.

        Raises OSError if the births cannot be written, StoreError if the put lock is not to be had.
        """
        ...

    def applied(self, end: int) -> None:
        """Dispatch may go on: queues are dropped that records before *end* name."""
        ...
