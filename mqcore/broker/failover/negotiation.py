"""How a log becomes the start of its master's: what a slave does about the epochs of both, before it copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mqcore.protocol.ha_bodies import EpochCache
from mqcore.store.epochs import EpochEntry, common_point


@dataclass(frozen=True, slots=True)
class GoOn:
    """The log is the start of the master's. An empty one begins at *start*."""

    start: int


@dataclass(frozen=True, slots=True)
class CutTo:
    """What is behind *point* the master does not have."""

    point: int


@dataclass(frozen=True, slots=True)
class StartOver:
    """Neither has the place from which on both are one: this log is to be emptied. *why* in words."""

    why: str


@dataclass(frozen=True, slots=True)
class Clash:
    """It may not be emptied, or cut: an operator has to look. *why* in words."""

    why: str


Meeting = GoOn | CutTo | StartOver | Clash


def entries_of(cache: EpochCache) -> tuple[EpochEntry, ...]:
    """Return the epochs of another broker's log."""
    return tuple(EpochEntry(entry.epoch, entry.start_offset) for entry in cache.epoch_list)


def meet(mine: Sequence[EpochEntry], first: int, end: int, master: EpochCache, *, is_in_sync: bool) -> Meeting:
    """Compare a log that has *mine* and lies from *first* to *end* with that of *master*.

    *is_in_sync*: the group counts on what it has, and it is not to be emptied.
    """
    masters_first = master.min_offset or 0
    if not mine:
        if end > first:
            return Clash("its messages were stored before it was in this group; empty the store to have it join")
        return GoOn(masters_first)
    point = common_point(mine, end, entries_of(master), master.max_offset)
    if point is None:
        why = "it has no epoch in common with its master"
    elif point < masters_first:
        why = f"it is the master's up to {point}, and the master's first file begins at {masters_first}"
    elif point < first:
        why = f"it is the master's up to {point}, and its own first file begins at {first}"
    else:
        return GoOn(masters_first) if point == end else CutTo(point)
    return Clash(f"{why}; it counts as in sync") if is_in_sync else StartOver(why)
