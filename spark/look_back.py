"""What lies in a queue before a range, as far as a guard against repeats must know it.

A row belongs to where its first copy lies, so a range begins with what was seen before it. That is looked for when the
first keyed row of a query turns up, and for that query: backwards from the range, in growing blocks of which only the
ids are decoded, until

- the oldest row of the query in what was read is of a batch so low that nothing before it can matter, or
- an offset is reached for which the answer is known from ranges that were read before (``snapshots``), or
- there is nothing before that: the queue's minimum, or the bound that the option ``dedupLookback`` sets.

What is met on the way is kept for all queries, so that no block is read twice for a range.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

import pyarrow as pa

from mqcore.spark.ranges import QueueRange
from mqcore.spark.repeats import UNSEEN, Seen, by_query, highest_rows
from mqcore.spark.sink_keys import parse_keys
from mqcore.spark.snapshots import Memory, Snapshot

MARGIN_BATCHES: Final = 2
"""A row of a batch so much lower ends the search. One would do if the only rows of a batch that come late were those of
the batch before; a task that does not know that it was given up may write on for a while."""
BLOCK_SIZE: Final = 1024
BLOCK_SIZE_MAX: Final = 1 << 18
"""Offsets of the first block that is read, and of the largest."""


class History(Protocol):
    """The ids of what lies before a range."""

    def bottom(self) -> int:
        """Return the offset before which nothing is looked for."""

    def ids(self, start: int, end: int) -> Iterator[pa.StringArray]:
        """Iterate over the ids in [start, end), in their order."""


class LookBack:
    """What was seen of queries before a range. Used for one pass over the range."""

    def __init__(self, history: History, part: QueueRange, *, reader_id: str, memory: Memory) -> None:
        self._history = history
        self._part = part
        self._reader_id = reader_id
        self._memory = memory
        self._snapshots = {at: one for at, one in memory.of(reader_id, part.queue).items() if at <= part.start}
        self._low = part.start  # from here to the range all has been read
        self._region: dict[int, Seen] = {}  # what is there
        self._oldest: dict[int, int] = {}  # the batch of each query's first row there
        self._block_size = BLOCK_SIZE
        self._bottom: int | None = None if part.start else 0

    def seen(self, query: int, batch: int) -> Seen:
        """Return what is known of *query* before the range, whose first row of it is of *batch*."""
        known = {at: seen for at, one in self._snapshots.items() if (seen := one.find(query)) is not None}
        base = max(known, default=None)
        floor = self._find_bottom() if base is None else base
        while self._low > floor and not self._is_old_enough(query, batch):
            self._read_block(floor)
        found = self._region.get(query, UNSEEN)
        return found if base is None else found.merge(known[base])

    def _is_old_enough(self, query: int, batch: int) -> bool:
        """Whether nothing can matter that lies before what was read."""
        if query not in self._oldest:
            return False
        return self._oldest[query] <= max(batch, self._region[query].batch) - MARGIN_BATCHES

    def _find_bottom(self) -> int:
        if self._bottom is None:
            self._bottom = self._history.bottom()
        return self._bottom

    def _read_block(self, floor: int) -> None:
        """Take in the next block below what was read, not going below *floor*."""
        start = max(floor, self._low - self._block_size)
        oldest: dict[int, int] = {}
        for ids in self._history.ids(start, self._low):
            keys = parse_keys(ids)
            if keys is None:
                continue
            for query, rows in by_query(keys):
                oldest.setdefault(query, int(keys.batches[rows[0]]))
                self._region[query] = self._region.get(query, UNSEEN).merged(*highest_rows(keys, rows))
        self._oldest |= oldest
        self._low = start
        self._block_size = min(2 * self._block_size, BLOCK_SIZE_MAX)

    def remember(self, seen: dict[int, Seen]) -> None:
        """Keep what is known at the end of the range, all of which was read, for the next range; *seen* are the queries
        that it has rows of."""
        here = self._snapshots.get(self._part.start, Snapshot())
        known, is_whole = dict(here.seen), here.is_whole
        reached = [at for at, one in self._snapshots.items() if one.is_whole and at >= self._low]
        if reached or (self._bottom is not None and self._low <= self._bottom):
            base = self._snapshots[max(reached)].seen if reached else {}
            queries = {*base, *self._region}
            known |= {one: base.get(one, UNSEEN).merge(self._region.get(one, UNSEEN)) for one in queries}
            is_whole = True
        known |= seen
        if known or is_whole:
            self._memory.put(self._reader_id, self._part.queue, self._part.end, Snapshot(known, is_whole))
