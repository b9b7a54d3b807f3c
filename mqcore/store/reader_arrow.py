"""Batches for others: Arrow arrays that share the buffers, and plain Python values for pandas and polars alone."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from mqcore.store.message_columns import ColumnBuffers, ColumnKind, MessageBatch

if TYPE_CHECKING:
    import pyarrow as pa


def to_array(column: ColumnBuffers, row_count: int, kind: pa.DataType) -> pa.Array:
    """Return *column* as an Arrow array of type *kind*, which has its layout; the buffers are shared."""
    import pyarrow as pa

    validity = None if column.validity is None else pa.py_buffer(column.validity)
    if column.offsets is None:
        return pa.Array.from_buffers(kind, row_count, [validity, pa.py_buffer(column.values)], column.null_count)
    offsets = pa.py_buffer(column.offsets)
    if column.kind is not ColumnKind.MAP:
        buffers = [validity, offsets, pa.py_buffer(column.values)]
        return pa.Array.from_buffers(kind, row_count, buffers, column.null_count)
    if column.map_keys is None or column.map_values is None or not pa.types.is_map(kind):
        raise TypeError(f"a map column without entries, or wanted as {kind}")
    entry_count = int(column.offsets[-1])
    keys = to_array(column.map_keys, entry_count, kind.key_type)
    values = to_array(column.map_values, entry_count, kind.item_type)
    entries = pa.StructArray.from_arrays([keys, values], fields=[kind.key_field, kind.item_field])
    return pa.Array.from_buffers(kind, row_count, [validity, offsets], column.null_count, children=[entries])


def arrow_type(kind: ColumnKind) -> pa.DataType:
    """Return the Arrow type of a column of *kind*."""
    import pyarrow as pa

    types = {
        ColumnKind.INT32: pa.int32(),
        ColumnKind.INT64: pa.int64(),
        ColumnKind.TIMESTAMP: pa.timestamp("us", tz="UTC"),
        ColumnKind.STRING: pa.string(),
        ColumnKind.BINARY: pa.binary(),
        ColumnKind.MAP: pa.map_(pa.string(), pa.string()),
    }
    return types[kind]


def to_arrow(batch: MessageBatch) -> pa.RecordBatch:
    """Return *batch* as a record batch with the same column names; no data is copied. Needs pyarrow."""
    import pyarrow as pa

    arrays = [to_array(column, batch.row_count, arrow_type(column.kind)) for column in batch.columns.values()]
    return pa.RecordBatch.from_arrays(arrays, names=list(batch.columns))


def to_dict(batch: MessageBatch) -> dict[str, Any]:
    """Return the columns of *batch* as pandas and polars take them.

    Numbers are arrays that share the buffers, times are arrays of datetime64[us] (UTC); texts, bodies and maps become
    lists of str, bytes and dict, None for null.
    """
    return {name: _plain(column) for name, column in batch.columns.items()}


def _plain(column: ColumnBuffers) -> Any:
    if column.kind is ColumnKind.MAP:
        return _dicts(column)
    if column.offsets is None:
        return column.values.view("datetime64[us]") if column.kind is ColumnKind.TIMESTAMP else column.values
    return _texts(column)


def _texts(column: ColumnBuffers) -> list[Any]:
    if column.offsets is None:
        raise TypeError(f"a column of {column.kind.value} has no texts")
    data = column.values.tobytes()
    ends = column.offsets.tolist()
    values: list[Any] = [data[start:end] for start, end in itertools.pairwise(ends)]
    if column.kind is ColumnKind.STRING:
        values = [value.decode() for value in values]
    if column.validity is not None:
        is_valid = np.unpackbits(column.validity, count=len(values), bitorder="little").tolist()
        values = [value if valid else None for value, valid in zip(values, is_valid, strict=True)]
    return values


def _dicts(column: ColumnBuffers) -> list[dict[str, str]]:
    if column.offsets is None or column.map_keys is None or column.map_values is None:
        raise TypeError("a map column without entries")
    pairs = list(zip(_texts(column.map_keys), _texts(column.map_values), strict=True))
    ends = column.offsets.tolist()
    return [dict(pairs[start:end]) for start, end in itertools.pairwise(ends)]
