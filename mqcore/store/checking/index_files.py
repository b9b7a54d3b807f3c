"""The index files of a store as a check reads them. Their geometry is found out: no file says it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mqcore.layout import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT
from mqcore.store.backup.streams import Reading
from mqcore.store.checking.damage import Damage, DamageKind
from mqcore.store.checking.kernels import IndexTally
from mqcore.store.checking.queue_files import LogBounds, Sums
from mqcore.store.queues.index_file import IndexGeometry, IndexHeader
from mqcore.store.queues.index_service import is_index_name
from mqcore.store.queues.tally import WORD_MASK, Coverage

CHUNK_SIZE: Final = INDEX_ENTRY.size * 100_000
DEFAULT_RATIO: Final = IndexGeometry().entry_count // IndexGeometry().slot_count
"""Entries for each slot, by default; most who change the one change the other."""


PROBED: Final = 16
CANDIDATES_MAX: Final = 1000


@dataclass(slots=True)
class IndexFileCheck:
    """One index file: what its header says, and what its entries add up to."""

    path: Path
    header: IndexHeader
    geometry: IndexGeometry
    sums: Sums = field(default_factory=dict)

    @property
    def entry_end(self) -> int:
        """The number behind that of the last entry."""
        return min(self.header.index_count, self.geometry.entry_count)

    @property
    def coverage(self) -> Coverage:
        header = self.header
        return Coverage(header.begin_physical_offset, header.end_physical_offset, header.begin_timestamp)

    @property
    def bounds(self) -> tuple[int, int]:
        return self.header.begin_physical_offset, self.header.end_physical_offset

    def entry_position(self, number: int) -> int:
        return self.geometry.entry_position(number)


def list_index_files(directory: Path, damage: list[Damage]) -> list[IndexFileCheck]:
    """Return the files of *directory*, the oldest first; what is wrong with the listing goes into *damage*."""
    if not directory.is_dir():
        return []
    found = []
    sizes: dict[int, int] = {}
    names = sorted((path for path in directory.iterdir() if is_index_name(path.name)), key=lambda path: int(path.name))
    for path in names:
        size = path.stat().st_size
        sizes[size] = sizes.get(size, 0) + 1
    usual = max(sizes, key=lambda size: (sizes[size], size), default=0)
    geometry: IndexGeometry | None = None
    for path in names:
        size = path.stat().st_size
        if size != usual or size < INDEX_HEADER.size:
            damage.append(Damage(DamageKind.FILE_SIZE, path, -1, f"{size} bytes", f"{usual}"))
            continue
        header = read_header(path)
        geometry = find_geometry(path, header, size, geometry)
        if geometry is None:
            found_text = f"{header.index_count - 1} entries from {header.begin_physical_offset} on"
            wanted = "a first entry of that record where slots end"
            damage.append(Damage(DamageKind.INDEX_HEADER, path, 0, found_text, wanted))
            continue
        found.append(IndexFileCheck(path, header, geometry))
    return found


def read_header(path: Path) -> IndexHeader:
    """Return the header of a file that is long enough."""
    return IndexHeader.read(read_range(path, 0, INDEX_HEADER.size))


def read_range(path: Path, position: int, size: int) -> memoryview:
    """Return *size* bytes of *path*, zeros where it ends before."""
    buffer = memoryview(bytearray(size))
    with Reading(path) as reading:
        reading.read(buffer, position)
    return buffer


def find_geometry(path: Path, header: IndexHeader, size: int, known: IndexGeometry | None) -> IndexGeometry | None:
    """Return how many slots and entries a file has: those that put its first entry where there is one.

    *known*: those of another file. None if no geometry does.
    """
    usual = IndexGeometry(
        *_shape(size, (size - INDEX_HEADER.size) // (INDEX_SLOT.size + DEFAULT_RATIO * INDEX_ENTRY.size))
    )
    for geometry in [one for one in (known, usual) if one is not None and one.file_size == size]:
        if header.index_count <= 1 or _begins_at(path, header, geometry):
            return geometry
    if header.index_count <= 1:
        return usual if usual.file_size == size else None
    return _search(path, header, size)


def _shape(size: int, slot_count: int) -> tuple[int, int]:
    slots = max(1, slot_count)
    return slots, max(2, (size - INDEX_HEADER.size - slots * INDEX_SLOT.size) // INDEX_ENTRY.size)


def _begins_at(path: Path, header: IndexHeader, geometry: IndexGeometry) -> bool:
    """Whether the newest entries are where their slots say with *geometry*, most of them: one may be damaged."""
    end = min(header.index_count, geometry.entry_count)
    first = max(1, end - PROBED)
    data = read_range(path, geometry.entry_position(first), (end - first) * INDEX_ENTRY.size)
    if any(read_range(path, geometry.entry_position(0), INDEX_ENTRY.size)):
        return False
    fitting = 0
    for number, (key_hash, _, seconds, previous) in enumerate(INDEX_ENTRY.struct.iter_unpack(data), first):
        if key_hash >= 0 and seconds >= 0 and 0 <= previous < number:
            position = geometry.slot_position(key_hash)
            (newest,) = INDEX_SLOT.struct.unpack(read_range(path, position, INDEX_SLOT.size))
            fitting += number <= newest < end
    return 2 * fitting > end - first


def _search(path: Path, header: IndexHeader, size: int) -> IndexGeometry | None:
    """Try every number of slots that puts an entry of the first or the last record where there is one."""
    data = read_range(path, 0, size)
    words = np.frombuffer(data[: size // 4 * 4], dtype=">u4")
    for number, place in (
        (1, header.begin_physical_offset), (header.index_count - 1, header.end_physical_offset),
    ):  # fmt: skip
        found = np.flatnonzero((words[:-1] == place >> 32) & (words[1:] == place & 0xFFFFFFFF))
        # The offset stands behind the hash of its entry, and entry 0 has a place.
        slot_bytes = 4 * found.astype(np.int64) - 4 - INDEX_ENTRY.size * number - INDEX_HEADER.size
        if place <= 0:
            continue  # zeros are everywhere
        for slots in (slot_bytes[slot_bytes > 0][:CANDIDATES_MAX] // INDEX_SLOT.size).tolist():
            geometry = IndexGeometry(*_shape(size, slots))
            if geometry.file_size == size and _begins_at(path, header, geometry):
                return geometry
    return None


def read_entries(file: IndexFileCheck) -> Iterator[tuple[int, memoryview]]:
    """Give the entries of a file in chunks, with the number of each chunk's first."""
    with Reading(file.path) as reading:
        number = 1
        while number < file.entry_end:
            count = min(CHUNK_SIZE // INDEX_ENTRY.size, file.entry_end - number)
            buffer = memoryview(bytearray(count * INDEX_ENTRY.size))
            reading.read(buffer, file.entry_position(number))
            yield number, buffer
            number += count


def sum_index(file: IndexFileCheck, log: LogBounds, *, is_still: bool) -> list[Damage]:
    """Follow all entries of a file, and add them up; returns what contradicts itself. Raises OSError.

    With *is_still* nobody appends: slots and header must fit the entries.
    """
    header = file.header
    low, high = max(log.start, header.begin_physical_offset), min(log.end, header.end_physical_offset)
    tally = IndexTally(file.geometry.slot_count, file.bounds, log.first, log.file_size, low, max(low, high))
    for _, chunk in read_entries(file):
        tally.feed(chunk)
    file.sums.clear()
    for start, count, total in tally.sums():
        before = file.sums.get(start, (0, 0))
        file.sums[start] = (before[0] + count, (before[1] + total) & WORD_MASK)
    odd: set[int] = set()
    damage = list(_chain_damage(file, tally, odd))
    if is_still and file.entry_end > 1:
        damage += _bounds_damage(file, log.end)
    if is_still:
        size = file.geometry.slot_count * INDEX_SLOT.size
        used, wrong = tally.slots(read_range(file.path, INDEX_HEADER.size, size))
        for slot in wrong:
            if {slot.got, slot.wanted} & odd:
                continue
            position = INDEX_HEADER.size + INDEX_SLOT.size * slot.number
            found, wanted = f"newest entry {slot.got}", f"{slot.wanted}"
            damage.append(Damage(DamageKind.INDEX_CHAIN, file.path, position, found, wanted))
        if used != header.used_slot_count and not tally.break_count:
            found, wanted = f"{header.used_slot_count} slots in use", f"{used}"
            position = INDEX_HEADER.offsets["used_slot_count"]
            damage.append(Damage(DamageKind.INDEX_HEADER, file.path, position, found, wanted))
    return damage


def _bounds_damage(file: IndexFileCheck, log_end: int) -> Iterator[Damage]:
    """Give the bounds of a file that are not those of its first and last entry; after a cut they may be less."""
    for name, number in (("begin_physical_offset", 1), ("end_physical_offset", file.entry_end - 1)):
        stated, place = getattr(file.header, name), read_entry(file, number)[1]
        if stated != place and place < log_end:
            found, wanted = f"{name.replace('_', ' ')} {stated}", f"{place}, as entry {number} says"
            yield Damage(DamageKind.INDEX_HEADER, file.path, INDEX_HEADER.offsets[name], found, wanted)


def _chain_damage(file: IndexFileCheck, tally: IndexTally, odd: set[int]) -> Iterator[Damage]:
    """Give the entries that break their chain, and note them in *odd*: others then seem to, because of them."""
    for broken in tally.breaks():
        if broken.got != broken.wanted and _is_put_twice(file, broken.number, broken.wanted, broken.got):
            continue
        if {broken.wanted, broken.got} & odd:
            continue
        odd.add(broken.number)
        found, wanted = f"entry {broken.number} names {broken.got}", f"{broken.wanted}"
        yield Damage(DamageKind.INDEX_CHAIN, file.path, file.entry_position(broken.number), found, wanted)


def _is_put_twice(file: IndexFileCheck, number: int, wanted: int, got: int) -> bool:
    """Whether entry *wanted*, which *number* passes over, is the same one: its writer was killed before the slot."""
    if not 0 < wanted < number:
        return False
    one, other = read_entry(file, number), read_entry(file, wanted)
    return bool(one[:2] == other[:2] and other[3] == got)


def all_entries(file: IndexFileCheck) -> NDArray[Any]:
    """Return all entries of a file, from number 1 on: shape (n,), dtype INDEX_ENTRY.dtype."""
    chunks = [np.frombuffer(chunk, dtype=INDEX_ENTRY.dtype) for _, chunk in read_entries(file)]
    return np.concatenate(chunks) if chunks else np.empty(0, dtype=INDEX_ENTRY.dtype)


def bound_entries(file: IndexFileCheck, place: int, numbers: Iterable[int]) -> list[tuple[int, int, int]]:
    """Return number, key hash and seconds of the entries *numbers*, as long as they are of the record at *place*."""
    found: list[tuple[int, int, int]] = []
    for number in numbers:
        key_hash, physical_offset, seconds = read_entry(file, number)[:3]
        if physical_offset != place:
            break
        found.append((number, key_hash, seconds))
    return found


def read_entry(file: IndexFileCheck, number: int) -> tuple[int, ...]:
    """Return one entry as stored."""
    return INDEX_ENTRY.struct.unpack(read_range(file.path, file.entry_position(number), INDEX_ENTRY.size))
