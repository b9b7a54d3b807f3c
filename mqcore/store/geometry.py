"""The sizes and rules that a store's files were made with; another broker on the same directory must use the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mqcore.delay_levels import DELAY_LEVELS_MS
from mqcore.errors import ConfigError
from mqcore.layout import (
    CONSUME_QUEUE_EXT_UNIT,
    CONSUME_QUEUE_FILE_UNITS,
    CONSUME_QUEUE_UNIT,
    EXT_FILE_END_MIN_BLANK_SIZE,
    EXT_FILE_SIZE,
    FILE_END_MIN_BLANK_SIZE,
    RECORD_SIZE_MIN,
)
from mqcore.store.queues.index_file import IndexGeometry

if TYPE_CHECKING:
    from mqcore.config.groups import StoreSettings

MAPPED_QUEUES_MAX = 16_384
"""Files of consume queues that a process maps at once; it may have 65,530 mappings where nobody raised the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreGeometry:
    """What the files are like, and what goes into them.

    File sizes in bytes, the shape of the index, the delay levels that make units of delayed messages, whether ext units
    are written and whether messages go into the further queues that they list.
    """

    commit_log_file_size: int = 1 << 30
    consume_queue_file_size: int = CONSUME_QUEUE_FILE_UNITS * CONSUME_QUEUE_UNIT.size
    index: IndexGeometry = field(default_factory=IndexGeometry)
    index_enabled: bool = True
    delay_levels_ms: tuple[int, ...] = DELAY_LEVELS_MS
    ext_enabled: bool = False
    ext_file_size: int = EXT_FILE_SIZE
    multi_dispatch_enabled: bool = False
    lmq_enabled: bool = False

    @classmethod
    def of(cls, store: StoreSettings) -> StoreGeometry:
        """Return what the store of these settings is made with."""
        return cls(
            commit_log_file_size=store.mapped_file_size_commit_log,
            consume_queue_file_size=store.mapped_file_size_consume_queue,
            index=IndexGeometry(store.max_hash_slot_num, store.max_index_num),
            index_enabled=store.message_index_enable,
            delay_levels_ms=store.delay_levels_ms,
            ext_enabled=store.enable_consume_queue_ext,
            ext_file_size=store.mapped_file_size_consume_queue_ext,
            multi_dispatch_enabled=store.enable_multi_dispatch,
            lmq_enabled=store.enable_lmq,
        )

    def __post_init__(self) -> None:
        if self.commit_log_file_size < RECORD_SIZE_MIN + FILE_END_MIN_BLANK_SIZE:
            raise ConfigError(f"mappedFileSizeCommitLog: got {self.commit_log_file_size}, no record fits")
        if self.consume_queue_file_size < 1 or self.consume_queue_file_size % CONSUME_QUEUE_UNIT.size:
            raise ConfigError(f"mappedFileSizeConsumeQueue: got {self.consume_queue_file_size}, not a multiple of 20")
        if self.ext_file_size < CONSUME_QUEUE_EXT_UNIT.size + EXT_FILE_END_MIN_BLANK_SIZE:
            raise ConfigError(f"mappedFileSizeConsumeQueueExt: got {self.ext_file_size}, no unit fits")
