"""Transactions that one member of a producer group left open are ended by another, in another language."""

from __future__ import annotations

import asyncio

import pytest

from mqcore import aio
from mqcore.client import TransactionState
from tests.rigs import Corpus, JavaDriver, RunningBroker, StartBroker, wire
from tests.waiting import wait_until

pytestmark = pytest.mark.compat

GROUP = "INTEROP_TRANSACTIONS"
"""Of Transact.java, which commits what has a number of the form 4n + 2 when it is asked, and rolls back the rest."""

COUNT = 8
DEADLINE_S = 60.0
PATIENT = {"transactionCheckInterval": "500", "transactionTimeOut": "5000", "transactionCheckMax": "1000"}
"""Java sends and is gone before anybody asks, but it would say the same as its successor."""


def open_topic(broker: RunningBroker, topic: str) -> None:
    wire.create_topic(broker.broker_address, topic, queues=1)
    wait_until(lambda: wire.has_route(broker.name_server, topic), describe=f"route to {topic}")


async def delivered_keys(mq: aio.Client, topic: str, count: int) -> list[str]:
    """The keys of what lies in the topic, when *count* messages do."""
    (queue,) = await mq.queues(topic)
    async with asyncio.timeout(DEADLINE_S):
        while await mq.max_offset(queue) < count:
            await asyncio.sleep(0.1)
    found = await mq.pull(queue, 0)
    return sorted(message.keys[0] for message in found.messages)


async def test_java_is_asked_about_what_python_left_open(
    start_broker: StartBroker, java_4_9_8: JavaDriver, corpus: Corpus
) -> None:
    broker, topic = start_broker(PATIENT | {"transactionTimeOut": "500"}), "Left_by_Python"
    open_topic(broker, topic)
    async with aio.Client(broker.name_server) as mq:
        async with mq.transaction_producer(GROUP, lambda half: TransactionState.UNKNOWN) as producer:
            for number in range(100, 100 + COUNT):
                await producer.send_half(aio.Message(topic, b"half", keys=[f"L{number}"]))
        child = await asyncio.to_thread(java_4_9_8.transact, broker.name_server, topic, corpus.path, count=1)
        with child:
            found = await delivered_keys(mq, topic, 1 + COUNT // 4)
            assert found == sorted(["L0", "L102", "L106"])
            await asyncio.to_thread(child.finish)


async def test_python_is_asked_about_what_java_left_open(
    start_broker: StartBroker, java_5_3_3: JavaDriver, corpus: Corpus
) -> None:
    broker, topic = start_broker(PATIENT), "Left_by_Java"
    open_topic(broker, topic)
    asked: set[str] = set()

    def check(half: aio.ReceivedMessage) -> TransactionState:
        (key,) = half.keys
        asked.add(key)
        return TransactionState.COMMIT if int(key[1:]) % 4 == 2 else TransactionState.ROLLBACK

    child = await asyncio.to_thread(java_5_3_3.transact, broker.name_server, topic, corpus.path, count=COUNT)
    with child:
        half_topic = "RMQ_SYS_TRANS_HALF_TOPIC"
        wait_until(lambda: wire.max_offset(broker.broker_address, half_topic, 0) >= COUNT, DEADLINE_S, "all are sent")
        await asyncio.to_thread(child.child.kill)
    client = aio.Client(broker.name_server, heartbeat_interval_s=0.2)
    async with client as mq, mq.transaction_producer(GROUP, check):
        found = await delivered_keys(mq, topic, COUNT // 2)
    assert found == [f"L{number}" for number in range(0, COUNT, 2)]
    assert asked <= {f"L{number}" for number in range(COUNT) if number % 4 > 1}
    assert asked
