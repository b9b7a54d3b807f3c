"""The broker's ports on shared memory: topics, offsets, counters, and the way into the commit log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mqcore import layout
from mqcore._fast.log.append import CommitLogWriter
from mqcore._fast.segment.boards import SharedSegment
from mqcore._fast.segment.counts import CountTaker
from mqcore._fast.segment.offsets import (
    ChosenOffsets,
    choose_offsets,
    offset_text,
    remove_offsets,
    slow_groups,
    take_changed_offsets,
)
from mqcore.broker.ports import BrokerTotals, GetCount, InnerMessage, PoolFacts, PutCount, PutResult, PutStatus
from mqcore.broker.segment.multi_dispatch import LightQueues, MultiDispatch, text_for_offsets
from mqcore.broker.supervisor import BROKER_ROW
from mqcore.config import BrokerRole, FlushDiskType, Settings
from mqcore.errors import StoreError
from mqcore.layout import PUT_TALLY_BOUNDS_MS, WORKER_CAPACITY
from mqcore.protocol.bodies import TopicConfig
from mqcore.protocol.message_id import HostAddress, encode_offset_message_id, packed_ip
from mqcore.store.paths import StorePaths

if TYPE_CHECKING:
    from typing_extensions import Buffer

logger = logging.getLogger(__name__)

STORE_FLAG = layout.constants("StoreFlag")
PUT_STATUSES = {number: PutStatus(name) for name, number in layout.constants("PutStatus").items()}
MOVE_CHECK_S = 0.1
LOCK_WAIT_MS = 1
OFFSETS_AT_ONCE = 512
"""How long the event loop itself waits for the put lock: longer than an append has it, and nobody sees the pause."""

Appended = tuple[int, list[int], int, int, int, int]
"""What CommitLogWriter.append gives."""


class SharedTopicBoard:
    """The topic board: what the workers know of topics."""

    def __init__(self, segment: SharedSegment) -> None:
        self._segment = segment

    def publish(self, config: TopicConfig, sendable: bool, multi_tag: bool) -> None:
        self._segment.publish_topic(
            config.topic_name.encode(),
            config.perm,
            config.read_queue_nums,
            config.write_queue_nums,
            sendable,
            multi_tag,
        )

    def remove(self, topic: str) -> None:
        self._segment.remove_topic(topic.encode())

    def bump_all(self) -> None:
        self._segment.add("config_epoch", 1)

    def bump_topic(self, topic: str) -> None:
        self._segment.bump_topic(topic.encode())

    def bump_group(self, group: str) -> None:
        self._segment.bump_group(group.encode())


class SharedOffsetTable:
    """The offset table: committed offsets that the pull workers write too."""

    def __init__(self, segment: SharedSegment) -> None:
        self._segment = segment

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        row = self._segment.offset_row(group.encode(), topic.encode(), queue_id)
        offset: int = self._segment.committed(row) if row >= 0 else -1
        return offset if offset >= 0 else None

    def pulled(self, group: str, topic: str, queue_id: int) -> int:
        row = self._segment.offset_row(group.encode(), topic.encode(), queue_id)
        return self._segment.offset_word(row, "pull_offset") if row >= 0 else 0

    def put(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self._segment.commit(self._segment.offset_row(group.encode(), topic.encode(), queue_id, True), offset)

    def believed(self, group: str, topic: str, queue_id: int, offset: int) -> int:
        row = self._segment.offset_row(group.encode(), topic.encode(), queue_id, True)
        return self._segment.believed_commit(row, offset)

    async def remove(self, group: str | None, topic: str | None) -> None:
        await asyncio.to_thread(remove_offsets, self._segment, _encoded(group), _encoded(topic))

    def take_changed(self) -> Iterator[tuple[str, str, int, int]]:
        return _offsets_of(take_changed_offsets(self._segment))

    def items(self) -> Iterator[tuple[str, str, int, int]]:
        return _offsets_of(choose_offsets(self._segment, None, None))

    async def find(self, group: str | None, topic: str | None) -> list[tuple[str, str, int, int]]:
        return await asyncio.to_thread(self._find, group, topic, False)

    async def pairs(self) -> list[tuple[str, str]]:
        found = await asyncio.to_thread(self._find, None, None, True)
        return [(group, topic) for group, topic, _, _ in found]

    def _find(self, group: str | None, topic: str | None, only_pairs: bool) -> list[tuple[str, str, int, int]]:
        return list(_offsets_of(choose_offsets(self._segment, _encoded(group), _encoded(topic), only_pairs)))

    def text(self, with_light: bool, foreign: bytes, pretty: bool) -> Buffer | None:
        return offset_text(self._segment, with_light, foreign, pretty)

    def slow_groups(self, behind_max: int, since: int) -> list[str]:
        return [group.decode() for group in slow_groups(self._segment, behind_max, since)]


def _encoded(name: str | None) -> bytes | None:
    return None if name is None else name.encode()


def _offsets_of(chosen: ChosenOffsets) -> Iterator[tuple[str, str, int, int]]:
    for first in range(0, len(chosen), OFFSETS_AT_ONCE):
        for group, topic, queue_id, offset in chosen.part(first, OFFSETS_AT_ONCE):
            yield group.decode(), topic.decode(), queue_id, offset
        # A thread that does this gives way to the event loop sooner than the interpreter would ask it to.
        time.sleep(0)


class SharedCounters:
    """What the workers count."""

    def __init__(self, segment: SharedSegment) -> None:
        self._segment = segment
        self._taker = CountTaker(segment)
        self._taking = threading.Lock()

    def grown(self) -> tuple[Iterator[PutCount], Iterator[GetCount]]:
        with self._taking:
            return self._puts(*self._taker.take_puts()), self._gets(*self._taker.take_gets())

    def _puts(self, rows: memoryview, values: memoryview) -> Iterator[PutCount]:
        for number, row in enumerate(rows):
            nums, size = values[2 * number : 2 * number + 2]
            yield PutCount(self._segment.topic_name(row).decode(), nums, size)

    def _gets(self, rows: memoryview, values: memoryview) -> Iterator[GetCount]:
        for number, row in enumerate(rows):
            group, topic, queue_id = self._segment.offset_key(row)
            nums, size, pulls = values[3 * number : 3 * number + 3]
            yield GetCount(topic.decode(), group.decode(), queue_id, nums, size, pulls)

    def note_read(self, nums: int, size: int) -> None:
        add = self._segment.add
        add("get_times", nums)
        add("get_bytes", size)
        add("get_found" if nums else "get_missed", 1)

    def totals(self) -> BrokerTotals:
        get = self._segment.get
        return BrokerTotals(
            put_nums=get("put_times"),
            put_bytes=get("put_bytes"),
            put_failed=get("put_failed"),
            put_time_max_ms=get("put_ms_max"),
            put_latency=tuple(get(f"put_tally_{number}") for number in range(len(PUT_TALLY_BOUNDS_MS) + 1)),
            get_found=get("get_found"),
            get_miss=get("get_missed"),
            get_nums=get("get_times"),
            get_bytes=get("get_bytes"),
            get_time_max_ms=max(self._segment.worker_word(row, "read_ms_max") for row in range(WORKER_CAPACITY)),
        )


class SharedPools:
    """How much waits in front of the workers; the pools that run in this process have no queue."""

    ROWS = {"send": "send", "pull": "pull"}

    def __init__(self, segment: SharedSegment, rows_of_kind: dict[str, list[int]]) -> None:
        self._segment = segment
        self._rows = rows_of_kind

    def facts(self, pool: str) -> PoolFacts:
        rows = self._rows.get(self.ROWS.get(pool, ""), [])
        return PoolFacts(
            queue_size=sum(self._segment.worker_word(row, "backlog") for row in rows),
        )


class SharedSink:
    """Appends under the put lock, as the send workers do, and waits for the flush where the settings ask for it."""

    def __init__(self, settings: Settings, segment: SharedSegment, address: HostAddress) -> None:
        store = settings.store
        self._segment = segment
        self._address = address
        self._writer = CommitLogWriter(
            segment,
            StorePaths.of(store).log,
            store.mapped_file_size_commit_log,
            store.max_message_size,
            store.os_page_cache_busy_time_out_ms,
            store.flush_disk_type is not FlushDiskType.SYNC_FLUSH,
        )
        self.light_queues = LightQueues.on_board(segment) if store.enable_lmq else LightQueues()
        self._multi_dispatch = MultiDispatch(settings, self.light_queues)
        self.use(settings)
        self._waits_for_flush = store.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._waits_for_slave = store.broker_role is BrokerRole.SYNC_MASTER
        self._in_group = settings.failover.is_group
        self._moved = asyncio.Event()
        self._appending = asyncio.Lock()
        self._waiting = 0
        self.wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.on_append: Callable[[], None] = lambda: None

    def use(self, settings: Settings) -> None:
        """Go by *settings*, as far as they may change."""
        store = settings.store
        self._writer.use(store.max_message_size, store.os_page_cache_busy_time_out_ms)
        self._max_message_size = store.max_message_size
        self._sync_timeout_s = store.sync_flush_timeout_ms / 1000
        self._slave_timeout_s = store.slave_timeout_ms / 1000
        self._slave_lag_max = store.ha_slave_fallbehind_max

    async def put(self, message: InnerMessage) -> PutResult:
        return await self._put(message, is_batch=False)

    async def put_batch(self, message: InnerMessage) -> PutResult:
        return await self._put(message, is_batch=True)

    async def _put(self, message: InnerMessage, *, is_batch: bool) -> PutResult:
        if len(message.body) > self._max_message_size:
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        queues = [] if is_batch else self._more_queues(message)
        if isinstance(queues, PutStatus):
            return PutResult(queues)
        done = await self._append(self._writer.append, **_fields(message, queues), is_batch=is_batch)
        return await self._result(message, done, [(message.topic, message.queue_id), *queues])

    async def put_pair(self, first: InnerMessage, second: InnerMessage) -> PutResult:
        if max(len(first.body), len(second.body)) > self._max_message_size:
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        queues = self._more_queues(first)
        if isinstance(queues, PutStatus):
            return PutResult(queues)
        done = await self._append(self._writer.append_pair, first=_fields(first, queues), second=_fields(second, []))
        return await self._result(first, done, [(one.topic, one.queue_id) for one in (first, second)] + queues)

    def _more_queues(self, message: InnerMessage) -> list[tuple[str, int]] | PutStatus:
        """Return the queues that *message* goes into beside its own, or why it cannot."""
        try:
            queues = self._multi_dispatch.queues_of(message)
        except StoreError as error:
            logger.warning("message refused topic=%s error=%s", message.topic, error)
            return PutStatus.MESSAGE_ILLEGAL
        return queues if self._multi_dispatch.admits(queues) else PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED

    async def _result(self, message: InnerMessage, done: Appended, queues: list[tuple[str, int]]) -> PutResult:
        status, offsets, end, queue_offset, timestamp, size = done
        store_host = HostAddress(*message.store_host)
        put_status = PUT_STATUSES[status]
        if put_status is not PutStatus.PUT_OK:
            self._segment.add("put_failed", 1)
            return PutResult(put_status, store_host=message.store_host)
        self._multi_dispatch.note(queues)
        self.on_append()
        result = PutResult(
            put_status,
            physical_offset=offsets[0],
            size=size,
            queue_offset=queue_offset,
            message_id=",".join(encode_offset_message_id(store_host, offset) for offset in offsets),
            store_timestamp=timestamp,
            store_host=message.store_host,
            count=len(offsets),
        )
        if message.wait_store_ok and (self._waits_for_flush or self._waits_for_slave):
            return replace(result, status=await self._wait_for_others(end))
        return result

    async def _append(self, append: Callable[..., Appended], **fields: Any) -> Appended:
        """Append; the event loop waits for the put lock a moment, and for a busy one in a thread."""
        if not self._appending.locked():
            done = append(**fields, wait_ms=LOCK_WAIT_MS)
            if PUT_STATUSES[done[0]] is not PutStatus.OS_PAGECACHE_BUSY:
                return done
        # To its end, also if the request is given up: two threads must not use the writer.
        return await asyncio.shield(asyncio.ensure_future(self._append_in_thread(append, fields)))

    async def _append_in_thread(self, append: Callable[..., Appended], fields: dict[str, Any]) -> Appended:
        async with self._appending:
            return await asyncio.to_thread(append, **fields)

    async def _wait_for_others(self, end: int) -> PutStatus:
        """Wait until everything before *end* is on disk, and on a slave, as far as the settings ask for it."""
        needs_slave = self._waits_for_slave and self._has_slave(end)
        self._waiting += 1
        try:
            status = await self._wait(end, needs_slave)
        finally:
            self._waiting -= 1
            if self._waiting == 0:
                self._segment.set_worker_word(BROKER_ROW, "sleeping", 0)
        # What is said of the slaves goes before what is said of the disk, as upstream has it.
        if self._waits_for_slave and not needs_slave and status is not PutStatus.SERVICE_NOT_AVAILABLE:
            return PutStatus.SLAVE_NOT_AVAILABLE
        return status

    def _has_slave(self, end: int) -> bool:
        get = self._segment.get
        if self._in_group:
            return True  # who must have it is a matter of the group
        return get("slave_count") > 0 and end - get("replicated_offset") < self._slave_lag_max

    async def _wait(self, end: int, needs_slave: bool) -> PutStatus:
        # Flush worker and ha worker write our eventfd when they have moved their words and we say that we sleep.
        now = asyncio.get_running_loop().time
        began, get = now(), self._segment.get
        while True:
            self._moved.clear()
            self._segment.set_worker_word(BROKER_ROW, "sleeping", 1)
            is_flushed = not self._waits_for_flush or get("flushed_offset") >= end
            is_copied = not needs_slave or get("replicated_offset") >= end
            if is_flushed and is_copied:
                return PutStatus.PUT_OK
            if not is_flushed and get("store_flags") & STORE_FLAG["SYNC_FAILED"]:
                return PutStatus.SERVICE_NOT_AVAILABLE
            if self._in_group and get("store_flags") & STORE_FLAG["SLAVE"]:
                return PutStatus.SERVICE_NOT_AVAILABLE  # it is no longer the master, who alone confirms
            flush_left = 0.0 if is_flushed else began + self._sync_timeout_s - now()
            copy_left = 0.0 if is_copied else began + self._slave_timeout_s - now()
            left = max(flush_left, copy_left)
            if left <= 0:
                break
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, MOVE_CHECK_S)):
                    await self._moved.wait()
        if not is_copied:
            return PutStatus.FLUSH_SLAVE_TIMEOUT
        return PutStatus.FLUSH_DISK_TIMEOUT

    def on_wake(self) -> None:
        """The eventfd is readable: what is flushed, or copied, may have grown."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.wake)
        self._moved.set()

    def trim(self) -> None:
        """Let go of files that retention has deleted."""
        if self._appending.locked():
            return  # a thread has the writer; there will be another time
        self._writer.trim(self._segment.get("min_offset"))
        self._writer.release(self._segment.get("cold_end"))

    def close(self) -> None:
        os.close(self.wake)


def _fields(message: InnerMessage, more_queues: list[tuple[str, int]]) -> dict[str, Any]:
    """Return what makes *message*, which takes offsets of *more_queues* too, as CommitLogWriter takes it."""
    properties = text_for_offsets(message) if more_queues else message.properties_text
    store_host = HostAddress(*message.store_host)
    return {
        "topic": message.topic.encode(),
        "queue_id": message.queue_id,
        "body": message.body,
        "properties": properties.encode(),
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "born_timestamp": message.born_timestamp,
        "born_address": packed_ip(message.born_host[0]),
        "born_port": message.born_host[1],
        "store_address": store_host.packed,
        "store_port": store_host.port,
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "more_queues": [(name.encode(), queue_id) for name, queue_id in more_queues],
    }


class SegmentWatermarks:
    """The bounds that readers of the store must keep, from the boards."""

    def __init__(self, segment: SharedSegment) -> None:
        self._segment = segment

    def commit_log_min(self) -> int:
        offset: int = self._segment.get("min_offset")
        return offset

    def commit_log_max(self) -> int:
        offset: int = self._segment.get("readable_offset")
        return offset

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        row = self._segment.queue_row(topic.encode(), queue_id)
        if row < 0:
            return None
        bounds: tuple[int, int] = self._segment.queue_bounds(row)
        return bounds

    def queue_births(self, topic: str, queue_id: int) -> tuple[int, int]:
        row = self._segment.queue_row(topic.encode(), queue_id)
        return (0, 0) if row < 0 else self._segment.queue_births(row)

    def young_units(self, topic: str, queue_id: int) -> bytes | None:
        row = self._segment.queue_row(topic.encode(), queue_id)
        return None if row < 0 else self._segment.cradle_units(row)
