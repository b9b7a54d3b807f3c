"""Where the sums of log and consume queues, or of log and index, differ: rows of both sides, place by place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mqcore.errors import CorruptRecordError
from mqcore.layout import BLANK_RECORD, INDEX_ENTRY, MESSAGE_MAGIC_V1, RECORD_SIZE_MIN
from mqcore.store.backup.streams import Reading
from mqcore.store.checking.damage import Damage, DamageKind, DamageList
from mqcore.store.checking.index_files import IndexFileCheck, all_entries, bound_entries, read_range
from mqcore.store.checking.kernels import LogTally
from mqcore.store.checking.log_check import LogResult
from mqcore.store.checking.log_part import Window
from mqcore.store.checking.queue_files import QueueFiles, QueueKey, read_ext_units, read_unit, unit_place, units_of
from mqcore.store.codec import decode_record, index_key_hash, property_value
from mqcore.store.log.record import Record
from mqcore.store.queues.tally import Coverage, seconds_between
from mqcore.store.reader_files import FoundFiles

PROBED: Final = 16
NAMED_MAX: Final = 1000
"""So many of one queue and log file are looked at one by one; the rest is counted."""


@dataclass(slots=True)
class Comparing:
    """Compares what was found to differ; *make_tally* gives a tally that knows the queues and checks no CRC."""

    files: FoundFiles
    log: LogResult
    make_tally: Callable[[], LogTally]
    damage: DamageList

    # The log's side

    def _feed(self, tally: LogTally, low: int, high: int) -> None:
        """Let *tally* take the whole records in [low, high) once more."""
        for stretch in self.log.stretches:
            start, end = max(low, stretch.start), min(high, stretch.end)
            if start >= end:
                continue
            file_start = self.files.start_of(stretch.start)
            with Reading(self.files.path_of(file_start)) as reading:
                window = Window(reading, stretch.start - file_start, stretch.end - file_start, lambda size: None)
                at = stretch.start
                window.read_on(at - file_start)
                while at < stretch.end:
                    done = tally.feed(window.view(at - file_start), at).valid_size
                    at += done
                    if at < stretch.end and (window.is_last and not done):
                        break  # it has changed since: expired, or damaged more
                    if at < stretch.end and not window.is_last:
                        window.read_on(at - file_start, 0 if done else 2 * len(window.view(at - file_start)))

    def record_at(self, physical_offset: int) -> Record | None:
        """Return the whole record that starts there, its CRC not looked at; None if there is none."""
        start = self.files.start_of(physical_offset)
        if start not in self.files.starts:
            return None
        path, position = self.files.path_of(start), physical_offset - start
        try:
            size, magic = BLANK_RECORD.struct.unpack(read_range(path, position, BLANK_RECORD.size))
            if magic != MESSAGE_MAGIC_V1 or not RECORD_SIZE_MIN <= size <= self.files.file_size - position:
                return None
            record = decode_record(read_range(path, position, size), physical_offset, False)
        except (CorruptRecordError, OSError):
            return None
        return record if record.physical_offset == physical_offset else None

    # Consume queues

    def compare_units(self, file: int, queues: list[QueueFiles], high: int) -> bool:
        """Name what differs between the records of the log file that starts at *file* and the units of *queues*.

        Only records before *high* count. Returns whether anything does.
        """
        low, high = max(file, self.log.start), min(file + self.files.file_size, high)
        tally = self.make_tally()
        for queue in queues:
            tally.want(queue.key[0].encode(), queue.key[1])
        self._feed(tally, low, high)
        rows = tally.unit_rows()
        before = self.damage.count
        for number, queue in enumerate(queues):
            dead_before = self.log.queues[queue.key].dead_before if queue.key in self.log.queues else 0
            own = rows[(rows["queue"] == number) & (rows["physical_offset"] >= max(low, dead_before))]
            self._compare_queue(queue, own[own["physical_offset"] < high], low, high)
        return self.damage.count > before

    def _compare_queue(self, queue: QueueFiles, rows: NDArray[Any], low: int, high: int) -> None:
        offsets, units = units_of(queue, low, high)
        codes, times = read_ext_units(queue, units["tags_code"].astype(np.int64))
        order = np.argsort(rows["queue_offset"], kind="stable")
        rows = rows[order]
        place = np.searchsorted(rows["queue_offset"], offsets)
        has_row = place < len(rows)
        row = rows[np.minimum(place, max(0, len(rows) - 1))] if len(rows) else np.zeros(len(offsets), rows.dtype)
        is_there = (
            has_row
            & (row["queue_offset"] == offsets)
            & (row["physical_offset"] == units["physical_offset"])
            & (row["record_size"] == units["record_size"])
        )
        is_right = is_there & (row["tags_code"] == codes) & ((times == -1) | (times == row["store_timestamp"]))
        wrong = np.flatnonzero(~is_right)
        for index in wrong[:NAMED_MAX].tolist():
            is_ext = bool(is_there[index]) and times[index] != -1
            self._name_unit(queue, int(offsets[index]), int(codes[index]), int(times[index]), row[index], is_ext)
        self.damage.add_many(max(0, len(wrong) - NAMED_MAX))
        # A record that a wrong unit leads to has one, whatever queue offset it states.
        is_named = np.isin(rows["physical_offset"], units["physical_offset"][wrong])
        missing = rows[~np.isin(rows["queue_offset"], offsets) & ~is_named]
        for one in missing[:NAMED_MAX]:
            self._name_missing(queue, one)
        self.damage.add_many(max(0, len(missing) - NAMED_MAX))

    def _name_unit(self, queue: QueueFiles, queue_offset: int, code: int, time: int, row: Any, is_ext: bool) -> None:
        """Say what is wrong with the unit at *queue_offset*; *row* is of the record of that place, if there is one."""
        files = queue.found_files()
        path, position = unit_place(files, queue_offset)
        if is_ext:
            found = "no ext unit" if time == -2 else f"an ext unit of tags code {code}, time {time}"
            wanted = f"tags code {row['tags_code']}, time {row['store_timestamp']}"
            self.damage.add(Damage(DamageKind.EXT_UNIT, path, position, f"unit {queue_offset}: {found}", wanted))
            return
        unit = read_unit(files, queue_offset)
        if unit is None or self.log.is_damaged(unit[0]):
            return
        found = f"unit {queue_offset}: {describe(*unit)}"
        if len(row.shape) == 0 and int(row["queue_offset"]) == queue_offset and int(row["record_size"]) > 0:
            wanted = describe(int(row["physical_offset"]), int(row["record_size"]), int(row["tags_code"]))
        else:
            wanted = self._what_is_at(unit[0], queue.key)
        self.damage.add(Damage(DamageKind.UNIT, path, position, found, wanted, unit[0]))

    def _what_is_at(self, physical_offset: int, key: QueueKey) -> str:
        record = self.record_at(physical_offset)
        if record is None:
            return f"a record of {key[0]}/{key[1]}, and none starts there"
        topic = record.topic.decode(errors="replace")
        return (
            f"a record of {key[0]}/{key[1]} and that queue offset, and there is one of {topic}/{record.queue_id}, "
            f"queue offset {record.queue_offset}, {record.total_size} bytes"
        )

    def _name_missing(self, queue: QueueFiles, row: Any) -> None:
        files = queue.found_files()
        queue_offset = int(row["queue_offset"])
        path, position = unit_place(files, queue_offset)
        wanted = describe(int(row["physical_offset"]), int(row["record_size"]), int(row["tags_code"]))
        unit = read_unit(files, queue_offset)
        if unit is not None and unit[0] >= 0 and unit[1] > 0:
            found = f"unit {queue_offset}: {describe(*unit)}"
            self.damage.add(Damage(DamageKind.UNIT, path, position, found, wanted, int(row["physical_offset"])))
            return
        found = "no file" if unit is None else "nothing written"
        found = f"unit {queue_offset}: {found}"
        self.damage.add(Damage(DamageKind.UNIT_MISSING, path, position, found, wanted, int(row["physical_offset"])))

    def name_behind(self, queue: QueueFiles, end: int) -> None:
        """Name the first unit of a queue that leads behind the log, and count the others."""
        offsets, units = units_of(queue, 0, 1 << 62)
        index = np.flatnonzero(units["physical_offset"] + units["record_size"].astype(np.int64) > end)
        index = index[[not self.log.is_damaged(int(units["physical_offset"][one])) for one in index.tolist()]]
        if not len(index):
            return
        first = int(index[0])
        path, position = unit_place(queue.found_files(), int(offsets[first]))
        values = units[first]
        found = f"unit {int(offsets[first])}: {describe(*(int(value) for value in values))}"
        if len(index) > 1:
            found += f", and {len(index) - 1} more units"
        place = int(values["physical_offset"])
        self.damage.add(Damage(DamageKind.UNIT, path, position, found, f"records before the log's end, {end}", place))

    # Index

    def compare_keys(
        self, file: int, indexes: list[IndexFileCheck], coverage: list[Coverage], end: int
    ) -> tuple[int, int]:
        """Name what differs between the keys of the records of a log file and the entries of *indexes*.

        Returns how many keys have no entry although the files reach over them, and how many entries are of records that
        the log had before its end was cut. Both happen to stores in order: an index that was off for a while, a log
        that lost a tail that nobody was promised.
        """
        low, high = max(file, self.log.start), min(file + self.files.file_size, end)
        tally = self.make_tally()
        tally.want_keys()
        self._feed(tally, low, high)
        keys = tally.key_rows()
        known = _pairs(keys["physical_offset"], keys["key_hash"])
        order = np.argsort(known, order=("place", "hash"))
        known, keys = known[order], keys[order]
        present = [known[:0]]
        stale = 0
        for number, index in enumerate(indexes):
            entries = all_entries(index)
            places = entries["physical_offset"].astype(np.int64)
            own = np.flatnonzero((places >= low) & (places < high))
            if not len(own):
                continue
            pairs = _pairs(places[own], entries["key_hash"][own])
            at = _find(known, pairs)
            present.append(pairs[at >= 0])
            stale += self._name_entries(index, indexes[number + 1 :], entries, places, own, at, keys)
        missing = keys[_lacking(known, np.concatenate(present))]
        inside = np.zeros(len(missing), dtype=bool)
        for cover in coverage:
            inside |= (missing["physical_offset"] >= cover[0]) & (missing["physical_offset"] <= cover[1])
        missing = missing[inside]
        return self._name_unindexed(missing, indexes), stale

    def _name_entries(
        self, index: IndexFileCheck, later: list[IndexFileCheck], entries: NDArray[Any], places: NDArray[np.int64],
        own: NDArray[np.int64], at: NDArray[np.int64], keys: NDArray[Any],
    ) -> int:  # fmt: skip
        """Name the entries *own* that lead to no such key, or say another time; returns how many a cut has left."""
        begin = index.header.begin_timestamp
        stamps = keys["store_timestamp"][np.maximum(at, 0)] if len(keys) else np.zeros(len(at), np.int64)
        wanted = np.minimum(np.maximum(0, (stamps - begin) // 1000), 0x7FFFFFFF) if begin > 0 else np.zeros_like(stamps)
        is_late = (at >= 0) & (entries["seconds_since_begin"][own] != wanted) & (own > 0)
        for number in own[is_late][:NAMED_MAX].tolist():
            entry = entries[number]
            stamp = int(stamps[np.searchsorted(own, number)])
            found = f"entry {number + 1}: {int(entry['seconds_since_begin'])} s since the file began"
            text = f"{seconds_between(begin, stamp)}"
            self._add_entry(index, number, found, text, int(entry["physical_offset"]))
        after = min([one.header.begin_physical_offset for one in later], default=1 << 62)
        # The smallest offset behind each entry: what was indexed again from there on has passed it by.
        least = np.minimum.accumulate(np.append(places, after)[::-1])[::-1][1:]
        stale = 0
        unknown = [number for number in own[at < 0].tolist() if not self.log.is_damaged(int(places[number]))]
        for number in unknown[:NAMED_MAX]:
            place = int(places[number])
            if int(least[number]) < place:
                stale += 1
                continue
            found = f"entry {number + 1}: key hash {int(entries[number]['key_hash'])} of a record at {place}"
            self._add_entry(index, number, found, "a record there that has such a key", place)
        self.damage.add_many(max(0, len(unknown) - NAMED_MAX))
        return stale

    def _add_entry(self, index: IndexFileCheck, number: int, found: str, wanted: str, place: int) -> None:
        position = index.entry_position(number + 1)
        self.damage.add(Damage(DamageKind.INDEX_ENTRY, index.path, position, found, wanted, place))

    def _name_unindexed(self, missing: NDArray[Any], indexes: Iterable[IndexFileCheck]) -> int:
        """Name the entries that stand where keys of *missing* should; returns how many have just no entry."""
        named = set()
        for index in indexes:
            low, high = index.bounds
            own = missing[(missing["physical_offset"] >= low) & (missing["physical_offset"] <= high)][:NAMED_MAX]
            if not len(own):
                continue
            entries = all_entries(index)
            places = entries["physical_offset"].astype(np.int64)
            for key in own:
                place, key_hash = int(key["physical_offset"]), int(key["key_hash"])
                number = self._odd_entry(entries, places, place)
                if number is not None:
                    named.add((place, key_hash))
                    found = f"entry {number + 1}: a record at {int(places[number])}"
                    self._add_entry(index, number, found, f"key hash {key_hash} of the record at {place}", place)
        return len(missing) - len(named)

    def _odd_entry(self, entries: NDArray[Any], places: NDArray[np.int64], place: int) -> int | None:
        """Return the entry that stands where one of the record at *place* should, and is of no record; None without."""
        before = places[places < place]
        first = int(np.flatnonzero(places == before.max())[-1]) + 1 if len(before) else 0
        for number in range(first, min(first + PROBED, len(places))):
            if places[number] != place and int(entries[number]["key_hash"]) not in self.key_hashes(int(places[number])):
                return number
        return None

    def key_hashes(self, physical_offset: int) -> Counter[int]:
        """Return the hashes of the keys of the record at *physical_offset*; none if there is no record."""
        record = self.record_at(physical_offset)
        if record is None:
            return Counter()
        keys = [property_value(record.properties, b"UNIQ_KEY") or b""]
        keys += (property_value(record.properties, b"KEYS") or b"").split(b" ")
        return Counter(index_key_hash(record.topic, key) for key in keys if key)

    def bounds_differ(self, indexes: list[IndexFileCheck], *, is_still: bool) -> set[int]:
        """Return the log files of records on the bounds of index files whose entries are not those of their keys.

        Of such a record a file may have a part, so that the sums leave it out.
        """
        found: dict[int, Counter[int]] = {}
        odd: set[int] = set()
        for index in indexes:
            head, tail = index.bounds
            ends = [(head, range(1, index.entry_end)), (tail, range(index.entry_end - 1, 0, -1))]
            for place, numbers in ends if is_still or index is not indexes[-1] else ends[:1]:
                record = self.record_at(place) if self.log.start <= place < self.log.end else None
                if record is None:
                    continue
                entries = bound_entries(index, place, numbers)
                found.setdefault(place, Counter()).update(key_hash for _, key_hash, _ in entries)
                wanted = seconds_between(index.header.begin_timestamp, record.store_timestamp)
                if any(seconds != wanted for number, _, seconds in entries if number > 1):
                    odd.add(self.files.start_of(place))
        for place, hashes in found.items():
            wanted_hashes = self.key_hashes(place)
            # More often than once an entry may be there: its writer was killed, and did it again.
            is_right = wanted_hashes <= hashes and wanted_hashes.keys() == hashes.keys()
            if not is_right and not self.log.is_damaged(place):
                odd.add(self.files.start_of(place))
        return odd


PAIR: Final = np.dtype([("place", "=i8"), ("hash", "=i8")])
assert INDEX_ENTRY.dtype["key_hash"].itemsize < PAIR["hash"].itemsize


def _pairs(places: NDArray[Any], hashes: NDArray[Any]) -> NDArray[Any]:
    pairs = np.empty(len(places), dtype=PAIR)
    pairs["place"], pairs["hash"] = places, hashes
    return pairs


def _find(known: NDArray[Any], pairs: NDArray[Any]) -> NDArray[np.int64]:
    """Return the index in *known*, which is sorted, of each of *pairs*; -1 for one that is not there."""
    if not len(known):
        return np.full(len(pairs), -1, dtype=np.int64)
    at = np.searchsorted(known, pairs)
    at = np.minimum(at, len(known) - 1)
    return np.where(known[at] == pairs, at, -1).astype(np.int64)


def _lacking(known: NDArray[Any], present: NDArray[Any]) -> NDArray[np.int64]:
    """Return the first index in *known*, which is sorted, of each pair that is there more often than in *present*."""
    pairs, first, wanted = np.unique(known, return_index=True, return_counts=True)
    found, counts = np.unique(present, return_counts=True)
    have = np.zeros(len(pairs), dtype=np.int64)
    have[_find(pairs, found)] = counts
    return first[have < wanted].astype(np.int64)


def describe(physical_offset: int, record_size: int, tags_code: int) -> str:
    """Return how a unit is written in a finding."""
    return f"physical offset {physical_offset}, size {record_size}, tags code {tags_code}"
