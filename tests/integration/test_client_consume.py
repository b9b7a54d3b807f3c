"""Members of a group get each message, in order within its queue, and again if they failed to consume it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mqcore import aio
from mqcore.client.errors import ClientStateError
from mqcore.client.session.broker_api import request
from mqcore.codes import RequestCode
from mqcore.errors import ArgumentError, BrokerError
from mqcore.protocol.bodies import ConsumerRunningInfo
from tests.integration.client_helpers import (
    committed,
    eventually,
    make_topic,
    read_queue,
    send_numbers,
)
from tests.rigs import RunningBroker

FIRST_DELAY = 1
"""The delay level of one second."""


@pytest.fixture
async def mq(broker: RunningBroker) -> AsyncIterator[aio.Client]:
    async with aio.Client(broker.name_server) as client:
        yield client


@pytest.fixture
async def second(broker: RunningBroker) -> AsyncIterator[aio.Client]:
    """Another client, as if in another process: a member of its own."""
    async with aio.Client(broker.name_server) as client:
        yield client


@pytest.fixture
def topic(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    return make_topic(broker, request.node.name)


@pytest.fixture
def group(topic: str) -> str:
    return "G_" + topic


class Seen:
    """A handler that remembers what it got, and fails when it is told to."""

    def __init__(self) -> None:
        self.messages: list[aio.ReceivedMessage] = []
        self.failures: list[Exception] = []

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    async def handle(self, message: aio.ReceivedMessage) -> None:
        self.messages.append(message)
        if self.failures:
            raise self.failures.pop(0)


def check_order(messages: list[aio.ReceivedMessage]) -> None:
    """Each queue's messages came in order and without gaps."""
    by_queue: defaultdict[aio.MessageQueue, list[int]] = defaultdict(list)
    for message in messages:
        by_queue[message.queue].append(message.queue_offset)
    for queue, offsets in by_queue.items():
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets))), queue


async def take(consumer: aio.Consumer, count: int) -> list[aio.ReceivedMessage]:
    """Iterate over the next *count* messages."""
    messages = []
    async with asyncio.timeout(60):
        async for message in consumer:
            messages.append(message)
            if len(messages) == count:
                break
    return messages


# Iterating.


async def test_iterating_gives_each_message_once_and_each_queue_in_order(
    mq: aio.Client, topic: str, group: str
) -> None:
    await send_numbers(mq, topic, range(200))
    async with mq.consumer(group, topic, from_where="earliest") as consumer:
        messages = await take(consumer, 200)
    assert sorted(int(message.body) for message in messages) == list(range(200))
    check_order(messages)


async def test_what_was_iterated_over_is_committed_and_the_next_member_goes_on(
    mq: aio.Client, topic: str, group: str
) -> None:
    await send_numbers(mq, topic, range(50))
    async with mq.consumer(group, topic, from_where="earliest") as consumer:
        first = await take(consumer, 20)
    assert await committed(mq, group, topic) == 20
    async with mq.consumer(group, topic, from_where="earliest") as consumer:
        rest = await take(consumer, 30)
    assert sorted(int(message.body) for message in [*first, *rest]) == list(range(50))


async def test_the_message_that_raised_out_of_the_block_comes_again(mq: aio.Client, topic: str, group: str) -> None:
    await send_numbers(mq, topic, range(1))

    async def fail() -> None:
        async with mq.consumer(group, topic, from_where="earliest") as consumer:
            for message in await take(consumer, 1):
                _ = 1 // int(message.body)

    with pytest.raises(ZeroDivisionError):
        await fail()
    async with mq.consumer(group, topic, from_where="earliest") as consumer:
        (again,) = await take(consumer, 1)
    assert (again.body, again.reconsume_times) == (b"0", 0)


async def test_a_message_sent_while_iterating_wakes_the_waiting_pull(mq: aio.Client, topic: str, group: str) -> None:
    async with mq.consumer(group, topic) as consumer:
        waiting = asyncio.create_task(take(consumer, 1))
        await eventually(lambda: len(consumer.queues) >= 4, "the queues are taken")
        await send_numbers(mq, topic, range(1))
        (message,) = await waiting
    assert message.body == b"0"


async def test_received_messages_are_committed_when_acked_and_not_before(
    mq: aio.Client, topic: str, group: str
) -> None:
    await send_numbers(mq, topic, range(10))
    async with mq.consumer(group, topic, from_where="earliest") as consumer:
        messages: list[aio.ReceivedMessage] = []
        while len(messages) < 10:
            messages += await consumer.receive(3, timeout_s=10)
        await consumer.persist_offsets()
        assert await committed(mq, group, topic) == 0
        # Whatever would come twice lies before what is sent now.
        await send_numbers(mq, topic, range(10, 14), each_queue=True)
        while len(messages) < 10 + 4 * 4:
            messages += await consumer.receive(3, timeout_s=10)
        assert sorted(int(message.body) for message in messages) == sorted([*range(10), *[10, 11, 12, 13] * 4])
        for message in messages[:10]:
            message.ack()
        await consumer.persist_offsets()
        assert await committed(mq, group, topic) == 10
    assert await committed(mq, group, topic) == 10


async def test_a_nacked_message_comes_again_and_a_rejected_one_is_a_dead_letter(
    mq: aio.Client, topic: str, group: str
) -> None:
    await send_numbers(mq, topic, range(2))
    async with mq.consumer(group, topic, from_where="earliest") as consumer:
        settled = 0
        async for message in consumer:
            if message.body == b"0":
                message.nack(FIRST_DELAY)
            else:
                message.reject()
            settled += 1
            if settled == 2:
                break
        (again,) = await take(consumer, 1)
        assert (again.body, again.topic, again.reconsume_times) == (b"0", topic, 1)
    async with asyncio.timeout(60):
        while not (queues := await mq.queues("%DLQ%" + group)):  # name servers hear of the topic a moment later
            await asyncio.sleep(0.05)
    (dead,) = await read_queue(mq, *queues, 1)
    assert dead.body == b"1"


# Handlers.


async def test_a_handler_gets_each_message_once(mq: aio.Client, topic: str, group: str) -> None:
    seen = Seen()
    await send_numbers(mq, topic, range(200))
    async with mq.consumer(group, topic, handler=seen.handle, from_where="earliest", concurrency=8):
        await eventually(lambda: len(seen.messages) >= 200, "200 messages")
    assert sorted(int(body) for body in seen.bodies) == list(range(200))
    assert await committed(mq, group, topic) == 200


async def test_no_more_handlers_run_at_once_than_allowed(mq: aio.Client, topic: str, group: str) -> None:
    running = peak = done = 0
    gate = asyncio.Event()

    async def handle(message: aio.ReceivedMessage) -> None:
        nonlocal running, peak, done
        running += 1
        peak = max(peak, running)
        await gate.wait()
        running -= 1
        done += 1

    await send_numbers(mq, topic, range(20))
    async with mq.consumer(group, topic, handler=handle, from_where="earliest", concurrency=5):
        await eventually(lambda: running == 5, "five handlers run")
        gate.set()
        await eventually(lambda: done == 20, "all are done")
    assert peak == 5


async def test_a_batch_handler_gets_messages_of_one_queue_together(mq: aio.Client, topic: str, group: str) -> None:
    batches: list[list[aio.ReceivedMessage]] = []

    async def handle(messages: list[aio.ReceivedMessage]) -> None:
        batches.append(list(messages))

    await send_numbers(mq, topic, range(20), each_queue=True)
    for queue in await mq.queues(topic):
        await read_queue(mq, queue, 20)  # so that one pull finds them all
    async with mq.consumer(group, topic, batch_handler=handle, from_where="earliest", batch_size=10):
        await eventually(lambda: sum(map(len, batches)) >= 80, "80 messages")
    assert max(map(len, batches)) == 10
    for batch in batches:
        assert len({message.queue for message in batch}) == 1
        check_order(batch)


async def test_a_message_whose_handler_fails_comes_again_until_it_succeeds(
    mq: aio.Client, topic: str, group: str
) -> None:
    seen = Seen()
    seen.failures = [aio.Retry(FIRST_DELAY), aio.Retry(FIRST_DELAY)]
    await send_numbers(mq, topic, range(1))
    async with mq.consumer(group, topic, handler=seen.handle, from_where="earliest"):
        await eventually(lambda: len(seen.messages) >= 3, "the third delivery")
    assert [message.reconsume_times for message in seen.messages] == [0, 1, 2]
    assert {message.topic for message in seen.messages} == {topic}
    assert {message.msg_id for message in seen.messages} == {seen.messages[0].msg_id}
    assert await committed(mq, group, topic) == 1


async def test_a_message_that_failed_too_often_is_a_dead_letter(mq: aio.Client, topic: str, group: str) -> None:
    seen = Seen()
    seen.failures = [aio.Retry(FIRST_DELAY) for _ in range(9)]
    await send_numbers(mq, topic, range(1))
    async with mq.consumer(group, topic, handler=seen.handle, from_where="earliest", max_reconsume_times=1):
        await eventually(lambda: len(seen.messages) == 2, "the second delivery")

        async def is_dead() -> bool:
            return bool(await mq.queues("%DLQ%" + group))

        async with asyncio.timeout(60):
            while not await is_dead():
                await asyncio.sleep(0.05)
    assert len(seen.messages) == 2


async def test_one_bad_message_does_not_hold_up_the_others(mq: aio.Client, topic: str, group: str) -> None:
    done: list[bytes] = []

    async def handle(message: aio.ReceivedMessage) -> None:
        if message.body == b"0":
            raise ValueError("bad")
        done.append(message.body)

    await send_numbers(mq, topic, range(40))
    async with mq.consumer(group, topic, handler=handle, from_where="earliest", concurrency=1):
        await eventually(lambda: len(done) == 39, "the other messages")


async def test_closing_waits_for_the_message_in_hand_and_commits_it(mq: aio.Client, topic: str, group: str) -> None:
    started, gate = asyncio.Event(), asyncio.Event()

    async def handle(message: aio.ReceivedMessage) -> None:
        started.set()
        await gate.wait()

    await send_numbers(mq, topic, range(1))
    async with mq.consumer(group, topic, handler=handle, from_where="earliest") as consumer:
        async with asyncio.timeout(60):
            await started.wait()
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        gate.set()
        await closing
    assert await committed(mq, group, topic) == 1


async def test_a_message_that_outlasts_the_close_is_not_committed(mq: aio.Client, topic: str, group: str) -> None:
    started = asyncio.Event()

    async def handle(message: aio.ReceivedMessage) -> None:
        started.set()
        await asyncio.Event().wait()

    await send_numbers(mq, topic, range(1))
    async with mq.consumer(group, topic, handler=handle, from_where="earliest") as consumer:
        async with asyncio.timeout(60):
            await started.wait()
        await consumer.close(timeout_s=0.05)
    assert await committed(mq, group, topic) == 0


async def test_closing_a_client_takes_as_long_as_its_slowest_member(broker: RunningBroker, topic: str) -> None:
    started = asyncio.Semaphore(0)

    async def handle(message: aio.ReceivedMessage) -> None:
        started.release()
        await asyncio.Event().wait()

    async with aio.Client(broker.name_server, close_timeout_s=1) as mq:
        await send_numbers(mq, topic, range(1))
        for number in range(20):
            await mq.consumer(f"G_{topic}_{number}", topic, handler=handle, from_where="earliest").start()
        for _ in range(20):
            await asyncio.wait_for(started.acquire(), 60)
        begin = time.monotonic()
        await mq.close()
        assert 1 <= time.monotonic() - begin < 20, "one after the other they would have taken twenty seconds"


async def test_one_member_that_cannot_be_closed_leaves_nothing_else_open(broker: RunningBroker, topic: str) -> None:
    mq = aio.Client(broker.name_server)
    await mq.start()
    first, second = (mq.consumer(f"G_{topic}_{number}", topic) for number in range(2))
    await first.start()
    await second.start()

    async def fail(timeout_s: float, *, drain: bool) -> None:
        raise RuntimeError("a mistake of ours")

    leave, first._leave = first._leave, fail  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        await mq.close()
    assert second.is_closed
    assert not [task for task in asyncio.all_tasks() if "heartbeat" in task.get_name()]
    await leave(0, drain=False)  # what it holds is given back by the one who holds it


async def test_a_message_that_is_stuck_comes_again_beside_it(mq: aio.Client, topic: str, group: str) -> None:
    times: list[int] = []
    stuck = asyncio.Event()

    async def handle(message: aio.ReceivedMessage) -> None:
        times.append(message.reconsume_times)
        if len(times) == 1:
            await stuck.wait()

    await send_numbers(mq, topic, range(1))
    async with mq.consumer(group, topic, handler=handle, from_where="earliest", consume_timeout_s=1):
        await eventually(lambda: times == [0, 1], "the second delivery")
        stuck.set()
    assert await committed(mq, group, topic) == 1


async def cached_counts(mq: aio.Client, consumer: aio.Consumer, topic: str) -> list[int]:
    """How many messages the consumer has of each of the topic's four queues; zero for one that it has not taken."""
    values = {"consumer_group": consumer.group, "client_id": mq.client_id, "jstack_enable": False}
    answer = await consumer.control.running_info(request(RequestCode.GET_CONSUMER_RUNNING_INFO, values))
    rows = ConsumerRunningInfo.decode(answer.body).mq_table
    counts = {queue.queue_id: row.cached_msg_count for queue, row in rows.items() if queue.topic == topic}
    return [counts.get(queue_id, 0) for queue_id in range(4)]


async def test_no_more_is_pulled_than_may_be_cached(mq: aio.Client, topic: str, group: str) -> None:
    gate = asyncio.Event()
    started = done = 0

    async def handle(message: aio.ReceivedMessage) -> None:
        nonlocal started, done
        started += 1
        await gate.wait()
        done += 1

    await send_numbers(mq, topic, range(100), each_queue=True)
    limits = {"pull_batch_size": 8, "pull_threshold_for_queue": 10, "concurrency": 4}
    async with mq.consumer(group, topic, handler=handle, from_where="earliest", **limits) as consumer:
        async with asyncio.timeout(60):
            while min(cached := await cached_counts(mq, consumer, topic)) <= 10 or started < 4:
                await asyncio.sleep(0.01)
        assert started == 4
        assert max(cached) <= 10 + 8
        gate.set()
        await eventually(lambda: done == 400, "everything")


# Order.


async def test_an_orderly_handler_works_on_one_message_of_a_queue_at_a_time(
    mq: aio.Client, topic: str, group: str
) -> None:
    messages: list[aio.ReceivedMessage] = []
    busy: Counter[aio.MessageQueue] = Counter()

    async def handle(message: aio.ReceivedMessage) -> None:
        busy[message.queue] += 1
        assert busy[message.queue] == 1
        await asyncio.sleep(0)
        messages.append(message)
        busy[message.queue] -= 1

    await send_numbers(mq, topic, range(30), each_queue=True)
    async with mq.consumer(group, topic, handler=handle, orderly=True, from_where="earliest"):
        await eventually(lambda: len(messages) >= 120, "120 messages")
    assert len(messages) == 120
    check_order(messages)
    assert await committed(mq, group, topic) == 120


async def test_an_orderly_queue_waits_for_its_failed_message_and_others_go_on(
    mq: aio.Client, topic: str, group: str
) -> None:
    messages: list[aio.ReceivedMessage] = []
    failing = aio.MessageQueue(topic, "broker-a", 1)

    async def handle(message: aio.ReceivedMessage) -> None:
        messages.append(message)
        if message.queue == failing and message.body == b"3" and message.reconsume_times < 2:
            raise ValueError("not yet")

    await send_numbers(mq, topic, range(6), each_queue=True)
    settings = {"orderly": True, "from_where": "earliest", "suspend_queue_s": 0.05}
    async with mq.consumer(group, topic, handler=handle, **settings):
        await eventually(lambda: len(messages) >= 26, "all messages, one of them three times")
    of_failing = [int(message.body) for message in messages if message.queue == failing]
    assert of_failing == [0, 1, 2, 3, 3, 3, 4, 5]
    assert len(messages) == 26


async def test_an_orderly_message_that_failed_too_often_is_a_dead_letter_and_its_queue_goes_on(
    mq: aio.Client, topic: str, group: str
) -> None:
    bodies: list[bytes] = []

    async def handle(message: aio.ReceivedMessage) -> None:
        bodies.append(message.body)
        if message.body == b"0":
            raise ValueError("never")

    async with mq.producer("P") as producer:
        for number in range(3):
            await producer.send(aio.Message(topic, b"%d" % number), shard_key="one")
    settings = {"orderly": True, "from_where": "earliest", "suspend_queue_s": 0.05, "max_reconsume_times": 2}
    async with mq.consumer(group, topic, handler=handle, **settings):
        await eventually(lambda: bodies[-1:] == [b"2"], "the last message")
        assert bodies == [b"0", b"0", b"0", b"1", b"2"]
        async with asyncio.timeout(60):
            while not await mq.queues("%DLQ%" + group):
                await asyncio.sleep(0.05)


async def test_iterating_over_an_orderly_consumer_keeps_its_order(mq: aio.Client, topic: str, group: str) -> None:
    await send_numbers(mq, topic, range(20), each_queue=True)
    async with mq.consumer(group, topic, orderly=True, from_where="earliest", suspend_queue_s=0.05) as consumer:
        first = (await take(consumer, 1))[0]
        first.nack()
        messages = await take(consumer, 80)
    assert len({(message.queue, message.queue_offset) for message in messages}) == 80
    check_order(messages)
    assert await committed(mq, group, topic) == 80


async def test_the_locks_of_an_orderly_member_are_free_when_it_has_left(
    mq: aio.Client, second: aio.Client, topic: str, group: str
) -> None:
    seen = Seen()
    await send_numbers(mq, topic, range(4))
    async with mq.consumer(group, topic, orderly=True, from_where="earliest") as consumer:
        await take(consumer, 2)
    async with second.consumer(group, topic, orderly=True, handler=seen.handle, from_where="earliest"):
        # Long before a lock that nobody frees would end by itself, which takes a minute.
        await eventually(lambda: len(seen.messages) >= 2, "the other messages", deadline_s=40)
    assert len(seen.messages) == 2


# Groups.


async def test_two_members_share_the_queues_and_the_one_that_stays_takes_all(
    mq: aio.Client, second: aio.Client, topic: str, group: str
) -> None:
    mine, others = Seen(), Seen()

    def own(consumer: aio.Consumer) -> set[aio.MessageQueue]:
        return {queue for queue in consumer.queues if queue.topic == topic}

    async with mq.consumer(group, topic, handler=mine.handle, from_where="earliest") as one:
        async with second.consumer(group, topic, handler=others.handle, from_where="earliest") as two:
            await eventually(lambda: len(own(one)) == len(own(two)) == 2, "two queues each")
            assert not own(one) & own(two)
            await send_numbers(mq, topic, range(100))
            await eventually(lambda: len(mine.messages) + len(others.messages) >= 100, "100 messages")
            assert sorted(int(body) for body in mine.bodies + others.bodies) == list(range(100))
            assert len(mine.messages) == len(others.messages) == 50
        await eventually(lambda: len(own(one)) == 4, "the queues of the one that left")
        await send_numbers(mq, topic, range(100, 120))
        await eventually(lambda: len(mine.messages) >= 70, "20 more messages")
    assert len(mine.messages) == 70, Counter(mine.bodies).most_common(4)


async def test_every_member_of_a_broadcasting_group_gets_every_message(
    mq: aio.Client, second: aio.Client, topic: str, group: str, tmp_path: Path
) -> None:
    mine, others = Seen(), Seen()
    settings = {"message_model": "broadcasting", "from_where": "earliest"}
    await send_numbers(mq, topic, range(20))
    async with (
        mq.consumer(group, topic, handler=mine.handle, offsets_dir=tmp_path, **settings),
        second.consumer(group, topic, handler=others.handle, **settings),
    ):
        await eventually(lambda: len(mine.messages) >= 20 and len(others.messages) >= 20, "20 messages each")
    assert sorted(mine.bodies) == sorted(others.bodies)
    assert len(mine.messages) == 20
    (file,) = tmp_path.rglob("offsets.json")
    assert file.parent.name == group
    later = Seen()
    async with mq.consumer(group, topic, handler=later.handle, offsets_dir=tmp_path, **settings):
        await send_numbers(mq, topic, range(20, 21))
        await eventually(lambda: later.messages, "the new message")
    assert later.bodies == [b"20"]


async def test_a_member_gets_only_messages_with_its_tags(mq: aio.Client, topic: str, group: str) -> None:
    seen = Seen()
    async with mq.producer("P") as producer:
        for tag in ("Aa", "BB", "c", None, "Aa"):  # Aa and BB have the same hash
            await producer.send(aio.Message(topic, (tag or "none").encode(), tag=tag))
    async with mq.consumer(group, {topic: "Aa || c"}, handler=seen.handle, from_where="earliest") as consumer:
        await eventually(lambda: len(seen.messages) >= 3, "three messages")
        await eventually_committed(mq, consumer, topic, 5)
    assert sorted(seen.bodies) == [b"Aa", b"Aa", b"c"]


async def eventually_committed(mq: aio.Client, consumer: aio.Consumer, topic: str, count: int) -> None:
    """Wait until *consumer* can commit *count* messages, those that it did not want included."""
    async with asyncio.timeout(60):
        while await committed(mq, consumer.group, topic) != count:
            await asyncio.sleep(0.05)
            await consumer.persist_offsets()


async def test_a_group_has_one_consumer_in_a_client(mq: aio.Client, topic: str, group: str) -> None:
    async with mq.consumer(group, topic):
        with pytest.raises(ClientStateError, match="has been created before"):
            async with mq.consumer(group, topic):
                pass


async def test_a_topic_that_appears_later_is_found(
    mq: aio.Client, broker: RunningBroker, group: str, topic: str
) -> None:
    async with mq.consumer(group, topic + "_late", from_where="earliest") as consumer:
        waiting = asyncio.create_task(take(consumer, 1))
        await send_numbers(mq, topic + "_late", range(1))
        assert (await waiting)[0].body == b"0"


async def test_an_expression_that_the_broker_refuses_stops_the_start(mq: aio.Client, topic: str, group: str) -> None:
    with pytest.raises(BrokerError):
        async with mq.consumer(group, {topic: aio.Sql("this is not (SQL")}):
            pass
    async with mq.consumer(group, topic):  # the failed start has left nothing behind
        pass


async def test_what_a_consumer_is_not_made_for_is_refused(mq: aio.Client, topic: str, group: str) -> None:
    def plain(message: aio.ReceivedMessage) -> None:
        raise AssertionError

    with pytest.raises(TypeError, match="needs an async handler"):
        mq.consumer(group, topic, handler=plain)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="at least one topic"):
        mq.consumer(group, [])
    with pytest.raises(ClientStateError, match="not open"):
        aiter(mq.consumer(group, topic))
    async with mq.consumer(group, topic, handler=Seen().handle) as consumer:
        with pytest.raises(ClientStateError, match="has a handler"):
            await consumer.receive()
