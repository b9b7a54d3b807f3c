"""Workers take what is put in line, so many at once, and nothing is left lying."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from mqcore.client.consume.workers import Workers
from tests.integration.client_helpers import eventually

TURNS = 60


async def let_the_loop_turn() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


@pytest.mark.parametrize("limit", [1, 3, 20])
async def test_an_item_put_in_while_the_last_worker_ends_is_worked_on(limit: int) -> None:
    done: list[str] = []
    loop = asyncio.get_running_loop()

    async def work(item: str) -> None:
        done.append(item)
        if item == "last":
            # The task ends in this turn of the loop; what is called next comes before the task's own callbacks.
            loop.call_soon(lambda: workers.put(["late"]))

    workers = Workers("working", work, limit)
    workers.put(["first"] * (limit - 1) + ["last"])
    await let_the_loop_turn()
    assert done == ["first"] * (limit - 1) + ["last", "late"]
    await workers.close(0)


@pytest.mark.parametrize("pieces", [(20,), (5, 5, 5, 5), (1,) * 20])
async def test_no_more_than_the_limit_run_at_once_and_all_do(pieces: tuple[int, ...]) -> None:
    running, most = 0, 0

    async def work(item: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        done.append(item)

    done: list[int] = []
    workers = Workers("working", work, 4)
    first = 0
    for size in pieces:
        workers.put(range(first, first + size))
        first += size
    await eventually(lambda: len(done) == 20, "all items are worked on")
    assert (most, sorted(done)) == (4, list(range(20)))
    await workers.close(0)


async def test_the_limit_may_rise_and_fall_while_work_is_under_way() -> None:
    gate = asyncio.Semaphore(0)
    running: list[int] = []

    async def work(item: int) -> None:
        running.append(item)
        await gate.acquire()
        running.remove(item)

    workers = Workers("working", work, 2)
    workers.put(range(10))
    await let_the_loop_turn()
    assert running == [0, 1]
    workers.set_limit(5)
    await let_the_loop_turn()
    assert running == [0, 1, 2, 3, 4]
    workers.set_limit(1)
    for _ in range(4):
        gate.release()
    await let_the_loop_turn()
    assert len(running) == 1
    assert workers.waiting == 5
    for _ in range(6):
        gate.release()
    await let_the_loop_turn()
    assert (running, workers.waiting) == ([], 0)
    await workers.close(0)


async def test_work_that_never_waits_lets_others_have_the_loop() -> None:
    done = 0
    ticks: list[int] = []

    async def work(item: int) -> None:
        nonlocal done
        end = time.monotonic() + 0.002
        while time.monotonic() < end:
            pass
        done += 1

    async def tick() -> None:
        while done < 60:
            ticks.append(done)
            await asyncio.sleep(0)

    workers = Workers("working", work, 2)
    workers.put(range(60))
    await tick()
    assert len(ticks) >= 5
    await workers.close(0)


async def test_one_failure_does_not_keep_the_others_from_being_worked_on(caplog: pytest.LogCaptureFixture) -> None:
    done: list[int] = []

    async def work(item: int) -> None:
        if item == 1:
            raise ValueError("not this one")
        done.append(item)

    workers = Workers("working", work, 1)
    with caplog.at_level(logging.ERROR):
        workers.put(range(3))
        await let_the_loop_turn()
    assert done == [0, 2]
    assert "task failed name=working" in caplog.text
    await workers.close(0)


async def test_closing_drops_what_waits_and_cancels_what_does_not_end() -> None:
    begun: list[int] = []

    async def work(item: int) -> None:
        begun.append(item)
        await asyncio.Event().wait()

    workers = Workers("working", work, 1)
    workers.put(range(3))
    await let_the_loop_turn()
    await workers.close(0.01)
    workers.put([3])
    await let_the_loop_turn()
    assert begun == [0]
