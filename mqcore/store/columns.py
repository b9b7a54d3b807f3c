"""The door to message columns: the decoder in its fast or, with ``MQ_PURE=1``, its plain form, and its values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqcore.store.codec import PURE
from mqcore.store.message_columns import (
    BATCH_BYTES_DEFAULT,
    COLUMNS,
    DEFAULT_NAMES,
    Column,
    ColumnBuffers,
    ColumnKind,
    MessageBatch,
    Selection,
)

if TYPE_CHECKING or PURE:
    from mqcore.store.column_decoder import ColumnDecoder
else:
    from mqcore._fast.columns.decoder import ColumnDecoder

__all__ = [
    "BATCH_BYTES_DEFAULT",
    "COLUMNS",
    "DEFAULT_NAMES",
    "Column",
    "ColumnBuffers",
    "ColumnDecoder",
    "ColumnKind",
    "MessageBatch",
    "Selection",
]
