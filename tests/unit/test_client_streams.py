"""Messages wait in a buffer for those who ask; background work goes on whatever happens to one round."""

from __future__ import annotations

import asyncio
import logging

import pytest

from mqcore.client.consume.membership import Membership
from mqcore.client.consume.offsets import MemoryOffsets
from mqcore.client.consume.push.batches import MessageBatch
from mqcore.client.consume.push.streams import Handoff, MessageBuffer, StreamService
from mqcore.client.errors import ClientStateError, Retry
from mqcore.client.model.messages import ReceivedMessage, Settler
from mqcore.client.model.outcome import Abandoned
from mqcore.client.model.process_queue import ProcessQueue
from mqcore.client.session.tasks import Periodic, cancel_and_wait
from mqcore.client.settings.classes import ConsumerSettings
from mqcore.errors import RemotingConnectError
from mqcore.protocol.message import MessageExt, MessageQueue

QUEUE = MessageQueue("T", "broker-a", 0)


def messages(
    count: int, held: ProcessQueue[ReceivedMessage] | None = None, settler: Settler | None = None
) -> list[ReceivedMessage]:
    return [
        ReceivedMessage(MessageExt("T", b"%d" % n, queue_offset=n), QUEUE, held=held, settler=settler)
        for n in range(count)
    ]


async def start(
    buffer: MessageBuffer, count: int = 1, timeout_s: float | None = None
) -> asyncio.Task[list[ReceivedMessage]]:
    """Begin to take, and let the event loop turn until the taker waits."""
    task = asyncio.create_task(buffer.take(count, timeout_s))
    for _ in range(3):
        await asyncio.sleep(0)
    return task


async def test_messages_are_taken_in_order_and_no_more_than_asked_for() -> None:
    buffer = MessageBuffer()
    buffer.put(messages(5))
    assert [message.body for message in await buffer.take(3, None)] == [b"0", b"1", b"2"]
    assert [message.body for message in await buffer.take(3, None)] == [b"3", b"4"]


async def test_who_waits_gets_the_message_that_comes() -> None:
    buffer = MessageBuffer()
    first, second = await start(buffer), await start(buffer)
    buffer.put(messages(2))
    assert [(await first)[0].body, (await second)[0].body] == [b"0", b"1"]


async def test_a_closed_buffer_hands_out_nothing_more() -> None:
    buffer = MessageBuffer()
    buffer.put(messages(2))
    assert [message.body for message in buffer.close()] == [b"0", b"1"]
    buffer.put(messages(1))
    buffer.put_back(messages(1))
    assert await asyncio.wait_for(buffer.take(1, None), 60) == []


async def test_nothing_comes_in_time() -> None:
    assert await MessageBuffer().take(1, 0.01) == []
    assert await MessageBuffer().take(1, 0) == []


async def test_a_wake_up_that_meets_a_cancelled_waiter_goes_to_the_next_one() -> None:
    buffer = MessageBuffer()
    first, second = await start(buffer), await start(buffer)
    buffer.put(messages(1))  # wakes the first
    first.cancel()  # before it could run
    assert [message.body for message in await asyncio.wait_for(second, 60)] == [b"0"]
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_messages_of_a_queue_that_was_given_up_are_passed_over() -> None:
    buffer = MessageBuffer()
    held: ProcessQueue[ReceivedMessage] = ProcessQueue(QUEUE)
    buffer.put(messages(3, held))
    buffer.put(messages(1))
    held.dropped = True
    assert len(await buffer.take(9, None)) == 1


async def test_closing_lets_everybody_go_and_tells_what_is_left() -> None:
    buffer = MessageBuffer()
    waiters = [await start(buffer) for _ in range(3)]
    assert buffer.close() == []
    assert await asyncio.gather(*waiters) == [[], [], []]
    full = MessageBuffer()
    full.put(messages(2))
    assert len(full.close()) == 2
    assert await full.take(1, None) == []


async def test_background_work_goes_on_after_a_failed_round(caplog: pytest.LogCaptureFixture) -> None:
    failures: list[Exception] = [RemotingConnectError("no"), ValueError("a mistake")]
    rounds = 0
    third = asyncio.Event()

    async def action() -> None:
        nonlocal rounds
        rounds += 1
        if failures:
            raise failures.pop(0)
        third.set()

    work = Periodic("work", action, first_s=0.001, every_s=0.001)
    with caplog.at_level(logging.WARNING, "mqcore.client.session.tasks"):
        work.start()
        await asyncio.wait_for(third.wait(), 60)
        await work.stop()
    assert rounds >= 3
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]


async def test_background_work_can_be_woken() -> None:
    ran = asyncio.Event()

    async def action() -> None:
        ran.set()

    work = Periodic("work", action, first_s=3600, every_s=3600)
    work.start()
    work.wake()
    await asyncio.wait_for(ran.wait(), 60)
    await work.stop()


async def test_a_task_that_swallows_a_cancellation_is_cancelled_again() -> None:
    swallowed = 0

    async def stubborn() -> None:
        nonlocal swallowed
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            swallowed += 1
        await asyncio.Event().wait()

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await asyncio.wait_for(cancel_and_wait(task), 60)
    assert (swallowed, task.cancelled()) == (1, True)


async def test_a_taker_may_wait_for_more_once_there_is_one() -> None:
    buffer = MessageBuffer()
    task = asyncio.create_task(buffer.take(3, None, 30.0))
    for number in range(3):
        for _ in range(3):
            await asyncio.sleep(0)
        assert not task.done()
        buffer.put([messages(3)[number]])
    assert [message.body for message in await task] == [b"0", b"1", b"2"]


async def test_a_taker_that_waited_long_enough_takes_what_there_is() -> None:
    buffer = MessageBuffer()
    buffer.put(messages(2))
    assert len(await buffer.take(3, None, 0.01)) == 2
    assert await buffer.take(3, 0.01, 30.0) == []


async def test_a_buffer_that_closes_lets_a_taker_go_that_waits_for_more() -> None:
    buffer = MessageBuffer()
    buffer.put(messages(1))
    task = await start_filling(buffer)
    assert len(buffer.close()) == 1
    assert await task == []


async def start_filling(buffer: MessageBuffer) -> asyncio.Task[list[ReceivedMessage]]:
    task = asyncio.create_task(buffer.take(3, None, 30.0))
    for _ in range(3):
        await asyncio.sleep(0)
    return task


async def test_what_was_put_back_comes_first_and_in_order() -> None:
    buffer = MessageBuffer()
    first, second, third = messages(3)
    buffer.put([third])
    buffer.put_back([first, second])
    assert await buffer.take(3, 0) == [first, second, third]


async def test_messages_of_a_queue_that_was_given_up_are_passed_over_wherever_they_stand() -> None:
    buffer = MessageBuffer()
    kept, gone = ProcessQueue[ReceivedMessage](QUEUE), ProcessQueue[ReceivedMessage](QUEUE)
    buffer.put([*messages(1, gone), *messages(1, kept), *messages(1, gone)])
    gone.dropped = True
    taken = await buffer.take(3, 0)
    assert [message.held for message in taken] == [kept]


# An orderly consumer without a handler.


async def turn() -> None:
    """Let every task that can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


async def persist() -> None:
    """Nothing is committed here."""


async def test_who_failed_a_message_of_an_orderly_queue_does_not_settle_its_next_delivery() -> None:
    handoff = Handoff()
    (message,) = messages(1, ProcessQueue(QUEUE), handoff)
    handling = asyncio.create_task(handoff.handle(message))
    (had,) = await handoff.receive(1, 1)
    batch = MessageBatch([had], persist)
    had.nack()
    with pytest.raises(Retry):
        await handling
    handling = asyncio.create_task(handoff.handle(message))
    await turn()
    batch.ack()  # as asking for the next batch does, for what is unsettled
    with pytest.raises(ClientStateError, match="settled before"):
        had.ack()
    await turn()
    assert not handling.done()
    (again,) = await handoff.receive(1, 1)
    assert again.body == had.body
    again.ack()
    await handling


async def test_who_failed_a_message_that_could_not_be_sent_back_does_not_settle_its_next_delivery(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def cannot_send_back(*_: object) -> bool:
        return False

    monkeypatch.setattr("mqcore.client.consume.push.concurrently.send_back", cannot_send_back)
    monkeypatch.setattr("mqcore.client.consume.push.streams.RESUBMIT_DELAY_S", 0.0)
    held: ProcessQueue[ReceivedMessage] = ProcessQueue(QUEUE)
    hub = None
    service = StreamService(Membership(hub, "g", ConsumerSettings(), MemoryOffsets(), {}))  # type: ignore[arg-type]
    held.put(messages(1, held, service))
    assert held.first_message is not None
    service.submit(held, [held.first_message], True)
    (had,) = await service.receive(1, 1)
    batch = MessageBatch([had], persist)
    had.nack()
    (again,) = await service.receive(1, 10)
    batch.ack()
    assert held.count == 1
    assert held.first_message is again
    again.ack()
    assert held.count == 0
    await service.close(1)


async def test_an_orderly_queue_that_is_given_up_does_not_wait_for_what_nobody_has_taken() -> None:
    handoff, held = Handoff(), ProcessQueue[ReceivedMessage](QUEUE)
    (message,) = messages(1, held, handoff)
    handling = asyncio.create_task(handoff.handle(message))
    await turn()
    held.dropped = True
    handoff.let_go()
    with pytest.raises(Abandoned):
        await asyncio.wait_for(handling, 1)


@pytest.mark.parametrize("count_max", [1, 2])
async def test_nobody_waits_for_a_message_that_a_taker_has_passed_over(count_max: int) -> None:
    handoff, held, other = Handoff(), ProcessQueue[ReceivedMessage](QUEUE), ProcessQueue[ReceivedMessage](QUEUE)
    (kept,), (passed_over,) = messages(1, other, handoff), messages(1, held, handoff)
    tasks = [asyncio.create_task(handoff.handle(message)) for message in (kept, passed_over)]
    await turn()
    held.dropped = True
    assert await handoff.receive(count_max, 1) == [kept]
    assert await handoff.receive(count_max, 0) == []
    with pytest.raises(Abandoned):
        await asyncio.wait_for(tasks[1], 1)
    kept.ack()
    await tasks[0]
