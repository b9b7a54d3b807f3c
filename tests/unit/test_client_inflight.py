"""A producer has no more under way than its limits allow, and serves those who wait in order."""

from __future__ import annotations

import asyncio

import pytest

from mqcore.client.produce.inflight import InflightLimit


async def start(limit: InflightLimit, size: int) -> asyncio.Task[None]:
    """Begin to acquire, and let the event loop turn once."""
    task = asyncio.create_task(limit.acquire(size))
    await asyncio.sleep(0)
    return task


async def test_the_message_over_the_count_waits_for_one_to_end() -> None:
    limit = InflightLimit(2, 1000)
    await limit.acquire(1)
    await limit.acquire(1)
    third = await start(limit, 1)
    assert not third.done()
    limit.release(1)
    await third
    assert (limit.messages, limit.bytes) == (2, 2)


async def test_the_message_over_the_bytes_waits_until_there_is_room() -> None:
    limit = InflightLimit(10, 100)
    await limit.acquire(60)
    big = await start(limit, 50)
    assert not big.done()
    limit.release(60)
    await big
    assert limit.bytes == 50


async def test_a_message_larger_than_the_limit_passes_alone() -> None:
    limit = InflightLimit(10, 100)
    await limit.acquire(1000)
    small = await start(limit, 1)
    assert not small.done()
    limit.release(1000)
    await small


async def test_a_small_message_does_not_overtake_a_big_one_that_waits() -> None:
    limit = InflightLimit(10, 100)
    await limit.acquire(90)
    big = await start(limit, 50)
    small = await start(limit, 5)
    assert not small.done()
    limit.release(90)
    await asyncio.gather(big, small)
    assert limit.bytes == 55


async def test_who_gives_up_waiting_takes_no_room() -> None:
    limit = InflightLimit(10, 100)
    await limit.acquire(90)
    big = await start(limit, 50)
    small = await start(limit, 5)
    big.cancel()
    await small
    with pytest.raises(asyncio.CancelledError):
        await big
    assert (limit.messages, limit.bytes, limit.waiting) == (2, 95, 0)


async def test_room_given_to_one_who_gives_up_in_the_same_turn_comes_back() -> None:
    limit = InflightLimit(1, 100)
    await limit.acquire(10)
    second = await start(limit, 10)
    limit.release(10)  # grants the room
    second.cancel()  # before it could run
    with pytest.raises(asyncio.CancelledError):
        await second
    assert (limit.messages, limit.bytes) == (0, 0)


async def test_wait_idle_ends_with_the_last_message() -> None:
    limit = InflightLimit(10, 100)
    await limit.wait_idle()
    await limit.acquire(1)
    idle = asyncio.create_task(limit.wait_idle())
    await asyncio.sleep(0)
    assert not idle.done()
    limit.release(1)
    await idle
