"""A thread's iteration fetches more at once while it is fast, and is back at a little when it is not."""

from __future__ import annotations

from typing import cast

import pytest

from mqcore.client.consume.push.consumer import RECEIVE_MAX
from mqcore.client.model.messages import ReceivedMessage
from mqcore.client.plain import consumer as plain_consumer
from mqcore.client.plain.consumer import FETCH_MAX, FETCH_TIME_S, Consumer, MessageStream
from mqcore.protocol.message import MessageExt, MessageQueue

QUEUE = MessageQueue("T", "broker-a", 0)


class Clock:
    """Stands in for the module ``time``."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic_s(self) -> float:
        return self.now_s


class Supply:
    """A consumer that has *amounts* of messages ready, one after the other, and then closes."""

    def __init__(self, *amounts: int) -> None:
        self._amounts = iter(amounts)
        self.asked: list[int] = []
        self.abandoned: list[ReceivedMessage] = []
        self.acked: list[ReceivedMessage] = []

    def receive(self, count_max: int) -> list[ReceivedMessage]:
        self.asked.append(count_max)
        count = min(next(self._amounts, 0), count_max)
        return [ReceivedMessage(MessageExt("T", b"x"), QUEUE, settler=self) for _ in range(count)]

    def abandon(self, messages: list[ReceivedMessage]) -> None:
        self.abandoned += messages

    def ack(self, message: ReceivedMessage) -> None:
        self.acked.append(message)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(plain_consumer, "clock", clock)
    return clock


def stream_of(supply: Supply) -> MessageStream:
    return MessageStream(cast(Consumer, supply))


def test_a_fast_thread_fetches_twice_as_much_each_time_up_to_a_limit(clock: Clock) -> None:
    supply = Supply(*[10_000] * 6)
    count = sum(1 for _ in stream_of(supply))
    asked = [RECEIVE_MAX, 64, 128, 256, FETCH_MAX, FETCH_MAX, FETCH_MAX]
    assert (supply.asked, count) == (asked, sum(asked[:-1]))
    assert len(supply.acked) == count


def test_a_slow_thread_leaves_others_their_share(clock: Clock) -> None:
    supply = Supply(*[10_000] * 3)
    for _ in stream_of(supply):
        clock.now_s += FETCH_TIME_S / RECEIVE_MAX
    assert supply.asked == [RECEIVE_MAX] * 4


def test_a_fetch_that_was_not_full_is_followed_by_a_small_one(clock: Clock) -> None:
    supply = Supply(10_000, 10_000, 3, 1)
    assert sum(1 for _ in stream_of(supply)) == RECEIVE_MAX + 64 + 3 + 1
    assert supply.asked == [RECEIVE_MAX, 64, 128, RECEIVE_MAX, RECEIVE_MAX]


def test_the_one_in_hand_and_what_was_not_reached_are_given_back(clock: Clock) -> None:
    supply = Supply(5)
    stream = stream_of(supply)
    first, second = next(stream), next(stream)
    stream.end(done=False)
    assert supply.acked == [first]
    assert len(supply.abandoned) == 4
    assert supply.abandoned[0] is second
