"""Pulled bytes to Arrow record batches."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.types import StructType

from mqcore.spark.arrow import arrow_schema, to_record_batch
from mqcore.spark.reading import RangeReading
from mqcore.spark.schema import decoder_columns
from mqcore.store.columns import ColumnDecoder
from mqcore.store.message_columns import Selection


def record_batches(
    reading: RangeReading, schema: StructType, *, broker_name: str, selection: Selection, batch_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Iterate over the messages that *reading* gives and *selection* chooses, in record batches of about *batch_bytes*
    with exactly the columns of *schema*. Raises what ``RangeReading.bodies`` raises."""
    types = arrow_schema(schema)
    decoder = ColumnDecoder(
        decoder_columns(schema), broker_name=broker_name, selection=selection, batch_bytes=batch_bytes
    )
    for body in reading.bodies():
        position = 0
        while position < len(body):
            position = decoder.feed(body, position)
            if decoder.is_full:
                yield to_record_batch(decoder.take(), schema, types)
    if decoder.row_count:
        yield to_record_batch(decoder.take(), schema, types)
