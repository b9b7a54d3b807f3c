"""What is deleted when, and what never."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from store_builder import GEOMETRY, StoreBuilder

from mqcore.store import disk
from mqcore.store.codec import Dispatcher
from mqcore.store.disk import DiskVerdict, disk_used_ratio, judge_disk
from mqcore.store.log.mapped_file_queue import MappedFileQueue
from mqcore.store.queues.consume_queue import list_queues
from mqcore.store.queues.index_service import IndexService
from mqcore.store.retention import (
    FileAge,
    RetentionPolicy,
    clean_consume_queues,
    clean_index,
    delete_commit_log_files,
    file_ages,
    files_to_delete,
)

HOUR = 3_600_000
CALM = DiskVerdict(clean=False, clean_at_once=False, full=False)
NEEDY = DiskVerdict(clean=True, clean_at_once=False, full=False)
URGENT = DiskVerdict(clean=True, clean_at_once=True, full=True)
POLICY = RetentionPolicy()


def at_hour(hour: int) -> int:
    """A moment of today in the local hour *hour*, ms."""
    now = time.localtime()
    return int(time.mktime((now.tm_year, now.tm_mon, now.tm_mday, hour, 30, 0, 0, 0, -1))) * 1000


NOON = at_hour(12)
OLD, YOUNG = NOON - 72 * HOUR, NOON - 72 * HOUR + 1


def ages(*modified: int) -> list[FileAge]:
    return [FileAge(100 * number, moment) for number, moment in enumerate(modified)]


def choose(files: list[FileAge], now_ms: int = NOON, policy=POLICY, disk_verdict=NEEDY, manual=False) -> list[int]:
    return files_to_delete(files, now_ms=now_ms, policy=policy, disk=disk_verdict, manual=manual)


@pytest.mark.parametrize(
    ("hour", "verdict", "manual", "expected"),
    [
        (12, CALM, False, []),
        (4, CALM, False, [0]),
        (12, NEEDY, False, [0]),
        (12, CALM, True, [0]),
    ],
)
def test_expired_files_go_at_the_hour_for_space_or_by_order(hour, verdict, manual, expected):
    now = at_hour(hour)
    files = ages(now - 72 * HOUR, now, now)
    assert choose(files, now, disk_verdict=verdict, manual=manual) == expected


def test_the_first_file_that_stays_ends_the_round():
    assert choose(ages(OLD, YOUNG, OLD, NOON)) == [0]
    assert choose(ages(OLD, OLD, NOON)) == [0, 100]


def test_the_last_file_is_never_deleted():
    assert choose(ages(OLD)) == []
    assert choose(ages(OLD, OLD)) == [0]
    assert choose(ages(NOON), disk_verdict=URGENT) == []
    assert choose([]) == []


def test_a_nearly_full_disk_takes_files_that_are_not_expired_unless_that_is_forbidden():
    files = ages(NOON, NOON, NOON)
    assert choose(files, disk_verdict=URGENT) == [0, 100]
    assert choose(files, disk_verdict=URGENT, policy=RetentionPolicy(clean_forcibly=False)) == []


def test_ten_files_go_in_one_round():
    assert len(choose(ages(*[OLD] * 30))) == 10


@pytest.mark.parametrize(
    ("commit_log", "consume_queue", "expected"),
    [
        (0.75, 0.75, CALM),
        (0.76, 0.10, NEEDY),
        (0.86, 0.10, DiskVerdict(clean=True, clean_at_once=True, full=False)),
        (0.91, 0.10, URGENT),
        (0.10, 0.76, NEEDY),
        (0.10, 0.91, URGENT),
        (-1.0, 0.10, NEEDY),
        (0.10, -1.0, NEEDY),
    ],
)
def test_what_disk_ratios_mean(commit_log, consume_queue, expected):
    assert judge_disk(commit_log, consume_queue, 0.75) == expected


class _Status:
    def __init__(self, blocks: int, free: int, available: int) -> None:
        self.f_blocks, self.f_bfree, self.f_bavail, self.f_frsize = blocks, free, available, 4096


@pytest.mark.parametrize(
    ("blocks", "free", "available", "ratio"),
    [(1000, 1000, 1000, 0.0), (1000, 999, 999, 0.01), (1000, 500, 400, 0.56), (1000, 100, 100, 0.9), (0, 0, 0, -1.0)],
)
def test_the_used_ratio_is_rounded_up_and_leaves_out_what_is_reserved_for_root(
    monkeypatch, blocks, free, available, ratio
):
    monkeypatch.setattr(disk.os, "statvfs", lambda _: _Status(blocks, free, available))
    assert disk_used_ratio(Path("/")) == ratio


def test_the_used_ratio_of_a_real_and_of_a_missing_path(tmp_path):
    assert 0 <= disk_used_ratio(tmp_path) <= 1
    assert disk_used_ratio(tmp_path / "missing") == -1.0


@pytest.fixture
def store(tmp_path: Path) -> StoreBuilder:
    store = StoreBuilder(tmp_path / "store")
    store.append("Old", 0)
    store.append_many(100)
    dispatcher = Dispatcher(store.paths, store.geometry)
    for offset, data in store.runs():
        dispatcher.dispatch(data, offset)
    dispatcher.close()
    return store


def test_consume_queues_and_index_follow_the_commit_log(store):
    files = MappedFileQueue(store.paths.commit_log, GEOMETRY.commit_log_file_size)
    starts = [age.start for age in file_ages(files)]
    os.utime(store.log_file(0), (1, 1))
    assert file_ages(files)[0].modified_ms == 1000
    new_min = delete_commit_log_files(files, starts[:2])
    assert new_min == starts[2] == min(int(path.name) for path in store.paths.commit_log.iterdir())
    queues = list(list_queues(store.paths, GEOMETRY.consume_queue_file_size))
    kept = [record for record in store.records if record.physical_offset >= new_min]
    bounds = clean_consume_queues(queues, new_min)
    for queue_id in (0, 1):
        first = min(record.queue_offset for record in kept if record.queue_id == queue_id)
        assert bounds[("TopicA", queue_id)] == first
        names = sorted(int(path.name) for path in store.paths.queue("TopicA", queue_id).iterdir())
        assert names[0] == first // 10 * GEOMETRY.consume_queue_file_size
    assert bounds[("Old", 0)] == 1
    assert len(list(store.paths.queue("Old", 0).iterdir())) == 1
    index = IndexService(store.paths.index, GEOMETRY.index)
    before = len(index.names())
    assert 0 < clean_index(index, new_min) < before
    assert index.header(index.names()[0]).end_physical_offset >= new_min
