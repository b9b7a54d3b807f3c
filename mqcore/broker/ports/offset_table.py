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

    def remove(self, group: str, topic: str) -> None:
        """Forget every queue of the pair; nothing happens if there is none."""
        ...

    def items(self, group: str | None = None, topic: str | None = None) -> Iterable[tuple[str, str, int, int]]:
        """Iterate over a snapshot of (group, topic, queue_id, offset), of one group or topic if they are given."""
        ...

    def text(self, with_light: bool, foreign: bytes) -> Buffer | None:
        """Return the text of consumerOffset.json, *foreign* entries included; None if only ``items`` can tell.

        May be called in a thread, and lets others run.
        """
        ...
