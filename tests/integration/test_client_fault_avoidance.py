"""A producer keeps away from a broker that was slow or is dead, and comes back to it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import psutil
import pytest

from mqcore import aio
from mqcore.client.errors import SendFailedError
from mqcore.codes import ResponseCode
from mqcore.errors import RemotingConnectError
from tests.integration.client_helpers import DEADLINE_S, eventually
from tests.integration.told_brokers import ToldCluster, told_cluster
from tests.rigs import wire
from tests.rigs.mqcore_broker import MqcoreBroker
from tests.waiting import wait_until

SLOW_MS = 2_000
"""What counts as slow here: more than a send to a willing broker takes on a machine that stops for seconds."""

HANG_S = 2
"""How long a send to a broker that hangs may take, and one to a broker that does not must not."""

AVOIDING = {
    "send_latency_fault_enable": True,
    "latency_max_ms": (SLOW_MS, 30_000),
    "not_available_duration_ms": (30_000, 600_000),
}


@pytest.fixture
async def cluster() -> AsyncIterator[ToldCluster]:
    async with told_cluster("first", "second") as cluster:
        yield cluster


@pytest.fixture
async def mq(cluster: ToldCluster) -> AsyncIterator[aio.Client]:
    async with aio.Client(cluster.address) as client:
        yield client


def message() -> aio.Message:
    return aio.Message("T", b"x")


async def test_a_broker_that_failed_is_avoided_by_later_sends_too(mq: aio.Client, cluster: ToldCluster) -> None:
    first, second = cluster.brokers
    first.code = ResponseCode.SYSTEM_ERROR
    async with mq.producer("P", **AVOIDING) as producer:
        brokers = [(await producer.send(message())).queue.broker_name for _ in range(12)]
        (isolated,) = [fault for fault in producer.faults if fault.broker_name == "first"]
    assert set(brokers) == {"second"}
    assert (len(first.sends), len(second.sends)) == (1, 12)
    assert isolated.available_in_ms > 500_000


async def test_without_the_switch_each_send_tries_the_broken_broker_again(mq: aio.Client, cluster: ToldCluster) -> None:
    first, _ = cluster.brokers
    first.code = ResponseCode.SYSTEM_ERROR
    async with mq.producer("P") as producer:
        for _ in range(12):
            await producer.send(message())
        assert producer.faults == []
    assert len(first.sends) > 1


async def test_a_broker_comes_back_when_its_time_is_over(mq: aio.Client, cluster: ToldCluster) -> None:
    first, _ = cluster.brokers
    first.code = ResponseCode.SYSTEM_ERROR
    async with mq.producer(
        "P", send_latency_fault_enable=True, latency_max_ms=(30_000,), not_available_duration_ms=(300,)
    ) as producer:
        while not first.sends:
            await producer.send(message())
        first.code = ResponseCode.SUCCESS
        await eventually(lambda: all(fault.is_available for fault in producer.faults), "the end of the isolation")
        for _ in range(4):
            await producer.send(message())
    assert len(first.sends) > 1


async def test_when_every_broker_is_out_sends_still_go_somewhere(mq: aio.Client, cluster: ToldCluster) -> None:
    for broker in cluster.brokers:
        broker.code = ResponseCode.SYSTEM_ERROR
    async with mq.producer("P", **AVOIDING, retries=1) as producer:
        with pytest.raises(SendFailedError):
            await producer.send(message())
        assert len([fault for fault in producer.faults if not fault.is_available]) == 2
        for broker in cluster.brokers:
            broker.code = ResponseCode.SUCCESS
        receipts = [await producer.send(message()) for _ in range(4)]
    assert {receipt.status for receipt in receipts} == {aio.SendStatus.SEND_OK}


async def test_a_one_way_send_keeps_away_too(mq: aio.Client, cluster: ToldCluster) -> None:
    first, second = cluster.brokers
    first.code = ResponseCode.SYSTEM_ERROR
    async with mq.producer("P", **AVOIDING) as producer:
        while not first.sends:
            await producer.send(message())
        before = len(second.sends)
        for _ in range(8):
            await producer.send_oneway(message())
        await eventually(lambda: len(second.sends) == before + 8, "the one-way sends")
    assert len(first.sends) == 1


async def test_a_one_way_send_that_cannot_connect_isolates_its_broker(mq: aio.Client, cluster: ToldCluster) -> None:
    async with mq.producer("P", **AVOIDING) as producer:
        await producer.queues("T")
        await cluster.brokers[0].server.stop()
        errors = 0
        for _ in range(8):
            try:
                await producer.send_oneway(message())
            except RemotingConnectError:
                errors += 1
        (fault,) = [fault for fault in producer.faults if not fault.is_available]
    assert (errors, fault.broker_name) == (1, "first")


# Two real brokers.


class TwoBrokers:
    """Two brokers of mqcore behind the name server of the first."""

    def __init__(self, directory: Path) -> None:
        self.first = MqcoreBroker(directory / "first")
        try:
            elsewhere = {
                "brokerName": "broker-b",
                "namesrvAddr": self.first.name_server,
                "namesrvListenPort": self.first.properties["namesrvListenPort"],
            }
            self.second = MqcoreBroker(directory / "second", elsewhere)
        except BaseException:
            self.first.kill()
            raise

    def make_topic(self, topic: str) -> None:
        for broker in (self.first, self.second):
            wire.create_topic(broker.broker_address, topic, queues=2)
        wait_until(lambda: self._brokers_of(topic) == 2, DEADLINE_S, "both brokers in the route")

    def _brokers_of(self, topic: str) -> int:
        answer = wire.call(self.first.name_server, wire.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        return len(answer.json()["brokerDatas"]) if answer.code == wire.SUCCESS else 0

    def freeze_second(self) -> None:
        for process in [psutil.Process(self.second.pid), *self.second.workers()]:
            process.suspend()

    def kill_second(self) -> None:
        self.second.child.kill()

    def close(self) -> None:
        self.kill_second()
        self.first.kill()


async def outcome(send: Awaitable[aio.SendReceipt]) -> str:
    try:
        return (await send).queue.broker_name
    except TimeoutError:
        return "timeout"


async def test_a_producer_works_on_while_one_of_two_brokers_hangs(tmp_path: Path) -> None:
    brokers = await asyncio.to_thread(TwoBrokers, tmp_path)
    try:
        brokers.make_topic("TwoBrokers")
        async with (
            aio.Client(brokers.first.name_server, call_timeout_s=HANG_S) as mq,
            mq.producer("P", **AVOIDING) as producer,
        ):
            before = Counter([(await producer.send(aio.Message("TwoBrokers", b"x"))).queue.broker_name for _ in "1234"])
            assert before == {"broker-a": 2, "broker-b": 2}
            brokers.freeze_second()
            # The turn comes to the broker that hangs, and that send uses up its time.
            outcomes = [await outcome(producer.send(aio.Message("TwoBrokers", b"x"), timeout_s=HANG_S)) for _ in "1234"]
            assert "timeout" in outcomes
            receipts = [await producer.send(aio.Message("TwoBrokers", b"x"), timeout_s=30) for _ in range(20)]
            (fault,) = [fault for fault in producer.faults if fault.broker_name == "broker-b"]
            brokers.kill_second()  # or the goodbyes would wait for it
        assert {receipt.queue.broker_name for receipt in receipts} == {"broker-a"}
        assert not fault.is_available
    finally:
        await asyncio.to_thread(brokers.close)
