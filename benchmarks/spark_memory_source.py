"""The ceiling: a Spark source that gives the same record batch again and again, from memory.

What a source can reach at most is what Spark takes off its hands; this one does nothing else. The batch is made by the
real decoder, so rows, columns and batch size are those of the source that it is compared with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from mqcore.spark.store_options import store_settings
from mqcore.spark.store_source import StoreBatchReader, default_schema

if TYPE_CHECKING:
    import pyarrow as pa

MEMORY_OPTION = "memoryRows"


@dataclass(frozen=True)
class Rows(InputPartition):
    """So many rows, of the batch that *model* begins with."""

    model: InputPartition
    count: int


class MemorySource(DataSource):
    """Options are those of rocketmq-store, and ``memoryRows``: how many rows there are."""

    @classmethod
    def name(cls) -> str:
        return "mqcore-memory"

    def _store_options(self) -> dict[str, str]:
        return {name: value for name, value in self.options.items() if name.lower() != MEMORY_OPTION.lower()}

    def schema(self) -> StructType:
        return default_schema(store_settings(self._store_options()))

    def reader(self, schema: StructType) -> DataSourceReader:
        return MemoryReader(
            StoreBatchReader(store_settings(self._store_options()), schema), int(self.options[MEMORY_OPTION])
        )


class MemoryReader(DataSourceReader):
    """As many partitions as the store would have, with the same rows in all."""

    def __init__(self, store: StoreBatchReader, row_count: int) -> None:
        self._store = store
        self._row_count = row_count

    def partitions(self) -> list[InputPartition]:
        models = self._store.partitions()
        ends = [self._row_count * number // len(models) for number in range(len(models) + 1)]
        return [Rows(model, end - start) for model, start, end in zip(models, ends[:-1], ends[1:], strict=True)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Rows):
            return
        batch = next(self._store.read(partition.model))
        left = partition.count
        while left > 0:
            yield batch.slice(0, min(left, batch.num_rows))
            left -= batch.num_rows
