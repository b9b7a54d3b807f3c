"""Committed offsets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from typing_extensions import Buffer


class OffsetTable(Protocol):
    """Committed offsets by (group, topic, queue id). Written by this process and by the pull worker."""

    def get(self, group: str, topic: str, queue_id: int) -> int | None: ...

    def pulled(self, group: str, topic: str, queue_id: int) -> int:
        """Where the last answer to a pull let it go on; 0 if there was none since the start."""
        ...

    def put(self, group: str, topic: str, queue_id: int, offset: int) -> None: ...

    def believed(self, group: str, topic: str, queue_id: int, offset: int) -> int:
        """Return what is to be stored when a client commits *offset*.

        Less, if the group has read that of a log that had more than this one.
        """
        ...

    async def remove(self, group: str | None, topic: str | None) -> None:
        """Forget every queue of the pair, None meaning any; nothing happens if there is none."""
        ...

    def take_changed(self) -> Iterable[tuple[str, str, int, int]]:
        """Take (group, topic, queue_id, offset) of what was committed since the last time; -1: it was taken away.

        Of brokers of a failover group alone; others are not told.
        """
        ...

    def items(self) -> Iterable[tuple[str, str, int, int]]:
        """Iterate over a snapshot of (group, topic, queue_id, offset). There may be a million of them."""
        ...

    async def find(self, group: str | None, topic: str | None) -> list[tuple[str, str, int, int]]:
        """Return those of one group or topic, or of one pair. The event loop goes on meanwhile."""
        ...

    async def pairs(self) -> list[tuple[str, str]]:
        """Return each (group, topic) that has offsets. The event loop goes on meanwhile."""
        ...

    def text(self, with_light: bool, foreign: bytes, pretty: bool) -> Buffer | None:
        """Return the table as JSON, *foreign* entries included; None if only ``items`` can tell.

        With *pretty* it is the text of consumerOffset.json.

        May be called in a thread, and lets others run.
        """
        ...

    def slow_groups(self, behind_max: int, since: int) -> list[str]:
        """Return the groups that have read more than *behind_max* bytes behind the commit log's end.

        What counts is the last answer for each of their queues, if it was given from *since*, ms, on. May be called
        in a thread, and lets others run.
        """
        ...
