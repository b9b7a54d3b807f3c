"""The plain producer's sends without an event loop: as safe as the others; what is unusual goes the long way."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest

from mqcore.client import Client, Message, Producer
from mqcore.client.errors import ClientClosedError, ClientStateError, InvalidMessageError
from mqcore.client.produce.blocking import SOCKETS_MAX
from mqcore.client.settings.options import ClientOptions
from mqcore.client.telemetry.producer_hooks import ProducerHook, SendContext
from mqcore.codes import ResponseCode
from mqcore.errors import BrokerError, MQError, RemotingSendError, RemotingTimeoutError
from mqcore.protocol.message import MessageQueue
from tests.integration.client_helpers import make_topic
from tests.integration.scripted_brokers import HANG_UP, SILENCE, ScriptedBroker, ScriptedBrokers
from tests.rigs import RunningBroker
from tests.rigs.certificates import trusting
from tests.waiting import wait_until

DEADLINE_S = 60.0
SILENCE_S = 1.0
"""Longer than it takes a message to get to a broker in another thread, whatever else runs."""

WAYS: dict[str, ClientOptions] = {
    "plain": {},
    "tls": {"tls": trusting()},
    "keys": {"access_key": "k", "secret_key": "s", "security_token": "t"},
    "both": {"tls": trusting(), "access_key": "k", "secret_key": "s"},
}
"""What connections go by. That signatures are right is for brokers that look at them: tests/interop."""

OURS, APACHES = "shared_broker", "shared_apache"
PLACES = [
    *(pytest.param((OURS, way), id=f"mqcore-{way}") for way in WAYS),
    # The shared one of Apache's serves no TLS: see tests/interop/test_tls_python.py.
    pytest.param((APACHES, "plain"), id="4.9.8-plain", marks=pytest.mark.compat),
    pytest.param((APACHES, "keys"), id="4.9.8-keys", marks=[pytest.mark.compat, pytest.mark.slow]),
]


@pytest.fixture(scope="module", params=PLACES)
def place(request: pytest.FixtureRequest) -> tuple[RunningBroker, ClientOptions]:
    """A broker, and what its clients are given."""
    shared, way = request.param
    return request.getfixturevalue(shared), WAYS[way]


@pytest.fixture
def broker(place: tuple[RunningBroker, ClientOptions]) -> RunningBroker:
    return place[0]


@pytest.fixture
def mq(place: tuple[RunningBroker, ClientOptions]) -> Iterator[Client]:
    broker, options = place
    with Client(broker.name_server, **options) as client:
        yield client


class Scripted:
    """Brokers that do as they are told, with clients of one way."""

    def __init__(self, options: ClientOptions) -> None:
        self._options = options

    @contextmanager
    def brokers(self, *names: str) -> Iterator[tuple[ScriptedBrokers, Client]]:
        with (
            ScriptedBrokers(*names, is_sealed="tls" in self._options) as cluster,
            Client(cluster.name_server, **self._options) as mq,
        ):
            yield cluster, mq


@pytest.fixture(params=WAYS)
def scripted(request: pytest.FixtureRequest) -> Scripted:
    return Scripted(WAYS[request.param])


@pytest.fixture
def topic(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    return make_topic(broker, request.node.name)


def connections(producer: Producer) -> int:
    """The connections that the producer's threads have made for themselves: none if all went the long way."""
    return producer._short_way.connections


def test_messages_lie_where_their_receipts_say(mq: Client, topic: str) -> None:
    with mq.producer("P", compress_over_bytes=2000) as producer:
        for number in range(12):
            body = b"%d" % number * (1 if number % 3 else 4000)
            sent = Message(topic, body, tag="é", keys=["k1", "k2"], properties={"a": '"\t'}, flag=number)
            receipt = producer.send(sent)
            (message,) = mq.pull(receipt.queue, receipt.offset, 1, wait_s=5).messages
            assert (message.body, message.tag, message.keys, message.flag) == (body, "é", ("k1", "k2"), number)
            assert message.properties["a"] == '"\t'
            assert (message.msg_id, message.offset_msg_id) == (receipt.msg_id, receipt.offset_msg_id)
            assert receipt.region_id == "DefaultRegion"
        assert connections(producer) == 1


def test_the_queue_is_the_next_in_turn_or_the_one_that_was_chosen(mq: Client, topic: str) -> None:
    with mq.producer("P") as producer:
        queues = producer.queues(topic)
        taken = [producer.send(Message(topic, b"x")).queue for _ in range(8)]
        assert sorted(taken) == sorted([*queues, *queues])
        assert {producer.send(Message(topic, b"x"), queue=queues[2]).queue for _ in range(3)} == {queues[2]}
        assert len({producer.send(Message(topic, b"x"), shard_key="k").queue for _ in range(5)}) == 1
        assert producer.send(Message(topic, b"x"), selector=lambda found, message: found[1]).queue == queues[1]
        assert connections(producer) == 1


def test_more_threads_than_connections_lose_nothing(mq: Client, topic: str) -> None:
    threads, each = SOCKETS_MAX + 8, 25
    with mq.producer("P") as producer:
        producer.send(Message(topic, b"first"))
        barrier = threading.Barrier(threads)

        def send(number: int) -> list[tuple[str, int, int]]:
            barrier.wait(DEADLINE_S)
            receipts = [producer.send(Message(topic, b"%d" % number), timeout_s=DEADLINE_S) for _ in range(each)]
            return [(receipt.msg_id, receipt.queue.queue_id, receipt.offset) for receipt in receipts]

        with ThreadPoolExecutor(threads) as pool:
            found = [place for places in pool.map(send, range(threads)) for place in places]
        assert connections(producer) <= SOCKETS_MAX
    assert len({msg_id for msg_id, _, _ in found}) == len({place[1:] for place in found}) == threads * each
    wait_until(lambda: sum(mq.max_offset(queue) for queue in mq.queues(topic)) == threads * each + 1)


def test_what_is_refused_before_it_is_sent_is_refused_here_too(mq: Client, topic: str) -> None:
    with mq.producer("P", max_message_size_bytes=100) as producer:
        producer.send(Message(topic, b"x"))
        for bad in (
            Message(topic, b""),
            Message(topic, bytes(101)),
            Message(topic, b"x", properties={"a": "v" * 32760}),
        ):
            with pytest.raises(InvalidMessageError):
                producer.send(bad)
        other = MessageQueue("Other", "broker-a", 0)
        with pytest.raises(Exception, match="message's topic not equal mq's topic"):
            producer.send(Message(topic, b"x"), queue=other)
        producer.send(Message(topic, b"x"))
    with pytest.raises(ClientClosedError):
        producer.send(Message(topic, b"x"))


def test_a_restarted_broker_costs_no_attempt(
    mq: Client, topic: str, broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with mq.producer("P", retries=0) as producer:
        producer.queues(topic)
        producer.send(Message(topic, b"before"))
        assert connections(producer) == 1
        broker.restart()
        wait_until(lambda: mq.queues(topic), DEADLINE_S, "the topic has its route again")
        caplog.clear()
        producer.send(Message(topic, b"after"))
    assert "send failed" not in caplog.text


def test_a_forked_child_is_told_and_does_not_disturb_its_parent(mq: Client, topic: str) -> None:
    with mq.producer("P") as producer:
        producer.queues(topic)
        producer.send(Message(topic, b"before"))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                producer.send(Message(topic, b"from the child"))
            except ClientStateError:
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        for number in range(5):
            producer.send(Message(topic, b"%d" % number))
        assert connections(producer) == 1
    wait_until(lambda: sum(mq.max_offset(queue) for queue in mq.queues(topic)) == 6)


def test_hooks_see_every_send(mq: Client, topic: str) -> None:
    seen: list[str] = []

    class Note(ProducerHook):
        def before_send(self, context: SendContext) -> None:
            seen.append(context.msg_id)

    with mq.producer("P") as producer:
        producer.add_hook(Note())
        receipts = [producer.send(Message(topic, b"x")) for _ in range(3)]
        assert connections(producer) == 0
    assert seen == [receipt.msg_id for receipt in receipts]


# Failures.


def test_a_connection_closed_while_idle_costs_no_attempt(scripted: Scripted, caplog: pytest.LogCaptureFixture) -> None:
    with scripted.brokers("a") as (cluster, mq):
        (broker,) = cluster.brokers
        with mq.producer("P", retries=0) as producer:
            producer.send(Message("T", b"first"))
            for number in range(2):
                producer.send(Message("T", b"x"))
                cluster.hang_up(broker)
                assert broker.open_connections == 0
                producer.send(Message("T", b"%d" % number))
            assert connections(producer) == 1
        assert len(broker.sends) == 5
    assert "send failed" not in caplog.text


@pytest.mark.parametrize("answer", [HANG_UP, ResponseCode.SYSTEM_ERROR, ResponseCode.SERVICE_NOT_AVAILABLE])
def test_a_failed_attempt_is_followed_by_one_at_another_broker(
    scripted: Scripted, answer: ResponseCode | str, caplog: pytest.LogCaptureFixture
) -> None:
    with scripted.brokers("a", "b") as (cluster, mq), mq.producer("P") as producer:
        bad, good = cluster.brokers
        producer.queues("T")
        bad.answer = answer
        for _ in range(6):
            assert producer.send(Message("T", b"x")).queue.broker_name == "b"
        assert len(good.sends) == 6
        failed = len(bad.sends)
        assert failed >= 3
        ids = [(command.ext_fields or {})["i"] for command in (*good.sends, *bad.sends)]
        assert len(set(ids)) == 6, "a repeated message keeps its id"
    assert 0 < caplog.text.count("send failed topic=T group=P broker=a") < failed, "one warning stands for several"


def test_a_chosen_queue_has_one_attempt(scripted: Scripted) -> None:
    with scripted.brokers("a", "b") as (cluster, mq), mq.producer("P") as producer:
        bad, good = cluster.brokers
        producer.queues("T")
        bad.answer = HANG_UP
        with pytest.raises(RemotingSendError) as caught:
            producer.send(Message("T", b"x"), queue=MessageQueue("T", "a", 0))
        assert (caught.value.broker, caught.value.topic) == (bad.server.address, "T")
        bad.answer = ResponseCode.SYSTEM_ERROR
        with pytest.raises(BrokerError, match="refused"):
            producer.send(Message("T", b"x"), queue=MessageQueue("T", "a", 0))
        assert (len(bad.sends), len(good.sends)) == (2, 0)


def test_a_refusal_that_no_other_broker_would_mend_is_raised_at_once(scripted: Scripted) -> None:
    with scripted.brokers("a", "b") as (cluster, mq), mq.producer("P") as producer:
        producer.queues("T")
        for broker in cluster.brokers:
            broker.answer = ResponseCode.SYSTEM_BUSY
        with pytest.raises(BrokerError, match="refused") as caught:
            producer.send(Message("T", b"x"))
        assert caught.value.code == ResponseCode.SYSTEM_BUSY
        assert sum(len(broker.sends) for broker in cluster.brokers) == 1


def test_silence_is_a_timeout_and_its_connection_is_not_used_again(scripted: Scripted) -> None:
    with scripted.brokers("a") as (cluster, mq), mq.producer("P") as producer:
        (broker,) = cluster.brokers
        producer.queues("T")
        producer.send(Message("T", b"x"))
        broker.answer = SILENCE
        with pytest.raises(RemotingTimeoutError):
            producer.send(Message("T", b"x"), timeout_s=SILENCE_S)
        assert len(broker.sends) == 2
        broker.answer = ResponseCode.SUCCESS
        assert producer.send(Message("T", b"x")).offset == 3


@pytest.mark.parametrize("timeout_s", [0, -1])
def test_a_send_without_any_time_does_not_wait_for_ever(scripted: Scripted, timeout_s: float) -> None:
    with scripted.brokers("a") as (cluster, mq), mq.producer("P") as producer:
        producer.queues("T")
        with pytest.raises(RemotingTimeoutError):
            producer.send(Message("T", b"x"), timeout_s=timeout_s)
        assert not cluster.brokers[0].sends


def test_a_broker_that_is_gone_is_left_for_another(scripted: Scripted, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with scripted.brokers("a", "b") as (cluster, mq), mq.producer("P") as producer:
        gone, good = cluster.brokers
        producer.queues("T")
        for _ in range(2):
            producer.send(Message("T", b"x"))
        cluster.stop(gone)
        for _ in range(4):
            assert producer.send(Message("T", b"x")).queue.broker_name == "b"
        assert len(good.sends) == 5


@contextmanager
def silent_in_place_of(cluster: ScriptedBrokers, gone: ScriptedBroker) -> Iterator[socket.socket]:
    """Who connects to *gone* is connected, and hears nothing."""
    port = int(gone.server.address.rpartition(":")[2])
    cluster.stop(gone)
    with closing(socket.socket()) as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        silent.bind(("127.0.0.1", port))
        silent.listen()
        silent.setblocking(False)
        yield silent


def test_a_broker_that_is_silent_in_the_handshake_is_left_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqcore.transport.blocking.CONNECT_TIMEOUT_S", 0.2)
    options = WAYS["tls"]
    with (
        ScriptedBrokers("a", "b", is_sealed=True) as cluster,
        Client(cluster.name_server, **options) as mq,
        mq.producer("P", send_timeout_s=DEADLINE_S) as producer,
    ):
        gone, good = cluster.brokers
        producer.queues("T")
        with silent_in_place_of(cluster, gone):
            for _ in range(2):
                assert producer.send(Message("T", b"x")).queue.broker_name == "b"
        assert len(good.sends) == 2


@pytest.mark.parametrize("queue", [None, MessageQueue("T", "a", 0)], ids=["next", "chosen"])
def test_a_handshake_that_takes_all_the_time_is_not_begun_again(queue: MessageQueue | None) -> None:
    with (
        ScriptedBrokers("a", is_sealed=True) as cluster,
        Client(cluster.name_server, **WAYS["tls"]) as mq,
        mq.producer("P") as producer,
    ):
        (gone,) = cluster.brokers
        producer.queues("T")
        with silent_in_place_of(cluster, gone) as silent:
            with pytest.raises(MQError, match=r"send timed out: 1 attempts in [1-9]|handshake"):
                producer.send(Message("T", b"x"), timeout_s=SILENCE_S, queue=queue)
            silent.accept()[0].close()
            with pytest.raises(BlockingIOError):
                silent.accept()


def test_a_close_in_another_thread_lets_a_send_wait_no_longer_than_its_time(scripted: Scripted) -> None:
    with scripted.brokers("a") as (cluster, mq), mq.producer("P", retries=0) as producer:
        (broker,) = cluster.brokers
        producer.queues("T")
        producer.send(Message("T", b"x"))
        broker.answer = SILENCE
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(producer.send, Message("T", b"x"), timeout_s=SILENCE_S)
            wait_until(lambda: len(broker.sends) == 2, DEADLINE_S, "the broker has the message")
            producer.close(timeout_s=0)
            with pytest.raises((RemotingTimeoutError, ClientClosedError)):
                waiting.result(DEADLINE_S)
        wait_until(lambda: connections(producer) == 0, DEADLINE_S, "its connection is closed")
        with pytest.raises(ClientClosedError):
            producer.send(Message("T", b"x"))
