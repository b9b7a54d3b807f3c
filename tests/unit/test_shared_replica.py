"""Which record a slave shows its master: the newest of its log, also where topics are gone."""

from __future__ import annotations

from typing import Any, cast

import pytest

from mqcore._fast.segment.boards import SharedSegment
from mqcore.broker.ports import StoreView
from mqcore.broker.segment.replica import WALK_MAX, SharedReplica
from mqcore.store.queues.units import QueueUnit

FILE_SIZE = 1000


class Records:
    """A store with records at some places, of which one is the newest in a consume queue."""

    def __init__(self, records: dict[int, bytes], unit: QueueUnit | None) -> None:
        self._records, self._unit = records, unit

    def read_units(self, topic: str, queue_id: int, first: int, count_max: int) -> tuple[QueueUnit, ...]:
        return () if self._unit is None else (self._unit,)

    def look_message(self, physical_offset: int, size: int | None = None) -> bytes | None:
        return self._records.get(physical_offset)


@pytest.fixture
def segment() -> SharedSegment:
    return SharedSegment.create()


def replica(segment: SharedSegment, records: dict[int, bytes], end: int, queued: int | None) -> SharedReplica:
    unit = None
    segment.set("wrote_offset", end)
    if queued is not None:
        unit = QueueUnit(0, queued, len(records[queued]), 0)
        row = segment.queue_row(b"T", 0, True)
        segment.set_queue_word(row, "max_offset", 1)
        segment.set_queue_word(row, "max_physical", queued + len(records[queued]))
    return SharedReplica(segment, cast(StoreView, cast(Any, Records(records, unit))), FILE_SIZE, lambda: None)


RECORDS = {0: b"a" * 300, 300: b"b" * 300, 1000: b"c" * 200, 1200: b"d" * 100}


@pytest.mark.parametrize(("end", "newest"), [(300, 0), (600, 300), (1000, 300), (1200, 1000), (1300, 1200)])
@pytest.mark.parametrize("queued", [None, 0])
def test_the_newest_record_is_found_behind_those_in_queues_and_over_the_end_of_a_file(
    segment: SharedSegment, end: int, newest: int, queued: int | None
) -> None:
    assert replica(segment, RECORDS, end, queued).newest_record() == (newest, RECORDS[newest])


def test_a_log_without_records_has_no_newest_one(segment: SharedSegment) -> None:
    assert replica(segment, {}, 0, None).newest_record() is None


def test_looking_for_the_newest_record_has_an_end(segment: SharedSegment) -> None:
    many = dict.fromkeys(range(2 * WALK_MAX), b"x")
    assert replica(segment, many, 2 * WALK_MAX, None).newest_record() == (WALK_MAX - 1, b"x")


def test_a_log_is_dispatched_when_the_reput_worker_has_all_of_it(segment: SharedSegment) -> None:
    found = replica(segment, RECORDS, 600, 0)
    for dispatched, wanted in ((300, False), (600, True)):
        segment.set("dispatched_offset", dispatched)
        assert found.is_dispatched is wanted
