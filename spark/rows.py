"""Rows of a queue range: pulled bytes to Arrow record batches, on an executor."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark.sql.types import StructType

from mqcore.spark.arrow import arrow_schema, to_record_batch
from mqcore.spark.cluster import Cluster
from mqcore.spark.errors import DataLossError
from mqcore.spark.ranges import QueueRange
from mqcore.spark.reading import RangeReading
from mqcore.spark.schema import decoder_columns, schema_of
from mqcore.spark.settings import SourceSettings
from mqcore.spark.sink_keys import RepeatGuard
from mqcore.store.columns import ColumnDecoder
from mqcore.store.message_columns import Selection

logger = logging.getLogger(__name__)

MSG_ID: Final = "msgId"


class RangeRows:
    """Reads ranges for one query. It holds no connection and can be pickled."""

    def __init__(self, settings: SourceSettings, schema: StructType) -> None:
        self._settings = settings
        self._schema = schema
        self._selection = settings.selection
        # The guard looks at ids, also where the query does not.
        self._has_guard_column = settings.dedup and MSG_ID not in schema.names
        self._decoded = StructType([*schema.fields, *schema_of([MSG_ID]).fields]) if self._has_guard_column else schema

    def read(self, part: QueueRange) -> Iterator[pa.RecordBatch]:
        """Iterate over the rows of *part* in record batches of about ``batchBytes``.

        Raises DataLossError when rows are missing and the query minds, and what RangeReading.bodies raises.
        """
        first, end = self._selection.queue_bounds(part.topic, part.queue_id)
        part = replace(part, start=max(part.start, first), end=min(part.end, end))
        guard = RepeatGuard() if self._settings.dedup else None
        types = arrow_schema(self._decoded)
        reading = RangeReading(Cluster(self._settings.calling), self._settings, part)
        count = 0
        for batch in self._decode(reading, part, types):
            count += batch.num_rows
            yield self._finished(batch, guard)
        if self._is_complete_by_count and count != max(0, part.size) and not reading.has_lost:
            self._miss(f"{part}: got {count} messages, wanted {part.size}")

    def _decode(self, reading: RangeReading, part: QueueRange, types: pa.Schema) -> Iterator[pa.RecordBatch]:
        selection = replace(self._selection, offset_min=part.start, offset_max=part.end)
        decoder = ColumnDecoder(
            decoder_columns(self._decoded),
            broker_name=part.broker_name,
            selection=selection,
            batch_bytes=self._settings.batch_bytes,
        )
        for body in reading.bodies():
            position = 0
            while position < len(body):
                position = decoder.feed(body, position)
                if decoder.is_full:
                    yield to_record_batch(decoder.take(), self._decoded, types)
        if decoder.row_count:
            yield to_record_batch(decoder.take(), self._decoded, types)

    def _finished(self, batch: pa.RecordBatch, guard: RepeatGuard | None) -> pa.RecordBatch:
        if guard is not None:
            kept = guard.first_copies(batch.column(MSG_ID))
            if kept is not None:
                batch = batch.filter(pa.array(kept))
        return batch.select(self._schema.names) if self._has_guard_column else batch

    @property
    def _is_complete_by_count(self) -> bool:
        """Whether each offset of a range must give a row: nothing is looked at but the place."""
        chosen = self._selection
        by_place = Selection(
            topics=chosen.topics, queue_ids=chosen.queue_ids, offset_min=chosen.offset_min, offset_max=chosen.offset_max
        )
        return chosen == by_place and not self._settings.is_filtered

    def _miss(self, what: str) -> None:
        if self._settings.fail_on_data_loss:
            raise DataLossError(what)
        logger.warning("data loss, going on with what is there: %s", what)
