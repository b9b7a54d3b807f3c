"""What a reader of the store may look at: the bounds that the writers have published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


class Watermarks(Protocol):
    """Bounds of the commit log, bytes, and of the queues, queue offsets; each answer is true when it is given."""

    def commit_log_min(self) -> int:
        """Return the physical offset of the oldest byte that is kept."""
        ...

    def commit_log_max(self) -> int:
        """Return the physical offset behind the newest readable record."""
        ...

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """Return min and max queue offset (max: behind the newest readable unit), or None for an unknown queue."""
        ...

    def queue_births(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return where in the log the queue was born, bytes, and the birth of the queue whose files are there.

        Records of the queue that start before its birth are of one that was dropped; 0 for one that never was. Another
        birth of the files makes mappings of them stale.
        """
        ...

    def young_units(self, topic: str, queue_id: int) -> bytes | None:
        """Return all units of a new queue whose first file is still being made; None: they are in files.

        Bounds that were asked for before do not go beyond them.
        """
        ...


@dataclass(frozen=True, slots=True)
class FixedWatermarks:
    """Bounds that do not move: of a store that nobody writes."""

    log_min: int
    log_max: int
    queues: Mapping[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    births: Mapping[tuple[str, int], int] = field(default_factory=dict)

    def commit_log_min(self) -> int:
        return self.log_min

    def commit_log_max(self) -> int:
        return self.log_max

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        return self.queues.get((topic, queue_id))

    def queue_births(self, topic: str, queue_id: int) -> tuple[int, int]:
        born = self.births.get((topic, queue_id), 0)
        return born, born

    def young_units(self, topic: str, queue_id: int) -> bytes | None:
        return None
