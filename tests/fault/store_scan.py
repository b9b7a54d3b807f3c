"""A stopped store, read from its files alone: commit log, consume queues and index must say the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from mqcore.codes import SysFlag
from mqcore.layout import PRE_FILL_SIZE
from mqcore.store.codec import decode_record, property_value, string_hash
from mqcore.store.geometry import StoreGeometry
from mqcore.store.log.mapped_file_queue import MappedFileQueue
from mqcore.store.log.places import LogPlaces
from mqcore.store.log.record import Record
from mqcore.store.log.walk import LogWalker
from mqcore.store.paths import StorePaths
from mqcore.store.queues.consume_queue import as_units, count_written, list_queues
from mqcore.store.queues.index_service import IndexService

INDEX_ANSWERS_MAX = 1 << 20
TIME_MAX = (1 << 62) - 1

Unit = tuple[int, int, int]


@dataclass(slots=True)
class StoreScan:
    """Every record of the commit log in order, and what they make of each queue."""

    end: int
    records: list[Record] = field(default_factory=list)
    queues: dict[tuple[str, int], list[Unit]] = field(default_factory=dict)

    def bodies(self, topic: str) -> dict[tuple[int, int], bytes]:
        """(queue id, queue offset) to body, of one topic."""
        return {
            (record.queue_id, record.queue_offset): record.body
            for record in self.records
            if record.topic == topic.encode()
        }


def scan_store(
    store_dir: Path,
    geometry: StoreGeometry,
    deleted: frozenset[str] = frozenset(),
    places: LogPlaces | None = None,
) -> StoreScan:
    """Read the store in *store_dir*, which no broker has open. Raises AssertionError where its parts disagree.

    Topics in *deleted* may have been deleted, and made again under the same name: their queues are not looked at.
    *places*: where the commit log lies if not in *store_dir*.
    """
    paths = StorePaths.at(store_dir, places)
    scan = _scan_log(paths, geometry, deleted)
    _check_behind_the_end(paths, geometry, scan.end)
    _check_queues(paths, geometry, scan, deleted)
    _check_index(paths, geometry, scan)
    return scan


def read_log(paths: StorePaths, geometry: StoreGeometry) -> StoreScan:
    """Read the commit log alone, wherever its records belong."""
    files = MappedFileQueue(paths.log, geometry.commit_log_file_size)
    files.load()
    scan = StoreScan(0)

    def take(run: memoryview, physical_offset: int) -> None:
        at = 0
        while at < len(run):
            record = decode_record(run[at:], physical_offset + at)
            assert record.physical_offset == physical_offset + at, f"record misplaced: {record}"
            scan.records.append(record)
            at += record.total_size

    walk = LogWalker(files=files, flushed_timestamp=0, on_records=take).walk(files.min_offset)
    assert not walk.damaged, f"commit log damaged: {walk.damaged}"
    scan.end = walk.end
    files.close()
    return scan


def _scan_log(paths: StorePaths, geometry: StoreGeometry, deleted: frozenset[str]) -> StoreScan:
    scan = read_log(paths, geometry)
    for record in scan.records:
        is_in_queue = record.sys_flag & SysFlag.TRANSACTION_ROLLBACK in (0, SysFlag.TRANSACTION_COMMIT)
        if is_in_queue and record.topic.decode() not in deleted:
            _add_unit(scan, record)
    return scan


def _add_unit(scan: StoreScan, record: Record) -> None:
    units = scan.queues.setdefault((record.topic.decode(), record.queue_id), [])
    assert record.queue_offset == len(units), (
        f"{record.topic.decode()}/{record.queue_id}: the log goes on with queue offset {record.queue_offset}, "
        f"wanted {len(units)} (physical_offset={record.physical_offset})"
    )
    tags = property_value(record.properties, b"TAGS")
    units.append((record.physical_offset, record.total_size, string_hash(tags) if tags else 0))


def _check_behind_the_end(paths: StorePaths, geometry: StoreGeometry, end: int) -> None:
    """Behind the log's end nothing may lie that looks like a record, lest a later recovery takes it for one."""
    files = MappedFileQueue(paths.log, geometry.commit_log_file_size)
    files.load()
    for start in files.starts:
        view = files.file_view(start)[1]
        rest = view[max(0, min(end - start, files.file_size)) :]
        assert not any(rest), f"bytes behind the end {end} of the commit log in {files.path_of(start)}"
        del view, rest
    files.close()


def _check_queues(paths: StorePaths, geometry: StoreGeometry, scan: StoreScan, deleted: frozenset[str]) -> None:
    found = {}
    for queue in list_queues(paths, geometry.consume_queue_file_size):
        if queue.topic in deleted:
            continue
        queue.files.load()
        units: list[Unit] = []
        for start in queue.files.starts:
            written = as_units(queue.files.file_view(start)[1])
            count = count_written(written)
            assert not written[count:].tobytes().strip(b"\0"), f"{queue}: units behind the first that is not written"
            units += [(int(a), int(b), int(c)) for a, b, c in written[:count].tolist() if b != PRE_FILL_SIZE]
        found[queue.topic, queue.queue_id] = units
        queue.close()
    for key in sorted(set(found) | set(scan.queues)):
        wanted, got = scan.queues.get(key, []), found.get(key, [])
        for number, (one, other) in enumerate(zip(wanted, got, strict=False)):
            assert one == other, f"{key[0]}/{key[1]} unit {number}: the log says {one}, the consume queue {other}"
        assert len(wanted) == len(got), f"{key[0]}/{key[1]}: {len(wanted)} records in the log, {len(got)} units"


def _check_index(paths: StorePaths, geometry: StoreGeometry, scan: StoreScan) -> None:
    index = IndexService(paths.index, geometry.index)
    names = index.names()
    # Old entries expire with their file; whatever the files cover must be complete.
    begin = index.header(names[0]).begin_physical_offset if names else scan.end
    for record in scan.records:
        keys = property_value(record.properties, b"KEYS")
        if not keys or record.physical_offset < begin:
            continue
        answer = index.query(record.topic.decode(), keys.decode(), INDEX_ANSWERS_MAX, 0, TIME_MAX)
        assert record.physical_offset in answer.offsets, (
            f"no index entry for key {keys!r} of the record at {record.physical_offset}: got {answer.offsets}"
        )
    index.close()
