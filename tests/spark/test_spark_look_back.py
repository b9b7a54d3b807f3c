"""Ranges of a queue, read in any order by any process: each row is given where its first copy lies, and only there."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqcore.spark import look_back, snapshots
from mqcore.spark.look_back import LookBack
from mqcore.spark.ranges import QueueRange
from mqcore.spark.repeats import RepeatGuard
from mqcore.spark.sink_keys import RowKeys
from mqcore.spark.snapshots import Memory, ProcessMemory, SharedMemory

Log = list[str]
Task = list[str]


@pytest.fixture(autouse=True)
def blocks_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_back, "BLOCK_SIZE", 4)
    monkeypatch.setattr(look_back, "BLOCK_SIZE_MAX", 32)


@dataclass
class Stored:
    """A queue's ids; *count* is how many were read again to look back."""

    log: Log
    first: int = 0
    portion: int = 7
    count: int = 0

    def bottom(self) -> int:
        return self.first

    def ids(self, start: int, end: int) -> Iterator[pa.StringArray]:
        assert 0 <= start < end
        self.count += end - start
        for at in range(max(start, self.first), end, self.portion):
            yield pa.array(self.log[at : min(at + self.portion, end)], pa.string())


@dataclass
class Worker:
    """A process that reads ranges."""

    stored: Stored
    memory: Memory = field(default_factory=ProcessMemory)

    def read(self, start: int, end: int, *, reader_id: str = "reader", portion: int = 5) -> list[int]:
        """Return the offsets of the rows in [start, end) that are given."""
        past = LookBack(self.stored, QueueRange("T", "b", 0, start, end), reader_id=reader_id, memory=self.memory)
        guard = RepeatGuard(past.seen)
        given = []
        for at in range(start, end, portion):
            ids = pa.array(self.stored.log[at : min(at + portion, end)], pa.string())
            kept = guard.first_copies(ids)
            given += [at + place for place in range(len(ids)) if kept is None or kept[place]]
        past.remember(guard.seen)
        return given


def first_copies(log: Log) -> list[int]:
    """What is to be given of all, found the plain way."""
    seen = set()
    return [at for at, one in enumerate(log) if not (one in seen or seen.add(one))]  # type: ignore[func-returns-value]


def query_log(chance: random.Random, name: str, batches: int) -> Iterator[str]:
    """Give what a query's tasks store in one queue: attempts that break off, and some that write on in the batch after
    their own, of which nobody waits for the end."""
    late: list[Task] = []
    for batch in range(batches):
        tasks = [
            [RowKeys(name, batch, partition).ids(0, []).of(row) for row in sorted(chance.sample(range(40), size))]
            for partition in range(chance.randrange(1, 4))
            if (size := chance.randrange(0, 12))
        ]
        given_up: list[Task] = []
        for _ in range(chance.choice([1, 1, 2])):  # the second time: the driver did not know that it was done
            open_tasks = [list(task) for task in tasks]
            while any(open_tasks):
                writers = [one for one in (*open_tasks, *late, *given_up) if one]
                task = chance.choice(writers)
                yield task.pop(0)
                index = next((at for at, one in enumerate(open_tasks) if one is task), None)
                if index is not None and chance.random() < 0.1:
                    given_up.append(task)
                    open_tasks[index] = list(tasks[index])
        late = given_up


def queue_log(chance: random.Random) -> Log:
    """A queue with rows of several queries, batch writes among them, and messages of others."""
    queries = [query_log(chance, f"query-{number}", chance.choice([1, 3, 9])) for number in range(chance.randrange(4))]
    queries.append(iter([f"7F0000{number:026X}" for number in range(chance.randrange(30))]))
    log = []
    while queries:
        query = chance.choice(queries)
        for _ in range(chance.randrange(1, 9)):
            one = next(query, None)
            if one is None:
                queries.remove(query)
                break
            log.append(one)
    return log


def cut(chance: random.Random, size: int) -> list[tuple[int, int]]:
    edges = sorted({0, size, *(chance.randrange(size + 1) for _ in range(chance.randrange(8)))})
    return list(pairwise(edges))


@settings(max_examples=25, deadline=None)
@given(chance=st.randoms(use_true_random=False))
def test_disjoint_ranges_give_each_row_once_whoever_reads_them_in_whatever_order(chance: random.Random) -> None:
    check_ranges(chance)


@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(chance=st.randoms(use_true_random=False))
def test_very_many_disjoint_ranges_give_each_row_once(chance: random.Random) -> None:
    check_ranges(chance)


def check_ranges(chance: random.Random) -> None:
    log = queue_log(chance)
    wanted = first_copies(log)
    workers = [Worker(Stored(log), ProcessMemory(chance.choice([0, 30, 10_000]))) for _ in range(3)]
    ranges = cut(chance, len(log)) if log else []
    if chance.random() < 0.5:
        chance.shuffle(ranges)
    for start, end in ranges:
        for _ in range(chance.choice([1, 1, 2])):  # a range may be read again
            given = chance.choice(workers).read(start, end, portion=chance.choice([1, 5, 100]))
            assert given == [at for at in wanted if start <= at < end]


@settings(max_examples=20, deadline=None)
@given(chance=st.randoms(use_true_random=False))
def test_what_the_broker_no_longer_has_hides_no_row(chance: random.Random) -> None:
    log = queue_log(chance)
    gone = chance.randrange(len(log) + 1)
    worker = Worker(Stored(log, first=gone))
    given = [at for start, end in cut(chance, len(log) - gone) for at in worker.read(gone + start, gone + end)]
    assert set(given) >= {at for at in first_copies(log) if at >= gone}
    assert len({log[at] for at in given}) == len(given)


def stream_log(batches: int, rows: int = 20) -> Log:
    return [RowKeys("stream", batch, 0).ids(0, []).of(row) for batch in range(batches) for row in range(rows)]


def test_a_process_that_reads_on_reads_nothing_twice() -> None:
    stored = Stored(stream_log(10))
    worker = Worker(stored)
    for start in range(0, 200, 10):
        assert worker.read(start, start + 10) == list(range(start, start + 10))
    assert stored.count == 0
    # Again from a place that it knows, as for a frame that is used twice.
    worker.read(180, 200)
    assert stored.count == 0


def test_a_process_that_begins_reads_back_as_far_as_two_batches() -> None:
    stored = Stored(stream_log(100))
    assert Worker(stored).read(1500, 1600) == list(range(1500, 1600))
    assert 20 < stored.count <= 60


def test_a_process_that_missed_ranges_reads_those_and_no_more() -> None:
    # A batch write has no lower batches at which looking back could end.
    stored = Stored([RowKeys("job", 0, 0).ids(0, []).of(row) for row in range(1000)])
    worker = Worker(stored)
    worker.read(500, 600)
    assert stored.count == 500
    worker.read(700, 800)
    assert stored.count == 600


def test_a_task_that_writes_on_in_the_next_batch_does_not_end_the_search() -> None:
    before, now = (RowKeys("stream", batch, 0).ids(0, []) for batch in (4, 5))
    rest = [before.of(row) for row in range(6, 10)]
    log = [*map(before.of, range(10)), *map(now.of, range(30)), *rest, *map(now.of, range(30))]
    assert Worker(Stored(log)).read(44, 74) == []


def test_knowing_one_query_is_not_knowing_another() -> None:
    stream, job = stream_log(40), [RowKeys("job", 0, 0).ids(0, []).of(row) for row in range(10)]
    worker = Worker(Stored([*job, *stream, *job]))
    assert worker.read(700, 810) == list(range(700, 810))
    assert worker.read(810, 820) == []


def test_another_reader_knows_nothing_of_it() -> None:
    stored = Stored(stream_log(2))
    worker = Worker(stored)
    worker.read(0, 20)
    made_anew = Worker(Stored(stream_log(2)), worker.memory)
    assert made_anew.read(0, 40, reader_id="other") == list(range(40))
    assert made_anew.read(20, 40, reader_id="another") == list(range(20, 40))
    assert made_anew.stored.count == 20


def test_queries_that_a_process_has_not_met_before_cost_nothing_once_all_was_read() -> None:
    log = [RowKeys(f"job-{at // 10}", 0, 0).ids(0, []).of(at % 10) for at in range(200)] * 2
    stored = Stored(log)
    worker = Worker(stored)
    given = [at for start in range(0, 400, 25) for at in worker.read(start, start + 25)]
    assert given == list(range(200))
    assert stored.count == 0


def test_memory_is_bounded_and_forgets_the_queues_that_were_read_longest_ago() -> None:
    stored = Stored(stream_log(10))
    worker = Worker(stored, ProcessMemory(lanes_max=3))
    worker.read(0, 100, reader_id="first")
    worker.read(0, 100, reader_id="second")
    assert worker.read(100, 200, reader_id="second") == list(range(100, 200))
    assert stored.count == 0
    assert worker.read(100, 200, reader_id="first") == list(range(100, 200))
    assert stored.count > 0


def test_processes_that_share_what_they_know_read_nothing_twice(tmp_path: Path) -> None:
    stored = Stored([RowKeys("job", 0, 0).ids(0, []).of(row) for row in range(200)] * 2)
    workers = [Worker(stored, SharedMemory(tmp_path)) for _ in range(3)]
    given = [at for start in range(0, 400, 10) for at in workers[start // 10 % 3].read(start, start + 10)]
    assert given == list(range(200))
    assert stored.count == 0
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("why", ["no directory", "too large"])
def test_what_cannot_be_shared_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    if why == "too large":
        monkeypatch.setattr(snapshots, "LANES_PER_FILE_MAX", 1)
    stored = Stored(stream_log(10))
    worker = Worker(stored, SharedMemory(tmp_path / "missing" if why == "no directory" else tmp_path))
    assert [at for start in (0, 100) for at in worker.read(start, start + 100)] == list(range(200))
    assert stored.count > 0
    assert list(tmp_path.iterdir()) == []


def rows_by_turns(queues: int, size: int) -> dict[int, list[int]]:
    """Which of 60 rows go to which queue, *size* at a time."""
    places: dict[int, list[int]] = {number: [] for number in range(queues)}
    for first in range(0, 60, size):
        places[first // size % queues] += range(first, min(first + size, 60))
    return places


@given(chance=st.randoms(use_true_random=False))
def test_a_changed_number_of_queues_may_repeat_rows_but_hides_none(chance: random.Random) -> None:
    logs: dict[int, Log] = {number: [] for number in range(6)}
    for queues in (chance.randrange(1, 6), chance.randrange(1, 6), chance.randrange(1, 6)):
        ids = RowKeys("query", 0, 0).ids(0, [queues])
        for number, rows in rows_by_turns(queues, chance.choice([5, 5, 10])).items():
            # Each queue has got as far as it has; only the last attempt comes to its end.
            logs[number] += [ids.of(row) for row in rows[: chance.randrange(len(rows) + 1)]]
    last = RowKeys("query", 0, 0).ids(0, ["last"])
    for number, rows in rows_by_turns(3, 5).items():
        logs[number] += [last.of(row) for row in rows]
    given_rows = {int(log[at][34:44], 16) for log in logs.values() for at in Worker(Stored(log)).read(0, len(log))}
    assert given_rows == set(range(60))
