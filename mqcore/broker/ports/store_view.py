"""The store, as far as the broker process reads it and gives it orders."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from mqcore.store.facts import StoreFacts
from mqcore.store.queries import QueryResult
from mqcore.store.queues.op_numbers import DoneHalves
from mqcore.store.queues.units import QueueUnit


class StoreView(Protocol):
    """Reads of the store, and the few orders that an administrator gives it. A queue that does not exist is empty."""

    def facts(self) -> StoreFacts: ...

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first queue offset; -1 when the queue does not exist."""
        ...

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset of the next message; 0 when the queue does not exist."""
        ...

    def has_queue(self, topic: str, queue_id: int) -> bool: ...

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int: ...

    def read_units(self, topic: str, queue_id: int, first: int, count_max: int) -> Sequence[QueueUnit]:
        """Return consecutive units from queue offset *first* on; empty if there is none there."""
        ...

    async def done_halves(self, first: int, count_max: int) -> DoneHalves:
        """Read at most *count_max* op messages from queue offset *first* of their queue on."""
        ...

    def is_on_disk(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """True if the message is further back than memory is thought to hold; a missing one is not."""
        ...

    def look_message(self, physical_offset: int, size: int | None = None) -> bytes | None:
        """Return the raw record at *physical_offset*; None if none starts there."""
        ...

    def look_written(self, physical_offset: int) -> bytes | None:
        """Return the same of a record that may not be read yet, because it is not flushed, say.

        For who appends what follows from it, which is flushed no sooner.
        """
        ...

    def dispatched_end(self) -> int:
        """Return the physical offset before which everything is in consume queues."""
        ...

    def find_written(self, start: int, flags: Collection[int], count_max: int) -> tuple[list[int], int]:
        """Look through *count_max* records at most that are written, readable or not, from *start* on, where one is.

        Returns the physical offsets of those that have one of *flags*, and where to go on; that is the log's end or
        behind it once all are seen. Raises StoreError if the log cannot be read there.
        """
        ...

    def store_timestamp(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return when that message was stored; -1 if it cannot be read."""
        ...

    def earliest_timestamp(self, topic: str | None = None, queue_id: int = 0) -> int:
        """Return the store time of the oldest message of a queue, or of the whole store; -1 if there is none."""
        ...

    def query_message(self, topic: str, key: str, count_max: int, begin: int, end: int) -> QueryResult: ...

    async def clean_expired_consume_queues(self) -> None:
        """Drop queues whose messages are all gone from the commit log. Raises StoreError if that cannot be finished."""
        ...

    async def clean_unused_topics(self, topics: Iterable[str]) -> None:
        """Drop the queues of every topic that is not among *topics*, but for light queues (%LMQ%...).

        Raises StoreError if that cannot be finished.
        """
        ...

    async def drop_light_queue(self, topic: str) -> None:
        """Drop one light queue. Raises StoreError if that cannot be finished."""
        ...

    def light_queue_count(self) -> int:
        """How many light queues have had a message; 0 with enableLmq off."""
        ...

    def delete_expired_commit_log(self) -> None:
        """Make the next cleaning rounds look at the commit log whatever the hour is."""
        ...
