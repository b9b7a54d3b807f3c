"""A consumer commits the offset of its first unfinished message, whatever the order in which messages are finished."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from mqcore.client.model.process_queue import LOCK_LIVE_MAX_S, NOTHING_TO_COMMIT, PULL_IDLE_MAX_S, ProcessQueue
from mqcore.protocol.message import MessageQueue


@dataclass(eq=False)
class Item:
    """The part of a message that a process queue needs."""

    queue_offset: int
    body_size: int = 10


def items(*offsets: int) -> list[Item]:
    return [Item(offset) for offset in offsets]


@pytest.fixture
def held() -> ProcessQueue[Item]:
    return ProcessQueue(MessageQueue("T", "broker-a", 0))


def test_put_counts_messages_and_bytes(held: ProcessQueue[Item]) -> None:
    assert held.put(items(5, 6, 9))
    assert (held.count, held.size, held.first_offset, held.last_offset, held.span) == (3, 30, 5, 9, 4)


def test_only_the_first_put_says_that_consuming_is_to_begin(held: ProcessQueue[Item]) -> None:
    assert not held.put([])
    assert held.put(items(0))
    assert not held.put(items(1))
    held.take(2)
    assert held.take(2) == []
    assert held.put(items(2))


def test_a_message_that_is_held_already_is_not_held_twice(held: ProcessQueue[Item]) -> None:
    held.put(items(1, 2))
    held.put(items(2, 3))
    assert (held.count, held.size) == (3, 30)


def test_messages_that_come_late_are_put_in_their_place(held: ProcessQueue[Item]) -> None:
    held.put(items(5, 6))
    held.put(items(3))
    assert [item.queue_offset for item in held.take(9)] == [3, 5, 6]


def test_commit_offset_is_the_first_unfinished_message(held: ProcessQueue[Item]) -> None:
    messages = items(10, 11, 12, 13)
    held.put(messages)
    assert held.remove([messages[2]]) == 10
    assert held.remove([messages[1]]) == 10
    assert held.remove([messages[0]]) == 13
    assert held.remove([messages[3]]) == 14


def test_removing_from_an_empty_queue_commits_nothing(held: ProcessQueue[Item]) -> None:
    messages = items(10)
    held.put(messages)
    assert held.remove(messages) == 11
    assert held.remove(messages) == NOTHING_TO_COMMIT


def test_span_is_that_of_unfinished_messages(held: ProcessQueue[Item]) -> None:
    messages = items(*range(100))
    held.put(messages)
    held.remove(messages[1:])
    assert held.span == 0
    held.put(items(100))
    assert held.span == 100


def test_orderly_commit_is_one_past_the_last_message_taken(held: ProcessQueue[Item]) -> None:
    held.put(items(3, 4, 5))
    assert [item.queue_offset for item in held.take(2)] == [3, 4]
    assert held.count == 3
    assert held.commit() == 5
    assert (held.count, held.size) == (1, 10)
    assert held.commit() == NOTHING_TO_COMMIT


def test_messages_put_back_come_again_in_order(held: ProcessQueue[Item]) -> None:
    held.put(items(3, 4, 5))
    taken = held.take(2)
    held.put(items(6))
    held.put_back(taken)
    assert [item.queue_offset for item in held.take(9)] == [3, 4, 5, 6]
    assert held.commit() == 7


def test_clear_forgets_everything(held: ProcessQueue[Item]) -> None:
    held.put(items(3, 4, 5))
    held.take(1)
    held.clear()
    assert (held.count, held.size, held.first_offset, held.last_offset) == (0, 0, -1, -1)


def test_locks_and_pulls_expire(held: ProcessQueue[Item]) -> None:
    assert not held.lock_expired(held.last_lock_s + LOCK_LIVE_MAX_S)
    assert held.lock_expired(held.last_lock_s + LOCK_LIVE_MAX_S + 1)
    assert not held.pull_expired(held.last_pull_s + PULL_IDLE_MAX_S)
    assert held.pull_expired(held.last_pull_s + PULL_IDLE_MAX_S + 1)


async def test_who_waits_for_room_wakes_when_a_message_is_finished(held: ProcessQueue[Item]) -> None:
    messages = items(1)
    held.put(messages)
    waiter = asyncio.create_task(held.wait_change(60))
    await asyncio.sleep(0)
    held.remove(messages)
    await asyncio.wait_for(waiter, 60)


async def test_wait_idle_ends_when_the_last_handler_ends(held: ProcessQueue[Item]) -> None:
    held.hand_out(2)
    waiter = asyncio.create_task(held.wait_idle(60))
    await asyncio.sleep(0)
    held.hand_back(1)
    await asyncio.sleep(0)
    assert not waiter.done()
    held.hand_back(1)
    await asyncio.wait_for(waiter, 60)


async def test_wait_idle_gives_up_after_its_time(held: ProcessQueue[Item]) -> None:
    held.hand_out(1)
    await asyncio.wait_for(held.wait_idle(0.01), 60)
    assert held.in_hand == 1
