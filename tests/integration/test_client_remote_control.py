"""What tools ask brokers about a consumer, the consumer answers: reports, resets, and one message on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mqcore import aio
from mqcore.admin import Admin
from mqcore.codes import LanguageCode, RequestCode
from mqcore.errors import BrokerError
from mqcore.protocol.bodies import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    HeartbeatData,
    ResetOffsetBody,
    SubscriptionData,
)
from mqcore.protocol.command import RemotingCommand
from tests.fault.talker import Talker
from tests.integration.client_helpers import committed, eventually, make_topic, send_numbers
from tests.rigs import RunningBroker, wire


@pytest.fixture
async def mq(broker: RunningBroker) -> AsyncIterator[aio.Client]:
    async with aio.Client(broker.name_server) as client:
        yield client


@pytest.fixture
async def tool(broker: RunningBroker) -> AsyncIterator[aio.Client]:
    """The client of an operator."""
    async with aio.Client(broker.name_server) as client:
        yield client


@pytest.fixture
def topic(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    return make_topic(broker, request.node.name, queues=2)


@pytest.fixture
def group(topic: str) -> str:
    return "G_" + topic


async def ask(tool: aio.Client, broker: RunningBroker, code: RequestCode, **values: Any) -> RemotingCommand:
    return await tool.instance.api.call(broker.broker_address, code, values, timeout_s=20)


async def all_committed(consumer: aio.Consumer, mq: aio.Client, topic: str, count: int) -> None:
    """Wait until *count* messages are not only handled but done, which is a moment later."""
    async with asyncio.timeout(60):
        while await committed(mq, consumer.group, topic) != count:
            await consumer.persist_offsets()


async def test_running_info_tells_what_the_consumer_holds_and_does(
    mq: aio.Client, tool: aio.Client, broker: RunningBroker, topic: str, group: str
) -> None:
    seen: list[bytes] = []

    async def handle(message: aio.ReceivedMessage) -> None:
        seen.append(message.body)

    await send_numbers(mq, topic, range(10))
    settings = {"from_where": "earliest", "strategy": aio.ConsistentHash(5)}
    async with mq.consumer(group, {topic: "*"}, handler=handle, **settings) as consumer:
        await eventually(lambda: len(seen) == 10, "ten messages")
        await all_committed(consumer, mq, topic, 10)
        consumer.concurrency = 7
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        answer = await ask(tool, broker, code, consumer_group=group, client_id=mq.client_id, jstack_enable=True)
    info = ConsumerRunningInfo.decode(answer.body)
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert info.properties["PROP_CONSUMEORDERLY"] == "false"
    assert info.properties["PROP_THREADPOOL_CORE_SIZE"] == "7"
    assert info.properties["strategy"] == "ConsistentHash"
    assert info.properties["PROP_NAMESERVER_ADDR"] == broker.name_server + ";"
    assert {subscription.topic for subscription in info.subscription_set} == {topic, "%RETRY%" + group}
    held = {queue: row for queue, row in info.mq_table.items() if queue.topic == topic}
    assert {queue.queue_id: row.commit_offset for queue, row in held.items()} == {0: 5, 1: 5}
    assert all(row.cached_msg_count == 0 and not row.dropped for row in held.values())
    assert info.status_table[topic].consume_ok_tps > 0
    assert info.jstack is not None
    assert "pulling MessageQueue" in info.jstack


async def test_a_group_that_is_not_here_is_refused(
    mq: aio.Client, tool: aio.Client, broker: RunningBroker, topic: str, group: str
) -> None:
    async with mq.consumer(group, topic):
        with pytest.raises(BrokerError, match="CODE: 1"):
            await ask(
                tool, broker, RequestCode.GET_CONSUMER_RUNNING_INFO, consumer_group="other", client_id=mq.client_id
            )


async def test_status_tells_the_offsets_of_the_member(
    mq: aio.Client, tool: aio.Client, broker: RunningBroker, topic: str, group: str
) -> None:
    async with mq.consumer(group, topic, from_where="earliest") as consumer:
        await send_numbers(mq, topic, range(6))
        taken: set[bytes] = set()
        async for message in consumer:
            taken.add(message.body)
            if len(taken) == 6:
                message.ack()
                break
        answer = await ask(tool, broker, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, topic=topic, group=group)
    offsets = GetConsumerStatusBody.decode(answer.body).consumer_table[mq.client_id]
    assert {queue.queue_id: offset for queue, offset in offsets.items()} == {0: 3, 1: 3}


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_reset_sends_the_consumer_back(
    mq: aio.Client, tool: aio.Client, broker: RunningBroker, topic: str, group: str, orderly: bool
) -> None:
    seen: list[int] = []

    async def handle(message: aio.ReceivedMessage) -> None:
        seen.append(int(message.body))

    await send_numbers(mq, topic, range(10))
    async with mq.consumer(group, topic, handler=handle, from_where="earliest", orderly=orderly) as consumer:
        await eventually(lambda: len(seen) == 10, "ten messages")
        await consumer.persist_offsets()
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        answer = await ask(tool, broker, code, topic=topic, group=group, timestamp=0, is_force=True)
        assert set(ResetOffsetBody.decode(answer.body).offset_table.values()) == {0}
        await eventually(lambda: len(seen) == 20, "the same ten messages again")
    assert sorted(seen) == sorted([*range(10), *range(10)])


async def test_one_queue_of_a_group_that_is_online_is_reset_alone(
    mq: aio.Client, tool: aio.Client, broker: RunningBroker, topic: str, group: str
) -> None:
    seen: list[tuple[int, int]] = []

    async def handle(message: aio.ReceivedMessage) -> None:
        seen.append((message.queue.queue_id, message.queue_offset))

    await send_numbers(mq, topic, range(10))
    async with mq.consumer(group, topic, handler=handle, from_where="earliest") as consumer:
        await all_committed(consumer, mq, topic, 10)
        order = {"topic": topic, "group": group, "timestamp": -1, "is_force": True, "queue_id": 1, "offset": 2}
        answer = await ask(tool, broker, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **order)
        offsets = ResetOffsetBody.decode(answer.body).offset_table
        assert {queue.queue_id: offset for queue, offset in offsets.items()} == {1: 2}
        await eventually(lambda: len(seen) == 13, "three messages again")
        # Another message of the other queue comes once, and nothing with it.
        await send_numbers(mq, topic, range(10, 12))
        await eventually(lambda: len(seen) == 15, "two more messages")
    assert sorted(seen) == sorted([*((queue, at) for queue in (0, 1) for at in range(6)), (1, 2), (1, 3), (1, 4)])


def reset_order(topic: str, group: str, language: LanguageCode) -> RemotingCommand:
    fields = {"topic": topic, "group": group, "timestamp": "0", "isForce": "true"}
    return RemotingCommand(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext_fields=fields, language=language)


@pytest.mark.parametrize("language", [LanguageCode.JAVA, LanguageCode.GO, LanguageCode.CPP])
async def test_an_order_of_any_language_sends_the_consumer_back(
    mq: aio.Client, broker: RunningBroker, topic: str, group: str, language: LanguageCode
) -> None:
    seen: list[int] = []

    async def handle(message: aio.ReceivedMessage) -> None:
        seen.append(int(message.body))

    await send_numbers(mq, topic, range(6))
    async with mq.consumer(group, topic, handler=handle, from_where="earliest") as consumer:
        await all_committed(consumer, mq, topic, 6)
        with Talker(broker.broker_address) as operator:
            answer = await asyncio.to_thread(operator.call, reset_order(topic, group, language))
        assert (answer.code, answer.body.count(b"queueId")) == (0, 2)
        await eventually(lambda: len(seen) == 12, "the same six messages again")


@pytest.mark.parametrize(
    ("language", "wanted"),
    [
        (LanguageCode.JAVA, '{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"%s"}:0}}'),
        (LanguageCode.GO, '{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"%s"}:0}}'),
        (LanguageCode.CPP, '{"offsetTable":[{"brokerName":"broker-a","offset":0,"queueId":0,"topic":"%s"}]}'),
    ],
)
def test_members_are_told_of_a_reset_in_the_form_that_the_language_of_the_order_reads(
    broker: RunningBroker, topic: str, group: str, language: LanguageCode, wanted: str
) -> None:
    wire.create_topic(broker.broker_address, topic, queues=1)
    member = ConsumerData(group, subscription_data_set=[SubscriptionData.build(topic, "*", sub_version=1)])
    beat = HeartbeatData("member", [], [member]).encode()
    with Talker(broker.broker_address) as talker, Talker(broker.broker_address) as operator:
        assert talker.call(RemotingCommand(RequestCode.HEART_BEAT, body=beat)).code == 0
        wire.commit_offset(broker.broker_address, group, topic, 0, 0)
        assert operator.call(reset_order(topic, group, language)).code == 0
        push = talker.receive()
        while push.code != RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
            push = talker.receive()
    assert push.body.decode() == wanted % topic


@pytest.mark.parametrize(
    ("failure", "wanted"),
    [
        (None, CMResult.CR_SUCCESS),
        (ValueError("no"), CMResult.CR_THROW_EXCEPTION),
        (aio.Retry(3), CMResult.CR_LATER),
        (aio.Reject("no"), CMResult.CR_LATER),
    ],
    ids=["succeeds", "raises", "wants it later", "rejects"],
)
async def test_one_message_can_be_consumed_on_demand(
    mq: aio.Client,
    tool: aio.Client,
    broker: RunningBroker,
    topic: str,
    group: str,
    failure: Exception | None,
    wanted: CMResult,
) -> None:
    seen: list[aio.ReceivedMessage] = []

    async def handle(message: aio.ReceivedMessage) -> None:
        seen.append(message)
        if failure is not None and len(seen) > 1:
            raise failure

    async with mq.consumer(group, topic, handler=handle, from_where="earliest"):
        async with mq.producer("P") as producer:
            receipt = await producer.send(aio.Message(topic, b"x" * 5000, tag="t"))
        await eventually(lambda: len(seen) == 1, "the message as usual")
        code = RequestCode.CONSUME_MESSAGE_DIRECTLY
        answer = await ask(
            tool, broker, code, consumer_group=group, client_id=mq.client_id, msg_id=receipt.offset_msg_id
        )
    result = ConsumeMessageDirectlyResult.decode(answer.body)
    assert (result.consume_result, result.order) == (wanted, False)
    assert result.remark == (None if failure is None else f"{type(failure).__name__}: {failure}")
    assert [(message.body, message.msg_id, message.tag) for message in seen] == [(b"x" * 5000, receipt.msg_id, "t")] * 2


async def test_a_consumer_without_a_handler_says_that_it_has_none(
    mq: aio.Client, tool: aio.Client, broker: RunningBroker, topic: str, group: str
) -> None:
    async with mq.consumer(group, topic, from_where="earliest"), mq.producer("P") as producer:
        receipt = await producer.send(aio.Message(topic, b"x"))
        await eventually_stored(tool, topic, receipt)
        code = RequestCode.CONSUME_MESSAGE_DIRECTLY
        values = {"consumer_group": group, "client_id": mq.client_id, "msg_id": receipt.offset_msg_id}
        result = ConsumeMessageDirectlyResult.decode((await ask(tool, broker, code, **values)).body)
    assert result.consume_result is CMResult.CR_LATER
    assert "has no handler" in (result.remark or "")


async def eventually_stored(tool: aio.Client, topic: str, receipt: aio.SendReceipt) -> None:
    """Wait until the broker finds the message by its id."""
    async with asyncio.timeout(60):
        while (await Admin(tool).view_message(topic, receipt.offset_msg_id)).msg_id != receipt.msg_id:
            await asyncio.sleep(0.05)
