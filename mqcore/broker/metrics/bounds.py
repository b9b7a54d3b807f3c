"""How many series a label may have: those that come first have one each, all later ones are one together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

OTHERS: Final = "(others)"
"""What stands in the label of a sum; no topic and no group can be called so."""


class Tallies(NamedTuple):
    """How many values lie below each of *bounds* and not below the one before; the last count is of those above all.

    *total* is the sum of the values; None where nobody has counted it.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float | None = None


Thing = dict[str, "str | float | Tallies"]
"""One of a subject: its labels and its values by name. A value that is not known is left out."""


Key = tuple[object, ...]


class LabelBound:
    """Remembers who has a series of its own: who has one keeps it, so that no series moves into a sum.

    A sum of counts only grows, whoever of the others has gone or begun anew.
    """

    def __init__(
        self, most: int, labels: Sequence[str], counts: Sequence[str], highest: Sequence[str], pause: Callable[[], None]
    ) -> None:
        """A thing is known by its *labels*. Its *counts* only grow; of *highest* names the greatest stands for all.

        *pause* is called after each few things.
        """
        self._most = most
        self._labels = labels
        self._counts = counts
        self._highest = frozenset(highest)
        self._pause = pause
        self._shown: set[Key] = set()
        self._last: dict[Key, list[float]] = {}
        self._totals = dict.fromkeys(counts, 0.0)
        self.left_out = 0
        """How many are in the sum now."""

    def apply(self, things: Iterable[Thing]) -> list[Thing]:
        """Return *things*, all of those that there are, with one for those beyond the bound."""
        by_key: dict[Key, Thing] = {}
        for thing in things:
            by_key[tuple(thing[label] for label in self._labels)] = thing
        self._shown &= by_key.keys()  # who has gone has no series any more
        shown: list[Thing] = []
        others: dict[Key, Thing] = {}
        for key, thing in by_key.items():
            self._pause()
            if key not in self._shown and key not in self._last and len(self._shown) < self._most:
                self._shown.add(key)
            if key in self._shown:
                shown.append(thing)
            else:
                others[key] = thing
        self.left_out = len(others)
        total = self._sum(others)
        return [*shown, total] if others else shown

    def _sum(self, others: dict[Key, Thing]) -> Thing:
        total: Thing = {}
        for key, thing in others.items():
            self._pause()
            self._add_counts(key, [number(thing.get(name, 0.0)) for name in self._counts])
            for name, value in thing.items():
                if name in self._labels or name in self._totals or not isinstance(value, int | float):
                    continue
                before = number(total.get(name, 0.0))
                total[name] = max(before, value) if name in self._highest else before + value
        for key in self._last.keys() - others.keys():
            del self._last[key]
        return {**dict.fromkeys(self._labels, OTHERS), **total, **self._totals}

    def _add_counts(self, key: Key, now: list[float]) -> None:
        before = self._last.get(key, [0.0] * len(now))
        for name, last, value in zip(self._counts, before, now, strict=True):
            self._totals[name] += value - last if value >= last else value
        self._last[key] = now


def number(value: str | float | Tallies) -> float:
    """Return a value that is a number, as it must be."""
    assert isinstance(value, int | float)
    return value
