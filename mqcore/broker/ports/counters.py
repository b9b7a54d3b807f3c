"""What the workers count."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from mqcore.broker.counts import BrokerTotals, GetCount, PutCount


class Counters(Protocol):
    """Running values that the workers count; they only grow while the broker lives."""

    def grown(self) -> tuple[Iterable[PutCount], Iterable[GetCount]]:
        """Return what was counted since the last call, for the topics, queues and groups where it was anything.

        May be called in a thread, and lets others run.
        """
        ...

    def totals(self) -> BrokerTotals: ...

    def note_read(self, nums: int, size: int) -> None:
        """Count messages that the broker process read for itself in one go; none is a read that found nothing."""
        ...
