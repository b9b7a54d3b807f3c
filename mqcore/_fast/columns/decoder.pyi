from collections.abc import Sequence

from typing_extensions import Buffer

from mqcore.store.message_columns import MessageBatch, Selection

class ColumnDecoder:
    def __init__(
        self,
        columns: Sequence[str] | None = None,
        *,
        broker_name: str | None = None,
        selection: Selection | None = ...,
        batch_bytes: int = ...,
        batch_rows: int = ...,
        decompress: bool = True,
        check_crc: bool = False,
    ) -> None: ...
    @property
    def row_count(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def is_full(self) -> bool: ...
    @property
    def position(self) -> int: ...
    @property
    def last_queue_offset(self) -> int: ...
    def feed(self, buffer: Buffer, position: int = 0, physical_offset: int | None = None) -> int: ...
    def take(self) -> MessageBatch: ...
