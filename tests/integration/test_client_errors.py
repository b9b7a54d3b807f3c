"""What a program catches when something goes wrong: the class, the place, and whether to try again."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from mqcore import aio
from mqcore.client import Client, Message, Producer, SendReceipt
from mqcore.client.errors import (
    BrokerError,
    BrokerNotFoundError,
    MessageRefusedError,
    NoRouteError,
    PermissionDeniedError,
    RemotingConnectError,
    RemotingError,
    SendFailedError,
)
from mqcore.codes import PermName
from mqcore.testing import RunningBroker, running_broker

Send = Callable[[Producer, Message], SendReceipt]

WAYS: list[Send] = [
    lambda producer, message: producer.send(message),
    lambda producer, message: producer.send_soon(message).result(60),
    lambda producer, message: producer.send_batch([message])[0],
]
NAMES = ["send", "send_soon", "send_batch"]


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker(
        settings={"maxMessageSize": 2000, "autoCreateTopicEnable": False}, topics={"Small": 1, "Sealed": 1}
    ) as broker:
        yield broker


@pytest.mark.parametrize("send", WAYS, ids=NAMES)
def test_a_message_that_the_broker_refuses_says_which_broker_and_topic(broker: RunningBroker, send: Send) -> None:
    with Client(broker.name_server) as mq, mq.producer("p", compression="none") as producer:
        with pytest.raises(BrokerError) as caught:
            send(producer, Message("Small", b"x" * 3000))
        error = caught.value
        assert isinstance(error, MessageRefusedError)
        assert (error.code, error.code_name, error.retryable) == (13, "MESSAGE_ILLEGAL", False)
        assert (error.topic, error.broker) == ("Small", broker.address)
        assert send(producer, Message("Small", b"x")).queue.topic == "Small"


@pytest.mark.parametrize("send", WAYS, ids=NAMES)
def test_an_unknown_topic_is_named_with_a_hint(broker: RunningBroker, send: Send) -> None:
    with (
        Client(broker.name_server) as mq,
        mq.producer("p") as producer,
        pytest.raises(NoRouteError, match="Nowhere") as caught,
    ):
        send(producer, Message("Nowhere", b"x"))
    assert (caught.value.topic, caught.value.code) == ("Nowhere", 10005)
    assert "autoCreateTopicEnable" in caught.value.hint


def test_a_topic_that_may_not_be_read_is_a_matter_of_permission(broker: RunningBroker) -> None:
    with Client(broker.name_server) as mq:
        queue = mq.queues("Sealed")[0]
        mq.admin.update_topic("Sealed", perm=PermName.WRITE)
        with pytest.raises(PermissionDeniedError) as caught:
            mq.pull(queue, 0)
    assert (caught.value.topic, caught.value.broker) == ("Sealed", broker.address)


async def test_a_broker_that_has_gone_is_an_error_to_try_again_after() -> None:
    async with (
        running_broker(topics=["Gone"]) as broker,
        aio.Client(broker.name_server) as mq,
        mq.producer("p", retries=1, send_timeout_s=10) as producer,
    ):
        receipt = await producer.send(aio.Message("Gone", b"x"))
        await broker.kill()
        with pytest.raises((SendFailedError, RemotingError)) as failed:
            await producer.send(aio.Message("Gone", b"y"))
        assert failed.value.retryable
        with pytest.raises(RemotingError) as caught:
            await producer.send(aio.Message("Gone", b"y"), queue=receipt.queue)
        assert caught.value.retryable
        assert caught.value.broker == broker.address
        await broker.start()
        await producer.send(aio.Message("Gone", b"z"), timeout_s=60)


def test_a_name_server_that_is_not_there_is_a_connection_that_failed() -> None:
    with Client("127.0.0.1:9") as mq, pytest.raises(RemotingConnectError) as caught:
        mq.max_offset(aio.MessageQueue("T", "nobody", 0))
    assert caught.value.hint


def test_a_broker_that_no_route_knows_is_named(broker: RunningBroker) -> None:
    with Client(broker.name_server) as mq, pytest.raises(BrokerNotFoundError) as caught:
        mq.max_offset(aio.MessageQueue("Small", "nobody", 0))
    assert caught.value.broker == "nobody"
