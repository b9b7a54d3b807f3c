"""The ceiling: a Spark source that gives the same record batch again and again, from memory.

What a source can reach at most is what Spark takes off its hands; this one does nothing else. The batch has the
columns, the sizes and the batch size of the source that it is compared with: the real decoder makes it of records in
memory, once in each Python worker process and never while a query is timed (a warm-up query comes first). No file is
looked at, in planning neither.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from mqcore.layout import RECORD_HEAD
from mqcore.spark.arrow import arrow_schema, to_record_batch
from mqcore.spark.schema import decoder_columns, schema_of
from mqcore.store.codec import encode_record
from mqcore.store.columns import ColumnDecoder
from mqcore.store.log.record import PackedHost, Record
from mqcore.store.message_columns import BATCH_BYTES_DEFAULT

FORMAT: Final = "mqcore-memory"
QUEUES: Final = 8
TOPIC: Final = "Bench"
BROKER_NAME: Final = "broker-a"
HOST: Final = PackedHost(b"\x7f\x00\x00\x01", 10911)
PROPERTIES: Final = b"KEYS\x01order-0000000000\x02UNIQ_KEY\x017F00000100001B28DAB15D0BD7C80000\x02TAGS\x01TagA"
FIRST_COUNT: Final = 256


@dataclass(frozen=True)
class Rows(InputPartition):
    """So many rows."""

    count: int


class MemorySource(DataSource):
    """Options: ``rows``, ``bodySize`` (bytes), ``partitions``; ``columns`` and ``batchBytes`` as in the real ones."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return schema_of(name.strip() for name in self.options["columns"].split(","))

    def reader(self, schema: StructType) -> DataSourceReader:
        return MemoryReader(
            schema,
            int(self.options["rows"]),
            int(self.options["bodySize"]),
            int(self.options.get("partitions", QUEUES)),
            int(self.options.get("batchBytes", BATCH_BYTES_DEFAULT)),
        )


class MemoryReader(DataSourceReader):
    """Gives *row_count* rows in *part_count* partitions."""

    def __init__(self, schema: StructType, row_count: int, body_size: int, part_count: int, batch_bytes: int) -> None:
        self._schema = schema
        self._row_count = row_count
        self._body_size = body_size
        self._part_count = part_count
        self._batch_bytes = batch_bytes

    def partitions(self) -> list[InputPartition]:
        ends = [self._row_count * number // self._part_count for number in range(self._part_count + 1)]
        return [Rows(end - start) for start, end in pairwise(ends)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Rows)
        batch = full_batch(self._schema.json(), self._body_size, self._batch_bytes)
        left = partition.count
        while left > 0:
            yield batch.slice(0, min(left, batch.num_rows))
            left -= batch.num_rows


@lru_cache
def full_batch(schema_json: str, body_size: int, batch_bytes: int) -> pa.RecordBatch:
    """Return a batch of *batch_bytes*, made once in a process."""
    schema = StructType.fromJson(json.loads(schema_json))
    decoder = ColumnDecoder(decoder_columns(schema), broker_name=BROKER_NAME, batch_bytes=batch_bytes)
    first = 0
    while not decoder.is_full:
        records = numbered_records(np.arange(first, first + FIRST_COUNT, dtype=np.int64), body_size)
        position = 0
        while position < len(records) and not decoder.is_full:
            position = decoder.feed(records, position)
        first += FIRST_COUNT
    return to_record_batch(decoder.take(), schema, arrow_schema(schema))


def template(body_size: int) -> bytes:
    """Return one record, all of which are of the same size."""
    body = np.random.default_rng(body_size).bytes(body_size)
    return encode_record(
        Record(
            queue_id=0, flag=0, queue_offset=0, physical_offset=0, sys_flag=0, born_timestamp=1_700_000_000_000,
            born_host=HOST, store_timestamp=1_700_000_000_001, store_host=HOST, reconsume_times=0,
            prepared_transaction_offset=0, body=body, topic=TOPIC.encode(), properties=PROPERTIES,
        )
    )  # fmt: skip


def numbered_records(numbers: NDArray[np.int64], body_size: int, physical: NDArray[np.int64] | None = None) -> bytes:
    """Return records that go to QUEUES queues in turn, *numbers* counting through all; *physical* is where they lie."""
    record = np.frombuffer(template(body_size), dtype=np.uint8)
    data = np.tile(record, (len(numbers), 1))
    for field, values, code in (
        ("queue_id", numbers % QUEUES, "i4"), ("queue_offset", numbers // QUEUES, "i8"),
        ("physical_offset", numbers * 0 if physical is None else physical, "i8"),
    ):  # fmt: skip
        at = RECORD_HEAD.offsets[field]
        data[:, at : at + int(code[1])] = values.astype(f">{code}").view(np.uint8).reshape(len(values), -1)
    return data.tobytes()
