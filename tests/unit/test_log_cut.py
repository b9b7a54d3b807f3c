"""Stores that are cut or emptied: whoever dies wherever over it, the next start ends at the same state."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from store_builder import StoreBuilder
from test_failover_files import dying_after
from test_store_recovery import assert_whole, recover, stop

from mqcore.errors import StoreError
from mqcore.protocol.names import TIMER_TOPIC
from mqcore.store.checkpoint import Checkpoint
from mqcore.store.epochs import EpochEntry
from mqcore.store.failover_files import FailoverFiles, Identity
from mqcore.store.log.record import Record
from mqcore.store.log_cut import EMPTYING, cut_log, empty_store, finish_cut
from mqcore.store.paths import file_name

IDENTITY = Identity("c", "b", 1, "uuid")
SOME, EACH = 6, 1


@pytest.fixture
def store(tmp_path: Path) -> StoreBuilder:
    """A store in a group, over several files, stopped cleanly; the second half is of epoch 2."""
    made = StoreBuilder(tmp_path / "store")
    made.append_many(80)
    stop(made)
    files = FailoverFiles(made.paths)
    files.write_identity(IDENTITY)
    files.write_epochs((EpochEntry(1, 0), EpochEntry(2, made.records[40].physical_offset)))
    files.write_confirmed(made.records[30].physical_offset)
    return made


def end_of(record: Record) -> int:
    return record.physical_offset + record.total_size


def log_of(store: StoreBuilder) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(store.paths.commit_log.iterdir()))


@pytest.mark.parametrize("kept", [2, 35, 41, 79])
@pytest.mark.parametrize("is_crashed", [False, True])
def test_a_cut_store_holds_what_is_before_the_cut_and_zeros(store: StoreBuilder, kept: int, is_crashed: bool) -> None:
    to = end_of(store.records[kept - 1])
    if is_crashed:
        store.crash()
    cut_log(store.paths, store.geometry, to)
    assert not any(log_of(store)[to:])
    assert_whole(store, recover(store), store.records[:kept])
    files = FailoverFiles(store.paths)
    assert files.read_identity() == IDENTITY
    assert files.read_epochs()[-1].epoch == (2 if kept > 40 else 1)
    assert files.read_confirmed() == min(to, store.records[30].physical_offset)


def test_what_was_cut_does_not_come_back_behind_what_comes_instead(store: StoreBuilder) -> None:
    """The old records stood where the new ones end."""
    other = store.copy_to(store.paths.root.parent / "other")
    kept = 35
    cut_log(other.paths, other.geometry, end_of(store.records[kept - 1]))
    recover(other)
    other.end = end_of(store.records[kept - 1])
    other.records = store.records[:kept]
    other.next_offsets = {("TopicA", 0): 18, ("TopicA", 1): 17}
    other.append_many(1)
    other.crash()
    assert_whole(other, recover(other), other.records)


def test_a_start_after_a_crash_begins_before_the_cut_though_later_records_say_earlier_times(
    store: StoreBuilder,
) -> None:
    """The checkpoint knows of times that are cut off, and another master's clock may be behind."""
    kept = 20
    cut_log(store.paths, store.geometry, end_of(store.records[kept - 1]))
    checkpoint = Checkpoint.read(store.paths.checkpoint)
    assert max(checkpoint.physic_timestamp, checkpoint.logics_timestamp) <= store.records[kept - 1].store_timestamp


class Deaths:
    """Deaths of a process before its calls to the file system: each in long runs, otherwise some that chance takes."""

    def __init__(self, every: int, chance: random.Random) -> None:
        self.every = every
        self._calls = itertools.chain(range(every), itertools.count(every + chance.randrange(every), every))

    def of(self, store: StoreBuilder, tmp_path: Path, work: Callable[[StoreBuilder], None]) -> list[StoreBuilder]:
        """The store as it is left by a process that dies over *work*."""
        found: list[StoreBuilder] = []
        for number in self._calls:
            copy = store.copy_to(tmp_path / f"died-{number}")
            if not dying_after(number, lambda copy=copy: work(copy)):  # type: ignore[misc]
                break
            found.append(copy)
        return found


@pytest.fixture(params=[SOME, pytest.param(EACH, marks=pytest.mark.slow)], ids=["some", "each"])
def deaths(request: pytest.FixtureRequest, chance: random.Random) -> Deaths:
    return Deaths(request.param, chance)


def test_a_cut_that_is_interrupted_anywhere_is_finished_by_the_next_start(
    store: StoreBuilder, tmp_path: Path, deaths: Deaths
) -> None:
    kept = 35
    to = end_of(store.records[kept - 1])
    died = deaths.of(store, tmp_path, lambda copy: cut_log(copy.paths, copy.geometry, to))
    assert len(died) * deaths.every > 20, "every step was met"
    states = set()
    for copy in died:
        identity = FailoverFiles(copy.paths).read_identity()
        assert identity is not None
        is_begun = identity.cutting_to is not None or not any(log_of(copy)[to:])
        states.add(is_begun)
        finish_cut(copy.paths, copy.geometry)
        assert_whole(copy, recover(copy), store.records[:kept] if is_begun else store.records)
        assert not is_begun or not any(log_of(copy)[to:])
    assert states == {False, True}


@pytest.mark.parametrize("is_cut", [False, True])
def test_timers_that_had_what_is_cut_are_made_anew(tmp_path: Path, is_cut: bool) -> None:
    store = StoreBuilder(tmp_path / "store")
    before = store.append_many(3)[-1]
    timed = store.append(TIMER_TOPIC, 0)
    store.append_many(3)
    stop(store)
    FailoverFiles(store.paths).write_identity(IDENTITY)
    store.paths.timer_log.mkdir()
    made = [store.paths.timer_wheel, store.paths.timer_check, store.paths.timers, store.paths.timer_log / file_name(0)]
    for path in made:
        path.write_bytes(b"anything")
    cut_log(store.paths, store.geometry, end_of(before if is_cut else timed))
    assert [path.exists() for path in made] == [not is_cut] * len(made)


def test_an_emptied_store_has_no_log_and_nothing_made_of_it(store: StoreBuilder) -> None:
    (store.paths.config / "topics.json").write_text("{}")
    empty_store(store.paths, store.geometry)
    result = recover(store)
    assert (result.commit_log_end, result.queues) == (0, ())
    assert list(store.paths.commit_log.iterdir()) == list(store.paths.index.iterdir()) == []
    files = FailoverFiles(store.paths)
    assert (files.read_identity(), files.read_epochs(), files.read_confirmed()) == (IDENTITY, (), 0)
    assert (store.paths.config / "topics.json").exists()


def test_emptying_that_is_interrupted_anywhere_is_finished_by_the_next_start(
    store: StoreBuilder, tmp_path: Path, deaths: Deaths
) -> None:
    died = deaths.of(store, tmp_path, lambda copy: empty_store(copy.paths, copy.geometry))
    assert len(died) * deaths.every > 10
    for copy in died:
        identity = FailoverFiles(copy.paths).read_identity()
        assert identity is not None
        is_whole = identity.cutting_to is None and any(log_of(copy))
        finish_cut(copy.paths, copy.geometry)
        if is_whole:
            assert_whole(copy, recover(copy), store.records)
        else:
            assert recover(copy).commit_log_end == 0
    assert EMPTYING < 0


def test_a_store_in_no_group_is_not_cut(tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store")
    store.append()
    with pytest.raises(StoreError, match="in no group"):
        cut_log(store.paths, store.geometry, 0)
    finish_cut(store.paths, store.geometry)
    assert any(log_of(store))


# Recovery in a group -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_crashed", [False, True])
@pytest.mark.parametrize("confirmed", [0, 1, 35, 79, 80])
def test_a_start_knows_the_whole_log_and_reads_what_was_confirmed(
    store: StoreBuilder, confirmed: int, is_crashed: bool
) -> None:
    limit = end_of(store.records[confirmed - 1]) if confirmed else 0
    if is_crashed:
        store.crash()
    result = recover(store, confirmed=limit)
    assert (result.commit_log_end, result.readable_end) == (store.end, limit)
    assert sum(queue.max_offset for queue in result.queues) == confirmed
    # What is confirmed later is dispatched then, and a crash meanwhile does not lose it.
    store.crash()
    later = recover(store, confirmed=store.end)
    assert_whole(store, later, store.records)


def test_confirmed_may_say_more_than_the_log_has(store: StoreBuilder) -> None:
    result = recover(store, confirmed=store.end + 4096)
    assert result.readable_end == result.commit_log_end == store.end
    assert_whole(store, result, store.records)
