"""The ids of what lies in a queue before a range, read from its broker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa

from mqcore.spark.cluster import Cluster
from mqcore.spark.decoding import record_batches
from mqcore.spark.ranges import QueueRange
from mqcore.spark.reading import RangeReading
from mqcore.spark.schema import schema_of
from mqcore.spark.settings import SourceSettings
from mqcore.store.message_columns import UNBOUNDED_MAX, UNBOUNDED_MIN

ID_SCHEMA: Final = schema_of(["msgId"])


class QueueHistory:
    """What lies before *part*. *begun_ms*, for the option ``dedupLookback``, is when its first message was stored."""

    def __init__(self, cluster: Cluster, settings: SourceSettings, part: QueueRange) -> None:
        self._cluster = cluster
        self._settings = settings
        self._part = part
        self.begun_ms: int | None = None

    def bottom(self) -> int:
        """Return the offset before which nothing is looked for."""
        queue = self._part.queue
        if self._part.start == 0:
            return 0
        if self._settings.dedup_lookback is None:
            return self._cluster.min_offsets([queue])[queue]
        assert self.begun_ms is not None
        bound_ms = self.begun_ms - self._settings.dedup_lookback
        return min(self._part.start, self._cluster.offsets_at({queue: bound_ms})[queue])

    def ids(self, start: int, end: int) -> Iterator[pa.StringArray]:
        """Iterate over the ids of the messages in [start, end) that pass the query's filters, in their order.

        What the broker no longer has is left out: it cannot be repeated any more. Repeats have the content of what they
        repeat, so filters hold for both. Only bounds of time do not: a first copy counts whenever it was stored.
        Raises what ``RangeReading.bodies`` raises.
        """
        part = replace(self._part, start=start, end=end)
        selection = replace(
            self._settings.selection,
            offset_min=start,
            offset_max=end,
            store_timestamp_min=UNBOUNDED_MIN,
            store_timestamp_max=UNBOUNDED_MAX,
        )
        batches = record_batches(
            RangeReading(self._cluster, self._settings, part, may_miss=True),
            ID_SCHEMA,
            broker_name=part.broker_name,
            selection=selection,
            batch_bytes=self._settings.batch_bytes,
        )
        for batch in batches:
            yield batch.column(0)
