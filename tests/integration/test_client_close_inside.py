"""A handler may close its own consumer, or its client: nothing hangs, its message counts, and nothing is lost."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from typing import Literal

import pytest

from mqcore import aio, compat
from mqcore.client import Client, Message, ReceivedMessage
from tests.integration.client_helpers import eventually, make_topic
from tests.rigs import RunningBroker
from tests.waiting import wait_until

DEADLINE_S = 60.0
CLOSE_TIMEOUT_S = 40.0
COUNT = 60
CLOSE_AT = 7
CONCURRENCY = 2
FAST_S = 20.0  # far less than CLOSE_TIMEOUT_S: nobody has waited for himself

What = Literal["consumer", "client"]


@pytest.fixture
def topic(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    name = make_topic(broker, request.node.name, queues=3)
    with Client(broker.name_server) as mq, mq.producer("P") as producer:
        for number in range(COUNT):
            producer.send(Message(name, b"%d" % number))
    return name


@pytest.fixture
def group(topic: str) -> str:
    return f"G_{topic}"[:100]


def rest(broker: RunningBroker, topic: str, group: str, count: int) -> list[int]:
    """What another member of *group* gets after the first has left: *count* messages, and what comes besides."""
    found: list[int] = []
    with Client(broker.name_server) as mq, mq.pull_consumer(group, topic, from_where="earliest") as consumer:
        while len(found) < count:
            messages = consumer.poll(DEADLINE_S)
            assert messages, f"only {len(found)} of {count} came"
            found += [int(message.body) for message in messages]
        found += [int(message.body) for message in consumer.poll(0.3)]
    return found


def assert_each_once(first: list[int], second: list[int]) -> None:
    assert sorted(first + second) == list(range(COUNT))


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
@pytest.mark.parametrize("what", ["consumer", "client"])
def test_a_plain_handler_closes(broker: RunningBroker, topic: str, group: str, what: What, orderly: bool) -> None:
    handled: list[int] = []
    mq = Client(broker.name_server, close_timeout_s=CLOSE_TIMEOUT_S)

    calls = itertools.count()

    def handle(message: ReceivedMessage) -> None:
        number = next(calls)
        if number == CLOSE_AT:
            (consumer if what == "consumer" else mq).close()
        if number >= CLOSE_AT:  # what is in hand is still at work when closing has begun
            wait_until(lambda: consumer.is_closed, DEADLINE_S, "closing begins")
        handled.append(int(message.body))

    threads = threading.active_count()
    consumer = mq.consumer(
        group, topic, handler=handle, from_where="earliest", orderly=orderly, concurrency=CONCURRENCY
    )
    consumer.start()
    begin = time.monotonic()
    consumer.wait_closed()
    assert time.monotonic() - begin < FAST_S
    mq.close()
    wait_until(lambda: threading.active_count() <= threads, DEADLINE_S, "the threads of handlers end")
    assert CLOSE_AT < len(handled) <= CLOSE_AT + CONCURRENCY
    assert_each_once(handled, rest(broker, topic, group, COUNT - len(handled)))


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
@pytest.mark.parametrize("what", ["consumer", "client"])
@pytest.mark.parametrize("how", ["itself", "in a task of its own"])
async def test_an_asyncio_handler_closes(
    broker: RunningBroker, topic: str, group: str, what: What, orderly: bool, how: str
) -> None:
    handled: list[int] = []
    mq = aio.Client(broker.name_server, close_timeout_s=CLOSE_TIMEOUT_S)
    await mq.start()

    async def close() -> None:
        await (consumer if what == "consumer" else mq).close()

    calls = itertools.count()

    async def handle(message: aio.ReceivedMessage) -> None:
        number = next(calls)
        if number == CLOSE_AT:
            if how == "itself":
                await close()
            else:
                async with asyncio.timeout(FAST_S), asyncio.TaskGroup() as tasks:
                    tasks.create_task(close())
        if number >= CLOSE_AT:  # what is in hand is still at work when closing has begun
            await eventually(lambda: consumer.is_closed, "closing begins")
        handled.append(int(message.body))

    consumer = mq.consumer(
        group, topic, handler=handle, from_where="earliest", orderly=orderly, concurrency=CONCURRENCY
    )
    await consumer.start()
    async with asyncio.timeout(FAST_S):
        await consumer.wait_closed()
        await mq.close()
    assert CLOSE_AT < len(handled) <= CLOSE_AT + CONCURRENCY
    left = await asyncio.to_thread(rest, broker, topic, group, COUNT - len(handled))
    assert_each_once(handled, left)


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
async def test_nothing_is_handed_out_any_more_when_a_consumer_says_that_it_is_closed(
    broker: RunningBroker, topic: str, group: str, orderly: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def handle(_message: aio.ReceivedMessage) -> None:
        pass

    said: list[bool] = []
    async with aio.Client(broker.name_server) as mq, mq.consumer(group, topic, handler=handle, orderly=orderly) as one:
        halt = one._service.halt

        def halt_and_look() -> None:
            said.append(one.is_closed)  # what a thread may see before it
            halt()

        monkeypatch.setattr(one._service, "halt", halt_and_look)
        await one.close()
        assert one.is_closed
    assert not said[0]


async def test_a_task_that_outlives_its_handler_waits_for_the_end(
    broker: RunningBroker, topic: str, group: str
) -> None:
    returned = asyncio.Event()
    closers: list[asyncio.Task[bool]] = []

    async def close_later() -> bool:
        await returned.wait()
        await consumer.close()
        return consumer.is_closed and not consumer.queues

    async def handle(_message: aio.ReceivedMessage) -> None:
        if not closers:
            closers.append(asyncio.create_task(close_later()))

    async with aio.Client(broker.name_server) as mq:
        consumer = mq.consumer(group, topic, handler=handle, from_where="earliest")
        await consumer.start()
        await asyncio.to_thread(wait_until, lambda: closers, DEADLINE_S, "the handler has been called")
        await asyncio.sleep(0)
        returned.set()
        async with asyncio.timeout(FAST_S):
            assert await closers[0]


def test_a_batch_handler_closes(broker: RunningBroker, topic: str, group: str) -> None:
    handled: list[int] = []
    with Client(broker.name_server, close_timeout_s=CLOSE_TIMEOUT_S) as mq:

        def handle(messages: list[ReceivedMessage]) -> None:
            consumer.close()
            wait_until(lambda: consumer.is_closed, DEADLINE_S, "closing begins")
            handled.extend(int(message.body) for message in messages)

        consumer = mq.consumer(group, topic, batch_handler=handle, batch_size=4, from_where="earliest", concurrency=1)
        consumer.start()
        consumer.wait_closed()
    assert 0 < len(handled) <= 4
    assert_each_once(handled, rest(broker, topic, group, COUNT - len(handled)))


def test_a_java_listener_shuts_its_consumer_down(broker: RunningBroker, topic: str, group: str) -> None:
    handled: list[int] = []
    consumer = compat.DefaultMQPushConsumer(group)
    consumer.set_namesrv_addr(broker.name_server)
    consumer.set_await_termination_millis_when_shutdown(int(CLOSE_TIMEOUT_S * 1000))
    consumer.set_consume_from_where(compat.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer.subscribe(topic)

    def is_closing() -> bool:
        return consumer._consumer is not None and consumer._consumer.is_closed

    def consume(
        messages: list[compat.MessageExt], _context: compat.ConsumeConcurrentlyContext
    ) -> compat.ConsumeConcurrentlyStatus:
        if len(handled) == CLOSE_AT:  # one thread: each is handled before the next
            consumer.shutdown()
            wait_until(is_closing, DEADLINE_S, "closing begins")
        handled.extend(int(message.get_body()) for message in messages)
        return compat.ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    consumer.set_consume_thread_max(1)
    consumer.register_message_listener(consume)
    consumer.start()
    begin = time.monotonic()
    consumer.join()
    assert time.monotonic() - begin < FAST_S
    assert len(handled) == CLOSE_AT + 1
    assert_each_once(handled, rest(broker, topic, group, COUNT - len(handled)))


def test_a_declared_handler_ends_the_program_by_closing_the_client(
    broker: RunningBroker, topic: str, group: str
) -> None:
    mq = Client(broker.name_server, close_timeout_s=CLOSE_TIMEOUT_S)
    handled: list[int] = []

    @mq.on(topic, group=group, from_where="earliest", concurrency=1)
    def handle(message: ReceivedMessage) -> None:
        handled.append(int(message.body))
        if len(handled) == CLOSE_AT:
            mq.close()

    begin = time.monotonic()
    mq.run()
    assert time.monotonic() - begin < FAST_S
    assert_each_once(handled, rest(broker, topic, group, COUNT - len(handled)))
