"""How large the messages of a stream are, so that a limit in bytes becomes a number of offsets."""

from __future__ import annotations

from typing import Final

from mqcore.errors import MQError
from mqcore.layout import RECORD_HEAD
from mqcore.spark.cluster import Cluster
from mqcore.spark.errors import TopicRouteError
from mqcore.spark.offsets import Offsets
from mqcore.spark.settings import SourceSettings

SAMPLED_QUEUES_MAX: Final = 8
SMOOTHING: Final = 0.5
"""The share of the newest sample in the mean."""


class RecordSize:
    """The mean size of stored records, by a sample of what is to be read next: one pull of a few queues each time."""

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings
        self._mean = 0.0

    def count_of(self, size: int | None, start: Offsets, available: Offsets) -> int | None:
        """Return how many offsets make about *size* bytes, at least 1; None for no limit."""
        if size is None:
            return None
        backlog = {queue: end - start[queue] for queue, end in available.items() if end > start[queue]}
        largest = sorted(backlog, key=lambda queue: backlog[queue], reverse=True)[:SAMPLED_QUEUES_MAX]
        cluster = Cluster(self._settings.calling)
        sizes: list[int] = []
        for queue in largest:
            try:
                sizes += record_sizes(cluster.pull_some(queue, start[queue]))
            except (MQError, TopicRouteError):
                continue  # the read itself will say what is wrong; here the mean so far has to do
        if sizes:
            sample = sum(sizes) / len(sizes)
            self._mean = sample if not self._mean else SMOOTHING * sample + (1 - SMOOTHING) * self._mean
        return max(1, int(size / self._mean)) if self._mean else None


def record_sizes(body: bytes) -> list[int]:
    """Return the sizes of the records in a pull body, up to the first that does not fit."""
    sizes = []
    at = 0
    while len(body) - at >= RECORD_HEAD.size:
        size = RECORD_HEAD.struct.unpack_from(body, at)[0]
        if not RECORD_HEAD.size <= size <= len(body) - at:
            break
        sizes.append(size)
        at += size
    return sizes
