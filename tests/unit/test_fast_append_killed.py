"""A process that dies with the put lock: the next owner finds a whole log, whatever the dead one was about to write."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from fast_rig import TOPIC, Log, Mortals, RawSegment, commit_log, mortals

from mqcore import layout

PUT = layout.constants("PutStatus")
STORE_FLAG = layout.constants("StoreFlag")
FILE_SIZE = 64 * 1024
KILLED = -9

# In the order of an append, and whether the message is in the log from there on.
MOMENTS = {
    "locked": False,
    "rolled": False,  # behind the filler, if there is one
    "declared": False,
    "half written": False,
    "written": False,
    "published": True,
    "counted": True,
    "cleared": True,
}
EVERY_MOMENT = pytest.mark.parametrize(("moment", "is_stored"), MOMENTS.items())


@pytest.fixture
def log() -> Iterator[Log]:
    with commit_log(FILE_SIZE) as made:
        yield made


@pytest.fixture(scope="module")
def children() -> Iterator[Mortals]:
    with mortals() as found:
        yield found


def die_over(log: Log, children: Mortals, moment: str, body: str = "last words", topic: bytes = TOPIC) -> None:
    """Have a process die over an append to queue 0 of *topic*, which has been appended to before."""
    killed = children.run(
        log.segment, "hold_put_lock", directory=str(log.directory), file_size=FILE_SIZE, topic=topic.decode(),
        queue_row=log.queue_row(0, topic), body=body, moment=moment,
    )  # fmt: skip
    assert killed == [KILLED]


@EVERY_MOMENT
@pytest.mark.parametrize("size", [1, 500, 20_000], ids=lambda size: f"then {size} bytes")
@pytest.mark.parametrize("rest", [40_000, 300, 100], ids=lambda rest: f"{rest} left in the file")
def test_the_next_owner_finds_a_whole_log(
    log: Log, children: Mortals, moment: str, is_stored: bool, size: int, rest: int
) -> None:
    # With 300 bytes left a short message fits and a long one rolls; with 100 left none fits.
    log.append(bytes(FILE_SIZE - rest - 106), properties=b"")
    before = log.end
    die_over(log, children, moment, "y" * 400)
    assert (log.end > before) == is_stored
    end = log.end
    done = log.append(b"z" * size)
    assert done.status == PUT["PUT_OK"]
    assert done.queue_offset == 1 + is_stored
    bodies = [record.body for record in log.check()]
    assert bodies[1:] == [b"y" * 400] * is_stored + [b"z" * size]
    assert done.offsets[0] >= end
    assert log.segment.get("put_times") == 2 + is_stored
    assert (log.segment.get("put_repairs"), log.segment.get("locked_since")) == (1, 0)


@EVERY_MOMENT
def test_a_store_that_refuses_is_not_busy_for_ever_because_of_the_dead(
    log: Log, children: Mortals, moment: str, is_stored: bool
) -> None:
    log.append()
    die_over(log, children, moment)
    log.segment.set_flags(STORE_FLAG["NOT_WRITABLE"])
    assert log.append().status == PUT["SERVICE_NOT_AVAILABLE"]
    assert log.segment.get("locked_since") == 0
    log.segment.clear_flags(STORE_FLAG["NOT_WRITABLE"])
    assert log.append().queue_offset == 1 + is_stored
    assert len(log.check()) == 2 + is_stored


@EVERY_MOMENT
@pytest.mark.parametrize("makes_consistent", [True, False])
def test_an_heir_that_dies_before_its_repair_has_an_heir_too(
    log: Log, children: Mortals, moment: str, is_stored: bool, makes_consistent: bool
) -> None:
    log.append()
    die_over(log, children, moment)
    for _ in range(2):
        assert children.run(log.segment, "inherit_put_lock", makes_consistent=makes_consistent) == [KILLED]
    assert log.append().queue_offset == 1 + is_stored
    assert len(log.check()) == 2 + is_stored


@EVERY_MOMENT
def test_a_dropped_queue_is_not_counted_on_by_the_dead(
    log: Log, children: Mortals, moment: str, is_stored: bool
) -> None:
    log.append(topic=b"dropped")
    log.append(topic=b"kept")
    die_over(log, children, moment, topic=b"dropped")
    row = log.queue_row(topic=b"dropped")
    born, taken = log.writer.begin_drop([row])
    assert (born, taken) == (log.end, [row])
    log.writer.end_drop(taken, born)
    assert log.append(topic=b"dropped").queue_offset == 0
    assert log.append(topic=b"kept").queue_offset == 1
    assert len(list(log.walk())) == 4 + is_stored
    assert not any(log.read(log.end, FILE_SIZE))


@pytest.mark.parametrize("_round", [0, *(pytest.param(number, marks=pytest.mark.slow) for number in (1, 2))])
def test_writers_killed_at_any_moment_leave_a_whole_log(
    log: Log, children: Mortals, _round: int, chance: random.Random
) -> None:
    rounds = 40
    for round_ in range(rounds):
        killed = children.run(
            log.segment, "append_for_ever", directory=str(log.directory), file_size=FILE_SIZE, topic=TOPIC.decode(),
            seeds=[chance.randrange(2**31) for _ in range(2)],
            kill_after_s=[chance.uniform(0.001, 0.02) for _ in range(2)],
        )  # fmt: skip
        assert killed == [KILLED, KILLED], f"round {round_}"
    assert log.append().status == PUT["PUT_OK"]
    records = log.check()
    assert len(records) > rounds, "the writers hardly wrote"
    assert {record.queue_id for record in records} == {0, 1, 2, 3}
    board = RawSegment(log.segment.fd).board
    assert int(board["put_repairs"]) > 0, "nobody died with the lock: the test has shown nothing"
    # A death between the end and its counters costs at most one message of statistics.
    assert abs(int(board["put_times"]) - len(records)) <= 2 * rounds
