from typing import Any

from typing_extensions import Buffer

from mqcore._fast.segment.boards import SharedSegment
from mqcore.store.log.places import LogPlaces

class CommitLogWriter:
    def __init__(
        self,
        segment: SharedSegment,
        places: str | LogPlaces,
        file_size: int,
        max_message_size: int,
        lock_timeout_ms: int = 1000,
        tallies: bool = True,
    ) -> None: ...
    def use(self, max_message_size: int, lock_timeout_ms: int) -> None: ...
    def release(self, offset: int) -> None: ...
    def trim(self, offset: int) -> None: ...
    def append_raw(self, physical_offset: int, data: Buffer) -> int: ...
    def stop_appends(self) -> None: ...
    def begin_epoch(
        self, term: int, tail: list[tuple[int, int]], may_lack: bool = False, waits_for_nobody: bool = False
    ) -> int: ...
    def begin_drop(self, rows: list[int], dead_before: int = -1) -> tuple[int, list[int]]: ...
    def end_drop(self, rows: list[int], born: int) -> None: ...
    def append(
        self,
        *,
        topic: bytes,
        queue_id: int,
        body: bytes,
        properties: bytes,
        flag: int,
        sys_flag: int,
        born_timestamp: int,
        born_address: bytes,
        born_port: int,
        store_address: bytes,
        store_port: int,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        is_batch: bool = False,
        more_queues: list[tuple[bytes, int]] | None = None,
        wait_ms: int = -1,
    ) -> tuple[int, list[int], int, int, int, int]: ...
    def append_pair(
        self, first: dict[str, Any], second: dict[str, Any], wait_ms: int = -1
    ) -> tuple[int, list[int], int, int, int, int]: ...
