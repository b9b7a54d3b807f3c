"""ports.FigureView on the shared segment."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from mqcore import layout
from mqcore._fast.segment.boards import SharedSegment
from mqcore._fast.segment.latencies import sum_latencies
from mqcore._fast.segment.sums import GroupSums, sum_groups, sum_topics
from mqcore.broker.figures import GroupFigures, ProcessFigures, TopicFigures, UnconsumedQueue
from mqcore.broker.segment.shared_ports import SegmentWatermarks
from mqcore.broker.supervisor import BROKER_ROW, MISSING_AFTER_DEATHS, Worker
from mqcore.config import Settings
from mqcore.layout import WORKER_ROW
from mqcore.store.geometry import StoreGeometry
from mqcore.store.message_store import MessageStoreReader
from mqcore.store.paths import StorePaths

STORE_FLAG: Final = layout.constants("StoreFlag")
LATENCY_KIND: Final = layout.constants("LatencyKind")
STATES: Final = {number: name for name, number in layout.constants("WorkerState").items()}
WORDS: Final = tuple(
    field.name for field in WORKER_ROW.fields if field.code == "q" and not field.name.startswith("pad")
)
AT_ONCE: Final = 256
"""Rows that become objects in one go."""


class SharedFigures:
    """*workers* are the supervisor's, *settings* those of the store."""

    def __init__(self, segment: SharedSegment, workers: Sequence[Worker], settings: Settings) -> None:
        self._segment = segment
        self._workers = workers
        self._settings = settings
        self._reader: MessageStoreReader | None = None
        self._log_start = 0

    def word(self, name: str) -> int:
        return self._segment.get(name)

    def waiting_pulls(self) -> int:
        return self._segment.waiting_pulls()

    def latency(self, kind: str) -> tuple[int, Sequence[int]]:
        return sum_latencies(self._segment, LATENCY_KIND[kind])

    def flags(self) -> Mapping[str, bool]:
        flags = self._segment.get("store_flags")
        return {name: bool(flags & bit) for name, bit in STORE_FLAG.items()}

    def topics(self) -> Iterator[TopicFigures]:
        sums = sum_topics(self._segment)
        for first in range(0, len(sums), AT_ONCE):
            for name, put_nums, put_bytes, max_offset in sums.part(first, AT_ONCE):
                yield TopicFigures(name.decode(), put_nums, put_bytes, max_offset)

    def groups(self) -> Iterator[GroupFigures]:
        sums = sum_groups(self._segment)
        for first in range(0, len(sums), AT_ONCE):
            for index, (group, topic, nums, size, committed, lag, in_flight, ready, end) in enumerate(
                sums.part(first, AT_ONCE), first
            ):
                yield GroupFigures(
                    group.decode(), topic.decode(), nums, size, committed, lag, in_flight, ready, end,
                    partial(unconsumed_of, sums, index),
                )  # fmt: skip

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        reader = self._store_reader()
        oldest = reader.min_offset(topic, queue_id)
        return reader.message_store_time(topic, queue_id, max(queue_offset, oldest))

    def _store_reader(self) -> MessageStoreReader:
        log_start = self._segment.get("min_offset")
        if self._reader is None:
            store = self._settings.store
            watermarks = SegmentWatermarks(self._segment)
            self._reader = MessageStoreReader(StorePaths.of(store), StoreGeometry.of(store), watermarks)
        elif log_start != self._log_start:
            self._reader.commit_log.files.refresh()  # what was deleted since takes no room of the disk any more
        self._log_start = log_start
        return self._reader

    def processes(self) -> Sequence[ProcessFigures]:
        broker = ProcessFigures("broker", "broker", os.getpid(), "RUNNING", True, True, self._words(BROKER_ROW))
        return [broker, *map(self._process, self._workers)]

    def _process(self, worker: Worker) -> ProcessFigures:
        words = self._words(worker.row)
        stays_up = worker.pause.young_deaths < MISSING_AFTER_DEATHS
        state = STATES.get(words["state"], "")
        return ProcessFigures(worker.name, worker.kind, words["pid"], state, worker.is_wanted, stays_up, words)

    def _words(self, row: int) -> dict[str, int]:
        return {name: self._segment.worker_word(row, name) for name in WORDS}


def unconsumed_of(sums: GroupSums, index: int) -> list[UnconsumedQueue]:
    return [UnconsumedQueue(*place) for place in sums.behind(index)]
