"""What the workers count."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from mqcore.broker.counts import BrokerTotals, GetCount, PutCount


class Counters(Protocol):
    """Running values that the workers count; they only grow while the broker lives."""

    def puts(self) -> Iterable[PutCount]:
        """Iterate over the topics with a count above 0."""
        ...

    def gets(self) -> Iterable[GetCount]:
        """Iterate over the queues and groups with a count above 0."""
        ...

    def totals(self) -> BrokerTotals: ...
