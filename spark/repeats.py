"""Telling repeated rows from first copies, by the keys of ``sink_keys``.

The sink sends the rows of a task to each queue in their order, one request at a time, and a row always to the same
queue; Spark begins a micro-batch when all rows of the one before are stored. So in a queue, whatever is repeated and
by however many attempts at a time, first copies come with ascending batches, and within a batch with ascending rows of
each *lane* (task and layout). A row of a batch below the highest one so far is a repeat, and so is a row that is not
above the highest one so far of its lane. What has to be known of all that lies before a row is therefore small: for
each query the highest batch, and the highest row of each lane in it (``Seen``).

Knowing less than all never makes a first copy look like a repeat: every fact in a ``Seen`` is of a row that is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqcore.spark.sink_keys import ROWS_MAX, KeyColumns, parse_keys

NOTHING: Final = -1
"""As a batch or a row: none so far; below all others."""
_GROUPS_MAX: Final = (1 << 63) // ROWS_MAX


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of a query's rows in the first part of a queue: the highest *batch*, and in *rows* the highest row
    of each lane in that batch. Not changed once it is made."""

    batch: int = NOTHING
    rows: dict[int, int] = field(default_factory=dict)

    def merged(self, batch: int, rows: dict[int, int]) -> Seen:
        """Return what is known with a batch and the highest rows of its lanes added, in whatever order they come."""
        if batch < self.batch:
            return self
        if batch > self.batch:
            return Seen(batch, dict(rows))
        return Seen(batch, self.rows | {lane: max(row, self.rows.get(lane, NOTHING)) for lane, row in rows.items()})

    def merge(self, other: Seen) -> Seen:
        """Return what is known when both are."""
        return self.merged(other.batch, other.rows)

    def floor(self, batch: int, lane: int) -> int:
        """Return the highest row so far of a lane in *batch*, NOTHING for none."""
        return self.rows.get(lane, NOTHING) if batch == self.batch else NOTHING


UNSEEN: Final = Seen()


class RepeatGuard:
    """Tells repeats from first copies, in the rows of one queue in the order of their offsets.

    *seen_before* is asked once for each query that appears, with the batch of its first row here: what is known of its
    rows before all that the guard is shown.
    """

    def __init__(self, seen_before: Callable[[int, int], Seen]) -> None:
        self._seen_before = seen_before
        self.seen: dict[int, Seen] = {}

    def first_copies(self, ids: pa.StringArray) -> NDArray[np.bool_] | None:
        """Return, for each row, whether it is to be kept; None for all. Ids of other senders are always kept."""
        keys = parse_keys(ids)
        if keys is None:
            return None
        is_first = np.ones(len(keys.places), dtype=np.bool_)
        for query, rows in by_query(keys):
            before = self.seen.get(query)
            if before is None:
                before = self._seen_before(query, int(keys.batches[rows[0]]))
            is_first[rows], self.seen[query] = _judged(keys, rows, before)
        if is_first.all():
            return None
        kept = np.ones(len(ids), dtype=np.bool_)
        kept[keys.places] = is_first
        return kept


def by_query(keys: KeyColumns) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Iterate over the queries among *keys* and the indices of their rows there."""
    if (keys.queries == keys.queries[0]).all():
        yield int(keys.queries[0]), np.arange(len(keys.queries))
        return
    for query in np.unique(keys.queries):
        yield int(query), np.flatnonzero(keys.queries == query)


def _judged(keys: KeyColumns, rows: NDArray[np.int64], before: Seen) -> tuple[NDArray[np.bool_], Seen]:
    """Return which of the rows, all of one query, are first copies, and what is known behind them."""
    batches = keys.batches[rows]
    highest = np.maximum.accumulate(np.concatenate(([before.batch], batches)))
    is_first = batches >= highest[:-1]
    rising = rows[is_first]
    if len(rising):
        lanes = _Lanes(keys, rising)
        is_first[is_first] = lanes.ascending(before)
        before = before.merged(*lanes.highest())
    return is_first, before


def highest_rows(keys: KeyColumns, rows: NDArray[np.int64]) -> tuple[int, dict[int, int]]:
    """Return the highest batch of the rows, all of one query, and the highest row of each lane in it."""
    batches = keys.batches[rows]
    return _Lanes(keys, rows[batches == batches.max()]).highest()


class _Lanes:
    """Rows of one query, sorted by batch and lane; within a lane they stay in their order."""

    def __init__(self, keys: KeyColumns, rows: NDArray[np.int64]) -> None:
        batches, lanes = keys.batches[rows], keys.lanes[rows]
        # Rows come in long runs of the same lane, mostly: sorting those is much less than sorting rows.
        is_new = np.concatenate(([True], (batches[1:] != batches[:-1]) | (lanes[1:] != lanes[:-1])))
        heads = np.flatnonzero(is_new)
        lengths = np.diff(np.concatenate((heads, [len(rows)])))
        order = np.lexsort((lanes[heads], batches[heads]))
        sorted_batches, sorted_lanes = batches[heads[order]], lanes[heads[order]]
        is_next = (sorted_batches[1:] != sorted_batches[:-1]) | (sorted_lanes[1:] != sorted_lanes[:-1])
        starts = np.flatnonzero(np.concatenate(([True], is_next)))
        group_of_run = np.empty(len(heads), dtype=np.int64)
        group_of_run[order] = np.cumsum(np.concatenate(([0], is_next)))
        groups = np.repeat(group_of_run, lengths)
        self._batches: list[int] = sorted_batches[starts].tolist()
        self._lanes: list[int] = sorted_lanes[starts].tolist()
        self._order = np.argsort(groups, kind="stable")
        self._groups = groups[self._order]
        self._rows = keys.rows[rows][self._order]
        assert len(starts) < _GROUPS_MAX

    def ascending(self, before: Seen) -> NDArray[np.bool_]:
        """Return, in the order that the rows were given in, which ones are above all of their lane before them."""
        floors = np.array([before.floor(*lane) for lane in zip(self._batches, self._lanes, strict=True)])
        # One running maximum for all lanes: their numbers ascend, and each has room for all rows.
        base = np.arange(len(floors)) * ROWS_MAX
        numbers = base[self._groups] + self._rows
        highest = np.maximum.accumulate(np.maximum(numbers, (base + floors)[self._groups]))
        is_start = np.concatenate(([True], self._groups[1:] != self._groups[:-1]))
        previous = np.where(is_start, (base + floors)[self._groups], np.concatenate(([0], highest[:-1])))
        is_above = np.empty(len(numbers), dtype=np.bool_)
        is_above[self._order] = numbers > previous
        return is_above

    def highest(self) -> tuple[int, dict[int, int]]:
        """Return the highest batch, and the highest row of each lane in it."""
        ends = np.concatenate((np.flatnonzero(self._groups[1:] != self._groups[:-1]) + 1, [len(self._groups)]))
        starts = np.concatenate(([0], ends[:-1]))
        rows = np.maximum.reduceat(self._rows, starts).tolist()
        top = self._batches[-1]
        found = zip(self._batches, self._lanes, rows, strict=True)
        return top, {lane: row for batch, lane, row in found if batch == top}
