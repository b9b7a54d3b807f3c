"""The client without an event loop does what the asyncio client does, from any thread, and is safe against forks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from mqcore.client import Client, Consumer, Message, ReceivedMessage, Retry
from mqcore.client.errors import ArgumentError, ClientClosedError, ClientStateError
from tests.integration.client_helpers import make_topic
from tests.rigs import RunningBroker
from tests.waiting import wait_until

DEADLINE_S = 60.0


@pytest.fixture
def mq(broker: RunningBroker) -> Iterator[Client]:
    with Client(broker.name_server) as client:
        yield client


@pytest.fixture
def topic(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    return make_topic(broker, request.node.name)


@pytest.fixture
def group(topic: str) -> str:
    return "G_" + topic


def send_numbers(mq: Client, topic: str, count: int) -> None:
    with mq.producer("P") as producer:
        for number in range(count):
            producer.send(Message(topic, b"%d" % number))


def committed(mq: Client, group: str, topic: str) -> int:
    return sum(mq.committed_offset(group, queue) or 0 for queue in mq.queues(topic))


def take(consumer: Consumer, count: int) -> list[ReceivedMessage]:
    messages = []
    for message in consumer:
        messages.append(message)
        if len(messages) == count:
            break
    return messages


def test_iterating_gives_each_message_once_and_commits_it(mq: Client, topic: str, group: str) -> None:
    send_numbers(mq, topic, 100)
    with mq.consumer(group, topic, from_where="earliest") as consumer:
        messages = take(consumer, 60)
        messages += take(consumer, 40)
    assert sorted(int(message.body) for message in messages) == list(range(100))
    assert committed(mq, group, topic) == 100


def test_messages_fetched_and_not_reached_come_again(mq: Client, topic: str, group: str) -> None:
    send_numbers(mq, topic, 20)
    with mq.consumer(group, topic, from_where="earliest") as consumer:
        first = take(consumer, 3)
    assert committed(mq, group, topic) == 3
    with mq.consumer(group, topic, from_where="earliest") as consumer:
        rest = take(consumer, 17)
    assert sorted(int(message.body) for message in first + rest) == list(range(20))


def test_a_commit_in_an_iteration_over_a_pull_consumer_has_all_that_was_got(mq: Client, topic: str, group: str) -> None:
    send_numbers(mq, topic, 40)
    with mq.pull_consumer(group, topic, from_where="earliest", auto_commit=False) as consumer:
        messages = iter(consumer)
        found = [next(messages) for _ in range(7)]
        consumer.commit()
        assert committed(mq, group, topic) == 7
        found += [next(messages) for _ in range(20)]
        assert sum(consumer.position(queue) for queue in consumer.assignment) == 27
    assert committed(mq, group, topic) == 7
    assert len({int(message.body) for message in found}) == 27


def test_an_orderly_consumer_can_be_iterated_and_left_at_any_message(mq: Client, topic: str, group: str) -> None:
    send_numbers(mq, topic, 20)
    begin = time.monotonic()
    with mq.consumer(group, topic, from_where="earliest", orderly=True) as consumer:
        first = take(consumer, 5)
    assert time.monotonic() - begin < DEADLINE_S
    with mq.consumer(group, topic, from_where="earliest", orderly=True) as consumer:
        rest = take(consumer, 15)
    assert sorted(int(message.body) for message in first + rest) == list(range(20))


def test_a_batch_and_a_pull_work_without_a_loop(mq: Client, topic: str) -> None:
    with mq.producer("P") as producer:
        queue = producer.queues(topic)[0]
        receipts = producer.send_batch([Message(topic, b"1"), Message(topic, b"2")], queue=queue)
        producer.send_oneway(Message(topic, b"3"), queue=queue)
    wait_until(lambda: mq.max_offset(queue) == 3, describe="the oneway message is there")
    assert [message.body for message in mq.pull(queue, mq.min_offset(queue)).messages] == [b"1", b"2", b"3"]
    assert [receipt.offset for receipt in receipts] == [0, 1]


def test_many_threads_send_at_once(mq: Client, topic: str) -> None:
    with mq.producer("P") as producer, ThreadPoolExecutor(8) as pool:
        receipts = list(pool.map(lambda number: producer.send(Message(topic, b"%d" % number)), range(200)))
    assert len({(receipt.queue, receipt.offset) for receipt in receipts}) == 200


def test_handlers_are_plain_functions_in_threads(mq: Client, topic: str, group: str) -> None:
    bodies: list[bytes] = []
    threads: set[str] = set()
    together = threading.Barrier(3)

    def handle(message: ReceivedMessage) -> None:
        threads.add(threading.current_thread().name)
        if len(bodies) < 3:
            together.wait(DEADLINE_S)  # passes only when three handlers run at the same time
        bodies.append(message.body)

    send_numbers(mq, topic, 3)
    with mq.consumer(group, topic, handler=handle, from_where="earliest", concurrency=3):
        wait_until(lambda: len(bodies) == 3, DEADLINE_S, "three messages")
    assert len(threads) == 3
    assert all(name.startswith("mqcore handler") for name in threads)
    assert committed(mq, group, topic) == 3


def test_a_handler_that_raises_gets_its_message_again(mq: Client, topic: str, group: str) -> None:
    times: list[int] = []

    def handle(messages: Sequence[ReceivedMessage]) -> None:
        times.extend(message.reconsume_times for message in messages)
        if len(times) == 1:
            raise Retry(1)
        if len(times) == 2:
            raise StopIteration  # futures cannot carry one

    send_numbers(mq, topic, 1)
    with mq.consumer(group, topic, batch_handler=handle, from_where="earliest"):
        wait_until(lambda: len(times) == 2, DEADLINE_S, "the second delivery")
    assert times == [0, 1]


def test_several_threads_may_iterate_over_one_consumer(mq: Client, topic: str, group: str) -> None:
    send_numbers(mq, topic, 200)
    lock = threading.Lock()
    bodies: list[int] = []

    def work(consumer: Consumer) -> None:
        for message in consumer:
            with lock:
                bodies.append(int(message.body))

    with mq.consumer(group, topic, from_where="earliest") as consumer:
        workers = [threading.Thread(target=work, args=(consumer,)) for _ in range(3)]
        for worker in workers:
            worker.start()
        wait_until(lambda: len(bodies) == 200, DEADLINE_S, "200 messages")
        consumer.close()  # ends the iterations
        for worker in workers:
            worker.join(DEADLINE_S)
    assert sorted(bodies) == list(range(200))


@pytest.mark.parametrize("closed", ["consumer", "client"])
@pytest.mark.parametrize("by", ["message", "batch"])
def test_closing_in_another_thread_ends_an_iteration_in_the_middle_of_its_body(
    broker: RunningBroker, topic: str, group: str, closed: str, by: str
) -> None:
    mq = Client(broker.name_server)
    send_numbers(mq, topic, 2)
    consumer = mq.consumer(group, topic, from_where="earliest")
    consumer.start()
    is_inside, may_go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        for _ in consumer if by == "message" else consumer.batches(1):
            is_inside.set()
            assert may_go_on.wait(DEADLINE_S)
        ended.set()

    worker = threading.Thread(target=work)
    worker.start()
    assert is_inside.wait(DEADLINE_S)
    (consumer if closed == "consumer" else mq).close()
    may_go_on.set()
    worker.join(DEADLINE_S)
    mq.close()
    assert ended.is_set()


def test_a_closed_client_says_so(broker: RunningBroker, topic: str) -> None:
    with Client(broker.name_server) as mq, mq.producer("P") as producer:
        pass
    with pytest.raises(ClientClosedError, match="the client is closed"):
        producer.send(Message(topic, b"x"))
    with pytest.raises(ClientClosedError):
        mq.queues(topic)
    mq.close()


def test_a_producer_that_was_never_started_says_what_is_missing(broker: RunningBroker, topic: str) -> None:
    missing = pytest.raises(ClientStateError, match="not started: use it inside a with statement, or call start")
    message = Message(topic, b"x")
    with Client(broker.name_server) as mq, mq.producer("P") as started:
        started.send(message)  # so that the client knows where to send to
        forgotten = mq.producer("Q")
        with missing:
            forgotten.send(message)
        with missing:
            forgotten.send_soon(message)
        with missing:
            forgotten.send_oneway(message)
        with missing:
            forgotten.send_batch([message])
        wait_until(lambda: sum(map(mq.max_offset, mq.queues(topic))) == 1, describe="the first message alone is there")
        forgotten.start()
        forgotten.send(message)
        forgotten.close()
        with pytest.raises(ClientClosedError, match="make a new one"):
            forgotten.send(message)


def test_closing_a_client_closes_what_is_open(broker: RunningBroker, topic: str, group: str) -> None:
    before = set(threading.enumerate())  # some of them may just be ending
    mq = Client(broker.name_server)
    producer = mq.producer("P")
    producer.start()
    producer.send(Message(topic, b"x"))
    consumer = mq.consumer(group, topic, from_where="earliest")
    consumer.start()
    take(consumer, 1)
    mq.close()
    assert not set(threading.enumerate()) - before


def test_a_question_under_way_ends_with_the_client(broker: RunningBroker, topic: str) -> None:
    with Client(broker.name_server) as mq, mq.producer("P") as producer, ThreadPoolExecutor(1) as pool:
        asking = pool.submit(producer.request, Message(topic, b"to nobody"), timeout_s=10 * DEADLINE_S)
        wait_until(lambda: sum(map(mq.max_offset, mq.queues(topic))) == 1, DEADLINE_S, "the question is sent")
        mq.close()
        with pytest.raises(ClientClosedError):
            asking.result(DEADLINE_S)


def test_run_returns_when_another_thread_closes_the_client(broker: RunningBroker, topic: str) -> None:
    mq = Client(broker.name_server)
    seen: list[str] = []
    for name in ("first", "second"):
        mq.on(topic, group=f"{name}_{topic}", from_where="earliest")(lambda message, name=name: seen.append(name))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(mq.run)
        with Client(broker.name_server) as other:
            send_numbers(other, topic, 1)
        wait_until(lambda: set(seen) == {"first", "second"}, DEADLINE_S, "both handlers have the message")
        mq.close()
        assert running.result(DEADLINE_S) is None


STUCK = """
import sys, threading
from mqcore.client import Client

busy = threading.Event()

def stuck(message):
    busy.set()
    threading.Event().wait()

with Client(sys.argv[1], close_timeout_s=0.2) as mq:
    with mq.consumer(sys.argv[2], sys.argv[3], handler=stuck, from_where="earliest"):
        assert busy.wait(60)
print("closed")
"""


def test_a_handler_that_never_returns_does_not_keep_the_program_alive(
    mq: Client, broker: RunningBroker, topic: str, group: str
) -> None:
    send_numbers(mq, topic, 1)
    command = [sys.executable, "-c", STUCK, broker.name_server, group, topic]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "closed\n"), ended.stderr
    assert committed(mq, group, topic) == 0, "what it had in hand comes again"


def in_a_fork(work: Callable[[], bool]) -> bool:
    """Run *work* in a forked child; return whether it gave True. The child runs none of the parent's clean-ups."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if work() is True else 1)
        finally:
            os._exit(2)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_is_told_to_make_its_own_client_and_can(broker: RunningBroker, topic: str) -> None:
    with Client(broker.name_server) as mq, mq.producer("P") as producer:
        first = producer.send(Message(topic, b"parent"), shard_key=1)

        def child() -> bool:
            try:
                producer.send(Message(topic, b"never"))
            except ClientStateError as error:
                if "make a new client after the fork" not in str(error):
                    return False
            else:
                return False
            producer.close()  # leaves the parent's connections alone
            mq.close()
            with Client(broker.name_server) as own, own.producer("P") as mine:
                mine.send(Message(topic, b"child"), shard_key=1)
            return True

        assert in_a_fork(child)
        last = producer.send(Message(topic, b"parent again"), shard_key=1)
        wait_until(lambda: mq.max_offset(last.queue) == first.offset + 3, describe="three messages")
        found = mq.pull(last.queue, first.offset).messages
    assert [message.body for message in found] == [b"parent", b"child", b"parent again"]


def test_asking_for_no_messages_is_refused(mq: Client, topic: str, group: str) -> None:
    with mq.consumer(group, topic) as consumer:
        for count in (0, -1):
            with pytest.raises(ArgumentError, match=f"max_messages: got {count}, wanted 1 or more"):
                consumer.receive(count)
            with pytest.raises(ArgumentError, match="max_messages"):
                next(consumer.batches(count))
    with mq.pull_consumer(group, topic) as polled, pytest.raises(ArgumentError, match="max_messages"):
        polled.poll(0, max_messages=-1)


def test_receive_waits_no_longer_than_told(mq: Client, topic: str, group: str) -> None:
    with mq.consumer(group, topic, from_where="earliest") as consumer:
        assert consumer.receive(timeout_s=0.05) == []
        send_numbers(mq, topic, 1)
        (message,) = consumer.receive(timeout_s=DEADLINE_S)
        message.ack()
    assert committed(mq, group, topic) == 1
