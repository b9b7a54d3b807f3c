"""From the decoder's buffers to Arrow record batches, without a copy of the data.

Spark insists on the very schema that it makes of its own (names, types, nullability, time zone), so a batch is built by
that schema and not by the buffers. pyarrow is imported where it is used: planning does not need it.
"""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

from mqcore.errors import ConfigError
from mqcore.spark.schema import find_column
from mqcore.store.message_columns import ColumnKind, MessageBatch
from mqcore.store.reader_arrow import to_array

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark wants of a source with *schema*."""
    from pyspark.sql.pandas.types import to_arrow_schema

    # Spark 4.0 and 4.1 have no such argument: times are always in UTC there.
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    wanted: pa.Schema = to_arrow_schema(schema, **zone)
    return wanted


def to_record_batch(batch: MessageBatch, schema: StructType, wanted: pa.Schema) -> pa.RecordBatch:
    """Return *batch* as a record batch with exactly the schema *wanted*, which ``arrow_schema(schema)`` gave.

    Raises ConfigError for a body that is asked for as text and is not UTF-8.
    """
    import pyarrow as pa

    arrays = []
    for field in wanted:
        column = batch.columns[find_column(field.name).name]
        array = to_array(column, batch.row_count, field.type)
        if column.kind is ColumnKind.BINARY and pa.types.is_string(field.type):
            try:
                array.validate(full=True)
            except pa.ArrowInvalid as error:
                raise ConfigError(f"column {field.name}: not UTF-8; ask for it as binary ({error})") from error
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)
