"""Epochs of a log: who wrote which part of it, and how far two logs are one and the same.

Two logs with the same entry agree from its start to where the shorter of them ends that epoch, since all of an epoch
comes from one process in one order; and before it, since a log gets an entry only when it has all that is before it.
Epochs in which nothing was written are kept, or the search for what two logs have in common would miss them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class EpochEntry(NamedTuple):
    """An epoch, and the physical offset from which on a log has its records."""

    epoch: int
    start: int


def end_of(entries: Sequence[EpochEntry], index: int, end: int) -> int:
    """Return where the epoch at *index* ends in a log that ends at *end*."""
    return entries[index + 1].start if index + 1 < len(entries) else end


def common_point(mine: Sequence[EpochEntry], my_end: int, theirs: Sequence[EpochEntry], their_end: int) -> int | None:
    """Return the physical offset up to which two logs are the same; None if they have nothing in common.

    Entries are in the order of their epochs. A log without entries has nothing, and the common point is where the other
    one begins.
    """
    if not mine and theirs:
        return theirs[0].start
    known = {entry: index for index, entry in enumerate(theirs)}
    for index in range(len(mine) - 1, -1, -1):
        if mine[index] in known:
            return min(end_of(mine, index, my_end), end_of(theirs, known[mine[index]], their_end))
    return None


def held_by(entries: Sequence[EpochEntry], end: int) -> tuple[EpochEntry, ...]:
    """Return those of *entries* that a log up to *end* may have: it has all that is before their starts."""
    return tuple(entry for entry in entries if entry.start <= end)
