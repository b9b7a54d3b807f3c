"""What mqcore.testing.message makes is what a consumer gets, and tells how it was settled."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mqcore.client import MessageQueue, ReceivedMessage, Reject, Retry
from mqcore.client.consume.push.batches import MessageBatch
from mqcore.client.errors import ArgumentError, ClientStateError
from mqcore.testing import Settled, message

NEW_YEAR = datetime(2030, 1, 1, tzinfo=UTC)


def test_a_made_message_has_what_it_was_made_of() -> None:
    made = message(
        b"10 EUR",
        topic="Payments",
        tag="paid",
        keys=["42", "43"],
        properties={"currency": "EUR"},
        queue=MessageQueue("Payments", "broker-a", 3),
        queue_offset=7,
        reconsume_times=2,
        born_at=NEW_YEAR,
        stored_at=int(NEW_YEAR.timestamp() * 1000) + 1500,
    )
    assert isinstance(made, ReceivedMessage)
    assert (made.body, made.topic, made.tag, made.keys) == (b"10 EUR", "Payments", "paid", ("42", "43"))
    assert (made.queue, made.queue_offset) == (MessageQueue("Payments", "broker-a", 3), 7)
    assert (made.properties["currency"], made.reconsume_times) == ("EUR", 2)
    assert (made.born_at, made.stored_at) == (NEW_YEAR, NEW_YEAR + timedelta(seconds=1.5))
    assert (made.outcome, made.is_dropped) == (None, False)


def test_two_made_messages_are_two() -> None:
    first, second = message(), message()
    assert first.msg_id != second.msg_id
    assert first.queue_offset < second.queue_offset


def test_what_could_not_have_been_sent_is_refused() -> None:
    with pytest.raises(ArgumentError, match="is used by system"):
        message(properties={"TAGS": "x"})
    with pytest.raises(ArgumentError, match=r"born_at: .* has no time zone"):
        message(born_at=datetime(2030, 1, 1))


def test_a_made_message_remembers_how_it_was_settled() -> None:
    acked, failed, rejected = message(), message(), message()
    acked.ack()
    failed.nack(delay=timedelta(minutes=1))
    rejected.reject()
    assert [made.outcome for made in (acked, failed, rejected)] == [Settled.ACKED, Settled.FAILED, Settled.REJECTED]
    assert failed.delay_level == 5
    with pytest.raises(ClientStateError, match="settled before"):
        acked.nack()


def test_a_batch_of_made_messages_is_settled_together() -> None:
    async def persist() -> None:
        raise AssertionError("nothing is committed")

    made = [message(), message()]
    made[0].ack()
    MessageBatch(made, persist).nack(delay=7)
    assert [(one.outcome, one.delay_level) for one in made] == [(Settled.ACKED, 0), (Settled.FAILED, 3)]


@pytest.mark.parametrize(
    ("delay", "level"),
    [(0.2, 1), (timedelta(seconds=5), 2), (7, 3), (timedelta(minutes=11), 15), (timedelta(days=1), 18)],
)
def test_a_delay_is_the_first_level_that_waits_as_long(delay: timedelta | float, level: int) -> None:
    assert Retry(delay=delay).delay_level == level


def test_a_handler_is_tested_without_a_broker() -> None:
    def handle(received: ReceivedMessage) -> None:
        if not received.body:
            raise Reject

    handle(message(b"x"))
    with pytest.raises(Reject):
        handle(message())
