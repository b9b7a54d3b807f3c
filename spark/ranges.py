"""Queue ranges: what a query reads, cut into the partitions of Spark.

A range is half open. Reading it twice gives the same rows, or raises: retention may have taken messages in between.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from pyspark.sql.datasource import InputPartition

from mqcore.protocol.message import MessageQueue
from mqcore.spark.offsets import Offsets

READER_ID_SIZE: Final = 8


@dataclass(frozen=True)
class QueueRange(InputPartition):
    """The messages of a queue from offset *start* up to, and without, *end*."""

    topic: str
    broker_name: str
    queue_id: int
    start: int
    end: int

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(self.topic, self.broker_name, self.queue_id)

    @property
    def size(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker_name}/{self.queue_id} [{self.start}, {self.end})"


def new_reader_id() -> str:
    """Return a name for a reader that no other one has, of this query or another; its copies on executors keep it."""
    return os.urandom(READER_ID_SIZE).hex()


def plan_ranges(
    start: Offsets, end: Offsets, *, min_partitions: int | None = None, size_max: int | None = None
) -> list[QueueRange]:
    """Return the ranges between two maps of offsets, ordered by queue and offset; empty ones are left out.

    Ranges above *size_max* offsets are cut into equal parts. If there are still fewer than *min_partitions*, each range
    is cut into parts in proportion to its size.
    """
    whole = [
        QueueRange(queue.topic, queue.broker_name, queue.queue_id, start[queue], end[queue])
        for queue in sorted(end)
        if end[queue] > start[queue]
    ]
    counts = [1 if size_max is None else -(-one.size // size_max) for one in whole]
    if min_partitions is not None and sum(counts) < min_partitions:
        counts = _shared_out(whole, counts, min_partitions)
    return [part for one, count in zip(whole, counts, strict=True) for part in _cut(one, count)]


def _shared_out(whole: Sequence[QueueRange], counts: Sequence[int], wanted: int) -> list[int]:
    """Return at least *counts* parts of each range, *wanted* in all if there are so many offsets, by size."""
    total = sum(one.size for one in whole)
    shares = [min(one.size, max(count, one.size * wanted // total)) for one, count in zip(whole, counts, strict=True)]
    # What rounding down has left goes to the ranges whose parts are the largest now.
    for _ in range(max(0, min(wanted, total) - sum(shares))):
        index = max(range(len(whole)), key=lambda at: whole[at].size / shares[at] if shares[at] < whole[at].size else 0)
        shares[index] += 1
    return shares


def _cut(one: QueueRange, count: int) -> list[QueueRange]:
    edges = [one.start + one.size * number // count for number in range(count + 1)]
    return [QueueRange(one.topic, one.broker_name, one.queue_id, low, high) for low, high in pairwise(edges)]


def share_out(start: Offsets, available: Offsets, limit: int) -> Offsets:
    """Return ends for *limit* offsets in all, shared among the queues by their backlog.

    Each queue that has any gets one at least, so that a small queue is not starved by a large one; that may go over the
    limit, by less than the number of queues.
    """
    backlog = {queue: max(0, end - start[queue]) for queue, end in available.items()}
    total = sum(backlog.values())
    if total <= limit:
        return dict(available)
    return {
        queue: start[queue] + min(size, max(1, size * limit // total)) if size else start[queue]
        for queue, size in backlog.items()
    }
