"""Clients and forks: what was not started works in the child, what was started says that it is the parent's."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import traceback
from collections.abc import Callable, Iterator

import pytest

from mqcore import aio
from mqcore.client import Client, Message
from mqcore.client.errors import ClientStateError
from mqcore.testing import RunningBroker, assert_received, running_broker

DEADLINE_S = 60.0
WORKERS = 3


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker() as broker:
        yield broker


@pytest.fixture
def topic(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name
    broker.create_topic(name)
    return name


def in_a_fork(work: Callable[[], object]) -> object:
    """Do *work* in a forked child and return what it returned; raises AssertionError with the child's traceback."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            answer = {"value": work()}
        except BaseException:
            answer = {"error": traceback.format_exc()}
        try:
            os.write(writer, json.dumps(answer).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = json.loads(pipe.read())
    os.waitpid(pid, 0)
    assert "error" not in answer, answer["error"]
    return answer["value"]


def test_a_client_made_before_the_fork_is_started_in_each_worker(broker: RunningBroker, topic: str) -> None:
    mq = Client(broker.name_server)
    producer = mq.producer("web")

    def worker() -> list[str]:
        with mq, producer:
            receipts = [producer.send(Message(topic, b"%d" % number)) for number in range(20)]
        return [mq.client_id, *(receipt.msg_id for receipt in receipts)]

    answers = [in_a_fork(worker) for _ in range(WORKERS)]
    answers.append(worker())  # the parent can still begin its own
    flat = [text for answer in answers for text in answer]  # type: ignore[attr-defined]
    assert len(set(flat)) == len(flat) == (WORKERS + 1) * 21
    assert_received(broker, topic, [str(number) for number in range(20)] * (WORKERS + 1))


def test_a_started_client_says_in_the_child_whose_it_is_and_goes_on_in_the_parent(
    broker: RunningBroker, topic: str
) -> None:
    with Client(broker.name_server) as mq, mq.producer("web") as producer:
        producer.send(Message(topic, b"before"))
        parent = os.getpid()

        def child() -> list[str]:
            said = []
            for call in (
                lambda: producer.send(Message(topic, b"from the child")),
                lambda: mq.queues(topic),
                lambda: mq.producer("other").start(),
            ):
                with pytest.raises(ClientStateError, match="make a new client after the fork") as caught:
                    call()
                said.append(str(caught.value))
            producer.close()
            mq.close()
            return said

        said = in_a_fork(child)
        assert isinstance(said, list)
        assert all(f"belongs to process {parent} " in text for text in said)
        producer.send(Message(topic, b"after"))
    assert_received(broker, topic, ["before", "after"])


async def test_an_asyncio_client_does_not_use_its_parents_connections(broker: RunningBroker, topic: str) -> None:
    async with aio.Client(broker.name_server) as mq, mq.producer("web") as producer:
        await producer.send(aio.Message(topic, b"before"))

        async def child() -> str:
            with pytest.raises(ClientStateError, match="make a new client after the fork"):
                await producer.send(aio.Message(topic, b"from the child"))
            async with aio.Client(broker.name_server) as own, own.producer("web") as mine:
                await mine.send(aio.Message(topic, b"own"))
            return own.client_id

        other_id = in_a_fork(lambda: asyncio.run(child()))
        assert other_id != mq.client_id
        await producer.send(aio.Message(topic, b"after"))
    await asyncio.to_thread(assert_received, broker, topic, ["before", "own", "after"])


def send_one(mq: Client, topic: str, number: int) -> None:
    with mq, mq.producer("pool") as producer:
        producer.send(Message(topic, b"%d" % number))


def test_multiprocessing_by_fork_may_use_a_client_that_was_not_started(broker: RunningBroker, topic: str) -> None:
    mq = Client(broker.name_server)
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=send_one, args=(mq, topic, number)) for number in range(WORKERS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(DEADLINE_S)
    assert [process.exitcode for process in processes] == [0] * WORKERS
    assert_received(broker, topic, [str(number) for number in range(WORKERS)])
