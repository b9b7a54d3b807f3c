"""What the boards say, for who asks for all of it again and again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from mqcore.broker.figures import GroupFigures, ProcessFigures, TopicFigures


class FigureView(Protocol):
    """Looks at the boards. Unlike other ports it may be asked from any thread; each answer is of the moment."""

    def word(self, name: str) -> int:
        """Return a word of ``layout.STORE_BOARD``."""
        ...

    def waiting_pulls(self) -> int:
        """Return how many pulls are held, over all queues."""
        ...

    def latency(self, kind: str) -> tuple[int, Sequence[int]]:
        """Return the sum, us, and the counts by ``layout.LATENCY_BOUNDS_US`` of the answers of a LatencyKind."""
        ...

    def flags(self) -> Mapping[str, bool]:
        """Return which bits of ``StoreFlag`` are set."""
        ...

    def topics(self) -> Iterator[TopicFigures]:
        """Give the topics that exist, in the order in which they were first known."""
        ...

    def groups(self) -> Iterator[GroupFigures]:
        """Give the groups with their topics, as far as those exist, sorted by when topics were first known."""
        ...

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return when that message was stored, of an expired one the queue's oldest; -1 if it cannot be read.

        May read the disk. From one thread only.
        """
        ...

    def processes(self) -> Sequence[ProcessFigures]:
        """Return the broker process and its workers, those that are not wanted too."""
        ...
