"""Messages given at the same time are stored like those sent alone: whole, once, in order, each with its receipt."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from mqcore import aio
from mqcore.client import Client, Message, ReceivedMessage, SendReceipt
from mqcore.client.errors import ClientClosedError, InvalidMessageError, NoRouteError, ProducerFullError
from mqcore.codes import RequestCode, ResponseCode
from mqcore.errors import BrokerError
from mqcore.protocol.batch import decode_batch
from mqcore.protocol.message import MessageQueue
from tests.integration.client_helpers import make_topic
from tests.integration.scripted_brokers import HANG_UP, SILENCE, ScriptedBrokers
from tests.rigs import RunningBroker
from tests.waiting import wait_until

DEADLINE_S = 60.0
LONG_S = 60.0
"""To linger for so long: whoever gives messages one after the other may have to wait for a processor in between."""

KINDS = [
    pytest.param("shared_broker", id="mqcore"),
    pytest.param("shared_apache", id="4.9.8", marks=pytest.mark.compat),
]


@pytest.fixture(scope="module", params=KINDS)
def broker(request: pytest.FixtureRequest) -> RunningBroker:
    shared: RunningBroker = request.getfixturevalue(request.param)
    return shared


@pytest.fixture
def mq(broker: RunningBroker) -> Iterator[Client]:
    with Client(broker.name_server) as client:
        yield client


@pytest.fixture
def topic(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    return make_topic(broker, request.node.name)


def stored(mq: Client, topic: str, count: int) -> dict[tuple[int, int], ReceivedMessage]:
    """Read all *count* messages of a topic: (queue id, offset) -> message."""
    found: dict[tuple[int, int], ReceivedMessage] = {}
    queues = mq.queues(topic)
    wait_until(lambda: sum(mq.max_offset(queue) for queue in queues) >= count, DEADLINE_S, f"{count} messages")
    for queue in queues:
        end, offset = mq.max_offset(queue), 0
        while offset < end:
            for message in mq.pull(queue, offset, wait_s=5).messages:
                found[queue.queue_id, message.queue_offset] = message
                offset = message.queue_offset + 1
    assert len(found) == count
    return found


def assert_stored_as_said(mq: Client, topic: str, sent: dict[str, tuple[Message, SendReceipt]]) -> None:
    """Every receipt names the place where its message, and no other, lies."""
    found = stored(mq, topic, len(sent))
    for msg_id, (message, receipt) in sent.items():
        there = found[receipt.queue.queue_id, receipt.offset]
        assert (there.msg_id, there.offset_msg_id) == (msg_id, receipt.offset_msg_id)
        assert (there.body, there.tag, there.keys, there.flag) == (
            message.body,
            message.tag,
            message.keys,
            message.flag,
        )
        assert dict(message.properties).items() <= dict(there.properties).items()


def some_message(topic: str, number: int, chance: random.Random) -> Message:
    """A message of any kind: small, large enough to be compressed or to go alone, with and without properties."""
    size = chance.choice([1, 10, 100, 1000, 5000, 300_000 if number % 100 == 0 else 20])
    return Message(
        topic,
        b"%d " % number + chance.randbytes(size),
        tag=chance.choice([None, "a", "é"]),
        keys=[f"key{number}"] if number % 3 else [],
        properties={"n": str(number)} if number % 2 else {},
        flag=number,
        wait_store_ok=number % 50 != 7,
    )


def test_messages_of_all_kinds_given_at_once_lie_where_their_receipts_say(
    mq: Client, topic: str, chance: random.Random
) -> None:
    messages = [some_message(topic, number, chance) for number in range(600)]
    with mq.producer("P") as producer:
        futures = [producer.send_soon(message) for message in messages]
        sent = {
            future.msg_id: (message, future.result(DEADLINE_S))
            for message, future in zip(messages, futures, strict=True)
        }
    assert len(sent) == 600
    assert_stored_as_said(mq, topic, sent)


async def test_sends_of_many_tasks_travel_together(broker: RunningBroker, topic: str) -> None:
    async with aio.Client(broker.name_server) as mq, mq.producer("P") as producer:
        messages = [Message(topic, b"%d" % number) for number in range(500)]
        receipts = await asyncio.gather(*(producer.send(message) for message in messages))
    with Client(broker.name_server) as plain:
        assert_stored_as_said(
            plain,
            topic,
            {receipt.msg_id: pair for pair in zip(messages, receipts, strict=True) for receipt in pair[1:]},
        )
    runs = sum(
        later.queue != earlier.queue or later.offset != earlier.offset + 1
        for earlier, later in itertools.pairwise(receipts)
    )
    assert runs < 50, "messages given in one turn lie in few runs"


def test_messages_with_equal_keys_keep_their_order(mq: Client, topic: str, chance: random.Random) -> None:
    lock = threading.Lock()
    places: defaultdict[tuple[int, str], list[int]] = defaultdict(list)

    def send(sender: int) -> None:
        futures = []
        for number in range(300):
            key = chance.choice("abcdefgh")
            # One in ten goes alone: it must keep its place in the queue all the same.
            body = bytes(5000) if number % 10 == 0 else b"%d" % number
            futures.append((key, producer.send_soon(Message(topic, body), shard_key=key)))
            if number % 100 == 99:
                futures.append((key, producer.send_soon(Message(topic, b"last"), shard_key=key)))
        for key, future in futures:
            receipt = future.result(DEADLINE_S)
            with lock:
                places[sender, key].append(receipt.offset)

    with mq.producer("P") as producer, ThreadPoolExecutor(3) as pool:
        list(pool.map(send, range(3)))
    assert sum(len(offsets) for offsets in places.values()) == 3 * 303
    for offsets in places.values():
        assert offsets == sorted(offsets)


def test_a_send_does_not_overtake_what_was_given_before_it(mq: Client, topic: str) -> None:
    with mq.producer("P", linger_s=30, batch_bytes=1 << 20) as producer:
        soon = [producer.send_soon(Message(topic, b"%d" % number), shard_key="k") for number in range(5)]
        flushed = threading.Thread(target=producer.flush)
        flushed.start()
        last = producer.send(Message(topic, b"last"), shard_key="k")
        flushed.join(DEADLINE_S)
        assert [future.result(DEADLINE_S).offset for future in soon] == [0, 1, 2, 3, 4]
        assert last.offset == 5


def test_linger_gathers_what_comes_one_after_the_other(mq: Client, topic: str) -> None:
    with mq.producer("P", linger_s=LONG_S) as producer:
        futures = [producer.send_soon(Message(topic, b"x")) for _ in range(20)]
        producer.flush()
        receipts = [future.result(0) for future in futures]
    assert len({receipt.queue for receipt in receipts}) == 1
    assert sorted(receipt.offset for receipt in receipts) == list(range(20))


def test_closing_sends_what_lingers(mq: Client, topic: str) -> None:
    with mq.producer("P", linger_s=LONG_S) as producer:
        futures = [producer.send_soon(Message(topic, b"x")) for _ in range(10)]
        assert not any(future.done() for future in futures)
    assert [future.result(0).offset for future in futures] == list(range(10))
    with pytest.raises(ClientClosedError):
        producer.send_soon(Message(topic, b"x"))


def test_what_is_refused_alone_is_refused_before_it_joins(mq: Client, topic: str) -> None:
    with mq.producer("P", linger_s=0.2, max_message_size_bytes=1000) as producer:
        good = producer.send_soon(Message(topic, b"x"))
        for bad in (
            Message(topic, b""),
            Message(topic, bytes(1001)),
            Message(topic, b"x", properties={"a": "v" * 32760}),
        ):
            with pytest.raises(InvalidMessageError):
                producer.send_soon(bad)
        assert good.result(DEADLINE_S).offset >= 0


def test_batching_can_be_turned_off(mq: Client, topic: str) -> None:
    with mq.producer("P", batch_bytes=0) as producer:
        futures = [producer.send_soon(Message(topic, b"x")) for _ in range(8)]
        queues = [future.result(DEADLINE_S).queue.queue_id for future in futures]
    assert sorted(queues) == sorted([0, 1, 2, 3] * 2)


# Failures and limits.


def test_a_failed_batch_is_sent_again_to_another_broker() -> None:
    with ScriptedBrokers("a", "b") as cluster, Client(cluster.name_server) as mq:
        bad, good = cluster.brokers
        bad.answer = HANG_UP
        with mq.producer("P", linger_s=LONG_S) as producer:
            for _ in range(4):
                futures = [producer.send_soon(Message("T", b"%d" % number)) for number in range(5)]
                producer.flush()
                assert {future.result(DEADLINE_S).queue.broker_name for future in futures} == {"b"}
        assert [command.code for command in good.sends] == [RequestCode.SEND_BATCH_MESSAGE] * 4
        assert [member.body for member in decode_batch(good.sends[0].body)] == [b"0", b"1", b"2", b"3", b"4"]
        assert bad.sends


def test_a_refused_batch_is_an_error_for_each_of_its_messages() -> None:
    with ScriptedBrokers("a") as cluster, Client(cluster.name_server) as mq:
        cluster.brokers[0].answer = ResponseCode.MESSAGE_ILLEGAL
        with mq.producer("P", linger_s=LONG_S) as producer:
            futures = [producer.send_soon(Message("T", b"x")) for _ in range(5)]
            producer.flush()
            for future in futures:
                with pytest.raises(BrokerError, match="refused"):
                    future.result(DEADLINE_S)
        assert len(cluster.brokers[0].sends) == 1


def test_without_a_route_each_message_has_the_error() -> None:
    with ScriptedBrokers() as cluster, Client(cluster.name_server) as mq, mq.producer("P") as producer:
        futures = [producer.send_soon(Message("T", b"x")) for _ in range(3)]
        for future in futures:
            with pytest.raises(NoRouteError):
                future.result(DEADLINE_S)
        with pytest.raises(NoRouteError):
            producer.send_soon(Message("T", b"x"), shard_key="k")


@pytest.mark.parametrize("limit", [{"max_inflight_messages": 3}, {"max_inflight_bytes": 30}])
def test_at_a_limit_a_send_raises_if_it_is_told_to(limit: dict[str, int]) -> None:
    with ScriptedBrokers("a") as cluster, Client(cluster.name_server) as mq:
        cluster.brokers[0].answer = SILENCE
        with mq.producer("P", when_full="raise", linger_s=LONG_S, **limit) as producer:
            futures = [producer.send_soon(Message("T", bytes(10))) for _ in range(3)]
            with pytest.raises(ProducerFullError, match="3 messages of 30 bytes under way"):
                producer.send_soon(Message("T", bytes(10)))
            with pytest.raises(ProducerFullError):
                producer.send(Message("T", bytes(10)))
            cluster.brokers[0].answer = ResponseCode.SUCCESS
            producer.flush()
            assert all(future.done() for future in futures)
            producer.send_soon(Message("T", bytes(10)))


def test_at_a_limit_threads_wait_their_turn() -> None:
    with ScriptedBrokers("a") as cluster, Client(cluster.name_server) as mq:
        with mq.producer("P", max_inflight_messages=2, linger_s=0.05) as producer:

            def send(number: int) -> int:
                return producer.send_soon(Message("T", b"x"), queue=MessageQueue("T", "a", 0)).result(DEADLINE_S).offset

            with ThreadPoolExecutor(10) as pool:
                offsets = list(pool.map(send, range(60)))
        assert len(offsets) == 60
        sizes = [len(decode_batch(command.body)) for command in cluster.brokers[0].sends if command.code == 320]
        assert max(sizes, default=1) <= 2


async def test_at_a_limit_tasks_wait_their_turn() -> None:
    with ScriptedBrokers("a") as cluster:
        async with aio.Client(cluster.name_server) as mq, mq.producer("P", max_inflight_bytes=25) as producer:
            await asyncio.gather(*(producer.send(Message("T", bytes(10))) for _ in range(50)))
        sizes = [len(decode_batch(command.body)) for command in cluster.brokers[0].sends if command.code == 320]
        assert max(sizes, default=1) <= 2
