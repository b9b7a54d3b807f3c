"""Clients of a namespace: programs see their own names, brokers have the long ones, and others are not disturbed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mqcore import aio
from mqcore.client import Client, Message, MessageQueue, ReceivedMessage, Retry, TransactionState
from mqcore.codes import RequestCode, ResponseCode
from mqcore.protocol.bodies import ConsumerRunningInfo
from tests.integration.client_helpers import running_broker
from tests.rigs import SHORT_DELAYS, RunningBroker, make_topic, wire
from tests.waiting import wait_until

DEADLINE_S = 60.0
QUEUES = 2
COUNT = 6


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Open transactions are asked about at once, and what failed comes again at once."""
    settings = {"transactionCheckInterval": "200", "transactionTimeOut": "100"} | SHORT_DELAYS
    yield from running_broker(tmp_path_factory.mktemp("namespaces"), settings)


@pytest.fixture
def topic(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    """A topic that is there twice: in the namespace *shop*, and in none."""
    name = make_topic(broker, f"Named_{request.node.name[5:40]}", QUEUES)
    wire.create_topic(broker.broker_address, f"shop%{name}", queues=QUEUES)
    wait_until(lambda: wire.has_route(broker.name_server, f"shop%{name}"), describe="the long name has a route")
    return name


@pytest.fixture
def mq(broker: RunningBroker) -> Iterator[Client]:
    with Client(broker.name_server, namespace="shop", offset_commit_interval_s=0.2) as client:
        yield client


def stored(broker: RunningBroker, topic: str) -> int:
    wait_until(lambda: wire.is_dispatched(broker.broker_address), describe="dispatched")
    return sum(wire.max_offset(broker.broker_address, topic, queue_id) for queue_id in range(QUEUES))


def members(broker: RunningBroker, group: str) -> list[str]:
    answer = wire.call(broker.broker_address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    return list(answer.json()["consumerIdList"]) if answer.code == wire.SUCCESS else []


def test_every_way_of_sending_sends_to_the_long_name(broker: RunningBroker, mq: Client, topic: str) -> None:
    with mq.producer("P") as producer:
        queues = producer.queues(topic)
        assert {queue.topic for queue in queues} == {topic}
        receipts = [
            producer.send(Message(topic, b"short way")),
            producer.send(Message(topic, b"long way"), timeout_s=DEADLINE_S),
            producer.send_soon(Message(topic, b"soon")).result(DEADLINE_S),
            producer.send(Message(topic, b"chosen"), queue=queues[0]),
            producer.send(Message(topic, b"selected"), selector=lambda queues, message: queues[-1]),
            *producer.send_batch([Message(topic, b"of"), Message(topic, b"a batch")]),
            producer.send(Message(f"shop%{topic}", b"by its long name")),
        ]
        producer.send_oneway(Message(topic, b"oneway"))
        assert {receipt.queue.topic for receipt in receipts[:-1]} == {topic}
        wait_until(lambda: stored(broker, f"shop%{topic}") == len(receipts) + 1, DEADLINE_S, "all are there")
    assert stored(broker, topic) == 0


@pytest.mark.parametrize("orderly", [False, True])
def test_a_consumer_gets_its_own_and_what_failed_comes_again_by_its_name(
    broker: RunningBroker, mq: Client, topic: str, orderly: bool
) -> None:
    seen: list[tuple[bytes, str, str, int]] = []

    def handle(message: ReceivedMessage) -> None:
        seen.append((message.body, message.topic, message.queue.topic, message.reconsume_times))
        if message.body == b"0" and len([body for body, *_ in seen if body == b"0"]) == 1:
            raise Retry(delay_level=1)

    group = f"G_{topic}"
    options: dict[str, Any] = {"from_where": "earliest", "orderly": orderly, "suspend_queue_s": 0.1}
    with mq.producer("P") as producer, mq.consumer(group, topic, handler=handle, **options) as consumer:
        for number in range(COUNT):
            producer.send(Message(topic, b"%d" % number))
        wait_until(lambda: len(seen) >= COUNT + 1, DEADLINE_S, "all, and one a second time")
        assert {name for _, name, _, _ in seen} == {topic}
        assert {queue.topic for queue in consumer.queues} >= {topic}
        assert members(broker, f"shop%{group}") == [mq.client_id]
        assert members(broker, group) == []
    assert len(seen) == COUNT + 1
    if not orderly:
        assert wire.has_route(broker.name_server, f"%RETRY%shop%{group}")
        assert {queue for _, _, queue, times in seen if times} == {f"%RETRY%{group}"}

    def committed() -> int:
        answers = [
            wire.call(
                broker.broker_address, RequestCode.QUERY_CONSUMER_OFFSET,
                {"consumerGroup": f"shop%{group}", "topic": f"shop%{topic}", "queueId": queue_id},
            )
            for queue_id in range(QUEUES)
        ]  # fmt: skip
        return sum(int(answer.ext_fields["offset"]) for answer in answers if answer.code == wire.SUCCESS)

    assert committed() == COUNT


def test_what_a_broker_asks_about_a_consumer_is_answered_in_its_words(
    broker: RunningBroker, mq: Client, topic: str
) -> None:
    group = f"G_{topic}"
    seen: list[bytes] = []
    with (
        mq.producer("P") as producer,
        mq.consumer(group, topic, handler=lambda message: seen.append(message.body), from_where="earliest"),
    ):
        producer.send(Message(topic, b"x"))
        wait_until(lambda: seen == [b"x"], DEADLINE_S, "it came")
        fields = {"consumerGroup": f"shop%{group}", "clientId": mq.client_id, "jstackEnable": "false"}
        answer = wire.call(broker.broker_address, RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
        info = ConsumerRunningInfo.decode(answer.body)
        assert info.properties["consumerGroup"] == f"shop%{group}"
        wanted = {f"shop%{topic}", f"%RETRY%shop%{group}"}
        assert {subscription.topic for subscription in info.subscription_set} == wanted
        assert {queue.topic for queue in info.mq_table} <= wanted
        fields = {"topic": f"shop%{topic}", "group": f"shop%{group}", "timestamp": "0", "isForce": "true"}

        def is_reset() -> bool:
            """It can be once there are offsets."""
            answer = wire.call(broker.broker_address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
            return answer.code == ResponseCode.SUCCESS

        wait_until(is_reset, DEADLINE_S, "the offsets are reset")
        wait_until(lambda: seen == [b"x", b"x"], DEADLINE_S, "it came again after the reset")


def test_a_polled_consumer_and_plain_pulls_see_short_names(broker: RunningBroker, mq: Client, topic: str) -> None:
    with mq.producer("P") as producer:
        for number in range(COUNT):
            producer.send(Message(topic, b"%d" % number))
    with mq.pull_consumer(f"G_{topic}", topic, from_where="earliest") as consumer:
        got: list[ReceivedMessage] = []

        def poll() -> bool:
            got.extend(consumer.poll(timeout_s=1.0))
            return len(got) == COUNT

        wait_until(poll, DEADLINE_S, "all were polled")
        consumer.commit()
        assert {message.topic for message in got} == {queue.topic for queue in consumer.assignment} == {topic}
    queues = mq.queues(topic)
    bodies: list[bytes] = []
    for queue in queues:
        found = mq.pull(queue, 0)
        bodies += [message.body for message in found.messages]
        assert {message.topic for message in found.messages} <= {topic}
        assert mq.committed_offset(f"G_{topic}", queue) == found.max_offset == mq.max_offset(queue)
    assert sorted(bodies) == [b"%d" % number for number in range(COUNT)]


def test_a_broadcasting_member_keeps_its_offsets_under_the_long_names(
    broker: RunningBroker, topic: str, tmp_path: Path
) -> None:
    seen: list[bytes] = []
    options: dict[str, Any] = {"message_model": "broadcasting", "offsets_dir": tmp_path, "from_where": "earliest"}
    with Client(broker.name_server, namespace="shop", instance_name="one") as mq, mq.producer("P") as producer:
        for count in (1, 2):
            with mq.consumer("G", topic, handler=lambda message: seen.append(message.body), **options):
                producer.send(Message(topic, b"x"))
                wait_until(lambda count=count: len(seen) == count, DEADLINE_S, "one more")
    assert seen == [b"x", b"x"]
    (path,) = tmp_path.rglob("offsets.json")
    assert path.parent.name == "shop%G"
    assert f'"topic":"shop%{topic}"' in path.read_text()


async def test_transactions_and_questions_are_of_the_namespace(broker: RunningBroker, topic: str) -> None:
    asked: list[tuple[str, str]] = []
    got: asyncio.Queue[aio.ReceivedMessage] = asyncio.Queue()

    def check(half: aio.ReceivedMessage) -> TransactionState:
        asked.append((half.topic, half.queue.topic))
        return TransactionState.COMMIT

    async with (
        aio.Client(broker.name_server, namespace="shop") as mq,
        mq.transaction_producer("P", check) as producer,
        mq.consumer("G_of_" + topic, topic, handler=got.put, from_where="earliest"),
    ):
        receipt = await producer.send_in_transaction(
            aio.Message(topic, b"known"), lambda message, receipt: TransactionState.COMMIT
        )
        assert (await asyncio.wait_for(got.get(), DEADLINE_S)).body == b"known"
        assert receipt.queue.topic == topic
        await producer.send_half(aio.Message(topic, b"asked about"))
        answer = wire.call(broker.broker_address, RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "shop%P"})
        assert answer.code == wire.SUCCESS
        message = await asyncio.wait_for(got.get(), DEADLINE_S)
        assert (message.body, message.topic) == (b"asked about", topic)
    assert asked == [(topic, topic)]


async def test_questions_get_answers_within_a_namespace(broker: RunningBroker, topic: str) -> None:
    async with aio.Client(broker.name_server, namespace="shop") as mq, mq.producer("P") as producer:

        async def handle(question: aio.ReceivedMessage) -> None:
            await producer.reply(question, b"re: " + question.body)

        async with mq.consumer("G_of_" + topic, topic, handler=handle, from_where="earliest"):
            for number in range(3):
                answer = await producer.request(aio.Message(topic, b"%d" % number), DEADLINE_S)
                assert answer.body == b"re: %d" % number
    assert not wire.has_route(broker.name_server, "shop%DefaultCluster_REPLY_TOPIC")


def test_queues_are_divided_by_their_long_names(broker: RunningBroker, mq: Client, topic: str) -> None:
    """So do members of other languages, and a strategy that hashes names must come to the same."""
    told: list[str] = []
    done = threading.Event()

    def strategy(client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> Sequence[MessageQueue]:
        told.extend(queue.topic for queue in queues)
        done.set()
        return queues

    with mq.consumer(f"G_{topic}", topic, handler=lambda message: None, strategy=strategy) as consumer:
        assert done.wait(DEADLINE_S)
        wait_until(lambda: {queue.topic for queue in consumer.queues} >= {topic}, DEADLINE_S, "they are taken")
    assert f"shop%{topic}" in told
    assert topic not in told


def test_two_namespaces_do_not_hear_of_each_other(broker: RunningBroker, mq: Client, topic: str) -> None:
    wire.create_topic(broker.broker_address, f"bank%{topic}", queues=QUEUES)
    wait_until(lambda: wire.has_route(broker.name_server, f"bank%{topic}"), describe="route")
    got: dict[str, list[bytes]] = {"shop": [], "bank": []}
    with Client(broker.name_server, namespace="bank") as other:
        clients = {"shop": mq, "bank": other}
        for name, client in clients.items():
            with client.producer("P") as producer:
                producer.send(Message(topic, name.encode()))
        with (
            mq.consumer("G", topic, handler=lambda message: got["shop"].append(message.body), from_where="earliest"),
            other.consumer("G", topic, handler=lambda message: got["bank"].append(message.body), from_where="earliest"),
        ):
            wait_until(lambda: all(got.values()), DEADLINE_S, "each has its own")
    assert got == {"shop": [b"shop"], "bank": [b"bank"]}
