"""What a consumer offers beyond handing out messages: partial success, back-off, hooks, traces, batches, changes."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from mqcore import aio
from mqcore.client import Client, ReceivedMessage
from mqcore.client.consume.push.consumer import GOODBYE_S
from mqcore.client.model.outcome import ConsumeCode
from mqcore.client.model.process_queue import ProcessQueue
from mqcore.client.session.tasks import cancel_and_wait
from mqcore.errors import ClientStateError, ConfigError, MQError
from tests.integration.client_helpers import committed, eventually, make_topic, send_numbers
from tests.rigs import RunningBroker, start_broker_under_test
from tests.waiting import wait_until

SECOND = 1
"""The delay level of one second."""


@pytest.fixture
async def mq(broker: RunningBroker) -> AsyncIterator[aio.Client]:
    async with aio.Client(broker.name_server) as client:
        yield client


@pytest.fixture
def topic(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    return make_topic(broker, request.node.name)


@pytest.fixture
def group(topic: str) -> str:
    return "G_" + topic


def numbers(messages: Sequence[aio.ReceivedMessage]) -> list[int]:
    return [int(message.body) for message in messages]


async def send_to_one_queue(mq: aio.Client, topic: str, count: int) -> None:
    async with mq.producer("P_" + topic) as producer:
        queue = (await producer.queues(topic))[0]
        for number in range(count):
            await producer.send(aio.Message(topic, str(number).encode()), queue=queue)
    async with asyncio.timeout(60):
        while await mq.max_offset(queue) < count:  # so that one pull finds them all
            await asyncio.sleep(0.01)


# A start that does not get to its end.


async def test_a_start_that_is_cancelled_leaves_handlers_at_work_and_commits_what_they_finish(
    mq: aio.Client, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, finish = asyncio.Event(), asyncio.Event()
    seen: list[int] = []

    async def handle(message: aio.ReceivedMessage) -> None:
        begun.set()
        await finish.wait()
        seen.append(int(message.body))

    await send_to_one_queue(mq, topic, 1)
    consumer = mq.consumer(group, topic, handler=handle, from_where="earliest")
    rebalance = consumer._assignment.rebalance

    async def rebalance_for_ever() -> None:
        await rebalance()
        await asyncio.Event().wait()

    monkeypatch.setattr(consumer._assignment, "rebalance", rebalance_for_ever)
    starting = asyncio.create_task(consumer.start())
    await begun.wait()
    await cancel_and_wait(starting)
    assert starting.cancelled()
    finish.set()
    await consumer.close()
    assert seen == [0]
    assert await committed(mq, group, topic) == 1


# Partial success.


async def test_of_a_batch_only_what_failed_comes_again(mq: aio.Client, topic: str, group: str) -> None:
    seen: Counter[int] = Counter()

    async def handle(messages: Sequence[aio.ReceivedMessage]) -> aio.Done | None:
        seen.update(numbers(messages))
        if any(message.reconsume_times for message in messages) or len(messages) < 3:
            return None
        return aio.Done(2, SECOND)

    await send_to_one_queue(mq, topic, 8)
    settings = {"from_where": "earliest", "batch_size": 4, "concurrency": 1}
    async with mq.consumer(group, topic, batch_handler=handle, **settings):
        await eventually(lambda: sum(seen.values()) == 12, "the failed half of each batch again")
    assert seen == Counter({0: 1, 1: 1, 2: 2, 3: 2, 4: 1, 5: 1, 6: 2, 7: 2})
    assert await committed(mq, group, topic) == 8


async def test_of_an_orderly_batch_the_done_part_is_committed_and_the_rest_comes_again_at_once(
    mq: aio.Client, topic: str, group: str
) -> None:
    calls: list[list[int]] = []

    async def handle(messages: Sequence[aio.ReceivedMessage]) -> aio.Done:
        calls.append(numbers(messages))
        return aio.Done(1)

    await send_to_one_queue(mq, topic, 4)
    settings = {"from_where": "earliest", "batch_size": 3, "orderly": True, "suspend_queue_s": 0.01}
    async with mq.consumer(group, topic, batch_handler=handle, **settings):
        await eventually(lambda: len(calls) == 4, "one message after the other")
        await eventually(lambda: calls[-1] == [3], "the last message alone")
    assert [call[0] for call in calls] == [0, 1, 2, 3]
    assert await committed(mq, group, topic) == 4


async def test_a_handler_for_one_message_gets_one_whatever_the_batch_size(
    mq: aio.Client, topic: str, group: str
) -> None:
    seen: Counter[int] = Counter()

    async def handle(message: aio.ReceivedMessage) -> None:
        seen[int(message.body)] += 1
        if message.body == b"2" and message.reconsume_times == 0:
            raise aio.Retry(SECOND)

    await send_to_one_queue(mq, topic, 5)
    async with mq.consumer(group, topic, handler=handle, batch_size=5, from_where="earliest"):
        await eventually(lambda: sum(seen.values()) == 6, "the failed message again")
    assert seen == Counter({0: 1, 1: 1, 2: 2, 3: 1, 4: 1})


# Failures.


async def test_a_back_off_says_how_often_and_when_a_message_comes_again(mq: aio.Client, topic: str, group: str) -> None:
    times: list[tuple[int, float]] = []

    async def handle(message: aio.ReceivedMessage) -> None:
        times.append((message.reconsume_times, time.monotonic()))
        raise ValueError("always")

    await send_to_one_queue(mq, topic, 1)
    backoff = aio.Backoff(max_attempts=2, first_s=0.5)
    async with mq.consumer(group, topic, handler=handle, from_where="earliest", retry=backoff):
        await eventually(lambda: len(times) == 2, "the second attempt")
        dead = aio.MessageQueue(f"%DLQ%{group}", "broker-a", 0)
        result = await wait_for_message(mq, dead)
    assert [row[0] for row in times] == [0, 1]
    assert times[1][1] - times[0][1] >= 0.95, "the broker's shortest wait"
    assert result.body == b"0"


async def wait_for_message(mq: aio.Client, queue: aio.MessageQueue) -> aio.ReceivedMessage:
    """The first message of a queue that may not exist yet."""
    found: list[aio.ReceivedMessage] = []

    async def look() -> None:
        try:
            found.extend((await mq.pull(queue, 0, wait_s=1)).messages)
        except MQError:
            await asyncio.sleep(0.1)

    async with asyncio.timeout(60):
        while not found:
            await look()
    return found[0]


async def test_an_orderly_queue_rests_as_long_as_the_back_off_says(mq: aio.Client, topic: str, group: str) -> None:
    times: list[float] = []

    async def handle(message: aio.ReceivedMessage) -> None:
        times.append(time.monotonic())
        if len(times) < 4:
            raise ValueError("not yet")

    await send_to_one_queue(mq, topic, 1)
    backoff = aio.Backoff(first_s=0.1, factor=2)
    async with mq.consumer(group, topic, handler=handle, from_where="earliest", orderly=True, retry=backoff):
        await eventually(lambda: len(times) == 4, "the attempt that succeeds")
    waits = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert all(wait >= least for wait, least in zip(waits, (0.09, 0.19, 0.39), strict=True))


async def test_a_handler_that_awaits_something_cancelled_fails_like_any_other(
    mq: aio.Client, topic: str, group: str
) -> None:
    seen: list[int] = []

    async def handle(message: aio.ReceivedMessage) -> None:
        seen.append(message.reconsume_times)
        if message.reconsume_times == 0:
            doomed = asyncio.get_running_loop().create_future()
            doomed.cancel()
            await doomed

    await send_to_one_queue(mq, topic, 1)
    backoff = aio.Backoff(first_s=1)
    async with mq.consumer(group, topic, handler=handle, from_where="earliest", concurrency=1, retry=backoff):
        await eventually(lambda: seen == [0, 1], "the message again")


# Changes while it runs.


async def test_concurrency_can_be_raised_and_lowered_while_handlers_run(mq: aio.Client, topic: str, group: str) -> None:
    running: set[int] = set()
    done: list[int] = []
    gate = asyncio.Semaphore(0)

    async def handle(message: aio.ReceivedMessage) -> None:
        running.add(int(message.body))
        await gate.acquire()
        running.discard(int(message.body))
        done.append(int(message.body))

    await send_numbers(mq, topic, range(30))
    async with mq.consumer(group, topic, handler=handle, from_where="earliest", concurrency=2) as consumer:
        await eventually(lambda: len(running) == 2, "two handlers")
        consumer.concurrency = 7
        await eventually(lambda: len(running) == 7, "seven handlers")
        consumer.change(concurrency=1, pull_batch_size=4)
        for _ in range(6):
            gate.release()
        await eventually(lambda: len(running) == 1, "one handler")
        assert (consumer.concurrency, consumer.settings.pull_batch_size) == (1, 4)
        for _ in range(24):
            gate.release()
        await eventually(lambda: len(done) == 30, "all messages done")
    assert sorted(done) == list(range(30))
    assert await committed(mq, group, topic) == 30


async def test_what_others_rely_on_cannot_be_changed(mq: aio.Client, topic: str, group: str) -> None:
    consumer = mq.consumer(group, topic)
    with pytest.raises(ConfigError, match="setting strategy: cannot be changed while the consumer runs"):
        consumer.change(concurrency=3, strategy="AVG_BY_CIRCLE")
    with pytest.raises(TypeError, match="did you mean 'concurrency'"):
        consumer.change(concurency=3)
    assert consumer.concurrency == 20


# Hooks and traces.


class Recorder(aio.ConsumerHook):
    """Takes out messages with an odd number, and remembers what it sees."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, list[int]]] = []
        self.costs_ms: list[tuple[float, float]] = []
        """What each call has cost, and the time between this hook's own two calls around it."""

    async def filter_messages(self, context: aio.FilterContext) -> None:
        context.messages[:] = [message for message in context.messages if int(message.body) % 2 == 0]

    def before_consume(self, context: aio.ConsumeContext) -> None:
        context.attributes[self] = time.monotonic()
        self.calls.append(("before", context.group, numbers(context.messages)))
        raise ValueError("a hook that fails costs nothing")

    async def after_consume(self, context: aio.ConsumeContext) -> None:
        self.costs_ms.append((context.cost_ms, (time.monotonic() - context.attributes[self]) * 1000))
        self.calls.append((f"after {context.code.name} {context.is_success}", context.group, numbers(context.messages)))


async def test_hooks_see_every_call_and_filter_what_was_pulled(mq: aio.Client, topic: str, group: str) -> None:
    hook, seen, at_work_ms = Recorder(), [], []

    async def handle(message: aio.ReceivedMessage) -> None:
        begin = time.monotonic()
        await asyncio.sleep(0.02)
        at_work_ms.append((time.monotonic() - begin) * 1000)
        seen.append(int(message.body))
        if seen == [0, 2, 4]:
            raise aio.Reject
        if seen == [0, 2]:
            raise ValueError("with a traceback")

    await send_to_one_queue(mq, topic, 6)
    consumer = mq.consumer(group, topic, handler=handle, from_where="earliest", concurrency=1, max_reconsume_times=0)
    consumer.add_hook(hook)
    async with consumer:
        await eventually(lambda: len(hook.calls) == 6, "three calls")
    assert hook.calls == [
        ("before", group, [0]),
        ("after SUCCESS True", group, [0]),
        ("before", group, [2]),
        ("after EXCEPTION False", group, [2]),
        ("before", group, [4]),
        ("after FAILED False", group, [4]),
    ]
    for least_ms, (cost_ms, most_ms) in zip(at_work_ms, hook.costs_ms, strict=True):
        assert least_ms <= cost_ms <= most_ms
    assert await committed(mq, group, topic) == 6, "what a filter takes out is done"


async def test_hooks_see_each_message_of_an_iteration(mq: aio.Client, topic: str, group: str) -> None:
    hook = Recorder()
    await send_to_one_queue(mq, topic, 3)
    consumer = mq.consumer(group, topic, from_where="earliest")
    consumer.add_hook(hook)
    async with consumer:
        async for message in consumer:
            if message.body == b"2":
                message.nack(SECOND)
                break
        await eventually(lambda: len(hook.calls) == 4, "two messages")
    assert sorted((call[2], call[0]) for call in hook.calls) == [
        ([0], "after SUCCESS True"),
        ([0], "before"),
        ([2], f"after {ConsumeCode.FAILED.name} False"),
        ([2], "before"),
    ]


async def test_traces_tell_of_each_delivery_before_and_after(
    mq: aio.Client, broker: RunningBroker, topic: str, group: str
) -> None:
    trace_topic = make_topic(broker, "traces_of_" + topic, queues=1)

    async def handle(message: aio.ReceivedMessage) -> None:
        if message.reconsume_times == 0 and message.keys == ("again",):
            raise aio.Retry(SECOND)

    async with mq.producer("P_" + topic) as producer:
        receipts = [
            await producer.send(aio.Message(topic, b"x", keys=[key], properties=properties))
            for key, properties in (("once", {}), ("again", {}))
        ]
    settings = {"from_where": "earliest", "trace": True, "trace_topic": trace_topic}
    async with mq.consumer(group, topic, handler=handle, **settings):
        records: list[list[str]] = []

        async def read() -> None:
            result = await mq.pull(aio.MessageQueue(trace_topic, "broker-a", 0), 0, wait_s=1)
            records[:] = [
                record.split("\x01")
                for message in result.messages
                for record in message.body.decode().split("\x02")
                if record
            ]

        async with asyncio.timeout(60):
            while len(records) < 6:
                await read()
    before = [record for record in records if record[0] == "SubBefore"]
    after = [record for record in records if record[0] == "SubAfter"]
    assert len(before) == len(after) == 3
    ids = {key: receipt.msg_id for key, receipt in zip(("once", "again"), receipts, strict=True)}
    # SubBefore, time, region, group, request id, message id, retry times, keys
    assert sorted((row[5], row[6], row[7]) for row in before) == sorted(
        [(ids["once"], "0", "once"), (ids["again"], "0", "again"), (ids["again"], "1", "again")]
    )
    assert {row[3] for row in before} == {group}
    # SubAfter, request id, message id, cost, success, keys, code, time, group
    assert Counter((row[2], row[4], row[6]) for row in after) == Counter(
        [(ids["once"], "true", "0"), (ids["again"], "false", "4"), (ids["again"], "true", "0")]
    )
    assert {row[4] for row in before} == {row[1] for row in after}, "a request id ties two records together"


# Batches.


async def test_iterating_batch_by_batch_commits_each_when_the_next_is_asked_for(
    mq: aio.Client, topic: str, group: str
) -> None:
    await send_to_one_queue(mq, topic, 10)
    sizes: list[int] = []
    async with mq.consumer(group, topic, from_where="earliest") as consumer:
        async for batch in consumer.batches(4, timeout_s=30):
            sizes.append(len(batch))
            if len(sizes) == 2:
                break
        assert sizes == [4, 4]
        async for batch in consumer.batches(4, timeout_s=0.01):
            assert numbers(batch[0:2]) == [8, 9]
            await batch.commit()
            assert await committed(mq, group, topic) == 10, "asking for the third said that the second is done"
            break


async def test_a_batch_left_by_an_exception_comes_again_but_for_what_was_acked(
    mq: aio.Client, topic: str, group: str
) -> None:
    await send_to_one_queue(mq, topic, 4)

    async def fail() -> None:
        async with mq.consumer(group, topic, from_where="earliest") as consumer:
            async for batch in consumer.batches(4, timeout_s=30):
                batch[0].ack()
                raise ValueError("oops")

    with pytest.raises(ValueError, match="oops"):
        await fail()
    assert await committed(mq, group, topic) == 1
    async with mq.consumer(group, topic) as consumer:
        async for batch in consumer.batches(3, timeout_s=30):
            assert numbers(batch) == [1, 2, 3]
            batch.nack(SECOND)
            break
        async for batch in consumer.batches(3, timeout_s=30):
            assert sorted(numbers(batch)) == [1, 2, 3]
            assert {message.reconsume_times for message in batch} == {1}
            break


def test_batches_without_an_event_loop(broker: RunningBroker, topic: str, group: str) -> None:
    with Client(broker.name_server) as mq:
        with mq.producer("P") as producer:
            for number in range(6):
                producer.send_batch([aio.Message(topic, str(number).encode())])
        with mq.consumer(group, topic, from_where="earliest") as consumer:
            got: list[int] = []
            for batch in consumer.batches(3, timeout_s=0.2):
                got += numbers(batch)
                if len(got) == 6:
                    batch.commit()
                    break
            offsets = [mq.committed_offset(group, queue) or 0 for queue in mq.queues(topic)]
    assert sorted(got) == list(range(6))
    assert sum(offsets) == 6


# Declared handlers.


async def test_declared_handlers_run_with_the_client(broker: RunningBroker, topic: str, group: str) -> None:
    other = make_topic(broker, "other_" + topic)
    seen: list[tuple[str, int]] = []
    mq = aio.Client(broker.name_server)

    @mq.on(topic, group=group, concurrency=3, from_where="earliest")
    async def one(message: aio.ReceivedMessage) -> None:
        seen.append((message.topic, 1))

    @mq.on(other, group="B_" + group, batch=8, from_where="earliest")
    async def many(messages: Sequence[aio.ReceivedMessage]) -> None:
        seen.append((messages[0].topic, len(messages)))

    running = asyncio.create_task(mq.run())
    async with aio.Client(broker.name_server) as sender:
        await send_to_one_queue(sender, topic, 3)
        await send_to_one_queue(sender, other, 3)
        await eventually(lambda: sum(row[1] for row in seen) == 6, "all messages")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await committed(sender, group, topic) == 3, "a cancelled run closes in order"


async def test_running_without_handlers_is_refused(broker: RunningBroker) -> None:
    with pytest.raises(ClientStateError, match=r"no handler was declared: use the decorator on\(\)"):
        await aio.Client(broker.name_server).run()


def test_declared_handlers_without_an_event_loop(broker: RunningBroker, topic: str, group: str) -> None:
    seen: list[bytes] = []
    with Client(broker.name_server) as sender, sender.producer("P") as producer:
        producer.send(aio.Message(topic, b"x"))
    mq = Client(broker.name_server)

    @mq.on(topic, group=group, from_where="earliest")
    def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)

    with mq:
        wait_until(lambda: seen == [b"x"], 30, "the message")


# Who gets which queue.


async def test_a_member_can_be_given_fixed_queues(mq: aio.Client, topic: str, group: str) -> None:
    queue = (await mq.queues(topic))[2]
    async with mq.consumer(group, topic, strategy=aio.FixedQueues([queue])) as consumer:
        assert consumer.queues == [queue]


async def test_an_own_strategy_divides_and_one_that_fails_leaves_things_as_they_are(
    mq: aio.Client, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    is_broken = False
    calls = 0

    def even(client_id: str, queues: Sequence[aio.MessageQueue], client_ids: Sequence[str]) -> list[aio.MessageQueue]:
        nonlocal calls
        calls += 1
        assert client_ids == [client_id] == [mq.client_id]
        if is_broken:
            raise ZeroDivisionError
        return [queue for queue in queues if queue.queue_id % 2 == 0]

    async with mq.consumer(group, topic, strategy=even, rebalance_interval_s=0.1) as consumer:
        assert [queue.queue_id for queue in consumer.queues if queue.topic == topic] == [0, 2]
        is_broken = True
        before = calls
        await eventually(lambda: calls >= before + 4, "rebalances that fail")
        assert [queue.queue_id for queue in consumer.queues if queue.topic == topic] == [0, 2]
    assert "strategy failed, queues stay as they are" in caplog.text


@pytest.mark.parametrize("strategy", ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"])
async def test_members_with_one_strategy_own_each_queue_once(
    broker: RunningBroker, topic: str, group: str, strategy: str
) -> None:
    async with (
        aio.Client(broker.name_server) as first,
        aio.Client(broker.name_server) as second,
        first.consumer(group, topic, strategy=strategy) as one,
        second.consumer(group, topic, strategy=strategy) as two,
    ):

        def owned() -> list[int]:
            held = [*one.queues, *two.queues]
            return sorted(queue.queue_id for queue in held if queue.topic == topic)

        await eventually(lambda: owned() == [0, 1, 2, 3], "each queue has one owner")


def holds_retries(consumer: aio.Consumer) -> bool:
    return any(queue.topic == f"%RETRY%{consumer.group}" for queue in consumer.queues)


async def test_topics_come_and_go_while_the_consumer_runs(
    mq: aio.Client, broker: RunningBroker, topic: str, group: str
) -> None:
    other = make_topic(broker, "other_" + topic)
    seen: Counter[tuple[str, str | None]] = Counter()

    async def handle(message: aio.ReceivedMessage) -> None:
        seen[message.topic, message.tag] += 1

    async with (
        mq.producer("P_" + topic) as producer,
        mq.consumer(group, topic, handler=handle, from_where="earliest") as consumer,
    ):
        for name in (topic, other):
            for tag in ("a", "b"):
                await producer.send(aio.Message(name, b"0", tag=tag))
        await eventually(lambda: seen.total() == 2, "what was subscribed to from the start")
        await consumer.subscribe(other, "b")
        await eventually(lambda: seen[other, "b"] == 1, "the other topic")
        await eventually(lambda: holds_retries(consumer), "the topic of retries, whose route comes a moment later")
        await consumer.unsubscribe(topic)
        assert {queue.topic for queue in consumer.queues} == {other, f"%RETRY%{group}"}
        assert await committed(mq, group, topic) == 2, "given up in order"
        await producer.send(aio.Message(topic, b"0", tag="a"))
        await producer.send(aio.Message(other, b"0", tag="b"))
        await eventually(lambda: seen[other, "b"] == 2, "a message of the topic that is left")
    assert seen == Counter({(topic, "a"): 1, (topic, "b"): 1, (other, "b"): 2})


# Closing.


async def test_closing_ends_in_time_though_no_broker_answers(tmp_path: Path) -> None:
    with start_broker_under_test(tmp_path / "store") as broker:
        topic = make_topic(broker, "Gone")
        handling = asyncio.Event()

        async def handle(message: aio.ReceivedMessage) -> None:
            handling.set()
            await asyncio.Event().wait()

        async with aio.Client(broker.name_server) as patient:
            await send_numbers(patient, topic, range(4))
        # With so short a time-out the first calls may fail while the machine is busy: they are tried again.
        async with aio.Client(broker.name_server, call_timeout_s=1) as mq:
            consumer = mq.consumer(
                "G", topic, handler=handle, from_where="earliest", orderly=True, rebalance_interval_s=1
            )
            async with consumer:
                await eventually(handling.is_set, "a message in hand")
                await asyncio.to_thread(broker.kill)
                begin = time.monotonic()
                await consumer.close(timeout_s=1)
                assert time.monotonic() - begin < 2 * (1 + GOODBYE_S + 1)


# What must not stop a queue.


async def test_a_queue_whose_pulling_ended_is_taken_anew(
    mq: aio.Client, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[int] = []

    async def handle(message: aio.ReceivedMessage) -> None:
        seen.append(int(message.body))

    async with mq.consumer(group, topic, handler=handle, from_where="earliest"):
        await send_numbers(mq, topic, range(8))
        await eventually(lambda: len(seen) == 8, "the first messages")
        for task in asyncio.all_tasks():
            if task.get_name().startswith("mqcore pulling") and topic in task.get_name():
                task.cancel()
        await send_numbers(mq, topic, range(8, 16))
        await eventually(lambda: set(seen) == set(range(16)), "the messages sent afterwards")
    assert "pulling has ended, taking the queue anew" in caplog.text


async def test_an_orderly_queue_goes_on_after_a_failure_that_nobody_foresaw(
    mq: aio.Client, topic: str, group: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[int] = []
    commit = ProcessQueue.commit

    def fail_once(held: ProcessQueue[aio.ReceivedMessage]) -> int:
        monkeypatch.setattr(ProcessQueue, "commit", commit)
        raise ZeroDivisionError

    async def handle(message: aio.ReceivedMessage) -> None:
        seen.append(int(message.body))

    await send_to_one_queue(mq, topic, 3)
    monkeypatch.setattr(ProcessQueue, "commit", fail_once)
    async with mq.consumer(group, topic, handler=handle, from_where="earliest", orderly=True, suspend_queue_s=0.01):
        await eventually(lambda: len(seen) == 4, "the rest of the queue")
    assert seen == [0, 0, 1, 2]
    assert "consuming failed" in caplog.text
    assert await committed(mq, group, topic) == 3


async def test_an_abandoned_message_of_an_orderly_queue_is_no_failure(
    mq: aio.Client, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    await send_to_one_queue(mq, topic, 2)
    settings = {"from_where": "earliest", "orderly": True, "max_reconsume_times": 0, "suspend_queue_s": 0.01}
    async with mq.consumer(group, topic, **settings) as consumer:
        (first,) = await consumer.receive(1)
        consumer.abandon(first)
        (again,) = await consumer.receive(1)
        assert (again.body, again.reconsume_times) == (b"0", 0)
        consumer.abandon(again)  # or else closing waits for it
    assert await committed(mq, group, topic) == 0
    async with mq.consumer(group, topic, **settings) as consumer:
        messages = consumer.__aiter__()
        assert [(await anext(messages)).body for _ in range(2)] == [b"0", b"1"]
    assert await committed(mq, group, topic) == 2
    assert "handler failed" not in caplog.text


async def test_an_orderly_queue_that_was_to_go_and_stays_after_all_goes_on(
    mq: aio.Client, broker: RunningBroker, topic: str, group: str
) -> None:
    seen: list[tuple[int, int]] = []
    gate = asyncio.Event()

    async def handle(message: aio.ReceivedMessage) -> None:
        await gate.wait()
        seen.append((message.queue.queue_id, int(message.body)))

    settings = {"from_where": "earliest", "orderly": True, "rebalance_interval_s": 0.1}
    await send_numbers(mq, topic, range(3), each_queue=True)
    async with mq.consumer(group, topic, handler=handle, **settings) as consumer:
        held = consumer._membership.held

        def in_work() -> int:
            return sum(row.in_hand for row in held.values() if row.queue.topic == topic)

        await eventually(lambda: in_work() == 4, "a message of each queue in hand")
        async with aio.Client(broker.name_server) as other, other.consumer(group, topic, handler=handle, **settings):
            await eventually(lambda: sum(row.try_unlock_times > 0 for row in held.values()) >= 2, "half are to go")
        gate.set()
        await eventually(
            lambda: sorted(set(seen)) == [(queue_id, number) for queue_id in range(4) for number in range(3)],
            "all messages",
            deadline_s=60,
        )


async def test_limits_of_a_topic_are_divided_over_the_queues_held(mq: aio.Client, topic: str, group: str) -> None:
    gate = asyncio.Event()

    async def handle(message: aio.ReceivedMessage) -> None:
        await gate.wait()

    await send_numbers(mq, topic, range(30), each_queue=True)
    settings = {"from_where": "earliest", "pull_batch_size": 1, "pull_threshold_for_topic": 25}
    consumer = mq.consumer(group, topic, handler=handle, **settings)
    consumer.pause()
    async with consumer:
        await eventually(lambda: holds_retries(consumer), "all queues, that of retries too")
        consumer.resume()
        rows = [row for row in consumer._membership.held.values() if row.queue.topic == topic]
        assert consumer._membership.queue_thresholds()[0] == 25 // len(consumer.queues)
        limit = 25 // len(consumer.queues) + 1  # more than the threshold is what stops the next pull
        await eventually(lambda: all(row.count == limit for row in rows), "each queue is full")
        consumer.change(pull_threshold_for_topic=100)
        limit = 100 // len(consumer.queues) + 1
        await eventually(lambda: all(row.count == limit for row in rows), "each queue took more")
        gate.set()
