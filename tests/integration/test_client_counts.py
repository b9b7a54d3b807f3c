"""A client tells in figures what it has sent and received, on all its ways."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from mqcore import aio
from mqcore.client import Client, ClientCounts, ConsumerCounts, Message, ProducerCounts, ReceivedMessage
from mqcore.client.errors import BrokerError, MessageRefusedError
from tests.integration.client_helpers import DEADLINE_S, RunningBroker, eventually, make_topic
from tests.waiting import wait_until

TOO_LARGE = bytes((4 << 20) + 1)


@pytest.fixture
def topic(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    return make_topic(broker, request.node.name, queues=1)


@pytest.fixture
def group(topic: str) -> str:
    return "G_" + topic


@pytest.fixture
def mq(broker: RunningBroker) -> Iterator[Client]:
    with Client(broker.name_server) as mq:
        yield mq


def test_a_message_counts_once_whichever_way_it_goes(mq: Client, topic: str) -> None:
    message = Message(topic, b"x")
    with mq.producer("P") as producer:
        for _ in range(3):
            producer.send(message)
        for _ in range(10):
            producer.send_soon(message)
        producer.flush()
        producer.send_batch([message] * 4)
        producer.send(message, queue=producer.queues(topic)[0])
        producer.send_oneway(message)
        assert producer.counts == ProducerCounts(sent=19, failed=0, in_flight=0, in_flight_bytes=0)
        assert mq.counts == ClientCounts({"P": producer.counts}, {})
        latency = producer.counts.latency
        assert latency.count == 19
        assert 0 < latency.p50_s <= latency.p95_s <= latency.p99_s <= latency.max_s < DEADLINE_S
        assert {topic: sends.sent for topic, sends in producer._inner.sends().items()} == {topic: 19}
    assert mq.counts == ClientCounts({}, {})


def test_what_a_broker_refuses_has_failed(mq: Client, topic: str) -> None:
    large = Message(topic, TOO_LARGE)
    with mq.producer("P", max_message_size_bytes=8 << 20, compression="none") as producer:
        producer.send(Message(topic, b"x"))  # from here on the route is known, and the short way open
        with pytest.raises(MessageRefusedError):
            producer.send(large)
        with pytest.raises(BrokerError):
            producer.send_soon(large).result(DEADLINE_S)
        with pytest.raises(BrokerError):
            producer.send_batch([large])
        assert (producer.counts.sent, producer.counts.failed) == (1, 3)
        assert producer.counts.latency.count == 1
        assert producer._inner.sends()[topic].failed == {MessageRefusedError: 3}


def test_counts_are_exact_and_never_go_back_while_threads_send(mq: Client, topic: str) -> None:
    threads, each = 4, 200
    seen: list[int] = []
    with mq.producer("P") as producer:
        producer.send(Message(topic, b"x"))

        def send() -> None:
            for _ in range(each):
                producer.send(Message(topic, b"x"))

        with ThreadPoolExecutor(threads) as pool:
            sending = [pool.submit(send) for _ in range(threads)]
            while not all(one.done() for one in sending):
                seen.append(producer.counts.sent)
            for one in sending:
                one.result()
        assert seen == sorted(seen)
        assert producer.counts.sent == producer.counts.latency.count == threads * each + 1


def test_a_closed_connection_s_messages_still_count(mq: Client, topic: str) -> None:
    with mq.producer("P") as producer:
        for _ in range(5):
            producer.send(Message(topic, b"x"))
        assert producer.counts.sent == 5
    assert producer.counts.sent == 5


def test_a_consumer_counts_what_it_has_and_what_is_to_come(mq: Client, topic: str, group: str) -> None:
    with mq.producer("P") as producer:
        producer.send_batch([Message(topic, b"x")] * 10)
    with mq.consumer(group, topic, from_where="earliest", pull_batch_size=4, pull_threshold_for_queue=4) as consumer:
        wait_until(lambda: consumer.counts.received >= 4, DEADLINE_S, "the first pulls")
        before = consumer.counts
        assert before.lag == 10
        assert before.in_flight == before.received < 10
        got = 0
        while got < 10:
            for message in consumer.receive(10, timeout_s=DEADLINE_S):
                got += 1
                if got == 1:
                    message.reject()
                else:
                    message.ack()
        wait_until(lambda: consumer.counts == ConsumerCounts(10, 1, 0, 0), DEADLINE_S, "all is done")
        assert mq.counts.consumers == {group: consumer.counts}


def test_a_pull_consumer_counts_what_is_not_polled(mq: Client, topic: str, group: str) -> None:
    with mq.producer("P") as producer:
        producer.send_batch([Message(topic, b"x")] * 6)
    with mq.pull_consumer(group, topic, from_where="earliest") as consumer:
        wait_until(lambda: consumer.counts.in_flight == 6, DEADLINE_S, "the pull")
        assert consumer.counts == ConsumerCounts(received=6, failed=0, in_flight=6, lag=6)
        left = 6
        while left:
            left -= len(consumer.poll(DEADLINE_S))
        wait_until(lambda: consumer.counts == ConsumerCounts(6, 0, 0, 0), DEADLINE_S, "all is polled")


@pytest.mark.parametrize("orderly", [False, True])
def test_the_time_of_handlers_is_counted(mq: Client, topic: str, group: str, *, orderly: bool) -> None:
    slow_s = 0.05
    with mq.producer("P") as producer:
        producer.send_batch([Message(topic, b"x")] * 9)
        producer.send(Message(topic, b"slow"))

    def handle(message: ReceivedMessage) -> None:
        if message.body == b"slow":
            time.sleep(slow_s)

    with mq.consumer(group, topic, handler=handle, from_where="earliest", orderly=orderly) as consumer:
        wait_until(lambda: consumer.counts.latency.count == 10, DEADLINE_S, "all is handled")
        latency = consumer.counts.latency
        assert latency.max_s >= slow_s
        assert latency.p50_s <= latency.p99_s <= latency.max_s


async def test_counts_are_reported_at_an_interval(broker: RunningBroker, topic: str) -> None:
    told: list[ClientCounts] = []

    def tell(counts: ClientCounts) -> None:
        told.append(counts)
        raise ValueError("a callback that fails is called again")

    async with aio.Client(broker.name_server) as mq, mq.producer("P") as producer:
        await mq.report_counts(tell, every_s=0.01)
        await producer.send(aio.Message(topic, b"x"))
        await eventually(lambda: told and told[-1].producers["P"].sent == 1, "a report with the message")
        assert (producer.counts.sent, producer.counts.failed) == (1, 0)
