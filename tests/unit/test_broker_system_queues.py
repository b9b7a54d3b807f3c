"""The loop that services over system queues share: in order, at least once, bounded, no queue waiting for another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import pytest
from broker_ports import FakeClock, MemoryStore, settle

from mqcore import clock
from mqcore.broker.ports import QueueUnit
from mqcore.broker.services.system_queues import DONE, RETRY_S, UNITS_PER_TURN, Pace, SystemQueues

TOPIC = "SOME_SYSTEM_TOPIC"


@dataclass
class Service:
    """Notes what it is asked about; *answers* has what it says of a queue offset, DONE where nothing is said."""

    asked: list[tuple[int, int]] = field(default_factory=list)
    answers: dict[int, float] = field(default_factory=dict)
    saved: list[dict[int, int]] = field(default_factory=list)
    before: Callable[[int], Awaitable[None]] | None = None

    async def consume(self, queue_id: int, unit: QueueUnit) -> float:
        self.asked.append((queue_id, unit.queue_offset))
        if self.before is not None:
            await self.before(queue_id)
        return self.answers.get(unit.queue_offset, DONE)

    async def save(self, positions: Mapping[int, int]) -> None:
        self.saved.append(dict(positions))


@dataclass
class Rig:
    store: MemoryStore
    service: Service
    queues: SystemQueues

    def put(self, queue_id: int, count: int = 1) -> None:
        queue = self.store.queues.setdefault((TOPIC, queue_id), [])
        for _ in range(count):
            queue.append(QueueUnit(len(queue), 100 * len(queue), 100, 0))
        self.queues.tell(queue_id)

    def asked(self, queue_id: int) -> list[int]:
        return [offset for queue, offset in self.service.asked if queue == queue_id]

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.001)


@pytest.fixture
async def rig(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    monkeypatch.setattr(SystemQueues, "pace", Pace(first_turn=0.0))
    store, service = MemoryStore(FakeClock()), Service()
    rig = Rig(store, service, SystemQueues(TOPIC, range(2), store, service.consume, service.save))
    yield rig
    await rig.queues.stop()


async def test_a_turn_is_bounded_and_the_next_goes_on(rig: Rig) -> None:
    rig.put(0, UNITS_PER_TURN + 1)
    assert await rig.queues.turn(0) == 0.0
    assert rig.asked(0) == list(range(UNITS_PER_TURN))
    assert await rig.queues.turn(0) == 0.0
    assert rig.asked(0) == list(range(UNITS_PER_TURN + 1))
    assert await rig.queues.turn(0) is None
    assert rig.queues.positions == {0: UNITS_PER_TURN + 1}


async def test_what_is_not_done_with_holds_up_its_queue_and_is_asked_about_again(rig: Rig) -> None:
    rig.put(0, 3)
    rig.service.answers = {1: 7.0}
    assert await rig.queues.turn(0) == 7.0
    assert rig.queues.positions == {0: 1}
    assert await rig.queues.turn(0) == 7.0
    rig.service.answers = {}
    assert await rig.queues.turn(0) == 0.0
    assert rig.asked(0) == [0, 1, 1, 1, 2]


@pytest.mark.parametrize(("position", "corrected"), [(0, 2), (99, 5)])
async def test_a_position_outside_its_queue_moves_to_the_nearer_end(rig: Rig, position: int, corrected: int) -> None:
    rig.put(0, 5)
    rig.store.drop_before(TOPIC, 0, 2)
    rig.queues.positions[0] = position
    assert await rig.queues.turn(0) == RETRY_S
    assert rig.queues.positions == {0: corrected}


async def test_a_queue_that_waits_does_not_keep_another_waiting(rig: Rig) -> None:
    rig.put(0, 1)
    rig.put(1, 200)
    rig.service.answers = {0: 3600.0}
    rig.queues.positions[1] = 1
    rig.queues.start()
    await rig.until(lambda: rig.queues.positions[1] == 200)
    assert rig.asked(0) == [0]


async def test_a_queue_that_fails_is_tried_again_and_the_others_go_on(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [RuntimeError("bad unit"), RuntimeError("bad unit")]

    async def fail(queue_id: int) -> None:
        if queue_id == 0 and failures:
            raise failures.pop()

    monkeypatch.setattr(SystemQueues, "pace", Pace(first_turn=0.0, error_pause=0.01))
    rig.service.before = fail
    rig.put(0)
    rig.put(1)
    rig.queues.start()
    await rig.until(lambda: rig.queues.positions == {0: 1, 1: 1})
    assert rig.asked(0) == [0, 0, 0]


async def test_an_empty_queue_goes_on_when_it_is_told_of_a_put(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SystemQueues, "pace", Pace(first_turn=0.0, idle_poll=3600.0))
    rig.queues.start()
    await settle()
    rig.put(0)
    await rig.until(lambda: rig.queues.positions == {0: 1})


async def test_a_put_that_nobody_told_of_is_found(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SystemQueues, "pace", Pace(first_turn=0.0, idle_poll=0.01))
    rig.queues.start()
    await settle()
    rig.store.queues[TOPIC, 0] = [QueueUnit(0, 0, 100, 0)]
    await rig.until(lambda: rig.queues.positions == {0: 1})


async def test_who_waits_is_asked_again_when_the_clock_moves(rig: Rig) -> None:
    rig.put(0)
    rig.service.answers = {0: 3600.0}
    rig.queues.start()
    await rig.until(lambda: rig.asked(0) == [0])
    await settle()
    rig.service.answers = {}
    try:
        clock.put_ahead(1)
        await rig.until(lambda: rig.queues.positions == {0: 1})
    finally:
        clock.put_ahead(0)


async def test_a_stop_in_the_middle_of_a_unit_saves_what_is_done_with(rig: Rig) -> None:
    reached = asyncio.Event()

    async def hang(queue_id: int) -> None:
        if len(rig.service.asked) == 3:
            reached.set()
            await asyncio.Event().wait()

    rig.service.before = hang
    rig.put(0, 5)
    rig.queues.start()
    async with asyncio.timeout(60):
        await reached.wait()
        await rig.queues.stop()
    assert rig.service.saved == [{0: 2}]


async def test_after_a_crash_it_goes_on_at_what_was_saved(rig: Rig) -> None:
    rig.put(0, 5)
    rig.service.answers = {3: 1.0}
    await rig.queues.turn(0)
    await rig.queues.save()
    rig.service.answers = {}
    await rig.queues.turn(0)
    again = SystemQueues(TOPIC, range(2), rig.store, rig.service.consume, rig.service.save)
    again.positions = rig.service.saved[-1]
    await again.turn(0)
    assert rig.asked(0) == [0, 1, 2, 3, 3, 4, 3, 4], "at least once"
