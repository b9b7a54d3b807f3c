"""The store as the broker's processors see it: reads through mapped files, facts from the boards, orders to workers."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from mqcore import layout
from mqcore._fast.queues.op_numbers import OpNumbers
from mqcore._fast.segment.boards import SharedSegment
from mqcore.broker.ports import Clock, DiskSpace, QueryResult, QueueUnit, StoreFacts
from mqcore.broker.segment.multi_dispatch import LightQueues
from mqcore.broker.segment.queue_drops import QueueDrops
from mqcore.broker.segment.shared_ports import SegmentWatermarks
from mqcore.config import Settings
from mqcore.errors import OffsetOutOfRangeError
from mqcore.machine import memory_bytes
from mqcore.protocol.names import METADATA_TOPIC, SCHEDULE_TOPIC, TRANS_OP_HALF_TOPIC, is_lmq
from mqcore.protocol.transactions import HALF_QUEUE_ID
from mqcore.store.facts import causes_in
from mqcore.store.geometry import StoreGeometry
from mqcore.store.log.places import LogPlaces
from mqcore.store.log.walk import find_flagged
from mqcore.store.message_store import MessageStoreReader
from mqcore.store.paths import StorePaths
from mqcore.store.queues.ext import is_ext_address
from mqcore.store.queues.op_numbers import DoneHalves

# Not before there are op messages: it takes longer to import than the rest of a start.
if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

STORE_FLAG = layout.constants("StoreFlag")
PAGE_CACHE_BUSY_MS_MAX = 10_000_000
DISPATCH_BUFFER_MAX = 0
# What upstream says of a transient store pool that is not there.
NO_POOL_BUFFERS = 0x7FFFFFFF

LASTING_TOPICS = {SCHEDULE_TOPIC, METADATA_TOPIC}
"""Their queues go on where they were when all their messages have expired: places in them are remembered."""

OP_NUMBERS_MORE = 4096
"""Room for numbers beside one for each op message: 5.x writes several into one."""


class SharedStoreView:
    """Implements ports.StoreView."""

    def __init__(
        self,
        settings: Settings,
        segment: SharedSegment,
        clock: Clock,
        drops: QueueDrops,
        light_queues: LightQueues,
    ) -> None:
        store = settings.store
        self._light_queues = light_queues
        self._segment = segment
        self._clock = clock
        self._drops = drops
        self.use(settings)
        self._paths = StorePaths.of(settings.store)
        self._log_dirs = store.commit_log_dirs
        self._watermarks = SegmentWatermarks(segment)
        self._op_numbers = OpNumbers(
            LogPlaces.of(store.commit_log_dirs, store.read_only_commit_log_dirs), store.mapped_file_size_commit_log
        )
        self._reading_ops = asyncio.Lock()
        self.reader = MessageStoreReader(self._paths, StoreGeometry.of(settings.store), self._watermarks)

    def use(self, settings: Settings) -> None:
        """Go by *settings*, as far as they may change."""
        store = settings.store
        self._busy_after_ms = store.os_page_cache_busy_time_out_ms
        self._max_message_size = store.max_message_size
        self._in_memory_bytes = memory_bytes() * store.access_message_in_memory_max_ratio_percent // 100

    # Facts ------------------------------------------------------------------------------------------------------

    def facts(self) -> StoreFacts:
        get = self._segment.get
        flags = get("store_flags")
        locked_since = get("locked_since")
        held_ms = self._clock() - locked_since if locked_since else 0
        return StoreFacts(
            boot_timestamp=get("boot_timestamp"),
            is_writable=not flags & layout.REFUSING_FLAGS,
            refusal_causes=causes_in(flags),
            is_page_cache_busy=self._busy_after_ms < held_ms < PAGE_CACHE_BUSY_MS_MAX,
            is_transient_pool_deficient=False,
            page_cache_lock_time_ms=max(0, held_ms),
            commit_log_min_offset=get("min_offset"),
            commit_log_max_offset=self._watermarks.commit_log_max(),
            dispatch_behind_bytes=max(0, get("wrote_offset") - get("dispatched_offset")),
            dispatch_max_buffer=DISPATCH_BUFFER_MAX,
            flush_behind_bytes=max(0, get("wrote_offset") - get("flushed_offset")),
            commit_behind_bytes=None,
            transient_buffers_free=NO_POOL_BUFFERS,
            commit_log_spaces=tuple(map(DiskSpace.of, self._log_dirs)),
            root_space=DiskSpace.of(self._paths.root),
            consume_queue_space=DiskSpace.of(self._paths.consume_queue),
            index_space=DiskSpace.of(self._paths.index),
        )

    # Queues -----------------------------------------------------------------------------------------------------

    def has_queue(self, topic: str, queue_id: int) -> bool:
        return self._watermarks.queue_bounds(topic, queue_id) is not None

    def min_offset(self, topic: str, queue_id: int) -> int:
        bounds = self._watermarks.queue_bounds(topic, queue_id)
        return -1 if bounds is None else bounds[0]

    def max_offset(self, topic: str, queue_id: int) -> int:
        bounds = self._watermarks.queue_bounds(topic, queue_id)
        return 0 if bounds is None else bounds[1]

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        return self.reader.offset_by_time(topic, queue_id, timestamp)

    def read_units(self, topic: str, queue_id: int, first: int, count_max: int) -> Sequence[QueueUnit]:
        try:
            units = self.reader.read_few_units(topic, queue_id, first, count_max)
        except OffsetOutOfRangeError:
            return ()
        found = []
        for index, unit in enumerate(units):
            ext = self.reader.ext_unit(topic, queue_id, unit.tags_code) if is_ext_address(unit.tags_code) else None
            found.append(QueueUnit(first + index, *unit, ext))
        return found

    async def done_halves(self, first: int, count_max: int) -> DoneHalves:
        import numpy as np

        try:
            units = self.reader.read_units(TRANS_OP_HALF_TOPIC, HALF_QUEUE_ID, first, count_max)
        except OffsetOutOfRangeError:
            return DoneHalves.of(first, np.empty(0, dtype=np.int64))
        # Copied, for the mapping is given up while a thread reads the bodies.
        is_there = units["record_size"] != layout.PRE_FILL_SIZE
        offsets = units["physical_offset"][is_there].astype(np.int64)
        next_offset = first + len(units)
        end = self._watermarks.commit_log_max()
        async with self._reading_ops:
            # To its end, also if the service is stopped: two threads must not use the reader.
            said = await asyncio.shield(asyncio.to_thread(read_op_numbers, self._op_numbers, offsets, end))
            self._op_numbers.rest(self._segment.get("min_offset"), self._segment.get("cold_end"))
        return DoneHalves.of(next_offset, *said)

    def is_on_disk(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        physical_offset = self.reader.physical_offset(topic, queue_id, queue_offset)
        return 0 <= physical_offset < self._watermarks.commit_log_max() - self._in_memory_bytes

    # Messages ---------------------------------------------------------------------------------------------------

    def look_message(self, physical_offset: int, size: int | None = None) -> bytes | None:
        record = self.reader.look_message(physical_offset)
        return record if record is None or size is None or len(record) == size else None

    def look_written(self, physical_offset: int) -> bytes | None:
        return self.reader.look_message(physical_offset, self._segment.get("wrote_offset"))

    def dispatched_end(self) -> int:
        offset: int = self._segment.get("dispatched_offset")
        return offset

    def find_written(self, start: int, flags: Collection[int], count_max: int) -> tuple[list[int], int]:
        end = self._segment.get("wrote_offset")
        return find_flagged(
            self.reader.commit_log.files, max(start, self._segment.get("min_offset")), end, flags, count_max
        )

    def store_timestamp(self, topic: str, queue_id: int, queue_offset: int) -> int:
        return self.reader.message_store_time(topic, queue_id, queue_offset)

    def earliest_timestamp(self, topic: str | None = None, queue_id: int = 0) -> int:
        if topic is None:
            # Upstream asks for twice the largest message at the start of the log, and knows no time while the first
            # file has less; mqadmin shows the age of a store by it.
            first = self._watermarks.commit_log_min()
            file_end = first + self.reader.geometry.commit_log_file_size
            if min(self._watermarks.commit_log_max(), file_end) - first < 2 * self._max_message_size:
                return -1
            return self.reader.earliest_store_timestamp()
        return self.reader.earliest_message_time(topic, queue_id)

    def query_message(self, topic: str, key: str, count_max: int, begin: int, end: int) -> QueryResult:
        return self.reader.query_message(topic, key, count_max, begin, end)

    # Orders -----------------------------------------------------------------------------------------------------

    async def clean_expired_consume_queues(self) -> None:
        kept = self._segment.get("min_offset")
        rows = []
        for row in range(self._segment.queue_count()):
            topic, _ = self._segment.queue_key(row)
            if 0 < self._segment.queue_word(row, "max_physical") <= kept and topic.decode() not in LASTING_TOPICS:
                rows.append(row)
                self._light_queues.forget(topic.decode())
        await self._drops.drop(rows, dead_before=kept)

    def delete_expired_commit_log(self) -> None:
        self._segment.add("delete_orders", 1)

    async def clean_unused_topics(self, topics: Iterable[str]) -> None:
        # The topic of op messages has no configuration, in RocketMQ neither, and is used all the same.
        known = {topic.encode() for topic in topics} | {TRANS_OP_HALF_TOPIC.encode(), METADATA_TOPIC.encode()}
        rows = []
        for row in range(self._segment.queue_count()):
            topic, _ = self._segment.queue_key(row)
            if topic not in known and not is_lmq(topic.decode()):
                rows.append(row)
        await self._drops.drop(rows)

    async def drop_light_queue(self, topic: str) -> None:
        self._light_queues.forget(topic)
        await self._drops.drop(self._segment.topic_queues(topic.encode()))

    def light_queue_count(self) -> int:
        return self._light_queues.count


def read_op_numbers(reader: OpNumbers, offsets: NDArray[np.int64], end: int) -> tuple[NDArray[np.int64], int]:
    """Return all that the op messages at *offsets* say, in their order, and the bytes of those that say of an end.

    May wait for the disk.
    """
    import numpy as np

    parts, total = [], 0
    room = np.empty(len(offsets) + OP_NUMBERS_MORE, dtype=np.int64)
    while len(offsets) > 0:
        count, written, size = reader.read(offsets, end, room)
        total += size
        parts.append(room[:written].copy())
        offsets = offsets[count:]
        if count == 0:  # one message has more numbers than there is room for
            room = np.empty(2 * len(room), dtype=np.int64)
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64), total
