"""Rows of a queue range, on an executor: pulled bytes to Arrow record batches, without repeats if so asked."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.types import StructType

from mqcore.spark.cluster import Cluster
from mqcore.spark.decoding import record_batches
from mqcore.spark.errors import DataLossError
from mqcore.spark.history import QueueHistory
from mqcore.spark.look_back import LookBack
from mqcore.spark.ranges import QueueRange
from mqcore.spark.reading import RangeReading
from mqcore.spark.repeats import RepeatGuard
from mqcore.spark.schema import schema_of
from mqcore.spark.settings import SourceSettings
from mqcore.spark.snapshots import memory_of_task
from mqcore.store.message_columns import MICROSECONDS_PER_MS, UNBOUNDED_MAX, UNBOUNDED_MIN, Selection

logger = logging.getLogger(__name__)

MSG_ID: Final = "msgId"
STORE_TIMESTAMP: Final = "storeTimestamp"


class RangeRows:
    """Reads ranges for one query. *reader_id* is what its reader calls itself, in all processes; *is_stream* says
    whether more ranges of the same queues are to follow."""

    def __init__(self, settings: SourceSettings, schema: StructType, reader_id: str, *, is_stream: bool) -> None:
        self._settings = settings
        self._schema = schema
        self._reader_id = reader_id
        self._is_stream = is_stream
        self._selection = settings.selection
        # The guard looks at ids, and must know a first copy also where the query's times leave it out.
        guarded = [MSG_ID, STORE_TIMESTAMP] if settings.dedup else []
        more = [field for field in schema_of(guarded).fields if field.name not in schema.names] if guarded else []
        self._has_more = bool(more)
        self._decoded = StructType([*schema.fields, *more])
        self._wanted = self._selection
        if settings.dedup:
            self._wanted = replace(
                self._selection, store_timestamp_min=UNBOUNDED_MIN, store_timestamp_max=UNBOUNDED_MAX
            )

    def read(self, part: QueueRange) -> Iterator[pa.RecordBatch]:
        """Iterate over the rows of *part* in record batches of about ``batchBytes``.

        Raises DataLossError when rows are missing and the query minds, and what RangeReading.bodies raises.
        """
        first, end = self._selection.queue_bounds(part.topic, part.queue_id)
        part = replace(part, start=max(part.start, first), end=min(part.end, end))
        cluster = Cluster(self._settings.calling)
        reading = RangeReading(cluster, self._settings, part)
        batches = record_batches(
            reading,
            self._decoded,
            broker_name=part.broker_name,
            selection=replace(self._wanted, offset_min=part.start, offset_max=part.end),
            batch_bytes=self._settings.batch_bytes,
        )
        count = 0
        history = QueueHistory(cluster, self._settings, part)
        memory = memory_of_task(is_shared=self._is_stream)
        look_back = LookBack(history, part, reader_id=self._reader_id, memory=memory)
        guard = RepeatGuard(look_back.seen)
        for batch in batches:
            count += batch.num_rows
            yield self._guarded(batch, history, guard) if self._settings.dedup else batch
        if self._is_complete_by_count and count != max(0, part.size) and not reading.has_lost:
            self._miss(f"{part}: got {count} messages, wanted {part.size}")
        if self._settings.dedup:
            look_back.remember(guard.seen)

    def _guarded(self, batch: pa.RecordBatch, history: QueueHistory, guard: RepeatGuard) -> pa.RecordBatch:
        """Return the rows of *batch* that are first copies, and wanted."""
        stored_ms = batch.column(STORE_TIMESTAMP).cast(pa.int64()).to_numpy() // MICROSECONDS_PER_MS
        if history.begun_ms is None:
            history.begun_ms = int(stored_ms[0])
        kept = guard.first_copies(batch.column(MSG_ID))
        in_time = self._in_time(stored_ms)
        if kept is None or in_time is None:
            kept = in_time if kept is None else kept
        else:
            kept &= in_time
        if kept is not None:
            batch = batch.filter(pa.array(kept))
        return batch.select(self._schema.names) if self._has_more else batch

    def _in_time(self, stored_ms: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        """Return which rows were stored when the query wants them to be; None for all."""
        first, end = self._selection.store_timestamp_min, self._selection.store_timestamp_max
        if first == UNBOUNDED_MIN and end == UNBOUNDED_MAX:
            return None
        in_time: NDArray[np.bool_] = (stored_ms >= first) & ((stored_ms < end) | (end == UNBOUNDED_MAX))
        return in_time

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
