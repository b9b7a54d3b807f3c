"""A program as users write it, for the type checkers: nothing of it is run. See test_client_typing.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_type

from mqcore import aio
from mqcore.client import (
    Client,
    ClientSettings,
    ConsumeContext,
    ConsumerHook,
    ConsumerSettings,
    Done,
    Message,
    MessageQueue,
    ProducerSettings,
    PullResult,
    ReceivedMessage,
    Reject,
    Retry,
    Rollback,
    SendReceipt,
    SendStatus,
    Sql,
)
from mqcore.client.errors import BrokerBusyError, MQError, NoRouteError
from mqcore.compat import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    DefaultLitePullConsumer,
    DefaultMQProducer,
    DefaultMQPullConsumer,
    DefaultMQPushConsumer,
    MessageExt,
    MessageSelector,
    PullCallback,
    PullStatus,
    RequestCallback,
    SelectMessageQueueByHash,
    SendCallback,
    SendResult,
)
from mqcore.compat import Message as JavaMessage
from mqcore.testing import AsyncRunningBroker, RunningBroker, assert_received, running_broker


def charge(message: ReceivedMessage) -> None:
    if not message.body:
        raise Reject
    if message.reconsume_times > 3:
        raise Retry(delay_level=5)


def write_pages(messages: Sequence[ReceivedMessage]) -> Done:
    if len(messages) > 100:
        raise Rollback(pause_s=0.5)
    return Done(commit=False) if len(messages) < 10 else Done()


class Watch(ConsumerHook):
    def before_consume(self, context: ConsumeContext) -> None:
        print(context.group, len(context.messages))


def plain() -> None:
    settings = ClientSettings(call_timeout_s=5)
    with (
        Client("127.0.0.1:9876", settings, heartbeat_interval_s=10) as mq,
        mq.producer("orders", ProducerSettings(retries=3), send_timeout_s=1.0) as producer,
    ):
        receipt = producer.send(Message("Orders", b"{}", tag="new", keys=["42"], properties={"a": "b"}))
        assert_type(receipt, SendReceipt)
        assert_type(receipt.queue, MessageQueue)
        if receipt.status is not SendStatus.SEND_OK:
            print(receipt.msg_id.lower(), receipt.offset + 1)
        receipts = producer.send_batch([Message("Orders", b"1")])
        assert_type(receipts, list[SendReceipt])
        assert_type(mq.pull(receipt.queue, 0), PullResult)
        producer.send(Message("Orders", b""), shard_key="42", timeout_s=1)
        assert_type(producer.queues("Orders"), Sequence[MessageQueue])
        assert_type(producer.request(Message("Orders", b"?"), 1.0, shard_key="42"), ReceivedMessage)
        assert_type(mq.queues("Orders"), list[MessageQueue])
        assert_type(mq.committed_offset("billing", receipt.queue), int | None)
        with mq.consumer("pages", "Orders", batch_handler=write_pages, orderly=True, batch_size=10) as pages:
            pages.wait_closed()
        with mq.consumer("billing", {"Orders": "new || paid"}, handler=charge, concurrency=4) as consumer:
            consumer.wait_closed()
        with mq.consumer("audit", ["Orders", "Refunds"], settings=ConsumerSettings(orderly=True)) as stream:
            for message in stream:
                assert_type(message, ReceivedMessage)
                print(message.body.decode(), message.keys[0], message.tag)
            assert_type(stream.receive(10, timeout_s=1), list[ReceivedMessage])
        with mq.pull_consumer("reports", "Orders", trace=True) as puller:
            puller.add_hook(Watch())
            assert_type(puller.poll(1.0), list[ReceivedMessage])


def errors() -> None:
    try:
        plain()
    except BrokerBusyError as error:
        print(error.code, error.broker, error.topic, error.retryable, error.hint, error.remark)
    except NoRouteError as error:
        print(error.topic.upper())
    except MQError as error:
        assert_type(error.retryable, bool)


async def later(messages: Sequence[aio.ReceivedMessage]) -> None:
    print(len(messages))


async def asynchronous() -> None:
    async with aio.Client("rmq://127.0.0.1:9876") as mq, mq.producer("orders") as producer:
        receipt = await producer.send(aio.Message("Orders", b"{}"))
        assert_type(receipt, SendReceipt)
        async with mq.consumer("billing", {"Orders": Sql("price > 3")}) as consumer:
            async for message in consumer:
                assert_type(message, ReceivedMessage)
        async with mq.consumer("mail", "Orders", batch_handler=later, batch_size=10) as consumer:
            await consumer.wait_closed()


def test_something() -> None:
    with running_broker(settings={"messageDelayLevel": "1s"}, topics={"Orders": 2}) as broker:
        assert_type(broker, RunningBroker)
        broker.advance(hours=1)
        found = assert_received(broker, "Orders", ["a", b"b"])
        assert_type(found, list[ReceivedMessage])


async def test_something_else() -> None:
    async with running_broker() as broker:
        assert_type(broker, AsyncRunningBroker)
        await broker.restart()


def consume(messages: list[MessageExt], context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
    context.set_ack_index(len(messages) - 1)
    print(messages[0].get_body().decode())
    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS


def java_names() -> None:
    producer = DefaultMQProducer("group")
    producer.set_namesrv_addr("localhost:9876")
    producer.start()
    message = JavaMessage("Orders", "TagA", "42", b"{}")
    assert_type(producer.send(message), SendResult)
    assert_type(producer.send(message, 1000), SendResult)
    assert_type(producer.send(message, SelectMessageQueueByHash(), 42), SendResult)
    producer.send(message, SendCallback(lambda result: print(result.get_msg_id()), print))
    assert_type(producer.request(message, 1000), MessageExt)
    producer.request(message, RequestCallback(lambda reply: print(reply.get_body()), print), 1000)
    producer.shutdown()
    old = DefaultMQPullConsumer("group")
    for queue in old.fetch_subscribe_message_queues("Orders"):
        found = old.pull_block_if_not_found(queue, None, 0, 32)
        assert_type(found.get_pull_status(), PullStatus)
        old.pull(queue, "a", 0, 32, PullCallback(lambda result: print(result.get_next_begin_offset())))
    consumer = DefaultMQPushConsumer("group")
    consumer.subscribe("Orders", MessageSelector.by_tag("a || b"))
    consumer.register_message_listener(consume)
    consumer.start()
    puller = DefaultLitePullConsumer("group")
    puller.assign(puller.fetch_message_queues("Orders"))
    assert_type(puller.poll(1000), list[MessageExt])


def wrong() -> None:
    mq = Client("127.0.0.1:9876")
    mq.producer("p", retires=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    mq.max_offset("T")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    mq.producer("p").send_batch([], spilt=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    mq.consumer("c", "T", concurrency="8")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@aio.Client("127.0.0.1:9876").on("Orders", group="mail", concurrency=2)
async def declared(message: aio.ReceivedMessage) -> None:
    print(message.body)
