from enum import IntEnum
from typing import Any

from mqcore._fast.segment.boards import SharedSegment
from mqcore._fast.queues.dispatch import Dispatcher
from mqcore.errors import StoreError

class ReputNews(IntEnum):
    REPUT_STOP = 0
    REPUT_LINK = 1
    REPUT_FAILED = 2
    REPUT_CORRUPT = 3
    REPUT_HOUSEKEEPING = 4

class ReputLoop(Dispatcher):
    def attach(self, segment: SharedSegment, options: dict[str, Any]) -> None: ...
    def run(self) -> ReputNews: ...
    def failure_error(self) -> StoreError: ...
    def skip_damage(self) -> tuple[int, int]: ...
    def rescan(self) -> None: ...
    def reset_queues(self, topic: bytes, queue_id: int) -> None: ...
