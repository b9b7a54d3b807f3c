"""The streaming source: one class for Spark 4.0 to 4.3.

Spark 4.2 brought admission control (it hands a limit to ``latestOffset``); older versions call ``latestOffset`` without
arguments, and limits are then applied from where the last micro-batch ended, which this process remembers: the planner
lives as long as its query. What a restart goes by is Spark's checkpoint alone; nothing here is stored.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from mqcore.errors import MQError
from mqcore.protocol.message import MessageQueue
from mqcore.spark.cluster import Cluster
from mqcore.spark.errors import DataLossError, TopicRouteError
from mqcore.spark.offsets import (
    Offsets,
    Where,
    check_available,
    from_json,
    queue_key,
    resolve,
    starting_position,
    to_json,
)
from mqcore.spark.ranges import QueueRange, new_reader_id, plan_ranges, share_out
from mqcore.spark.reading import NotThereYetError
from mqcore.spark.record_size import RecordSize
from mqcore.spark.settings import SourceSettings
from mqcore.spark.subscription import find_queues

if TYPE_CHECKING:
    import pyarrow as pa

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    HAS_ADMISSION_CONTROL = True
except ImportError:  # Spark 4.0 and 4.1 have no admission control

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands in for the mark that newer Sparks look for."""

    ReadLimit = Any  # type: ignore[assignment, misc]
    HAS_ADMISSION_CONTROL = False

logger = logging.getLogger(__name__)

MIRROR_WARNING_INTERVAL_S: Final = 60.0


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads micro-batches. The planner's copy keeps routes and connections; executors get copies without."""

    def __init__(self, settings: SourceSettings, schema: StructType) -> None:
        self._settings = settings
        self._schema = schema
        self._id = new_reader_id()
        self._start = starting_position(settings, Where.LATEST)
        self._planned: Offsets | None = None  # where the last planned micro-batch ends, for Sparks that do not say
        self._planned_at_s = time.monotonic()
        self._final: Offsets | None = None  # where a run with the trigger AvailableNow ends
        self._mirrored: Offsets = {}
        self._mirror_warned_s = 0.0
        self._size = RecordSize(settings)
        self._checked: set[str] = set()  # brokers that can evaluate sqlExpression

    # On the driver.

    def initialOffset(self) -> dict[str, int]:
        """Return where a query without a checkpoint begins."""
        cluster = Cluster(self._settings.calling)
        queues = self._find_queues(cluster)
        start = resolve(self._start, cluster, queues, self._settings.group)
        self._planned = check_available(cluster, start, self._start, self._settings)
        return to_json(self._planned)

    def latestOffset(self, start: dict[str, int] | None = None, limit: ReadLimit | None = None) -> dict[str, int]:
        """Return where the next micro-batch ends: the limits' share of what is there, or *start* for none yet.

        *start* is None with Sparks before 4.2. Raises DataLossError when a queue holds less than was read before.
        """
        known = from_json(start) if start is not None else self._planned
        if known is None:
            # Restarted by a Spark that does not say where: a limit counted from elsewhere could end before that.
            return to_json(self._available({}))
        if start is not None:
            self._mirror(known)
        end = self._next_end(known, self._available(known), limit)
        if end != known:
            self._planned_at_s = time.monotonic()
        self._planned = end
        return to_json(end)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return one of the options' limits, so that Spark can say "no limit" by another one (the trigger Once).

        Spark takes a single limit; which one it hands back makes no difference, all of the options' are applied.
        """
        settings = self._settings
        if settings.max_offsets_per_trigger is not None:
            return ReadMaxRows(settings.max_offsets_per_trigger)
        if settings.max_bytes_per_trigger is not None:
            return ReadMaxBytes(settings.max_bytes_per_trigger)
        if settings.min_offsets_per_trigger is not None:
            return ReadMinRows(settings.min_offsets_per_trigger)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, int] | None:
        """Return the ends of the queues now, for the metrics of the query's progress."""
        if self._planned is None:
            return None
        return to_json(Cluster(self._settings.calling).max_offsets(list(self._planned)))

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of this run: what is there now, and nothing that comes later."""
        cluster = Cluster(self._settings.calling)
        self._final = cluster.max_offsets(self._find_queues(cluster))

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Return the ranges between two offsets; a queue that *start* does not know is read from its beginning."""
        ends, starts = from_json(end), from_json(start)
        new = [queue for queue in ends if queue not in starts]
        if new:
            starts |= Cluster(self._settings.calling).min_offsets(new)
        self._planned = ends
        ranges = plan_ranges(
            starts,
            ends,
            min_partitions=None if self._settings.dedup else self._settings.min_partitions,
            size_max=None if self._settings.dedup else self._settings.max_records_per_partition,
        )
        return list(ranges)

    def commit(self, end: dict[str, int]) -> None:
        """Take notice that all up to *end* is done. Spark calls this when it plans the next micro-batch."""
        self._mirror(from_json(end))

    def stop(self) -> None:
        """End of the query: nothing is open that the end of the process does not close."""

    def _find_queues(self, cluster: Cluster, *, only_known: bool = False) -> list[MessageQueue]:
        """Return the queues to be read now; BrokerError if a broker that is new among them cannot filter them."""
        settings = self._settings
        queues = find_queues(settings, cluster, only_known=only_known)
        new = [queue for queue in queues if queue.broker_name not in self._checked]
        if settings.sql_expression is not None and new:
            cluster.check_expression(settings.sql_expression, new, settings.pull_group)
        self._checked |= {queue.broker_name for queue in new}
        return queues

    def _available(self, known: Offsets) -> Offsets:
        """Return the ends of all queues now; those that cannot be seen just now stay where *known* has them.

        A broker that stops takes its queues out of the route until it is back. They are not lost, only late.
        """
        cluster = Cluster(self._settings.calling)
        try:
            queues = self._find_queues(cluster, only_known=True)
        except TopicRouteError as error:
            self._lose(f"the topic {error.topic} is gone")
            queues = [queue for queue in known if queue.topic != error.topic and cluster.has_route(queue.topic)]
        if self._final is not None:
            queues = [queue for queue in queues if queue in self._final]
        highs = self._ends(cluster, queues, known)
        if self._final is not None:
            highs = {queue: max(known.get(queue, 0), min(high, self._final[queue])) for queue, high in highs.items()}
        return known | highs

    def _ends(self, cluster: Cluster, queues: list[MessageQueue], known: Offsets) -> Offsets:
        """Return the ends of *queues*, none of them below *known*; DataLossError if there is less, and stays so.

        A broker that was just started may not have gone through all of its store yet.
        """
        retries = cluster.retries()
        while True:
            highs = cluster.max_offsets(queues)
            shrunk = [queue for queue in queues if highs[queue] < known.get(queue, 0)]
            if not shrunk:
                return highs
            queue = shrunk[0]
            try:
                what = f"{queue_key(queue)} was read up to {known[queue]}"
                retries.failed(NotThereYetError(what, highs[queue]), "asking for the ends of queues")
            except NotThereYetError as lasting:
                self._lose(f"{lasting}; its topic was made anew, or its broker lost messages")
                return highs | {queue: known[queue] for queue in shrunk}

    def _lose(self, what: str) -> None:
        if self._settings.fail_on_data_loss:
            raise DataLossError(what)
        logger.warning("data loss, going on with what is there: %s", what)

    def _next_end(self, start: Offsets, available: Offsets, limit: Any) -> Offsets:
        """Apply the options' limits to what is there, unless *limit* is Spark's word for none."""
        if HAS_ADMISSION_CONTROL and isinstance(limit, ReadAllAvailable):
            return available
        new = [queue for queue in available if queue not in start]
        if new:
            start = start | Cluster(self._settings.calling).min_offsets(new)
        backlog = sum(available[queue] - start[queue] for queue in available)
        if self._is_too_little(backlog):
            return {queue: start[queue] for queue in available if queue not in new}
        limits = (
            self._settings.max_offsets_per_trigger,
            self._size.count_of(self._settings.max_bytes_per_trigger, start, available),
        )
        allowed = [one for one in limits if one is not None]
        return share_out(start, available, min(allowed)) if allowed else available

    def _is_too_little(self, backlog: int) -> bool:
        wanted = self._settings.min_offsets_per_trigger
        if wanted is None or backlog >= wanted or self._final is not None:
            return False
        return (time.monotonic() - self._planned_at_s) * 1000 < self._settings.max_trigger_delay

    def _mirror(self, done: Offsets) -> None:
        """Write what is done to the consumer group, if the query has one for it. A failure never stops the query."""
        if not self._settings.commit_offsets or done == self._mirrored:
            return
        changed = {queue: offset for queue, offset in done.items() if self._mirrored.get(queue) != offset}
        assert self._settings.group is not None
        try:
            Cluster(self._settings.calling).commit_offsets(self._settings.group, changed)
        except MQError as error:
            if time.monotonic() - self._mirror_warned_s > MIRROR_WARNING_INTERVAL_S:
                self._mirror_warned_s = time.monotonic()
                logger.warning("progress was not written to group %s: %s", self._settings.group, error)
            return
        self._mirrored = dict(done)

    # On the executors.

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Iterate over a partition's rows."""
        from mqcore.spark.rows import RangeRows

        if isinstance(partition, QueueRange):
            rows = RangeRows(self._settings, self._schema, self._id, is_stream=True)
            yield from rows.read(partition)
