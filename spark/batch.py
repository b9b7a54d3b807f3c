"""The batch source: plans queue ranges on the driver and reads them on the executors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from mqcore.spark.cluster import Cluster
from mqcore.spark.offsets import Where, check_available, ending_position, resolve, starting_position
from mqcore.spark.ranges import QueueRange, plan_ranges
from mqcore.spark.rows import RangeRows, first_selection
from mqcore.spark.settings import SourceSettings
from mqcore.spark.subscription import find_queues


class BatchReader(DataSourceReader):
    """Reads what lies between two positions. Nothing is connected before ``partitions`` or ``read``."""

    def __init__(self, settings: SourceSettings, schema: StructType) -> None:
        self._settings = settings
        self._schema = schema
        self._selection = first_selection(settings)
        self._start = starting_position(settings, Where.EARLIEST)
        self._end = ending_position(settings)

    def partitions(self) -> list[InputPartition]:
        """Return the ranges to be read, as the queues are now.

        Raises DataLossError if a position that the user wrote is not there and the query minds; ConfigError and
        NoRouteError for what cannot be found.
        """
        settings, cluster = self._settings, Cluster(self._settings.calling)
        queues = find_queues(settings, cluster)
        if self._selection.queue_ids is not None:
            queues = [queue for queue in queues if queue.queue_id in self._selection.queue_ids]
        start = resolve(self._start, cluster, queues, settings.group)
        start = check_available(cluster, start, self._start, settings)
        end = check_available(cluster, resolve(self._end, cluster, queues, settings.group), self._end, settings)
        for queue in queues:
            start[queue] = max(start[queue], self._selection.offset_min)
            end[queue] = min(end[queue], self._selection.offset_max)
        # A guard against repeats sees one range: cutting a queue's would hide a repeat from it.
        ranges = plan_ranges(
            start,
            end,
            min_partitions=None if settings.dedup else settings.min_partitions,
            size_max=None if settings.dedup else settings.max_records_per_partition,
        )
        return list(ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Iterate over a partition's rows. Spark makes one partition of none, which has none."""
        if isinstance(partition, QueueRange):
            yield from RangeRows(self._settings, self._schema, self._selection).read(partition)


class PushdownBatchReader(BatchReader):
    """Takes filters over from Spark. Spark fails a query with such a reader while its configuration forbids it, so it
    is chosen by the option ``pushdownFilters`` alone."""

    def pushFilters(self, filters: list) -> Iterable:  # type: ignore[type-arg]  # Filter is new in Spark 4.1
        """Take what can be looked at before a row is made; return the rest."""
        from mqcore.spark.filters import push_filters

        self._selection, left = push_filters(filters, self._selection)
        return left
