"""Hooks see every attempt, may add properties or refuse, and their mistakes cost no message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from mqcore import aio
from mqcore.client.errors import SendFailedError, SendForbiddenError
from mqcore.client.telemetry.producer_hooks import ProducerHook, SendContext
from mqcore.codes import RequestCode, ResponseCode
from mqcore.errors import RemotingTimeoutError
from mqcore.protocol.properties import decode_properties
from tests.integration.told_brokers import ToldCluster, told_cluster


@pytest.fixture
async def cluster() -> AsyncIterator[ToldCluster]:
    async with told_cluster("first", "second") as cluster:
        yield cluster


@pytest.fixture
async def mq(cluster: ToldCluster) -> AsyncIterator[aio.Client]:
    async with aio.Client(cluster.address) as client:
        yield client


ISOLATION_MS = 600_000
SEND_S = 2.5
"""More than the way to the hooks takes in a process that has to wait for a processor."""


def message() -> aio.Message:
    return aio.Message("T", b"body", tag="a")


class Recorder(ProducerHook):
    """Notes what it sees, in plain methods."""

    def __init__(self) -> None:
        self.before: list[SendContext] = []
        self.after: list[SendContext] = []

    def before_send(self, context: SendContext) -> None:
        assert context.response is None
        self.before.append(context)

    def after_send(self, context: SendContext) -> None:
        assert context in self.before
        self.after.append(context)


async def test_a_hook_sees_what_is_sent_and_what_came_back(mq: aio.Client, cluster: ToldCluster) -> None:
    recorder = Recorder()
    async with mq.producer("P") as producer:
        producer.add_hook(recorder)
        receipt = await producer.send(message())
        batch = await producer.send_batch([message(), message()])
        await producer.send_oneway(message())
    single, several, oneway = recorder.after
    assert (single.group, single.topic, single.body, single.properties["TAGS"]) == ("P", "T", b"body", "a")
    assert (single.msg_id, single.queue.broker_name) == (receipt.msg_id, receipt.queue.broker_name)
    assert single.broker_address in {broker.server.address for broker in cluster.brokers}
    assert single.response is not None
    assert single.response.offset_msg_id == receipt.offset_msg_id
    assert (single.is_batch, several.is_batch) == (False, True)
    assert several.msg_id == ",".join(each.msg_id for each in batch)
    assert (oneway.is_oneway, oneway.response, oneway.error) == (True, None, None)


async def test_a_hook_sees_each_attempt_and_its_failure(mq: aio.Client, cluster: ToldCluster) -> None:
    for broker in cluster.brokers:
        broker.code = ResponseCode.SYSTEM_ERROR
    recorder = Recorder()
    async with mq.producer("P", retries=2) as producer:
        producer.add_hook(recorder)
        with pytest.raises(SendFailedError):
            await producer.send(message())
    assert [str(context.error).split(" BROKER")[0] for context in recorder.after] == ["CODE: 1 DESC: as told"] * 3
    assert len({context.queue.broker_name for context in recorder.after}) == 2


class Stamp(ProducerHook):
    """Adds a property, in a coroutine."""

    async def before_send(self, context: SendContext) -> None:
        await asyncio.sleep(0)
        context.properties["traceparent"] = "00-1"


async def test_a_property_that_a_hook_adds_travels(mq: aio.Client, cluster: ToldCluster) -> None:
    async with mq.producer("P") as producer:
        producer.add_hook(Stamp())
        await producer.send(message())
    (values,) = [values for broker in cluster.brokers for values in broker.values(RequestCode.SEND_MESSAGE_V2)]
    assert decode_properties(values["properties"])["traceparent"] == "00-1"


class Broken(ProducerHook):
    """Fails before and after."""

    def before_send(self, context: SendContext) -> None:
        raise ValueError("before")

    async def after_send(self, context: SendContext) -> None:
        raise ValueError("after")


async def test_a_broken_hook_costs_neither_the_message_nor_the_other_hooks(
    mq: aio.Client, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder()
    with caplog.at_level(logging.ERROR, "mqcore.client.telemetry.producer_hooks"):
        async with mq.producer("P") as producer:
            producer.add_hook(Broken())
            producer.add_hook(recorder)
            assert (await producer.send(message())).status is aio.SendStatus.SEND_OK
    assert len(recorder.after) == 1
    failed = [record.getMessage() for record in caplog.records]
    assert failed == ["hook failed name=Broken.before_send", "hook failed name=Broken.after_send"]


class Guard(ProducerHook):
    """Lets nothing pass with the tag ``a``."""

    def check_forbidden(self, context: SendContext) -> None:
        if context.properties.get("TAGS") == "a":
            raise PermissionError("no a today")


async def test_a_hook_may_forbid_a_send(mq: aio.Client, cluster: ToldCluster) -> None:
    async with mq.producer("P", send_latency_fault_enable=True) as producer:
        producer.add_hook(Guard())
        with pytest.raises(SendForbiddenError, match="PermissionError: no a today") as caught:
            await producer.send(message())
        with pytest.raises(SendForbiddenError):
            await producer.send_oneway(message())
        assert producer.faults
        assert not [fault for fault in producer.faults if fault.available_in_ms > ISOLATION_MS / 2]
        await producer.send(aio.Message("T", b"x", tag="b"))
    assert isinstance(caught.value.__cause__, PermissionError)
    assert (caught.value.topic, caught.value.retryable) == ("T", False)
    assert sum(len(broker.sends) for broker in cluster.brokers) == 1


class Slow(ProducerHook):
    """Takes longer than the send may."""

    async def before_send(self, context: SendContext) -> None:
        await asyncio.sleep(SEND_S + 0.1)


async def test_the_time_of_hooks_is_time_of_the_send(mq: aio.Client, cluster: ToldCluster) -> None:
    async with mq.producer("P") as producer:
        queue = (await producer.queues("T"))[0]
        producer.add_hook(Slow())
        with pytest.raises(RemotingTimeoutError, match="the hooks took the whole 2500 ms"):
            await producer.send(message(), queue=queue, timeout_s=SEND_S)
    assert not any(broker.sends for broker in cluster.brokers)


async def test_hooks_are_about_single_messages_however_many_are_sent_at_once(mq: aio.Client) -> None:
    recorder = Recorder()
    async with mq.producer("P") as producer:
        producer.add_hook(recorder)
        receipts = await asyncio.gather(*(producer.send(message()) for _ in range(20)))
        soon = [await (await producer.send_soon(message())) for _ in range(3)]
    assert {context.msg_id for context in recorder.before} == {receipt.msg_id for receipt in (*receipts, *soon)}
