"""A client goes on when brokers refuse, fall silent, die or come back.

Most brokers here are peers that do what a test tells them, over real sockets: a real broker cannot be made to refuse on
demand. The last tests restart a real one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mqcore import aio
from mqcore.client.consume.polled.pull_api import RECONSUME_TIMES_MAX
from mqcore.client.errors import SendFailedError
from mqcore.client.model.messages import DEAD_LETTER
from mqcore.codes import RequestCode, ResponseCode
from mqcore.errors import BrokerError, ClientError, RemotingError, RemotingSendError, RemotingTimeoutError
from mqcore.protocol.bodies import BrokerData, HeartbeatData, QueueData, TopicRouteData
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.headers import encode_response
from mqcore.protocol.message import MessageExt, MessageQueue, decode_properties
from mqcore.transport.connection import Connection
from mqcore.transport.server import RemotingServer
from tests.integration.client_helpers import SHORT_DELAYS, committed, eventually, make_topic, send_numbers
from tests.integration.told_brokers import told_cluster
from tests.rigs import start_broker_under_test

REACHED_S = 2.5
"""A willing broker answers within this time, also if a process has to wait for a processor on the way."""


class Broker:
    """Answers sends with *code*; None is silence."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.code: ResponseCode | None = ResponseCode.SUCCESS
        self.sends = 0
        self.heartbeats: list[HeartbeatData] = []
        self.left: list[str] = []
        self.server = RemotingServer("127.0.0.1", 0, self._handle)

    async def _handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        if command.code == RequestCode.HEART_BEAT:
            self.heartbeats.append(HeartbeatData.decode(command.body))
            return command.reply()
        if command.code == RequestCode.UNREGISTER_CLIENT:
            self.left.append((command.ext_fields or {}).get("producerGroup", ""))
            return command.reply()
        self.sends += 1
        if self.code is None:
            return None
        fields = encode_response(command.code, msg_id="0" * 32, queue_id=0, queue_offset=self.sends)
        return command.reply(self.code, "as told", fields)


class Cluster:
    """A name server and two brokers, each with two queues of topic T."""

    def __init__(self) -> None:
        self.first, self.second = Broker("first"), Broker("second")
        self.name_server = RemotingServer("127.0.0.1", 0, self._route)

    @property
    def brokers(self) -> list[Broker]:
        return [self.first, self.second]

    async def _route(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        route = TopicRouteData(
            [QueueData(broker.name, 2, 2) for broker in self.brokers],
            [BrokerData("C", broker.name, {0: broker.server.address}) for broker in self.brokers],
        )
        return command.reply(body=route.encode())


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    servers = [cluster.name_server, cluster.first.server, cluster.second.server]
    for server in servers:
        await server.start()
    yield cluster
    for server in servers:
        await server.stop()


@pytest.fixture
async def mq(cluster: Cluster) -> AsyncIterator[aio.Client]:
    async with aio.Client(cluster.name_server.address) as client:
        yield client


def message() -> aio.Message:
    return aio.Message("T", b"x")


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_ERROR, ResponseCode.SERVICE_NOT_AVAILABLE])
async def test_a_refused_send_goes_to_the_other_broker(mq: aio.Client, cluster: Cluster, code: ResponseCode) -> None:
    cluster.first.code = code
    async with mq.producer("P") as producer:
        receipts = [await producer.send(message()) for _ in range(8)]
    assert {receipt.queue.broker_name for receipt in receipts} == {"second"}
    assert cluster.first.sends > 0


async def test_a_refusal_that_no_other_broker_would_mend_is_raised_at_once(mq: aio.Client, cluster: Cluster) -> None:
    for broker in cluster.brokers:
        broker.code = ResponseCode.SYSTEM_BUSY
    async with mq.producer("P") as producer:
        with pytest.raises(BrokerError, match="CODE: 2 DESC: as told"):
            await producer.send(message())
    assert cluster.first.sends + cluster.second.sends == 1


async def test_busy_is_tried_elsewhere_when_the_user_says_so(mq: aio.Client, cluster: Cluster) -> None:
    cluster.first.code = ResponseCode.SYSTEM_BUSY
    async with mq.producer("P", retry_response_codes=frozenset({2})) as producer:
        assert {(await producer.send(message())).queue.broker_name for _ in range(8)} == {"second"}


async def test_a_silent_broker_uses_up_the_time_of_all_attempts(mq: aio.Client, cluster: Cluster) -> None:
    cluster.first.code = cluster.second.code = None
    async with mq.producer("P") as producer:
        queue = (await producer.queues("T"))[0]
        # One after the other: a call that times out closes its connection, which would end the other one's.
        with pytest.raises(RemotingTimeoutError, match="send timed out: 1 attempts in"):
            await producer.send(message(), timeout_s=REACHED_S)
        with pytest.raises(TimeoutError, match="no response from"):
            await producer.send(message(), queue=queue, timeout_s=REACHED_S)


async def test_when_every_attempt_fails_the_error_says_what_was_tried(mq: aio.Client, cluster: Cluster) -> None:
    cluster.first.code = cluster.second.code = ResponseCode.SYSTEM_ERROR
    async with mq.producer("P") as producer:
        with pytest.raises(SendFailedError) as caught:
            await producer.send(message())
    assert caught.value.client_code == ResponseCode.SYSTEM_ERROR
    tried = caught.value.args[1]
    assert tried in (("first", "second", "first"), ("second", "first", "second"))
    assert cluster.first.sends + cluster.second.sends == 3
    assert isinstance(caught.value.__cause__, BrokerError)


async def test_a_dead_broker_is_passed_over(mq: aio.Client, cluster: Cluster) -> None:
    await cluster.first.server.stop()
    async with mq.producer("P") as producer:
        assert {(await producer.send(message())).queue.broker_name for _ in range(8)} == {"second"}


async def test_when_all_brokers_are_dead_the_code_is_that_of_a_failed_connect(mq: aio.Client, cluster: Cluster) -> None:
    async with mq.producer("P") as producer:
        await producer.queues("T")
        for broker in cluster.brokers:
            await broker.server.stop()
        with pytest.raises(SendFailedError) as caught:
            await producer.send(message())
    assert caught.value.client_code == 10001


async def test_half_stored_messages_are_receipts_unless_the_user_wants_another_attempt(
    mq: aio.Client, cluster: Cluster
) -> None:
    cluster.first.code = cluster.second.code = ResponseCode.FLUSH_DISK_TIMEOUT
    async with mq.producer("P") as producer:
        receipt = await producer.send(message())
    assert receipt.status is aio.SendStatus.FLUSH_DISK_TIMEOUT
    assert cluster.first.sends + cluster.second.sends == 1
    async with mq.producer("P", retry_another_broker_when_not_store_ok=True) as producer:
        receipt = await producer.send(message())
        assert receipt.status is aio.SendStatus.FLUSH_DISK_TIMEOUT
        assert cluster.first.sends + cluster.second.sends == 4
        cluster.first.code = ResponseCode.SUCCESS
        assert (await producer.send(message())).status is aio.SendStatus.SEND_OK


async def test_a_send_that_waits_for_room_times_out_only_after_it_has_begun(mq: aio.Client, cluster: Cluster) -> None:
    cluster.first.code = cluster.second.code = None
    async with mq.producer("P", max_inflight_messages=1, retries=0) as producer:
        blocked = asyncio.create_task(producer.send(message(), timeout_s=REACHED_S + 0.5))
        await eventually(lambda: cluster.first.sends + cluster.second.sends == 1, "the first send is under way")
        cluster.first.code = cluster.second.code = ResponseCode.SUCCESS
        assert (await producer.send(message(), timeout_s=REACHED_S)).status is aio.SendStatus.SEND_OK
        with pytest.raises((RemotingTimeoutError, SendFailedError)):
            await blocked


async def test_closing_gives_up_on_sends_that_take_too_long(
    mq: aio.Client, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.first.code = cluster.second.code = None
    async with mq.producer("P") as producer:
        stuck = asyncio.create_task(producer.send(message(), timeout_s=60))
        await eventually(lambda: cluster.first.sends + cluster.second.sends == 1, "the send is under way")
        begin = time.monotonic()
        with caplog.at_level(logging.WARNING, "mqcore.client.produce.producer"):
            await producer.close(timeout_s=0.05)
        assert time.monotonic() - begin < 30, "the send has 60 s"
    assert "closing with sends under way group=P messages=1" in caplog.text
    stuck.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stuck


async def test_brokers_hear_who_is_there_and_who_has_left(cluster: Cluster) -> None:
    async with aio.Client(cluster.name_server.address, heartbeat_interval_s=0.05) as mq:
        async with mq.producer("P") as producer:
            await producer.send(message())
            await eventually(lambda: all(broker.heartbeats for broker in cluster.brokers), "a heart-beat each")
            heartbeat = cluster.first.heartbeats[-1]
            assert heartbeat.client_id == mq.client_id
            assert [data.group_name for data in heartbeat.producer_data_set] == ["P", "CLIENT_INNER_PRODUCER"]
        assert [broker.left for broker in cluster.brokers] == [["P"], ["P"]]


async def test_a_broker_that_moved_is_found_by_the_next_refresh(cluster: Cluster) -> None:
    async with (
        aio.Client(cluster.name_server.address, route_refresh_interval_s=0.05) as mq,
        mq.producer("P", retries=0) as producer,
    ):
        await producer.send(message(), selector=lambda queues, _: queues[0])
        await cluster.first.server.stop()
        moved = cluster.first = Broker("first")
        await moved.server.start()

        async def arrives() -> bool:
            try:
                await producer.send(message(), selector=lambda queues, _: queues[0])
            except (RemotingError, ClientError):
                return False
            return True

        async with asyncio.timeout(60):
            while not await arrives():
                await asyncio.sleep(0.02)
        assert moved.sends > 0
        await mq.close()
        await moved.server.stop()


# A real broker.


async def test_a_consumer_and_a_producer_survive_the_restart_of_their_broker(tmp_path: Path) -> None:
    with start_broker_under_test(tmp_path / "store") as broker:
        topic = make_topic(broker, "Restart")
        bodies: list[int] = []

        async def handle(message: aio.ReceivedMessage) -> None:
            bodies.append(int(message.body))

        settings = {"route_refresh_interval_s": 0.5, "heartbeat_interval_s": 0.5}
        async with (
            aio.Client(broker.name_server, **settings) as mq,
            mq.consumer("G", topic, handler=handle, from_where="earliest", rebalance_interval_s=0.5),
        ):
            await send_numbers(mq, topic, range(20))
            await eventually(lambda: len(bodies) == 20, "messages before the restart")
            await asyncio.to_thread(broker.restart)

            async def sends() -> bool:
                try:
                    await send_numbers(mq, topic, range(20, 21))
                except (RemotingError, ClientError, BrokerError):
                    return False
                return True

            async with asyncio.timeout(60):
                while not await sends():
                    await asyncio.sleep(0.1)
            await send_numbers(mq, topic, range(21, 40))
            await eventually(lambda: set(bodies) == set(range(40)), "messages after the restart", deadline_s=60)


def cut(address: str, command: RemotingCommand) -> None:
    """Let nothing be given back."""
    if command.code == RequestCode.CONSUMER_SEND_MSG_BACK:
        raise RemotingSendError("cut by the test")


@pytest.mark.parametrize(
    ("delay_level", "expected"), [(0, ("3", "1")), (7, ("7", "1")), (DEAD_LETTER, ("3", str(RECONSUME_TIMES_MAX)))]
)
async def test_what_is_sent_anew_keeps_the_delay_that_was_asked_for(
    delay_level: int, expected: tuple[str, str]
) -> None:
    message = aio.ReceivedMessage(MessageExt("T", b"x"), MessageQueue("T", "only", 0))
    async with told_cluster("only") as cluster, aio.Client(cluster.address) as mq:
        mq.instance.remoting.request_hooks.append(cut)
        await mq.send_back("G", message, delay_level=delay_level)
        (sent,) = cluster.brokers[0].values(RequestCode.SEND_MESSAGE_V2)
    properties = decode_properties(sent["properties"])
    assert sent["topic"] == "%RETRY%G"
    assert (properties["DELAY"], properties["RECONSUME_TIME"]) == expected


async def test_a_message_that_cannot_be_sent_back_is_sent_anew(tmp_path: Path) -> None:
    with start_broker_under_test(tmp_path / "store", SHORT_DELAYS) as broker:
        topic = make_topic(broker, "SentAnew")
        seen: list[aio.ReceivedMessage] = []

        async def handle(message: aio.ReceivedMessage) -> None:
            seen.append(message)
            if len(seen) == 1:
                raise ValueError("once")

        async with aio.Client(broker.name_server) as mq:
            mq.instance.remoting.request_hooks.append(cut)
            async with mq.consumer("G", topic, handler=handle, from_where="earliest"):
                await send_numbers(mq, topic, range(1))
                await eventually(lambda: len(seen) == 2, "the second delivery", deadline_s=60)
            assert await committed(mq, "G", topic) == 1
    assert [message.reconsume_times for message in seen] == [0, 1]
    assert {(message.topic, message.body) for message in seen} == {(topic, b"0")}
