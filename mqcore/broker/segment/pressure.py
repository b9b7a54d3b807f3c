"""What was refused, delayed and turned away because too much was going on, over all workers."""

from __future__ import annotations

from typing import Final

from mqcore._fast.segment.boards import SharedSegment
from mqcore.layout import WORKER_CAPACITY

FIGURES: Final = {
    "timed_out": "fastFailureTotal",
    "page_cache_busy": "pageCacheBusyTotal",
    "quota_delayed": "quotaDelayedTotal",
    "quota_refused": "quotaRefusedTotal",
    "connections_refused": "connectionsRefusedTotal",
    "slow_readers": "slowReadersTotal",
}
"""Word of a worker's row to key of the runtime table."""


class PressureFigures:
    """Rows of the runtime table; those that are 0 are left out, as RocketMQ has none of them."""

    def __init__(self, segment: SharedSegment) -> None:
        self._segment = segment

    def __call__(self) -> dict[str, str]:
        sums = {key: self._sum(word) for word, key in FIGURES.items()}
        return {key: str(value) for key, value in sums.items() if value}

    def _sum(self, word: str) -> int:
        return sum(self._segment.worker_word(row, word) for row in range(WORKER_CAPACITY))
