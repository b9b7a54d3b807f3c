"""The state of the store at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mqcore import layout
from mqcore.store.disk import DiskSpace

CAUSES: Final = {
    "DISK_FULL": "disk, the commit log's or the consume queues' is too full for more",
    "NO_NEXT_FILE": "disk, there was no room for the next file of the commit log",
    "SYNC_FAILED": "disk, a sync has failed and nobody knows what is on it; the broker is to be started anew",
    "NOT_WRITABLE": "disk, the store cannot be written",
    "CONSUME_QUEUE_ERROR": "disk, the consume queues cannot be written",
    "INDEX_ERROR": "disk, the index cannot be written",
    "SLAVE": "replica, this broker is a slave",
    "NOT_ENOUGH_REPLICAS": "replica, too few members of the group have all of the log",
    "WORKER_MISSING": "a worker process ends again and again",
    "SHUTTING_DOWN": "this broker is stopping",
}
"""Why the store takes no message, by StoreFlag: what is full or broken before what passes by itself."""


def causes_in(store_flags: int) -> tuple[str, ...]:
    """Return why a store with *store_flags* takes no message, in words; () if it does."""
    bits = layout.constants("StoreFlag")
    return tuple(words for name, words in CAUSES.items() if store_flags & bits[name])


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """The state of the store at one moment, for refusals and for the runtime table."""

    boot_timestamp: int
    is_writable: bool
    refusal_causes: tuple[str, ...]
    """Why messages are refused; () where they are not."""
    is_page_cache_busy: bool
    is_transient_pool_deficient: bool
    page_cache_lock_time_ms: int
    commit_log_min_offset: int
    commit_log_max_offset: int
    dispatch_behind_bytes: int
    dispatch_max_buffer: int
    flush_behind_bytes: int
    commit_behind_bytes: int | None
    transient_buffers_free: int
    commit_log_spaces: tuple[DiskSpace, ...]
    consume_queue_space: DiskSpace
    index_space: DiskSpace
    root_space: DiskSpace
