"""Rings of the shared segment: every entry comes out once, whole and in order, or was refused at the door."""

from __future__ import annotations

import random
import struct
import time
from collections import deque
from collections.abc import Iterator

import pytest
from fast_rig import mortals, shared_segment
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from mqcore import layout
from mqcore._fast.segment.boards import SharedSegment
from mqcore._fast.segment.rings import PullRequestRing

CAPACITY = layout.PULL_RING_BYTES
ENTRY_HEAD = layout.RING_ENTRY.size
DEADLINE_S = 60.0
SEEDS = 1 << 31


def entry_bytes(size: int) -> int:
    """What an entry of *size* payload bytes takes in the ring."""
    return -(-(ENTRY_HEAD + size) // 8) * 8


@pytest.fixture
def segment() -> Iterator[SharedSegment]:
    with shared_segment() as made:
        yield made


@pytest.fixture
def ring(segment: SharedSegment) -> PullRequestRing:
    return PullRequestRing(segment, 0, 0)


def test_an_empty_ring_has_nothing(ring: PullRequestRing) -> None:
    assert ring.pop() is None


def test_entries_come_out_as_they_went_in(ring: PullRequestRing) -> None:
    entries = [(kind, bytes([kind]) * kind) for kind in range(200)]
    for kind, payload in entries:
        assert ring.push(payload, kind)
    assert [ring.pop() for _ in entries] == entries
    assert ring.pop() is None


def test_every_size_passes_at_every_place_of_the_ring(ring: PullRequestRing) -> None:
    # Small sizes all, large ones in steps that are no multiple of 8: the end of the ring is met at every remainder.
    sizes = [*range(600), *range(600, CAPACITY // 2 - 2 * ENTRY_HEAD, 7919)]
    for number, size in enumerate(sizes):
        payload = bytes([number % 251]) * size
        assert ring.push(payload, number % 100), f"size {size} was refused by an empty ring"
        assert ring.pop() == (number % 100, payload)
    assert ring.refused() == 0


def test_half_a_ring_always_fits_into_an_empty_one(ring: PullRequestRing) -> None:
    largest = CAPACITY // 2 - ENTRY_HEAD
    for shift in range(0, CAPACITY, CAPACITY // 64 + 8):
        assert ring.push(bytes(shift % 4096))
        assert ring.pop() is not None
        assert ring.push(bytes(largest))
        assert ring.pop() == (1, bytes(largest))


def test_a_full_ring_refuses_and_counts_and_takes_again_what_fits(ring: PullRequestRing) -> None:
    count = CAPACITY // entry_bytes(1016)
    assert [ring.push(struct.pack("=q", number) + bytes(1008)) for number in range(count)] == [True] * count
    assert not ring.push(b"")
    assert not ring.push(bytes(1016))
    assert ring.refused() == 2
    kind, payload = ring.pop() or (0, b"")
    assert (kind, payload[:8]) == (1, struct.pack("=q", 0))
    assert ring.push(bytes(1016))
    assert not ring.push(b"")


@pytest.mark.parametrize("size", [CAPACITY - ENTRY_HEAD + 1, CAPACITY, 2 * CAPACITY])
def test_more_than_a_ring_is_refused(ring: PullRequestRing, size: int) -> None:
    assert not ring.push(bytes(size))
    assert ring.pop() is None
    assert ring.push(bytes(CAPACITY - ENTRY_HEAD))


def test_rings_do_not_touch_each_other(segment: SharedSegment) -> None:
    pairs = [(sender, puller) for sender in range(layout.SEND_WORKERS_MAX) for puller in range(layout.PULL_WORKERS_MAX)]
    rings = {pair: PullRequestRing(segment, *pair) for pair in pairs}
    largest = CAPACITY - ENTRY_HEAD
    for sender, puller in pairs:
        assert rings[sender, puller].push(bytes([sender * 16 + puller]) * largest)
    for sender, puller in pairs:
        assert rings[sender, puller].pop() == (1, bytes([sender * 16 + puller]) * largest)


def test_who_opens_a_ring_anew_goes_on_where_the_last_one_stopped(segment: SharedSegment) -> None:
    for number in range(10):
        assert PullRequestRing(segment, 1, 2).push(b"%d" % number)
    assert [PullRequestRing(segment, 1, 2).pop() for _ in range(10)] == [(1, b"%d" % number) for number in range(10)]


class RingAgainstDeque(RuleBasedStateMachine):
    """Any order of pushes and pops, against a queue that counts bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.context = shared_segment()
        self.ring = PullRequestRing(self.context.__enter__(), 3, 3)
        self.model: deque[tuple[int, bytes]] = deque()
        self.number = 0

    @rule(size=st.integers(0, 64) | st.integers(0, CAPACITY // 3), times=st.integers(1, 5))
    def push(self, size: int, times: int) -> None:
        for _ in range(times):
            self.number += 1
            entry = (self.number % 100, bytes([self.number % 256]) * size)
            used = sum(entry_bytes(len(payload)) for _, payload in self.model)
            if self.ring.push(entry[1], entry[0]):
                self.model.append(entry)
                assert used + entry_bytes(size) <= CAPACITY
            else:
                # What is lost to the skip at the end is less than the entry that did not fit there, once per round.
                assert used + entry_bytes(size) + CAPACITY // 3 + 16 > CAPACITY

    @rule(times=st.integers(1, 6))
    def pop(self, times: int) -> None:
        for _ in range(times):
            assert self.ring.pop() == (self.model.popleft() if self.model else None)

    def teardown(self) -> None:
        while self.model:
            assert self.ring.pop() == self.model.popleft()
        assert self.ring.pop() is None
        self.context.__exit__(None, None, None)


TestRingAgainstDeque = RingAgainstDeque.TestCase
TestRingAgainstDeque.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def expected(chance: random.Random, number: int, size_max: int) -> tuple[int, bytes]:
    """The entry that fast_child.produce pushes next."""
    return number % 100, struct.pack("=q", number) + chance.randbytes(chance.randrange(size_max - 8))


@pytest.mark.parametrize("size_max", [40, 5000, 200_000])
def test_nothing_is_lost_between_two_processes(segment: SharedSegment, size_max: int, chance: random.Random) -> None:
    count = min(50_000, 40_000_000 // size_max)
    seed = chance.randrange(SEEDS)
    entries = random.Random(seed)
    ring = PullRequestRing(segment, 0, 0)
    deadline = time.monotonic() + DEADLINE_S
    with mortals() as children:
        children.begin(segment, "produce", seed=seed, count=count, size_max=size_max)
        for number in range(count):
            while (entry := ring.pop()) is None:
                assert time.monotonic() < deadline, f"the producer stopped after {number} entries"
            assert entry == expected(entries, number, size_max), f"entry {number} is another"
        assert children.finish() == [0]
    assert ring.pop() is None


def test_a_producer_killed_anywhere_leaves_whole_entries_and_room_for_the_next(
    segment: SharedSegment, chance: random.Random
) -> None:
    ring = PullRequestRing(segment, 0, 0)
    received = 0
    with mortals() as children:
        for _ in range(25):
            seed, kill_after_s = chance.randrange(SEEDS), chance.uniform(0.002, 0.015)
            entries = random.Random(seed)
            children.begin(segment, "produce", seed=seed, count=10**9, size_max=3000, kill_after_s=[kill_after_s])
            number = 0
            while True:
                is_over = children.have_ended
                while (entry := ring.pop()) is not None:
                    assert entry == expected(entries, number, 3000), f"entry {number} of seed {seed} is another"
                    number += 1
                if is_over:
                    break
            assert children.finish() == [-9]
            received += number
    assert received > 0
