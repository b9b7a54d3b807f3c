"""Transactions with the Python client: what is committed is delivered, and what is open is asked about."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from mqcore import aio
from mqcore.client.model.transaction import TransactionState
from tests.integration.client_helpers import DEADLINE_S, POLL_S, eventually, make_topic, running_broker
from tests.rigs import RunningBroker

COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN
CHECK_MAX = 3
HALF_TOPIC, DISCARDED_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker that asks soon, and not for long."""
    properties = {
        "transactionCheckInterval": "300", "transactionTimeOut": "200", "transactionCheckMax": str(CHECK_MAX),
    }  # fmt: skip
    yield from running_broker(tmp_path_factory.mktemp("transactions"), properties)


@pytest.fixture
def topic(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    return make_topic(broker, request.node.name, 4)


@pytest.fixture
async def mq(broker: RunningBroker) -> AsyncIterator[aio.Client]:
    async with aio.Client(broker.name_server) as client:
        yield client


async def delivered(mq: aio.Client, topic: str) -> list[aio.ReceivedMessage]:
    """Everything that lies in the queues of *topic*."""
    found: list[aio.ReceivedMessage] = []
    for queue in await mq.queues(topic):
        offset = 0
        while (result := await mq.pull(queue, offset)).messages:
            found += result.messages
            offset = result.next_offset
    return found


async def await_delivered(mq: aio.Client, topic: str, bodies: set[bytes]) -> list[aio.ReceivedMessage]:
    """Wait until *bodies* lie in the queues of *topic*, each once, and nothing else does."""
    async with asyncio.timeout(DEADLINE_S):
        while len(found := await delivered(mq, topic)) < len(bodies):
            await asyncio.sleep(POLL_S)
    assert sorted(message.body for message in found) == sorted(bodies)
    return found


async def test_only_what_is_committed_is_delivered_at_once_or_when_asked(mq: aio.Client, topic: str) -> None:
    plan = {b"commit": COMMIT, b"rollback": ROLLBACK, b"late commit": UNKNOWN, b"late rollback": UNKNOWN}
    late = {b"late commit": COMMIT, b"late rollback": ROLLBACK}
    asked: list[aio.ReceivedMessage] = []

    def check(half: aio.ReceivedMessage) -> TransactionState | None:
        """Say nothing at first; and never answer twice, for who is told twice delivers twice."""
        asked.append(half)
        return late.pop(half.body, None) if half.properties["TRANSACTION_CHECK_TIMES"] == "2" else None

    async with mq.transaction_producer(f"P_{topic}", check) as producer:
        for body, state in plan.items():
            message = aio.Message(topic, body, tag="t", keys=["k"], flag=7, properties={"p": "v"})
            receipt = await producer.send_in_transaction(message, lambda half, receipt: plan[half.body])
            assert (receipt.state, receipt.status) == (state, aio.SendStatus.SEND_OK)
        found = await await_delivered(mq, topic, {b"commit", b"late commit"})
        await eventually(lambda: not late, "the second questions")
    assert {(half.topic, half.tag, half.keys, half.properties["p"]) for half in asked} == {(topic, "t", ("k",), "v")}
    assert {half.body for half in asked} == {b"late commit", b"late rollback"}
    assert {(message.tag, message.flag, message.properties["p"]) for message in found} == {("t", 7, "v")}
    assert {message.body for message in await delivered(mq, topic)} == {b"commit", b"late commit"}


async def test_a_new_producer_of_the_group_is_asked_about_what_the_old_one_left(
    broker: RunningBroker, mq: aio.Client, topic: str
) -> None:
    group = f"P_{topic}"

    async def no_answer(half: aio.ReceivedMessage) -> None:
        return None

    async with aio.Client(broker.name_server) as first, first.transaction_producer(group, no_answer) as producer:
        receipt = await producer.send_half(aio.Message(topic, b"left open"))
    assert await delivered(mq, topic) == []
    asked: list[str] = []

    async def check(half: aio.ReceivedMessage) -> TransactionState | None:
        asked.append(half.msg_id)
        return COMMIT if len(asked) == 1 else None

    async with mq.transaction_producer(group, check) as producer:
        await producer.queues(topic)
        await mq.instance.heartbeat()
        (message,) = await await_delivered(mq, topic, {b"left open"})
    assert message.msg_id == receipt.msg_id
    assert set(asked) == {receipt.msg_id}


async def test_what_nobody_decides_is_kept_for_people(mq: aio.Client, topic: str) -> None:
    asked: list[str] = []

    def check(half: aio.ReceivedMessage) -> None:
        asked.append(half.properties["TRANSACTION_CHECK_TIMES"])

    async with mq.transaction_producer(f"P_{topic}", check) as producer:
        await producer.send_half(aio.Message(topic, topic.encode()))
        kept: list[bytes] = []
        async with asyncio.timeout(DEADLINE_S):
            while topic.encode() not in kept:
                kept = [] if len(asked) < CHECK_MAX else [m.body for m in await delivered(mq, DISCARDED_TOPIC)]
                await asyncio.sleep(POLL_S)
    assert asked == [str(number) for number in range(1, CHECK_MAX + 1)]
    assert await delivered(mq, topic) == []


async def test_a_slow_transaction_is_not_delivered_twice(mq: aio.Client, topic: str) -> None:
    # RocketMQ asks about the copy that it has made of the half message, and is told to commit that, too.
    asked = 0
    is_over = False

    def check(half: aio.ReceivedMessage) -> TransactionState | None:
        nonlocal asked
        asked += 1
        return COMMIT if is_over else None

    async def execute(half: aio.Message, receipt: aio.SendReceipt) -> TransactionState:
        nonlocal is_over
        await eventually(lambda: asked, "a question about what is still under way")
        is_over = True
        return COMMIT

    async with mq.transaction_producer(f"P_{topic}", check) as producer:
        await producer.send_in_transaction(aio.Message(topic, b"slow"), execute)
        await await_delivered(mq, topic, {b"slow"})
        before = asked
        # A later half message that is asked about shows that a round has passed over the slow one.
        await producer.send_half(aio.Message(topic, b"another"))
        await eventually(lambda: asked > before, "the next question")
    bodies = [message.body for message in await delivered(mq, topic)]
    assert bodies.count(b"slow") == 1


async def test_the_half_topic_is_shown_and_counted(mq: aio.Client, broker: RunningBroker, topic: str) -> None:
    async with mq.transaction_producer(f"P_{topic}", lambda half: ROLLBACK) as producer:
        await producer.send_in_transaction(aio.Message(topic, b"x"), lambda half, receipt: COMMIT)
        await await_delivered(mq, topic, {b"x"})
    queues = await mq.queues(HALF_TOPIC)
    assert [queue.queue_id for queue in queues] == [0]
