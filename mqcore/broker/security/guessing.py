"""Clients that guess keys are slowed down: by address, the longer the more often they were wrong.

An answer to a wrong signature comes late. While many of them are due to one address, its connections that have not
shown a good signature yet are closed, so that no more can be tried by asking side by side. One that has is heard.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from mqcore.broker.ports import Clock

FREE_FAILURES: Final = 3
"""So many wrong signatures cost nothing: somebody may have mistyped his key."""

FIRST_DELAY_S: Final = 0.1
DELAY_S_MAX: Final = 10.0
FORGOTTEN_AFTER_MS: Final = 600_000
ADDRESSES_MAX: Final = 4096
PENDING_OF_ONE_MAX: Final = 8
PENDING_MAX: Final = 1024


@dataclass(slots=True)
class Guesser:
    """One address: how often it was wrong, when last, and how many answers are due to it."""

    failures: int = 0
    failed_at: int = 0
    pending: int = 0


class Guessers:
    """Who was wrong lately, a bounded number of addresses; who was wrong longest ago is forgotten first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_address: OrderedDict[str, Guesser] = OrderedDict()
        self._pending = 0

    def __len__(self) -> int:
        return len(self._by_address)

    def must_leave(self, address: str) -> bool:
        """Whether so many late answers are due, to *address* or to all together, that nobody new there is heard."""
        guesser = self._by_address.get(address)
        return guesser is not None and (guesser.pending >= PENDING_OF_ONE_MAX or self._pending >= PENDING_MAX)

    def note(self, address: str) -> float:
        """A signature from *address* was wrong; how many seconds the answer is to wait."""
        now = self._clock()
        guesser = self._by_address.pop(address, None)
        if guesser is None or (now - guesser.failed_at >= FORGOTTEN_AFTER_MS and not guesser.pending):
            guesser = Guesser()
        guesser.failures += 1
        guesser.failed_at = now
        self._by_address[address] = guesser
        if len(self._by_address) > ADDRESSES_MAX:
            self._by_address.popitem(last=False)
        return delay_s(guesser.failures)

    def wait_begins(self, address: str) -> Guesser | None:
        """A late answer is due to *address*; what is returned is for ``wait_ends``."""
        guesser = self._by_address.get(address)
        if guesser is not None:
            guesser.pending += 1
            self._pending += 1
        return guesser

    def wait_ends(self, guesser: Guesser | None) -> None:
        if guesser is not None:
            guesser.pending -= 1
            self._pending -= 1


def delay_s(failures: int) -> float:
    """How long the answer to the wrong signature of that number waits."""
    if failures <= FREE_FAILURES:
        return 0.0
    return float(min(DELAY_S_MAX, FIRST_DELAY_S * 2 ** min(failures - FREE_FAILURES - 1, 16)))
