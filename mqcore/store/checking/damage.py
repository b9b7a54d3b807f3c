"""What can be wrong with a store, and what was found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

DAMAGE_MAX: Final = 10_000
"""So many are kept; more are counted."""


class DamageKind(StrEnum):
    """The kinds of damage; DAMAGE_DOCS says what each means."""

    RECORD = "record"
    FILLER = "filler"
    QUEUE_OFFSET = "queue-offset"
    FILE_MISSING = "file-missing"
    FILE_SIZE = "file-size"
    FOREIGN_FILE = "foreign-file"
    UNREADABLE = "unreadable"
    UNIT = "unit"
    UNIT_MISSING = "unit-missing"
    EXT_UNIT = "ext-unit"
    INDEX_HEADER = "index-header"
    INDEX_CHAIN = "index-chain"
    INDEX_ENTRY = "index-entry"
    CHECKPOINT = "checkpoint"
    TABLE = "table"


_K = DamageKind
DAMAGE_DOCS: Final[dict[DamageKind, str]] = {
    _K.RECORD: "no whole record lies there: magic, sizes, body CRC or stated place are wrong, or it is zeros",
    _K.FILLER: "the filler at the end of a log file has another size than what is left there",
    _K.QUEUE_OFFSET: "a record's queue offset does not follow that of the record before it in its queue",
    _K.FILE_MISSING: "a file, or the directory of a queue, is missing",
    _K.FILE_SIZE: "a file is shorter or longer than the others of its kind",
    _K.FOREIGN_FILE: "something that is no file of the store lies among its files: a broker would not start",
    _K.UNREADABLE: "the disk cannot read a part of a file",
    _K.UNIT: "a unit says another place, size or tags code than the record has, or no such record is there",
    _K.UNIT_MISSING: "a record has no unit in its consume queue",
    _K.EXT_UNIT: "a unit names an ext unit that is not there, or says another tags code or time than the record",
    _K.INDEX_HEADER: "the header of an index file contradicts its entries",
    _K.INDEX_CHAIN: "an entry or slot of an index file names another entry than the newest before it of its slot",
    _K.INDEX_ENTRY: "an entry of an index file names a record that has no such key or another time",
    _K.CHECKPOINT: "the checkpoint is newer than what it vouches for: the end of the log is missing",
    _K.TABLE: "a table of the store cannot be read",
}
assert set(DAMAGE_DOCS) == set(DamageKind)


@dataclass(frozen=True, slots=True)
class Damage:
    """A place that is wrong: *position* in the file, bytes, -1 for all of it; *physical_offset* -1 outside the log."""

    kind: DamageKind
    path: Path
    position: int
    found: str
    wanted: str
    physical_offset: int = -1

    def __str__(self) -> str:
        where = str(self.path) if self.position < 0 else f"{self.path} at {self.position}"
        return f"{self.kind}: {where}: found {self.found}, wanted {self.wanted}"

    def record(self) -> dict[str, Any]:
        """Return what is printed; these names do not change."""
        return {
            "kind": self.kind.value,
            "file": str(self.path),
            "position": None if self.position < 0 else self.position,
            "physicalOffset": None if self.physical_offset < 0 else self.physical_offset,
            "found": self.found,
            "wanted": self.wanted,
        }


class DamageList:
    """The damage that was found, each place once; DAMAGE_MAX are kept."""

    def __init__(self) -> None:
        self.count = 0
        self.kept: list[Damage] = []
        self._places: set[tuple[Path, int]] = set()

    def add(self, damage: Damage) -> None:
        place = (damage.path, damage.position)
        if place in self._places:
            return
        self.count += 1
        if len(self.kept) < DAMAGE_MAX:
            self._places.add(place)
            self.kept.append(damage)

    def add_many(self, count: int) -> None:
        """Count more damage that nobody has looked at closely."""
        self.count += count
