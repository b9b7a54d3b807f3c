"""The sink: Arrow record batches to messages, for batch and streaming writes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from mqcore.errors import ConfigError
from mqcore.spark.arrow import arrow_schema
from mqcore.spark.settings import SinkSettings
from mqcore.spark.sink_keys import RandomKeys, RowKeys, TaskKeys
from mqcore.spark.sink_rows import TaskRows, check_schema

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamArrowWriter
except ImportError:  # new in Spark 4.1
    StreamArrowWriter = None  # type: ignore[assignment, misc]

logger = logging.getLogger(__name__)

BATCH_ID_PROPERTY = "streaming.sql.batchId"
QUERY_ID_PROPERTY = "sql.streaming.queryId"
ROWS_PER_BATCH = 10_000
"""Rows that a Spark without Arrow for streams hands over one by one are collected so many at a time."""


@dataclass
class Sent(WriterCommitMessage):
    """What a task has sent."""

    partition: int
    messages: int


class Writing:
    """What batch and stream writers share. It holds no connection and can be pickled."""

    def __init__(self, settings: SinkSettings, schema: StructType) -> None:
        check_schema(schema, settings)
        self._settings = settings
        self._schema = schema

    def _send(self, batches: Iterator[pa.RecordBatch], query: str | None, batch: int, partition: int) -> Sent:
        """Send everything and wait until it is stored. Raises SinkError, which names the row."""
        keys = self._keys(query, batch, partition)
        with TaskRows(self._settings, partition, keys) as rows:
            for one in batches:
                rows.send(one)
            rows.finish()
        return Sent(partition, rows.stored)

    def _keys(self, query: str | None, batch: int, partition: int) -> TaskKeys:
        if not self._settings.dedup:
            return RandomKeys()
        if not query:
            raise ConfigError("option dedup: this Spark does not tell a task its query; give the option queryId")
        return RowKeys(query, batch, partition)


def task_partition() -> int:
    context = TaskContext.get()
    return context.partitionId() if context is not None else 0


class BatchWriter(Writing, DataSourceArrowWriter):
    """Appends the rows of a frame to topics."""

    def __init__(self, settings: SinkSettings, schema: StructType) -> None:
        super().__init__(settings, schema)
        if settings.dedup and not settings.query_id:
            raise ConfigError("option dedup needs the option queryId in a batch write: the job's name and day, say")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._send(iterator, self._settings.query_id, 0, task_partition())


class StreamWriting(Writing):
    """What both kinds of stream writer share."""

    def _send_batch(self, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = batch = None
        if context is not None:
            query, batch = context.getLocalProperty(QUERY_ID_PROPERTY), context.getLocalProperty(BATCH_ID_PROPERTY)
        if self._settings.dedup and batch is None:
            raise ConfigError("option dedup: this Spark does not tell a task its micro-batch")
        return self._send(batches, self._settings.query_id or query, int(batch or 0), task_partition())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing is left to do: messages are in their topics when a task ends."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        logger.warning("micro-batch %d failed; what its tasks have sent stays in the topics", batchId)


class StreamRowWriter(StreamWriting, DataSourceStreamWriter):
    """Appends micro-batches, for Sparks that give rows: they are put into record batches first."""

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        return self._send_batch(self._batches(iterator))

    def _batches(self, rows: Iterator[Row]) -> Iterator[pa.RecordBatch]:
        types = arrow_schema(self._schema)
        taken: list[Row] = []
        for row in rows:
            taken.append(row)
            if len(taken) == ROWS_PER_BATCH:
                yield self._batch(taken, types)
                taken = []
        if taken:
            yield self._batch(taken, types)

    @staticmethod
    def _batch(rows: list[Row], types: pa.Schema) -> pa.RecordBatch:
        columns = zip(*rows, strict=True)
        arrays = [pa.array(list(values), type=field.type) for values, field in zip(columns, types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=types)


if StreamArrowWriter is not None:

    class ArrowStreamWriter(StreamWriting, StreamArrowWriter):
        """Appends micro-batches."""

        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            return self._send_batch(iterator)


def new_stream_writer(settings: SinkSettings, schema: StructType) -> DataSourceStreamWriter:
    """Return the writer of micro-batches that this Spark can use."""
    if StreamArrowWriter is None:
        return StreamRowWriter(settings, schema)
    return ArrowStreamWriter(settings, schema)
