"""The batch source: plans queue ranges on the driver and reads them on the executors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from mqcore.spark.cluster import Cluster
from mqcore.spark.offsets import Where, check_available, ending_position, resolve, starting_position
from mqcore.spark.ranges import QueueRange, new_reader_id, plan_ranges
from mqcore.spark.settings import SourceSettings
from mqcore.spark.subscription import find_queues

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    """Reads what lies between two positions. Nothing is connected before ``partitions`` or ``read``."""

    def __init__(self, settings: SourceSettings, schema: StructType) -> None:
        self._settings = settings
        self._schema = schema
        self._id = new_reader_id()
        self._start = starting_position(settings, Where.EARLIEST)
        self._end = ending_position(settings)

    def partitions(self) -> list[InputPartition]:
        """Return the ranges to be read, as the queues are now.

        Raises DataLossError if a position that the user wrote is not there and the query minds; ConfigError and
        TopicRouteError for what cannot be found.
        """
        settings, cluster = self._settings, Cluster(self._settings.calling)
        queues = find_queues(settings, cluster)
        if settings.sql_expression is not None:
            cluster.check_expression(settings.sql_expression, queues, settings.pull_group)
        selection = settings.selection
        start = resolve(self._start, cluster, queues, settings.group)
        end = resolve(self._end, cluster, queues, settings.group)
        bounds = {queue: selection.queue_bounds(queue.topic, queue.queue_id) for queue in queues}
        # Only now are queues left out: a position may name those that no condition wants.
        wanted = [queue for queue, (first, last) in bounds.items() if first < last]
        start = check_available(cluster, {queue: start[queue] for queue in wanted}, self._start, settings)
        end = check_available(cluster, {queue: end[queue] for queue in wanted}, self._end, settings)
        for queue in wanted:
            start[queue] = max(start[queue], bounds[queue][0])
            end[queue] = min(end[queue], bounds[queue][1])
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
        # Executors need what turns bytes into rows; planning does without.
        from mqcore.spark.rows import RangeRows

        if isinstance(partition, QueueRange):
            rows = RangeRows(self._settings, self._schema, self._id, is_stream=False)
            yield from rows.read(partition)
