"""The sizes and rules that a store's files were made with; another broker on the same directory must use the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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

DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Return the durations of messageDelayLevel in ms; level n is at index n - 1. Raises ConfigError."""
    levels = []
    for part in text.split(" "):
        number, unit = part[:-1], part[-1:]
        if unit not in UNITS_MS or not (number.isascii() and number.isdigit()):
            raise ConfigError(f"messageDelayLevel: got {part!r}, wanted a number and one of s, m, h, d")
        levels.append(int(number) * UNITS_MS[unit])
    return tuple(levels)


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
    delay_levels_ms: tuple[int, ...] = parse_delay_levels(DELAY_LEVELS)
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
