"""How old the oldest message is that a group has not consumed: a look into the log for each queue that is behind.

What was looked up is remembered, so that a group that stands still costs nothing, and looks are few in one survey.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from mqcore.broker.figures import UnconsumedQueue
from mqcore.broker.ports.figures import FigureView

LOOKS_MAX: Final = 1_000
"""Messages that are looked up in one survey, 20 microseconds each where they are in memory."""


class StoreTime(NamedTuple):
    """When the message was stored that was at *committed*; -1: it could not be read."""

    committed: int
    stored_ms: int


class LagTimes:
    """Store times of what stands next in line, by the row of its offset."""

    def __init__(self, figures: FigureView, looks_max: int = LOOKS_MAX) -> None:
        self._figures = figures
        self._looks_max = looks_max
        self._known: dict[int, StoreTime] = {}
        self._wanted: dict[int, tuple[str, UnconsumedQueue]] = {}
        self._turn = 0

    def want(self, topic: str, queue: UnconsumedQueue) -> None:
        """A queue is behind, and is to be looked at."""
        self._wanted[queue.offset_row] = (topic, queue)

    def look(self, pause: Callable[[], None]) -> Mapping[int, int]:
        """Return the store times, ms, of all that were wanted since the last look, by offset row.

        Where that would be too many, some are those of messages that have been consumed meanwhile, which are older:
        in turn, so that each is looked up in one survey or another.
        """
        rows = [row for row, (_, queue) in self._wanted.items() if self._is_new(queue)]
        first = self._turn % len(rows) if len(rows) > self._looks_max else 0
        for row in [*rows[first:], *rows[:first]][: self._looks_max]:
            pause()
            topic, queue = self._wanted[row]
            stored_ms = self._figures.store_time(topic, queue.queue_id, queue.committed)
            self._known[row] = StoreTime(queue.committed, stored_ms)
        self._turn = first + self._looks_max
        self._known = {row: known for row, known in self._known.items() if row in self._wanted}
        self._wanted = {}
        return {row: known.stored_ms for row, known in self._known.items() if known.stored_ms > 0}

    def _is_new(self, queue: UnconsumedQueue) -> bool:
        known = self._known.get(queue.offset_row)
        return known is None or known.committed != queue.committed
