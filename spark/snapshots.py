"""What is known of rows before an offset of a queue, kept from one range for the next.

Snapshots belong to a reader: one that was made anew, for whatever reason, knows nothing. They save work and nothing
else: whoever has none reads back. Batch reads keep them in the process. The Python workers of an executor share those
of streams, by small files in the directory that Spark gives the executor and clears away with it: which of them gets a
queue's next range is left to chance.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import orjson
from pyspark import SparkFiles

from mqcore.protocol.message import MessageQueue
from mqcore.spark.repeats import UNSEEN, Seen

logger = logging.getLogger(__name__)

SNAPSHOTS_PER_QUEUE: Final = 4
LANES_MAX: Final = 500_000
"""What a process keeps at most, in all."""
LANES_PER_FILE_MAX: Final = 100_000
"""A larger snapshot is not shared; its file would have some MiB, and be written for each range."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known of the rows before a queue offset, by query; of other queries nothing, or with *is_whole* that
    they have no row there."""

    seen: dict[int, Seen] = field(default_factory=dict)
    is_whole: bool = False

    def find(self, query: int) -> Seen | None:
        return self.seen.get(query, UNSEEN if self.is_whole else None)

    @property
    def size(self) -> int:
        return 1 + sum(1 + len(seen.rows) for seen in self.seen.values())


class Memory(Protocol):
    """Where the last snapshots of queues are kept, by reader."""

    def of(self, reader_id: str, queue: MessageQueue) -> dict[int, Snapshot]:
        """Return the snapshots of a queue by offset."""

    def put(self, reader_id: str, queue: MessageQueue, offset: int, snapshot: Snapshot) -> None:
        """Keep *snapshot*, for as long as there is room."""


class ProcessMemory:
    """Snapshots in this process."""

    def __init__(self, lanes_max: int = LANES_MAX) -> None:
        self._lanes_max = lanes_max
        self._size = 0
        self._queues: OrderedDict[tuple[str, MessageQueue], dict[int, Snapshot]] = OrderedDict()

    def of(self, reader_id: str, queue: MessageQueue) -> dict[int, Snapshot]:
        return dict(self._queues.get((reader_id, queue), {}))

    def put(self, reader_id: str, queue: MessageQueue, offset: int, snapshot: Snapshot) -> None:
        """Keep *snapshot*; the oldest of its queue go, and those of queues that were not read for the longest time."""
        kept = self._queues.setdefault((reader_id, queue), {})
        self._queues.move_to_end((reader_id, queue))
        gone = [kept.pop(offset)] if offset in kept else []
        kept[offset] = snapshot
        self._size += snapshot.size
        if len(kept) > SNAPSHOTS_PER_QUEUE:
            gone.append(kept.pop(next(iter(kept))))
        self._size -= sum(one.size for one in gone)
        while self._size > self._lanes_max:
            _, dropped = self._queues.popitem(last=False)
            self._size -= sum(one.size for one in dropped.values())


class SharedMemory:
    """Snapshots in files of *directory*, one file for each reader and queue."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def _path(self, reader_id: str, queue: MessageQueue) -> Path:
        name = hashlib.blake2b(repr(queue).encode(), digest_size=8).hexdigest()
        return self._directory / f"mqcore-seen-{reader_id}-{name}.json"

    def of(self, reader_id: str, queue: MessageQueue) -> dict[int, Snapshot]:
        try:
            return _decoded(self._path(reader_id, queue).read_bytes())
        except OSError:  # mostly that there is none yet
            return {}

    def put(self, reader_id: str, queue: MessageQueue, offset: int, snapshot: Snapshot) -> None:
        """Keep *snapshot*; the oldest of its queue go. Where that fails the next range reads back."""
        if snapshot.size > LANES_PER_FILE_MAX:
            return
        kept = self.of(reader_id, queue)
        kept.pop(offset, None)
        newest = [*kept.items(), (offset, snapshot)][-SNAPSHOTS_PER_QUEUE:]
        path = self._path(reader_id, queue)
        begun = path.with_suffix(f".{os.getpid()}")
        try:
            begun.write_bytes(_encoded(dict(newest)))
            begun.replace(path)
        except OSError as error:
            logger.warning("what was read of %s is not kept for the next range: %s", queue, error)
            begun.unlink(missing_ok=True)


def _encoded(snapshots: dict[int, Snapshot]) -> bytes:
    rows = [
        [at, one.is_whole, [[query, seen.batch, list(seen.rows.items())] for query, seen in one.seen.items()]]
        for at, one in snapshots.items()
    ]
    return orjson.dumps(rows)


def _decoded(text: bytes) -> dict[int, Snapshot]:
    return {
        at: Snapshot({query: Seen(batch, dict(rows)) for query, batch, rows in seen}, is_whole)
        for at, is_whole, seen in orjson.loads(text)
    }


MEMORY: Final = ProcessMemory()


def memory_of_task(*, is_shared: bool) -> Memory:
    """Return where a task keeps snapshots; with *is_shared* the other processes of its executor find them too."""
    if is_shared and SparkFiles._is_running_on_worker:
        return SharedMemory(Path(SparkFiles.getRootDirectory()))
    return MEMORY
