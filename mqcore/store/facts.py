"""The state of the store at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from mqcore.store.disk import DiskSpace


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """The state of the store at one moment, for refusals and for the runtime table."""

    boot_timestamp: int
    is_writable: bool
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
