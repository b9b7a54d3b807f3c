"""A client whose broker is killed goes on at the one that takes its place elsewhere: no send fails meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore import aio, client
from tests.fault.replicas import PAIR, await_slave, await_topic, start_slave
from tests.integration.bystander import lone_name_server
from tests.integration.client_helpers import committed, eventually, send_numbers
from tests.rigs import MqcoreBroker, wire
from tests.rigs.ports import free_broker_ports

TOPIC = "Moved"
SEND_TIMEOUT_S = 90.0
"""A broker is there again after seconds; on a busy machine after many."""


@pytest.fixture
def name_server(tmp_path: Path) -> Iterator[str]:
    with lone_name_server(tmp_path) as (_, address):
        yield address


@pytest.fixture
def broker(tmp_path: Path, name_server: str) -> Iterator[MqcoreBroker]:
    with MqcoreBroker(tmp_path / "store", {"namesrvAddr": name_server}) as broker:
        wire.create_topic(broker.broker_address, TOPIC, queues=1)
        yield broker


def elsewhere(broker: MqcoreBroker) -> MqcoreBroker:
    """Start a broker of the same name at another address, with all that *broker* had."""
    return MqcoreBroker(broker.store_dir, broker.properties | {"listenPort": str(free_broker_ports().listen)})


async def test_sends_wait_for_the_new_master_and_a_member_goes_on_where_it_was(broker: MqcoreBroker) -> None:
    bodies: list[int] = []

    async def handle(message: aio.ReceivedMessage) -> None:
        bodies.append(int(message.body))

    async with (
        aio.Client(broker.name_server, offset_commit_interval_s=0.2) as mq,
        mq.consumer("G", TOPIC, handler=handle, from_where="earliest", rebalance_interval_s=1.0),
    ):
        await send_numbers(mq, TOPIC, range(20))
        await eventually(lambda: len(bodies) == 20, "messages before the death")
        async with mq.producer("P", send_timeout_s=SEND_TIMEOUT_S) as producer:
            queue = (await producer.queues(TOPIC))[0]
            await asyncio.to_thread(broker.kill)
            waiting = [
                asyncio.create_task(producer.send(aio.Message(TOPIC, b"20"))),
                asyncio.create_task(producer.send(aio.Message(TOPIC, b"21"), queue=queue)),
            ]
            with await asyncio.to_thread(elsewhere, broker) as moved:
                receipts = await asyncio.gather(*waiting)
                assert [receipt.status for receipt in receipts] == [aio.SendStatus.SEND_OK] * 2
                assert mq.instance.routes.master_address("broker-a") == moved.broker_address
                await send_numbers(mq, TOPIC, range(22, 40))
                await eventually(lambda: len(bodies) >= 40, "messages after the death")
                await eventually_committed(mq, 40)
    assert sorted(bodies) == list(range(40)), "each once: the member went on where it was"


async def eventually_committed(mq: aio.Client, count: int) -> None:
    async with asyncio.timeout(60):
        while await committed(mq, "G", TOPIC) != count:
            await asyncio.sleep(0.05)


def test_plain_sends_wait_for_the_new_master_too(broker: MqcoreBroker) -> None:
    with client.Client(broker.name_server) as mq, mq.producer("P", send_timeout_s=SEND_TIMEOUT_S) as producer:
        queue = producer.queues(TOPIC)[0]
        for _ in range(5):
            producer.send(client.Message(TOPIC, b"before"))
        broker.kill()
        offsets: list[int] = []
        sends = [
            threading.Thread(target=lambda: offsets.append(producer.send(client.Message(TOPIC, b"x")).offset)),
            threading.Thread(
                target=lambda: offsets.append(producer.send(client.Message(TOPIC, b"x"), queue=queue).offset)
            ),
        ]
        for send in sends:
            send.start()
        with elsewhere(broker):
            for send in sends:
                send.join(SEND_TIMEOUT_S)
            assert sorted(offsets) == [5, 6]


@pytest.mark.slow
async def test_a_member_reads_on_from_the_slave_and_goes_back_to_the_master(tmp_path: Path, name_server: str) -> None:
    """A slave takes ten seconds until it knows the topic. Routes are not refreshed by the clock here."""
    bodies: list[int] = []

    async def handle(message: aio.ReceivedMessage) -> None:
        bodies.append(int(message.body))

    pair = {**PAIR, "namesrvAddr": name_server}
    with (
        MqcoreBroker(tmp_path / "store", {**pair, "brokerRole": "SYNC_MASTER"}) as master,
        start_slave(master, tmp_path / "slave") as slave,
    ):
        wire.create_topic(master.broker_address, TOPIC, queues=1)
        await asyncio.to_thread(await_slave, master)
        await asyncio.to_thread(await_topic, slave, TOPIC)
        async with (
            aio.Client(name_server, offset_commit_interval_s=0.2, route_refresh_interval_s=3600) as mq,
            mq.consumer("G", TOPIC, handler=handle, from_where="earliest") as consumer,
        ):
            await send_numbers(mq, TOPIC, range(20))
            await eventually(lambda: len(bodies) == 20, "messages of the master")
            await eventually_committed(mq, 20)
            consumer.pause()  # the pull that is held now is answered yet
            await send_numbers(mq, TOPIC, range(20, 40))
            await asyncio.to_thread(master.kill)
            assert len(bodies) < 40
            consumer.resume()
            await eventually(lambda: len(bodies) == 40, "messages of the slave")
            await asyncio.to_thread(master.start_again)
            await send_numbers(mq, TOPIC, range(40, 60))
            await eventually(lambda: len(bodies) >= 60, "messages of the master again")
            async with asyncio.timeout(60):
                while wire.consumer_offset(master.broker_address, "G", TOPIC, 0) != 60:
                    await asyncio.sleep(0.05)
    assert sorted(bodies) == list(range(60)), "each once"
