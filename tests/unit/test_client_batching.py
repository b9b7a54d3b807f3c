"""What travels together, in which order, and what becomes of it; with a core that sends when the test says so."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from mqcore.client.errors import ClientClosedError
from mqcore.client.model.counters import SendTally
from mqcore.client.model.messages import Message
from mqcore.client.model.outgoing import Outgoing
from mqcore.client.model.unique_ids import UniqueIdGenerator
from mqcore.client.produce.batching import REQUESTS_MAX, Batcher, SendFuture
from mqcore.client.produce.core import Sent
from mqcore.client.produce.inflight import InflightLimit
from mqcore.client.session.broker_api import SendResponse
from mqcore.client.settings.classes import ProducerSettings
from mqcore.codes import ResponseCode
from mqcore.errors import BrokerError, HeaderError
from mqcore.protocol.batch import decode_batch
from mqcore.protocol.message import MessageQueue

DEADLINE_S = 60.0
QUEUE = MessageQueue("T", "broker-a", 1)
ID = "UNIQ_KEY"


class Core:
    """Sends nothing: keeps what it was given, and answers when it is told to."""

    def __init__(self) -> None:
        self.requests: list[tuple[Outgoing, MessageQueue | None, asyncio.Future[int]]] = []

    async def send(self, outgoing: Outgoing) -> Sent:
        return await self._take(outgoing, None)

    async def send_to(self, outgoing: Outgoing, queue: MessageQueue) -> SendResponse:
        return (await self._take(outgoing, queue)).response

    async def _take(self, outgoing: Outgoing, queue: MessageQueue | None) -> Sent:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.requests.append((outgoing, queue, answer))
        offset = await answer
        count = len(outgoing.ids) or 1
        ids = ",".join(f"offset id {offset + at}" for at in range(count))
        response = SendResponse(ResponseCode.SUCCESS, ids, 3, offset, None, "R", "true")
        return Sent(queue or MessageQueue("T", "broker-a", 3), response)

    def answer(self, index: int, outcome: int | BaseException) -> None:
        future = self.requests[index][2]
        if isinstance(outcome, int):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)

    def bodies(self, index: int) -> list[bytes]:
        """The messages in one request."""
        outgoing = self.requests[index][0]
        if not outgoing.is_batch:
            return [outgoing.body]
        return [member.body for member in decode_batch(outgoing.body)]

    @property
    def all_bodies(self) -> list[list[bytes]]:
        return [self.bodies(index) for index in range(len(self.requests))]


class Rig:
    """A batcher, its core, and messages with numbers as bodies."""

    def __init__(self, **changes: Any) -> None:
        settings = ProducerSettings(**changes)
        self.core = Core()
        self.inflight = InflightLimit(settings.max_inflight_messages, settings.max_inflight_bytes)
        self.ids = UniqueIdGenerator("127.0.0.1")
        self.tally = SendTally()
        self.batcher = Batcher(self.core, settings, self.inflight, self.ids, self.tally)  # type: ignore[arg-type]
        self.batcher.start()

    def submit(self, body: bytes, queue: MessageQueue | None = None, topic: str = "T", **properties: str) -> SendFuture:
        assert self.inflight.try_acquire(len(body))
        outgoing = Outgoing(topic, body, properties | {ID: self.ids.next_id()})
        return self.batcher.submit(outgoing, queue)

    def join(self, body: bytes) -> SendFuture | None:
        return self.batcher.join(Message("T", body))

    async def requests(self, count: int) -> None:
        """Wait until so many requests have been made."""
        async with asyncio.timeout(DEADLINE_S):
            while len(self.core.requests) < count:
                await asyncio.sleep(0)
        assert len(self.core.requests) == count

    async def settle(self) -> None:
        """Let everything happen that can happen without an answer."""
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
async def make_rig() -> AsyncIterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def make(**changes: Any) -> Rig:
        made.append(Rig(**changes))
        return made[-1]

    yield make
    for rig in made:
        await rig.batcher.close()
        assert (rig.inflight.messages, rig.inflight.bytes) == (0, 0), "room was not given back exactly once"
        assert rig.batcher.is_idle


# What travels together.


async def test_messages_of_one_turn_travel_together_and_each_has_its_receipt(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    futures = [rig.submit(b"%d" % number) for number in range(3)]
    await rig.requests(1)
    outgoing, queue, _ = rig.core.requests[0]
    assert (outgoing.is_batch, queue, outgoing.properties) == (True, None, {"WAIT": "true"})
    assert rig.core.bodies(0) == [b"0", b"1", b"2"]
    assert list(outgoing.ids) == [future.msg_id for future in futures]
    rig.core.answer(0, 100)
    receipts = [await future for future in futures]
    assert [receipt.offset for receipt in receipts] == [100, 101, 102]
    assert [receipt.offset_msg_id for receipt in receipts] == [f"offset id {at}" for at in (100, 101, 102)]
    assert [receipt.msg_id for receipt in receipts] == [future.msg_id for future in futures]
    assert {receipt.queue for receipt in receipts} == {MessageQueue("T", "broker-a", 3)}


async def test_a_message_alone_travels_as_itself(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    future = rig.submit(b"x", a="1")
    await rig.requests(1)
    outgoing = rig.core.requests[0][0]
    assert (outgoing.is_batch, outgoing.body, outgoing.properties["a"]) == (False, b"x", "1")
    assert outgoing.properties[ID] == future.msg_id
    rig.core.answer(0, 5)
    assert (await future).offset == 5


async def test_while_requests_are_under_way_the_next_batch_grows(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    for number in range(REQUESTS_MAX):
        rig.submit(b"%d" % number)
        await rig.requests(number + 1)
    late = [rig.submit(b"late"), rig.join(b"later")]
    await rig.settle()
    assert len(rig.core.requests) == REQUESTS_MAX
    rig.core.answer(2, 7)
    await rig.requests(REQUESTS_MAX + 1)
    assert rig.core.bodies(REQUESTS_MAX) == [b"late", b"later"]
    for index in (0, 1, 3, 4):
        rig.core.answer(index, index)
    assert [(await future).offset for future in late if future] == [4, 5]


async def test_a_message_may_join_only_a_batch_that_is_there(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    assert rig.join(b"x") is None
    rig.submit(b"first")
    joined = rig.join(b"second")
    assert joined is not None
    await rig.requests(1)
    assert rig.join(b"third") is None
    rig.core.answer(0, 1)
    assert (await joined).offset == 2


async def test_a_full_batch_leaves_and_the_next_begins(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(batch_bytes=1000, linger_s=60)
    futures = [rig.submit(bytes(400)) for _ in range(7)]
    await rig.requests(2)
    assert [len(bodies) for bodies in rig.core.all_bodies] == [3, 3]
    flushed = asyncio.create_task(rig.batcher.flush())
    await rig.requests(3)
    for index in range(3):
        rig.core.answer(index, 10 * index)
    await flushed
    assert [future.result().offset for future in futures] == [0, 1, 2, 10, 11, 12, 20]


async def test_lingering_messages_leave_when_their_time_is_over(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(linger_s=0.05)
    begin = time.monotonic()
    rig.submit(b"1")
    assert rig.join(b"2") is not None
    async with asyncio.timeout(DEADLINE_S):
        while not rig.core.requests:
            await asyncio.sleep(0.01)
    assert time.monotonic() - begin >= 0.05
    assert rig.core.all_bodies == [[b"1", b"2"]]


async def test_a_lingering_batch_takes_what_comes_later(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(linger_s=60)
    first = rig.submit(b"1")
    await rig.settle()
    assert not rig.core.requests
    second = rig.join(b"2")
    assert second is not None
    flushed = asyncio.create_task(rig.batcher.flush())
    await rig.requests(1)
    assert rig.core.all_bodies == [[b"1", b"2"]]
    rig.core.answer(0, 3)
    await flushed
    assert ((await first).offset, (await second).offset) == (3, 4)


@pytest.mark.parametrize(
    ("body", "properties"),
    [
        (b"x", {"DELAY": "3"}),
        (b"x", {"TRAN_MSG": "true"}),
        (b"x", {"MSG_TYPE": "reply"}),
        (b"x", {"INNER_MULTI_DISPATCH": "a"}),
        (b"x", {"TIMER_DELAY_SEC": "1"}),
        (bytes(5000), {}),
    ],
    ids=["delay", "transaction", "reply", "multi-dispatch", "timer", "would be compressed"],
)
async def test_what_must_go_alone_goes_alone_in_its_place(
    make_rig: Callable[..., Rig], body: bytes, properties: dict[str, str]
) -> None:
    rig = make_rig()
    for one, more in ((b"1", {}), (b"2", {}), (body, properties), (b"3", {}), (b"4", {})):
        rig.submit(one, QUEUE, **more)
    for index, wanted in enumerate(([b"1", b"2"], [body], [b"3", b"4"])):
        await rig.requests(index + 1)
        assert rig.core.bodies(index) == wanted
        rig.core.answer(index, index)
    await rig.batcher.flush()


async def test_a_retry_topic_takes_no_batches(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    rig.submit(b"1", topic="%RETRY%G")
    rig.submit(b"2", topic="%RETRY%G")
    await rig.requests(2)
    assert rig.core.all_bodies == [[b"1"], [b"2"]]


async def test_messages_that_wait_for_the_store_do_not_travel_with_those_that_do_not(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig()
    rig.submit(b"1")
    rig.submit(b"2")
    rig.submit(b"3", WAIT="false")
    rig.submit(b"4", WAIT="false")
    rig.submit(b"5")
    assert rig.join(b"6") is not None
    await rig.requests(3)
    assert rig.core.all_bodies == [[b"1", b"2"], [b"3", b"4"], [b"5", b"6"]]
    assert [request[0].properties for request in rig.core.requests] == [
        {"WAIT": "true"},
        {"WAIT": "false"},
        {"WAIT": "true"},
    ]


async def test_topics_and_queues_have_lanes_of_their_own(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    rig.submit(b"1")
    rig.submit(b"2", QUEUE)
    rig.submit(b"3", topic="Other")
    rig.submit(b"4", QUEUE)
    await rig.requests(3)
    assert sorted(rig.core.all_bodies) == [[b"1"], [b"2", b"4"], [b"3"]]


# Order.


async def test_the_messages_of_a_queue_keep_their_order(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(batch_bytes=100)
    futures = [rig.submit(bytes([number]) * 40, QUEUE) for number in range(10)]
    seen: list[bytes] = []
    index = 0
    while len(seen) < 10:
        await rig.requests(index + 1)
        await rig.settle()
        assert len(rig.core.requests) == index + 1, "two requests to one queue at once"
        seen += rig.core.bodies(index)
        rig.core.answer(index, 10 * index)
        index += 1
    assert seen == [bytes([number]) * 40 for number in range(10)]
    offsets = [(await future).offset for future in futures]
    assert offsets == sorted(offsets)


# Failures.


async def test_an_error_goes_to_each_message_of_the_batch_as_an_object_of_its_own(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    futures = [rig.submit(b"x") for _ in range(3)]
    await rig.requests(1)
    rig.core.answer(0, BrokerError(14, "disk full", "b:1").at(topic="T"))
    errors = []
    for future in futures:
        with pytest.raises(BrokerError, match="disk full") as caught:
            await future
        assert (caught.value.code, caught.value.topic) == (14, "T")
        errors.append(caught.value)
        assert isinstance(future.exception(), BrokerError)
    assert len({id(error) for error in errors}) == 3


async def test_a_failure_that_nobody_foresaw_goes_to_each_message_too(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    future = rig.submit(b"x")
    await rig.requests(1)
    rig.core.answer(0, ZeroDivisionError("surprise"))
    with pytest.raises(ZeroDivisionError):
        await future


async def test_after_a_failed_batch_its_queue_goes_on(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    first = rig.submit(b"1", QUEUE)
    await rig.requests(1)
    second = rig.submit(b"2", QUEUE)
    rig.core.answer(0, BrokerError(1, "no", "b:1"))
    await rig.requests(2)
    rig.core.answer(1, 9)
    assert (await second).offset == 9
    assert isinstance(first.exception(), BrokerError)


async def test_a_message_that_cannot_travel_disturbs_nobody(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    good = [rig.submit(b"1"), rig.submit(b"2")]
    with pytest.raises(HeaderError):
        rig.submit(b"bad", a="\x02")
    rig.inflight.release(3)  # whoever gives a message takes its room back when it is refused
    good.append(rig.submit(b"3"))
    await rig.requests(1)
    assert rig.core.bodies(0) == [b"1", b"2", b"3"]
    rig.core.answer(0, 0)
    assert [(await future).offset for future in good] == [0, 1, 2]


async def test_closing_gives_up_what_is_under_way_and_what_waits(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    first = rig.submit(b"1", QUEUE)
    await rig.requests(1)
    second = rig.submit(b"2", QUEUE)
    await rig.batcher.close()
    for future in (first, second):
        with pytest.raises(ClientClosedError):
            await future


async def test_who_gives_up_waiting_takes_nothing_from_the_others(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    futures = [rig.submit(b"1"), rig.submit(b"2")]

    async def wait(future: SendFuture) -> int:
        return (await future).offset

    waiting = [asyncio.create_task(wait(future)) for future in (*futures, futures[0])]
    await rig.requests(1)
    waiting[0].cancel()
    await rig.settle()
    rig.core.answer(0, 4)
    assert await asyncio.gather(*waiting[1:]) == [5, 4]
    assert (await futures[0]).offset == 4


# Waiting.


async def test_a_result_that_does_not_come_in_time_says_so(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    future = rig.submit(b"x")
    assert not future.done()
    with pytest.raises(TimeoutError, match=future.msg_id):
        future.result(timeout_s=0)
    with pytest.raises(TimeoutError):
        future.exception(timeout_s=0)


async def test_threads_wait_for_the_same_batch(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    futures = [rig.submit(b"1"), rig.submit(b"2")]
    waiting = [asyncio.create_task(asyncio.to_thread(future.result, DEADLINE_S)) for future in futures]
    await rig.requests(1)
    rig.core.answer(0, 8)
    assert [receipt.offset for receipt in await asyncio.gather(*waiting)] == [8, 9]


async def test_another_event_loop_may_await_too(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    future = rig.submit(b"1")

    async def wait() -> int:
        return (await future).offset

    waiting = asyncio.create_task(asyncio.to_thread(asyncio.run, wait()))
    await rig.requests(1)
    rig.core.answer(0, 8)
    assert await waiting == 8


async def test_callbacks_are_called_once_each_also_when_it_is_too_late(
    make_rig: Callable[..., Rig], caplog: pytest.LogCaptureFixture
) -> None:
    rig = make_rig()
    futures = [rig.submit(b"1"), rig.submit(b"2")]
    seen: list[int] = []

    def note(future: SendFuture) -> None:
        seen.append(future.result().offset)

    def fail(future: SendFuture) -> None:
        raise ZeroDivisionError

    futures[0].add_done_callback(fail)
    futures[0].add_done_callback(note)
    futures[1].add_done_callback(note)
    await rig.requests(1)
    rig.core.answer(0, 1)
    await futures[0]
    futures[1].add_done_callback(note)
    assert seen == [1, 2, 2]
    assert "callback of a send failed" in caplog.text


async def test_threads_may_give_messages_at_once(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(batch_bytes=2000)
    found: list[SendFuture] = []
    lock = threading.Lock()

    def give() -> None:
        for _ in range(500):
            future = rig.join(b"x" * 10) or rig.submit(b"x" * 10)
            with lock:
                found.append(future)

    async def answer() -> None:
        answered = 0
        while not all(future.done() for future in found) or len(found) < 2000:
            for index in range(answered, len(rig.core.requests)):
                rig.core.answer(index, 1000 * index)
                answered = index + 1
            await asyncio.sleep(0)

    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*(asyncio.to_thread(give) for _ in range(4)), answer())
    places = {(future.result().offset) for future in found}
    assert len(places) == 2000
    assert sum(len(bodies) for bodies in rig.core.all_bodies) == 2000
