"""The entries of one index file, followed in order: the twin of _fast/queues/index_tally.pyx.

Each entry names the one before it of its slot, and each slot its newest one: what they have to be follows from the
entries alone, so that a file can be checked in one pass. Nothing here opens a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mqcore.layout import INDEX_ENTRY, INDEX_SLOT
from mqcore.store.queues.tally import BREAKS_MAX, WORD_MASK, hash_words

if TYPE_CHECKING:
    from typing_extensions import Buffer

RUNS_MAX = 1024


class ChainBreak(NamedTuple):
    """An entry, or a slot, that names another entry than the one before it; *got* and *wanted* are their numbers."""

    number: int
    got: int
    wanted: int


class OffsetRun(NamedTuple):
    """Entries, from number *first* on, whose physical offsets do not fall."""

    first: int
    first_physical: int
    last_physical: int


class IndexTally:
    """Takes the entries of one file in order. Entries on a bound of the file do not count in the sums.

    *bounds*: begin and end physical offset of the file. Records outside [log_start, log_end) do not count either.
    """

    def __init__(
        self, slot_count: int, bounds: tuple[int, int], log_first: int, log_file_size: int, log_start: int, log_end: int
    ) -> None:
        if slot_count < 1 or log_file_size < 1:
            raise ValueError(f"index: got {slot_count} slots and log files of {log_file_size} bytes")
        self.break_count = 0
        self.run_count = 0
        self._slot_count = slot_count
        self._bounds = bounds
        self._log = (log_first, log_file_size, log_start, log_end)
        self._newest: dict[int, int] = {}
        self._next = 1
        self._breaks: list[ChainBreak] = []
        self._runs: list[OffsetRun] = []
        self._sums: list[tuple[int, int, int]] = []

    def feed(self, buffer: Buffer) -> None:
        """Take the entries in *buffer*, which follow those that were taken before."""
        for key_hash, physical_offset, seconds, previous in INDEX_ENTRY.struct.iter_unpack(buffer):
            slot = key_hash % self._slot_count
            wanted = self._newest.get(slot, 0)
            if key_hash < 0 or previous != wanted:
                self._broken(ChainBreak(self._next, previous, wanted))
            self._newest[slot] = self._next
            self._follow(physical_offset)
            self._add(physical_offset, key_hash, seconds)
            self._next += 1

    def _broken(self, found: ChainBreak) -> None:
        self.break_count += 1
        if len(self._breaks) < BREAKS_MAX:
            self._breaks.append(found)

    def _follow(self, physical_offset: int) -> None:
        last = self._runs[-1] if self._runs else None
        if last is not None and physical_offset >= last.last_physical:
            self._runs[-1] = last._replace(last_physical=physical_offset)
            return
        self.run_count += 1
        if len(self._runs) < RUNS_MAX:
            self._runs.append(OffsetRun(self._next, physical_offset, physical_offset))
        else:
            self._runs[-1] = self._runs[-1]._replace(last_physical=physical_offset)

    def _add(self, physical_offset: int, key_hash: int, seconds: int) -> None:
        log_first, size, log_start, log_end = self._log
        if physical_offset in self._bounds or not log_start <= physical_offset < log_end:
            return
        file = log_first + (physical_offset - log_first) // size * size
        value = hash_words(physical_offset, key_hash, seconds)
        if self._sums and self._sums[-1][0] == file:
            self._sums[-1] = (file, self._sums[-1][1] + 1, (self._sums[-1][2] + value) & WORD_MASK)
        else:
            self._sums.append((file, 1, value))

    def slots(self, buffer: Buffer) -> tuple[int, list[ChainBreak]]:
        """Compare the slots of the file with the entries: how many are in use, and those that name another entry.

        A slot that names an entry behind the last counts as empty.
        """
        used = 0
        wrong: list[ChainBreak] = []
        for slot, (newest,) in enumerate(INDEX_SLOT.struct.iter_unpack(buffer)):
            wanted = self._newest.get(slot, 0)
            used += wanted > 0
            if newest != wanted and not (wanted == 0 and not 0 < newest < self._next) and len(wrong) < BREAKS_MAX:
                wrong.append(ChainBreak(slot, newest, wanted))
        return used, wrong

    def breaks(self) -> list[ChainBreak]:
        """Return the first entries that break their chain, BREAKS_MAX at most."""
        return list(self._breaks)

    def runs(self) -> list[OffsetRun]:
        """Return where the physical offsets fall, as runs in which they do not, RUNS_MAX at most."""
        return list(self._runs)

    def sums(self) -> list[tuple[int, int, int]]:
        """Return log file, count and sum of the entries that follow one another into the same log file."""
        return list(self._sums)
