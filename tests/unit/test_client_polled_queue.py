"""What a pull consumer has cached: counts, bytes and offsets by the pull, whatever part of it was taken."""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mqcore._fast.client import polled as fast
from mqcore.client.consume.polled import batch as python
from mqcore.client.consume.polled.queue import AssignedQueue, PolledQueue
from mqcore.client.model.messages import ReceivedMessage
from mqcore.protocol.codec import PURE, body_sizes, decode_pulled
from mqcore.protocol.message import MessageExt, MessageQueue
from mqcore.protocol.message_decoder import encode_message

QUEUE = MessageQueue("T", "broker-a", 0)

NewBatch = Callable[[AssignedQueue, list[ReceivedMessage]], python.Batch]


def messages(*offsets: int) -> list[ReceivedMessage]:
    """Messages whose bodies are as long as their offsets."""
    return [ReceivedMessage(MessageExt("T", b"x" * offset, queue_offset=offset), QUEUE) for offset in offsets]


@pytest.fixture(
    params=[python, pytest.param(fast, marks=pytest.mark.skipif(PURE, reason="made for the extension's messages"))],
    ids=["python", "cython"],
)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def new_batch(twin: Any) -> NewBatch:
    made: NewBatch = twin.Batch
    return made


@pytest.fixture
async def assigned() -> AssignedQueue:
    return AssignedQueue(PolledQueue(QUEUE), 100)


def figures(assigned: AssignedQueue) -> tuple[int, int, int, int, int]:
    held = assigned.held
    return held.count, held.size, held.first_offset, held.last_offset, assigned.position


def offsets(taken: list[ReceivedMessage]) -> list[int]:
    return [message.queue_offset for message in taken]


async def test_an_empty_queue_is_where_the_next_pull_begins(assigned: AssignedQueue) -> None:
    assert figures(assigned) == (0, 0, -1, -1, 100)
    assert assigned.held.span == 0
    assert assigned.held.first_message is None


async def test_a_pull_that_leaves_whole_leaves_nothing(assigned: AssignedQueue, new_batch: NewBatch) -> None:
    batch = new_batch(assigned, messages(3, 5, 9))
    assert figures(assigned) == (3, 17, 3, 9, 3)
    assert (offsets(batch.take()), bool(batch), batch.in_hand_offset) == ([3, 5, 9], False, 3)
    assert (batch.catch_up(), batch.catch_up()) == (True, False)
    assert figures(assigned) == (0, 0, -1, -1, 100)


async def test_a_pull_leaves_in_parts_and_the_position_skips_what_was_filtered_out(
    assigned: AssignedQueue, new_batch: NewBatch
) -> None:
    first, second = new_batch(assigned, messages(3, 5, 9)), new_batch(assigned, messages(12, 13))
    assert (figures(assigned), assigned.held.span) == ((5, 42, 3, 13, 3), 10)
    assert first.take_one() is not None
    first.catch_up()
    assert figures(assigned) == (4, 39, 5, 13, 5)
    assert offsets(first.take(1)) == [5]
    first.catch_up()
    assert figures(assigned) == (3, 34, 9, 13, 9)
    assert (offsets(first.take(7)), first.take_one(), first.take()) == ([9], None, [])
    first.catch_up()
    assert (figures(assigned), bool(first), bool(second)) == ((2, 25, 12, 13, 12), False, True)


async def test_what_was_taken_counts_when_it_is_noted(assigned: AssignedQueue, new_batch: NewBatch) -> None:
    batch = new_batch(assigned, messages(3, 5, 9))
    batch.take_one(), batch.take_one()
    assert (figures(assigned), batch.in_hand_offset) == ((3, 17, 3, 9, 3), 5)
    batch.catch_up()
    assert figures(assigned) == (1, 9, 9, 9, 9)


async def test_what_the_application_does_with_its_list_does_not_matter(
    assigned: AssignedQueue, new_batch: NewBatch
) -> None:
    first, second = new_batch(assigned, messages(3, 5, 9)), new_batch(assigned, messages(12, 13, 14))
    first.take().clear()
    first.catch_up()
    assert (figures(assigned), bool(first), first.take_one(), first.take()) == ((3, 39, 12, 14, 12), False, None, [])
    assert second.take_one() is not None
    second.take().reverse()
    second.catch_up()
    assert figures(assigned) == (0, 0, -1, -1, 100)


async def test_a_later_pull_that_leaves_first_does_not_move_the_position(
    assigned: AssignedQueue, new_batch: NewBatch
) -> None:
    first, second = new_batch(assigned, messages(3)), new_batch(assigned, messages(4, 5))
    second.take()
    second.catch_up()
    assert figures(assigned) == (1, 3, 3, 3, 3)
    first.take()
    first.catch_up()
    assert figures(assigned) == (0, 0, -1, -1, 100)


async def test_the_position_is_not_beyond_what_came_after_the_broker_set_the_queue_back(
    assigned: AssignedQueue,
    new_batch: NewBatch,
) -> None:
    later = new_batch(assigned, messages(20, 21))
    earlier = new_batch(assigned, messages(1, 2))
    assert figures(assigned) == (4, 44, 1, 21, 1)
    later.take()
    later.catch_up()
    assert figures(assigned) == (2, 3, 1, 2, 1)
    earlier.take()
    earlier.catch_up()
    assert figures(assigned) == (0, 0, -1, -1, 100)


async def test_a_turn_forgets_what_is_cached(assigned: AssignedQueue, new_batch: NewBatch) -> None:
    batch = new_batch(assigned, messages(3, 5))
    assert batch.is_current
    assigned.turn_to(7)
    assert not batch.is_current
    assert batch.take_one() is None
    assert figures(assigned) == (0, 0, -1, -1, 7)
    assert new_batch(assigned, messages(7)).is_current
    assert figures(assigned) == (1, 7, 7, 7, 7)


async def test_a_queue_that_was_given_up_hands_out_nothing(assigned: AssignedQueue, new_batch: NewBatch) -> None:
    batch = new_batch(assigned, messages(3))
    assigned.held.dropped = True
    assert not batch.is_current


async def test_who_waits_for_room_hears_of_what_was_got(assigned: AssignedQueue, new_batch: NewBatch) -> None:
    batch = new_batch(assigned, messages(3, 5))
    waiting = asyncio.create_task(assigned.held.wait_change(3600))
    await asyncio.sleep(0)
    batch.take(1)
    batch.catch_up()
    await asyncio.wait_for(waiting, 30)


# Iterating.


class Supply:
    """Batches of *sizes* messages with ascending offsets, claimed one after the other, and what the loop is told."""

    def __init__(self, twin: Any, assigned: AssignedQueue, *sizes: int) -> None:
        self._batches: list[python.Batch] = []
        first = 0
        for size in sizes:
            self._batches.append(twin.Batch(assigned, messages(*range(first, first + size))))
            first += size
        self._lock = threading.Lock()
        self.noted: list[python.Batch] = []
        self.iteration = twin.Iteration(self._claim, self._note)

    def _claim(self) -> bool:
        with self._lock:
            if not self.iteration.claimed:
                self.iteration.claimed = self._batches.pop(0) if self._batches else None
            return self.iteration.claimed is not None

    def _note(self, batch: python.Batch) -> None:
        batch.is_noted = True
        self.noted.append(batch)


async def test_an_iteration_goes_from_batch_to_batch_and_notes_each_once(assigned: AssignedQueue, twin: Any) -> None:
    supply = Supply(twin, assigned, 3, 1, 2)
    assert iter(supply.iteration) is supply.iteration
    assert offsets(list(supply.iteration)) == list(range(6))
    assert next(supply.iteration, None) is None
    assert len(supply.noted) == 3
    assert [batch.catch_up() for batch in supply.noted] == [True] * 3
    assert figures(assigned) == (0, 0, -1, -1, 100)


async def test_a_batch_is_noted_again_when_the_loop_has_caught_up(assigned: AssignedQueue, twin: Any) -> None:
    supply = Supply(twin, assigned, 3)
    assert [next(supply.iteration).queue_offset for _ in range(2)] == [0, 1]
    (batch,) = supply.noted
    batch.is_noted = False
    assert batch.catch_up()
    assert next(supply.iteration).queue_offset == 2
    assert supply.noted == [batch] * 2


async def test_an_iteration_leaves_what_its_queue_was_turned_away_from(assigned: AssignedQueue, twin: Any) -> None:
    supply = Supply(twin, assigned, 3)
    assert next(supply.iteration).queue_offset == 0
    assigned.turn_to(7)
    supply.iteration.claimed = None
    assert next(supply.iteration, None) is None


async def test_threads_share_an_iteration_and_each_message_comes_once(assigned: AssignedQueue, twin: Any) -> None:
    supply = Supply(twin, assigned, *[997] * 40)
    with ThreadPoolExecutor(4) as threads:
        shares = list(threads.map(lambda _: offsets(list(supply.iteration)), range(4)))
    assert all(share == sorted(share) for share in shares)
    assert sorted(itertools.chain(*shares)) == list(range(40 * 997))


def test_the_bytes_of_bodies_are_added() -> None:
    assert body_sizes([]) == 0
    assert body_sizes(messages(3, 0, 9)) == 12


@pytest.mark.skipif(PURE, reason="the plain twin's messages are like all objects")
def test_messages_that_lead_to_no_cycle_are_kept_from_the_garbage_collector() -> None:
    record = encode_message(MessageExt("T", b"x"))
    (tracked,) = decode_pulled(ReceivedMessage, record, QUEUE, None, 0, 1, None, None, None)
    (untracked,) = decode_pulled(ReceivedMessage, record, QUEUE, None, 0, 1, None, None, None, True)
    assert gc.is_tracked(tracked)
    assert not gc.is_tracked(untracked)
    assert (untracked.body, untracked.ext.topic) == (tracked.body, tracked.ext.topic)
