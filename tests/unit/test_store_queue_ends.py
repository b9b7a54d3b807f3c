"""Where the queues of a run of the log end, both twins."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqcore._fast.log import queue_ends as fast
from mqcore.codes import SysFlag
from mqcore.store.backup.counting import LogCounter
from mqcore.store.log import queue_ends as plain
from tests.unit.store_builder import GEOMETRY, StoreBuilder

twins = pytest.mark.parametrize("twin", [plain, fast], ids=["python", "cython"])


@twins
def test_first_and_end_and_count_of_each_queue(tmp_path, twin):
    store = StoreBuilder(tmp_path)
    store.append("A", 0, queue_offset=7)
    store.append("A", 0, queue_offset=8)
    store.append("A", 3, body=b"")
    store.append("B", 0, sys_flag=int(SysFlag.TRANSACTION_PREPARED))
    store.append("B", 0, sys_flag=int(SysFlag.TRANSACTION_COMMIT))
    store.append("B", 0, sys_flag=int(SysFlag.TRANSACTION_ROLLBACK))
    ends = twin.QueueEnds()
    ends.ask_since(b"A", 0, store.records[0].store_timestamp)
    ((start, data),) = store.runs()
    assert ends.feed(data, start) == len(data)
    assert ends.ends() == {(b"A", 0): (7, 9, 2, 8), (b"A", 3): (0, 1, 1, -1), (b"B", 0): (0, 1, 1, -1)}


@twins
def test_records_from_before_a_birth_do_not_count(tmp_path, twin):
    store = StoreBuilder(tmp_path)
    records = [store.append("A", 0) for _ in range(3)] + [store.append("A", 0, queue_offset=0)]
    ends = twin.QueueEnds()
    ends.bear(b"A", 0, records[3].physical_offset)
    ((start, data),) = store.runs()
    ends.feed(data, start)
    assert ends.ends() == {(b"A", 0): (0, 1, 1, -1)}


@twins
def test_it_stops_before_what_is_no_record(tmp_path, twin):
    store = StoreBuilder(tmp_path)
    store.append_many(3)
    ((start, data),) = store.runs()
    ends = twin.QueueEnds()
    assert ends.feed(data[:-1], start) == store.records[2].physical_offset
    assert ends.feed(b"", 0) == ends.feed(bytes(100), 0) == 0
    assert sum(end.record_count for end in ends.ends().values()) == 2


@twins
def test_a_hundred_thousand_queues(twin, tmp_path):
    count = 300 if twin is plain else 100_000
    ends = twin.QueueEnds()
    store = StoreBuilder(tmp_path)
    store.append("A", 0, queue_offset=41)
    for number in range(count):
        ends.bear(b"T%d" % number, number, 1 << 40)
    ((start, data),) = store.runs()
    ends.feed(data, start)
    assert ends.ends() == {(b"A", 0): (41, 42, 1, -1)}


@pytest.mark.parametrize("size", [1, 7, 64, 1000, 4096])
@twins
def test_parts_of_any_size_count_as_the_whole_and_damage_is_passed_over(tmp_path, twin, size):
    store = StoreBuilder(tmp_path / "store")
    store.append_many(60)
    damaged = store.records[10]
    store.flip(damaged.physical_offset + 4)
    ends = twin.QueueEnds()
    counter = LogCounter(ends, GEOMETRY.commit_log_file_size)
    for path in sorted(Path(store.paths.commit_log).iterdir()):
        data = memoryview(path.read_bytes())
        counter.begin(int(path.name))
        for at in range(0, len(data), size):
            counter.take(data[at : at + size])
    assert sum(end.record_count for end in ends.ends().values()) == 59
    assert {end.end for end in ends.ends().values()} == {30}
