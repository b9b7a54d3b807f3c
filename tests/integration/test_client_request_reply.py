"""A question gets the answer that belongs to it; how real brokers carry both is in interop."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mqcore import aio, compat
from mqcore.client import Client
from mqcore.client.errors import CreateReplyError, RequestTimeoutError, SendFailedError
from mqcore.client.produce.request_reply import PendingReplies, create_reply, is_request
from mqcore.codes import RequestCode, ResponseCode, SysFlag
from mqcore.errors import RemotingTimeoutError
from mqcore.protocol.command import RemotingCommand
from mqcore.protocol.headers import encode_request
from mqcore.protocol.message import MessageExt, MessageQueue, decode_properties, encode_properties
from tests.integration.client_helpers import eventually
from tests.integration.told_brokers import ToldBroker, ToldCluster, told_cluster

PATIENCE_S = 1.25
"""For an answer that does not come. The question has to be sent within it, whatever else runs."""


@pytest.fixture
async def cluster() -> AsyncIterator[ToldCluster]:
    async with told_cluster("only") as cluster:
        yield cluster


@pytest.fixture
def broker(cluster: ToldCluster) -> ToldBroker:
    return cluster.brokers[0]


@pytest.fixture
async def mq(cluster: ToldCluster) -> AsyncIterator[aio.Client]:
    async with aio.Client(cluster.address) as client:
        yield client


def question(broker: ToldBroker, number: int = 0) -> dict[str, str]:
    """The properties of a question that the broker got."""
    return decode_properties(broker.values(RequestCode.SEND_MESSAGE_V2)[number]["properties"])


def push(body: bytes, properties: dict[str, str], sys_flag: int = 0) -> RemotingCommand:
    """What a broker pushes to the asker, with addresses as Java prints them."""
    fields = encode_request(
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
        producer_group="ANSWERER",
        topic="C_REPLY_TOPIC",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=2,
        sys_flag=sys_flag,
        born_timestamp=1_700_000_000_000,
        flag=5,
        properties=encode_properties(properties),
        reconsume_times=0,
        unit_mode=False,
        born_host="/127.0.0.1:4711",
        store_host="some.host/127.0.0.1:10911",
        store_timestamp=1_700_000_000_001,
    )
    return RemotingCommand(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ext_fields=fields, body=body)


async def answer(broker: ToldBroker, number: int, body: bytes, sys_flag: int = 0) -> RemotingCommand:
    """Push the answer to a question over the connection of its asker; gives what the client says to that."""
    await eventually(lambda: len(broker.of(RequestCode.SEND_MESSAGE_V2)) > number, "the question")
    asked = question(broker, number)
    correlation = {"CORRELATION_ID": asked["CORRELATION_ID"], "KEYS": "answer"}
    connection = broker.clients[asked["REPLY_TO_CLIENT"]]
    return await connection.invoke(push(body, correlation, sys_flag), 30)


async def test_a_question_gets_its_answer(mq: aio.Client, broker: ToldBroker) -> None:
    async with mq.producer("P") as producer:
        asking = asyncio.create_task(producer.request(aio.Message("T", b"?", tag="a"), 30))
        assert (await answer(broker, 0, b"!")).code == ResponseCode.SUCCESS
        reply = await asking
    asked = question(broker)
    assert (asked["TTL"], asked["REPLY_TO_CLIENT"], asked["TAGS"]) == ("30000", mq.client_id, "a")
    assert len(asked["CORRELATION_ID"]) == 36
    assert (reply.body, reply.topic, reply.queue.queue_id, reply.flag) == (b"!", "C_REPLY_TOPIC", 2, 5)
    assert (reply.keys, reply.ext.born_host.port, reply.ext.store_host.ip) == (("answer",), 4711, "127.0.0.1")
    assert int(reply.properties["ARRIVE_TIME"]) > 1_700_000_000_000


async def test_the_plain_client_asks_too(cluster: ToldCluster, broker: ToldBroker) -> None:
    def use() -> bytes:
        with Client(cluster.address) as plain, plain.producer("P") as producer:
            return producer.request(aio.Message("T", b"?"), 30).body

    asking = asyncio.create_task(asyncio.to_thread(use))
    await answer(broker, 0, b"!")
    assert await asking == b"!"


async def test_a_java_callback_hears_the_reply_once_or_what_went_wrong(
    cluster: ToldCluster, broker: ToldBroker
) -> None:
    heard: list[object] = []
    callback = compat.RequestCallback(lambda message: heard.append(message.get_body()), heard.append)

    def use(timeout_ms: int) -> None:
        producer = compat.DefaultMQProducer("P")
        producer.set_namesrv_addr(cluster.address)
        producer.start()
        producer.request(compat.Message("T", b"?"), callback, timeout_ms)
        producer.shutdown()  # waits for what is under way

    asking = asyncio.create_task(asyncio.to_thread(use, 30_000))
    await answer(broker, 0, b"!")
    await asking
    assert heard == [b"!"]
    await asyncio.to_thread(use, 1)
    assert isinstance(heard[1], RequestTimeoutError | RemotingTimeoutError)
    assert len(heard) == 2


async def test_the_broker_knows_the_asker_before_the_question_comes(mq: aio.Client, broker: ToldBroker) -> None:
    async with mq.producer("P") as producer:
        asking = asyncio.create_task(producer.request(aio.Message("T", b"?"), 30))
        await answer(broker, 0, b"!")
        await asking
    codes = [command.code for command in broker.requests]
    assert codes.index(RequestCode.HEART_BEAT) < codes.index(RequestCode.SEND_MESSAGE_V2)


async def test_answers_find_their_questions_in_any_order(mq: aio.Client, broker: ToldBroker) -> None:
    async with mq.producer("P") as producer:
        asking = [asyncio.create_task(producer.request(aio.Message("T", b"%d" % n), 30)) for n in range(20)]
        await eventually(lambda: len(broker.of(RequestCode.SEND_MESSAGE_V2)) == 20, "the questions")
        for number, command in reversed(list(enumerate(broker.of(RequestCode.SEND_MESSAGE_V2)))):
            await answer(broker, number, b"re: " + command.body)
        replies = await asyncio.gather(*asking)
    assert [reply.body for reply in replies] == [b"re: %d" % n for n in range(20)]


async def test_a_compressed_answer_is_read(mq: aio.Client, broker: ToldBroker) -> None:
    async with mq.producer("P") as producer:
        asking = asyncio.create_task(producer.request(aio.Message("T", b"?"), 30))
        await answer(broker, 0, zlib.compress(b"!" * 100), SysFlag.COMPRESSED)
        assert (await asking).body == b"!" * 100


async def test_no_answer_is_an_error_that_says_what_happened(mq: aio.Client, broker: ToldBroker) -> None:
    async with mq.producer("P") as producer:
        await producer.send(aio.Message("T", b"so that route and connection are there"))
        await mq.instance.heartbeat()
        with pytest.raises(RequestTimeoutError) as caught:
            await producer.request(aio.Message("T", b"?"), PATIENCE_S)
        late = question(broker, 1)
        connection = broker.clients[late["REPLY_TO_CLIENT"]]
        told = await connection.invoke(push(b"late", {"CORRELATION_ID": late["CORRELATION_ID"]}), 30)
    assert str(caught.value) == "send request message to <T> OK, but wait reply message timeout, 1250 ms."
    assert (caught.value.code, caught.value.topic) == (10006, "T")
    assert isinstance(caught.value, TimeoutError)
    assert told.code == ResponseCode.SUCCESS
    assert len(mq.instance.shared(PendingReplies)) == 0


async def test_a_question_that_cannot_be_sent_is_a_failed_send(mq: aio.Client, broker: ToldBroker) -> None:
    broker.code = ResponseCode.SYSTEM_ERROR
    async with mq.producer("P") as producer:
        with pytest.raises(SendFailedError):
            await producer.request(aio.Message("T", b"?"), 30)
    assert len(mq.instance.shared(PendingReplies)) == 0


async def test_an_answer_counts_although_the_answer_to_the_send_was_lost(mq: aio.Client, broker: ToldBroker) -> None:
    broker.gate.clear()
    async with mq.producer("P", retries=0) as producer:
        asking = asyncio.create_task(producer.request(aio.Message("T", b"?"), 30))
        await answer(broker, 0, b"!")
        broker.code = ResponseCode.SYSTEM_ERROR
        broker.gate.set()
        assert (await asking).body == b"!"


async def test_an_answer_that_cannot_be_read_is_refused(mq: aio.Client, broker: ToldBroker) -> None:
    async with mq.producer("P") as producer:
        asking = asyncio.create_task(producer.request(aio.Message("T", b"?"), 30))
        told = await answer(broker, 0, b"not compressed", SysFlag.COMPRESSED)
        assert (told.code, told.remark) == (ResponseCode.SYSTEM_ERROR, "process reply message fail")
        await answer(broker, 0, b"!")
        assert (await asking).body == b"!"


# The side that answers.


def received(**properties: str) -> aio.ReceivedMessage:
    return aio.ReceivedMessage(MessageExt("T", b"?", properties=properties), MessageQueue("T", "only", 0))


REQUEST = {"CLUSTER": "C", "CORRELATION_ID": "id", "REPLY_TO_CLIENT": "asker", "TTL": "3000", "KEYS": "k"}


@pytest.mark.parametrize("face", ["asyncio", "plain"])
async def test_an_answer_goes_to_the_reply_topic_of_the_cluster(
    mq: aio.Client, cluster: ToldCluster, broker: ToldBroker, face: str
) -> None:
    def use_plain() -> None:
        with Client(cluster.address) as plain, plain.producer("ANSWERER") as producer:
            producer.queues("C_REPLY_TOPIC")
            producer.reply(received(**REQUEST), b"!", tag="t", keys=["a"], properties={"p": "v"})

    if face == "plain":
        await asyncio.to_thread(use_plain)
    else:
        async with mq.producer("ANSWERER") as producer:
            await producer.reply(received(**REQUEST), b"!", tag="t", keys=["a"], properties={"p": "v"})
    (values,) = broker.values(RequestCode.SEND_REPLY_MESSAGE_V2)
    properties = decode_properties(values["properties"])
    del properties["UNIQ_KEY"]
    assert (values["topic"], values["producer_group"]) == ("C_REPLY_TOPIC", "ANSWERER")
    wanted: dict[str, Any] = {"CORRELATION_ID": "id", "REPLY_TO_CLIENT": "asker", "TTL": "3000", "MSG_TYPE": "reply"}
    assert properties == wanted | {"TAGS": "t", "KEYS": "a", "p": "v"}


def test_only_requests_can_be_answered() -> None:
    assert is_request(received(**REQUEST))
    assert not is_request(received())
    with pytest.raises(CreateReplyError, match=r"requestMessage error, property\[CLUSTER\] is null.") as caught:
        create_reply(received(), b"!")
    assert caught.value.code == 10007
