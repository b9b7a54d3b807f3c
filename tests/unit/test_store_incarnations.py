"""Births of queues: durable when they count, of this log only, and what was torn off was never promised."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_builder import GEOMETRY, StoreBuilder, memory_directory
from test_store_recovery import dispatch, expected_units, recover, stop, units_of

from mqcore.errors import CorruptFileError
from mqcore.layout import BIRTH_HEAD
from mqcore.store.dispatched import Dispatched
from mqcore.store.incarnations import Anchor, Birth, Incarnations, anchors_at, decode
from mqcore.store.log.mapped_file_queue import MappedFileQueue
from tests.rows import walked

SIZE = GEOMETRY.commit_log_file_size
PATH = Path("incarnations")
BIRTHS = [
    Birth("Orders", 0, 4711, (Anchor(4096, 1_700_000_000_000), Anchor(0, 1_699_999_999_999))),
    Birth("%RETRY%billing", 3, 1 << 40, (Anchor(1 << 30, 5), Anchor())),
    Birth("a" * 127, 0x7FFFFFFF, 1),
]


@pytest.fixture
def store(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "store")


def log_of(store: StoreBuilder) -> MappedFileQueue:
    log = MappedFileQueue(store.paths.log, SIZE)
    log.load()
    return log


def drop(store: StoreBuilder, topic: str, queue_id: int = 0) -> Birth:
    """Drop a queue at the log's end, as the broker writes it down."""
    birth = Birth(topic, queue_id, store.end, anchors_at(log_of(store), store.end))
    incarnations = Incarnations.read(store.paths.incarnations)
    incarnations.add([birth])
    store.next_offsets[(topic, queue_id)] = 0
    return birth


# The file ----------------------------------------------------------------------------------------------------------


def test_what_was_added_is_read_again_and_the_newest_birth_counts(tmp_path: Path) -> None:
    path = tmp_path / "mqcore" / "incarnations"
    written = Incarnations.read(path)
    written.add(BIRTHS[:2])
    written.add([BIRTHS[2], replace(BIRTHS[0], born=9999)])
    read = Incarnations.read(path)
    assert sorted(read, key=lambda birth: birth.topic) == sorted(written, key=lambda birth: birth.topic)
    assert (read.born("Orders", 0), read.born("Orders", 1), read.born("%RETRY%billing", 3)) == (9999, 0, 1 << 40)


@walked("cut", range(1, len(BIRTHS[1].encode())))
def test_an_entry_cut_at_any_byte_is_passed_over(cut: int) -> None:
    data = BIRTHS[0].encode() + BIRTHS[1].encode()[:-cut]
    assert decode(data, PATH) == BIRTHS[:1]


@walked("at", range(BIRTH_HEAD.offsets["crc"], len(BIRTHS[0].encode())))
def test_a_byte_that_changed_in_an_entry_before_others_stops_the_start(at: int) -> None:
    data = bytearray(BIRTHS[0].encode() + BIRTHS[1].encode())
    data[at] ^= 1
    if BIRTH_HEAD.offsets["topic_size"] <= at < BIRTH_HEAD.size:
        assert decode(bytes(data), PATH) == []  # its length cannot be, as that of a torn one
        return
    with pytest.raises(CorruptFileError, match="entry at 0 is damaged"):
        decode(bytes(data), PATH)


@given(st.binary(max_size=300))
def test_no_bytes_are_read_as_births_that_nobody_wrote(data: bytes) -> None:
    assert decode(BIRTHS[0].encode() + data[:40], PATH)[:1] == BIRTHS[:1]
    for birth in decode(data, PATH):
        assert birth.encode() in data


def test_births_that_cannot_be_written_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    incarnations = Incarnations.read(tmp_path / "incarnations")
    incarnations.add(BIRTHS[:1])

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fdatasync", full)
    with pytest.raises(OSError, match="No space"):
        incarnations.add(BIRTHS[1:])
    monkeypatch.undo()
    assert list(incarnations) == BIRTHS[:1]
    incarnations.add(BIRTHS[2:])
    assert list(Incarnations.read(tmp_path / "incarnations")) == [BIRTHS[0], BIRTHS[2]]


# Recovery ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [1, 20, 60])
@pytest.mark.parametrize("crashed", [False, True])
def test_a_dropped_queue_does_not_come_back(store: StoreBuilder, before: int, crashed: bool) -> None:
    store.append_many(before)
    dispatch(store)
    shutil.rmtree(store.paths.queue("TopicA", 0))
    drop(store, "TopicA")
    kept = [record for record in store.records if record.queue_id == 1]
    kept += [store.append(queue_id=0) for _ in range(30)]
    dispatch(store, births=Incarnations.read(store.paths.incarnations))
    if crashed:
        store.crash()
    result = recover(store)
    wanted = expected_units(kept)
    assert {key: units for key, units in units_of(store, result).items() if units} == wanted
    assert [state.max_offset for state in result.queues if state.queue_id == 0] == [30]


@pytest.mark.parametrize("crashed", [False, True])
def test_a_drop_that_was_interrupted_is_finished(store: StoreBuilder, crashed: bool) -> None:
    store.append_many(20)
    stop(store)
    drop(store, "TopicA")
    if crashed:
        store.crash()
    result = recover(store)
    assert [(state.queue_id, state.max_offset) for state in result.queues] == [(1, 10)]
    assert not store.paths.queue("TopicA", 0).exists()


def stop_with_dead_tail(store: StoreBuilder) -> Dispatched:
    """The newest queue was dropped, then the broker stopped; what it leaves word of."""
    store.append_many(10)
    queues_end = store.end
    for number in range(30):
        store.append(topic="Dead", KEYS=f"key {number}")
    stop(store)
    shutil.rmtree(store.paths.queue("Dead", 0))
    drop(store, "Dead")
    note = Dispatched(store.end, queues_end)
    note.write(store.paths.dispatched)
    return note


def dispatched_again(store: StoreBuilder, caplog: pytest.LogCaptureFixture) -> bool:
    """Recover after a clean stop, check what is there, and tell whether the log's tail was dispatched once more."""
    before = contents(store.paths.consume_queue)
    caplog.clear()
    result = recover(store)
    assert [(state.topic, state.queue_id, state.max_offset) for state in result.queues if state.max_offset] == [
        ("TopicA", 0, 5), ("TopicA", 1, 5),
    ]  # fmt: skip
    assert result.commit_log_end == store.end
    assert contents(store.paths.consume_queue) == before
    store.paths.abort.unlink(missing_ok=True)
    return "consume queues are behind the commit log" in caplog.text


def contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_dead_tail_is_not_dispatched_again(store: StoreBuilder, caplog: pytest.LogCaptureFixture) -> None:
    stop_with_dead_tail(store)
    index = contents(store.paths.index)
    assert index
    assert [dispatched_again(store, caplog) for _ in range(3)] == [False] * 3
    assert contents(store.paths.index) == index


@pytest.mark.parametrize("change", ["no word", "torn", "another end"])
def test_a_tail_without_units_is_looked_through_unless_a_stop_left_word_of_just_that(
    store: StoreBuilder, caplog: pytest.LogCaptureFixture, change: str
) -> None:
    note = stop_with_dead_tail(store)
    path = store.paths.dispatched
    if change == "no word":
        path.unlink()
    elif change == "torn":
        path.write_bytes(path.read_bytes()[:-3])
    else:
        replace(note, log_end=note.log_end - 1).write(path)
    assert dispatched_again(store, caplog)


def test_queues_that_were_removed_are_built_anew_in_spite_of_the_word_of_a_stop(store: StoreBuilder) -> None:
    stop_with_dead_tail(store)
    shutil.rmtree(store.paths.consume_queue)
    result = recover(store)
    assert {key: units for key, units in units_of(store, result).items() if units} == expected_units(store.records[:10])


def test_messages_that_another_broker_brought_back_are_passed_over_and_the_queue_goes_on(store: StoreBuilder) -> None:
    # RocketMQ knows no births: after a crash it builds the old units and puts the new ones behind them.
    store.append_many(20)
    born = drop(store, "TopicA").born
    store.next_offsets[("TopicA", 0)] = 10
    new = [store.append(queue_id=0) for _ in range(5)]
    stop(store)
    result = recover(store)
    (state,) = [state for state in result.queues if state.queue_id == 0]
    assert (state.min_offset, state.max_offset) == (10, 15)
    assert result.watermarks().queue_births("TopicA", 0) == (born, born)
    assert units_of(store, result)[("TopicA", 0)][10] == (new[0].physical_offset, new[0].total_size)


def test_a_birth_is_forgotten_when_all_records_from_before_have_expired(store: StoreBuilder) -> None:
    store.append_many(20)
    born = drop(store, "TopicA").born
    for _ in range(80):
        store.append(queue_id=0)
    dispatch(store, births=Incarnations.read(store.paths.incarnations))
    stopped = recover(store)
    assert stopped.incarnations.born("TopicA", 0) == born
    store.log_file(0).unlink()
    assert born < SIZE
    assert len(recover(store).incarnations) == 0
    assert store.paths.incarnations.read_bytes() == b""


def test_a_birth_behind_the_end_of_a_torn_log_is_drawn_to_it(store: StoreBuilder) -> None:
    store.append_many(20)
    dispatch(store)
    shutil.rmtree(store.paths.queue("TopicA", 0))
    drop(store, "TopicA")
    end = store.records[14].physical_offset
    store.write(end, bytes(SIZE - end))
    store.crash()
    result = recover(store)
    assert result.commit_log_end == end
    assert result.incarnations.born("TopicA", 0) == end
    # What is stored from here on is of the new queue, although the drop was further on.
    store.end = end
    store.records = store.records[:14]
    new = store.append(queue_id=0)
    store.crash()
    result = recover(store)
    assert units_of(store, result)[("TopicA", 0)] == {0: (new.physical_offset, new.total_size)}


def test_a_birth_of_another_log_hides_nothing(tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store")
    store.append_many(60)
    drop(store, "TopicA")
    path = store.paths.incarnations
    other = StoreBuilder(tmp_path / "other")
    other.timestamp += 1
    records = other.append_many(100)
    other.paths.incarnations.parent.mkdir()
    shutil.copy(path, other.paths.incarnations)
    other.crash()
    result = recover(other)
    assert len(result.incarnations) == 0
    assert units_of(other, result) == expected_units(records)


@given(st.integers(1, 40), st.lists(st.integers(0, 3), max_size=12), st.booleans())
def test_any_course_of_sends_and_drops_is_built_anew_as_it_was(before: int, drops: list[int], crashed: bool) -> None:
    with memory_directory() as root:
        store = StoreBuilder(root)
        store.append_many(before)
        alive = {(record.queue_id, record.physical_offset): record for record in store.records}
        for queue_id in drops:
            drop(store, "TopicA", queue_id % 2)
            alive = {key: record for key, record in alive.items() if key[0] != queue_id % 2}
            for record in store.append_many(queue_id):
                alive[(record.queue_id, record.physical_offset)] = record
        stop(store, births=Incarnations.read(store.paths.incarnations))
        if crashed:
            store.crash()
        result = recover(store)
        units = {key: units for key, units in units_of(store, result).items() if units}
        assert units == expected_units(list(alive.values()))
