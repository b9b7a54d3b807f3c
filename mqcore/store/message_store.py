"""Reading a store that other processes write: look-ups, bounds, offsets by time, keys, sizes.

For the broker process's rare requests; the pull worker has its own way through the same files.
Source: RocketMQ store/DefaultMessageStore.java.
"""

from __future__ import annotations

from mqcore.errors import CorruptRecordError, OffsetOutOfRangeError
from mqcore.store.codec import decode_record
from mqcore.store.geometry import StoreGeometry
from mqcore.store.log.commit_log import CommitLog
from mqcore.store.log.record import Record
from mqcore.store.paths import StorePaths
from mqcore.store.queries import QueryResult
from mqcore.store.queues.consume_queue import ConsumeQueue, Units, YoungQueue, no_units, unpacked
from mqcore.store.queues.ext import ExtUnit
from mqcore.store.queues.index_service import IndexService
from mqcore.store.queues.units import Unit
from mqcore.store.watermarks import Watermarks

OPEN_QUEUES_MAX = 256


class MessageStoreReader:
    """Read-only access to the store in *paths* within what *watermarks* publish. For one thread."""

    def __init__(self, paths: StorePaths, geometry: StoreGeometry, watermarks: Watermarks) -> None:
        self.paths = paths
        self.geometry = geometry
        self.commit_log = CommitLog(paths.log, geometry.commit_log_file_size, watermarks)
        self.index = IndexService(paths.index, geometry.index)
        self._watermarks = watermarks
        self._queues: dict[tuple[str, int], tuple[int, ConsumeQueue]] = {}

    # Records

    def look_message(self, physical_offset: int, end: int | None = None) -> bytes | None:
        """Return the record that starts at *physical_offset*, as stored; None if none does or it is out of reach.

        *end*: where the log ends for who may look at more than is readable.
        """
        try:
            return bytes(self.commit_log.record_bytes(physical_offset, end))
        except (OffsetOutOfRangeError, CorruptRecordError):
            return None

    def read_message(self, physical_offset: int) -> Record | None:
        """Return the same, decoded."""
        try:
            return self.commit_log.record_at(physical_offset)
        except (OffsetOutOfRangeError, CorruptRecordError):
            return None

    def earliest_store_timestamp(self) -> int:
        """Return the store time of the oldest record, ms; -1 if there is none."""
        return self.commit_log.earliest_store_timestamp()

    # Queues

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return min and max queue offset; (0, 0) for an unknown queue."""
        return self._watermarks.queue_bounds(topic, queue_id) or (0, 0)

    def min_offset(self, topic: str, queue_id: int) -> int:
        return self.queue_bounds(topic, queue_id)[0]

    def max_offset(self, topic: str, queue_id: int) -> int:
        return self.queue_bounds(topic, queue_id)[1]

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        """Return the queue offset of the message stored nearest to *timestamp*, ms; 0 for an unknown queue."""
        bounds = self._watermarks.queue_bounds(topic, queue_id)
        if bounds is None:
            return 0
        return self._queue(topic, queue_id).offset_by_time(
            timestamp, bounds, self.commit_log.store_timestamp_at, self.commit_log.min_offset
        )

    def message_store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the store time of the message at *queue_offset*, ms; -1 if there is none or it is gone."""
        physical_offset = self.physical_offset(topic, queue_id, queue_offset)
        try:
            return self.commit_log.store_timestamp_at(physical_offset) if physical_offset >= 0 else -1
        except (OffsetOutOfRangeError, CorruptRecordError):
            return -1

    def earliest_message_time(self, topic: str, queue_id: int) -> int:
        """Return the store time of the queue's oldest message, ms; -1 if there is none."""
        return self.message_store_time(topic, queue_id, self.min_offset(topic, queue_id))

    def physical_offset(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return where the message at *queue_offset* lies in the commit log; -1 if there is no such unit."""
        bounds = self._watermarks.queue_bounds(topic, queue_id)
        if bounds is None:
            return -1
        try:
            return self._queue(topic, queue_id).unit_at(queue_offset, bounds).physical_offset
        except OffsetOutOfRangeError:
            return -1

    def read_units(self, topic: str, queue_id: int, first: int, count_max: int) -> Units:
        """Return units of a queue as ConsumeQueue.units does; none for an unknown queue."""
        bounds = self._watermarks.queue_bounds(topic, queue_id)
        if bounds is None:
            return no_units()
        return self._queue(topic, queue_id).units(first, count_max, bounds)

    def read_few_units(self, topic: str, queue_id: int, first: int, count_max: int) -> list[Unit]:
        """Return what ``read_units`` does, one by one."""
        bounds = self._watermarks.queue_bounds(topic, queue_id)
        if bounds is None:
            return []
        return unpacked(self._queue(topic, queue_id).packed_units(first, count_max, bounds))

    def ext_unit(self, topic: str, queue_id: int, address: int) -> ExtUnit | None:
        """Return what the queue's ext files hold at *address*, which stood in the place of a tags code."""
        return self._queue(topic, queue_id).ext.look_up(address)

    # Keys

    def query_message(
        self, topic: str, key: str, count_max: int, begin_timestamp: int, end_timestamp: int
    ) -> QueryResult:
        """Return records that topic#key hashes to, stored in [begin, end] ms, at most count_max.

        Hashes collide: comparing the real key is the client's work. Offsets that lead nowhere are passed over, and so
        are messages of *topic* from queues that were dropped.
        """
        found = self.index.query(topic, key, count_max, begin_timestamp, end_timestamp)
        # Upstream asks up to three times, before the time of the first record each; it does so only while no record
        # could be read, and then that time is not known: the rounds are the same.
        offsets = sorted(set(found.offsets))
        records = tuple(
            record
            for offset, record in zip(offsets, map(self.look_message, offsets), strict=True)
            if record is not None and not self._is_dead(topic, offset, record)
        )
        return QueryResult(records, found.last_update_timestamp, found.last_update_offset)

    def _is_dead(self, topic: str, physical_offset: int, record: bytes) -> bool:
        """Tell whether the record is of a queue of *topic* that was dropped since."""
        decoded = decode_record(record, physical_offset, check_crc=False)
        born, _ = self._watermarks.queue_births(topic, decoded.queue_id)
        return decoded.topic == topic.encode() and physical_offset < born

    def close(self) -> None:
        """Forget every mapping; each is undone with its last view."""
        for _, queue in self._queues.values():
            queue.close()
        self._queues.clear()
        self.commit_log.files.close()
        self.index.close()

    def _queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue, with what bounds say that were taken before."""
        units = self._watermarks.young_units(topic, queue_id)
        if units is not None:
            return YoungQueue(self.paths, topic, queue_id, self.geometry.consume_queue_file_size, units)
        key = (topic, queue_id)
        _, files_of = self._watermarks.queue_births(topic, queue_id)
        known = self._queues.get(key)
        if known is not None and known[0] == files_of:
            return known[1]
        if known is not None:
            known[1].close()
        elif len(self._queues) >= OPEN_QUEUES_MAX:
            self._queues.pop(next(iter(self._queues)))[1].close()
        sizes = self.geometry.consume_queue_file_size, self.geometry.ext_file_size
        queue = ConsumeQueue(self.paths, topic, queue_id, *sizes)
        self._queues[key] = files_of, queue
        return queue
