"""Plain handlers take messages in threads of their own: whatever they do with them, each counts as it should."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from mqcore.client import Client, ConsumeContext, ConsumerHook, Done, Message, ReceivedMessage, Reject, Retry
from tests.integration.client_helpers import make_topic
from tests.rigs import MqcoreBroker
from tests.waiting import wait_until

DEADLINE_S = 60.0
QUEUES = 3
COUNT = 300


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreBroker]:
    delays = {"messageDelayLevel": " ".join(["1s"] * 18)}
    with MqcoreBroker(tmp_path_factory.mktemp("plain_handlers") / "store", delays) as broker:
        yield broker


@pytest.fixture
def mq(broker: MqcoreBroker) -> Iterator[Client]:
    with Client(broker.name_server, close_timeout_s=DEADLINE_S) as client:
        yield client


@pytest.fixture
def topic(broker: MqcoreBroker, mq: Client, request: pytest.FixtureRequest) -> str:
    name = make_topic(broker, request.node.name, queues=QUEUES)
    with mq.producer("P") as producer:
        for number in range(COUNT):
            producer.send(Message(name, b"%d" % number))
    return name


@pytest.fixture
def group(topic: str) -> str:
    return f"G_{topic}"[:100]


def committed(mq: Client, group: str, topic: str) -> int:
    return sum(mq.committed_offset(group, queue) or 0 for queue in mq.queues(topic))


def test_every_outcome_of_fast_handlers_counts_by_itself(mq: Client, topic: str, group: str) -> None:
    handled: Counter[int] = Counter()
    lock = threading.Lock()

    def handle(message: ReceivedMessage) -> None:
        number = int(message.body)
        with lock:
            handled[number] += 1
            times = handled[number]
        if number % 10 == 3 and times == 1:
            raise ValueError("not the first time")
        if number % 10 == 5 and times <= 2:
            raise Retry(delay_level=1)
        if number % 10 == 7:
            raise Reject
        if number % 10 == 9 and times == 1:
            raise SystemExit(3)

    wanted = {number: {3: 2, 5: 3, 9: 2}.get(number % 10, 1) for number in range(COUNT)}
    with mq.consumer(group, topic, handler=handle, from_where="earliest", concurrency=4):
        wait_until(lambda: handled == wanted, DEADLINE_S, "every message as often as it takes")
    assert handled == wanted
    assert committed(mq, group, topic) == COUNT
    with mq.pull_consumer("DEAD", f"%DLQ%{group}", from_where="earliest") as dead:
        rejected: list[int] = []
        while len(rejected) < COUNT // 10:
            rejected += [int(message.body) for message in dead.poll(DEADLINE_S)]
    assert sorted(rejected) == list(range(7, COUNT, 10))


def test_a_batch_that_is_done_in_part_comes_again_in_part(mq: Client, topic: str, group: str) -> None:
    handled: Counter[int] = Counter()

    def handle(messages: Sequence[ReceivedMessage]) -> Done | None:
        assert 1 <= len(messages) <= 8
        handled.update(int(message.body) for message in messages)
        return Done(len(messages) // 2) if messages[0].reconsume_times == 0 else None

    with mq.consumer(group, topic, batch_handler=handle, batch_size=8, from_where="earliest", concurrency=1):
        wait_until(lambda: handled.total() - COUNT >= COUNT // 2 and len(handled) == COUNT, DEADLINE_S, "all came")
    assert set(handled.values()) <= {1, 2}
    assert committed(mq, group, topic) == COUNT


def test_one_that_waits_holds_nobody_up_but_the_offset_of_its_queue(mq: Client, topic: str, group: str) -> None:
    gate = threading.Event()
    handled: list[int] = []
    waiting: list[ReceivedMessage] = []

    def handle(message: ReceivedMessage) -> None:
        if message.queue_offset == 5 and message.queue.queue_id == 1:
            waiting.append(message)
            gate.wait(DEADLINE_S)
        handled.append(int(message.body))

    with mq.consumer(group, topic, handler=handle, from_where="earliest", concurrency=2) as consumer:
        wait_until(lambda: len(handled) == COUNT - 1, DEADLINE_S, "all the others are handled")
        (message,) = waiting
        assert message.consume_started_s > 0

        def committed_now() -> dict[int, int]:
            consumer.persist_offsets()
            return {queue.queue_id: mq.committed_offset(group, queue) or 0 for queue in mq.queues(topic)}

        each = COUNT // QUEUES
        wait_until(lambda: committed_now() == {0: each, 1: 5, 2: each}, DEADLINE_S, "the first that is not done")
        gate.set()
        wait_until(lambda: committed_now() == {0: each, 1: each, 2: each}, DEADLINE_S, "all are done")


def test_closing_without_draining_commits_nothing_that_ends_later(
    mq: Client, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    gate = threading.Event()
    begun = threading.Semaphore(0)
    ended = threading.Semaphore(0)

    def handle(_message: ReceivedMessage) -> None:
        begun.release()
        gate.wait(DEADLINE_S)
        ended.release()

    consumer = mq.consumer(group, topic, handler=handle, from_where="earliest", concurrency=2)
    consumer.start()
    for _ in range(2):
        assert begun.acquire(timeout=DEADLINE_S)
    with caplog.at_level(logging.WARNING, "mqcore"):
        consumer.close(drain=False)
    assert "giving up 2 handlers that did not end" in caplog.text
    gate.set()
    for _ in range(2):
        assert ended.acquire(timeout=DEADLINE_S)
    assert not begun.acquire(blocking=False)
    handled: list[int] = []
    with mq.consumer(group, topic, handler=lambda message: handled.append(int(message.body)), from_where="earliest"):
        wait_until(lambda: len(handled) >= COUNT, DEADLINE_S, "another consumer gets every one of them")
    assert sorted(handled) == list(range(COUNT))


class Around(ConsumerHook):
    """Counts what goes in and out, on the event loop's side."""

    def __init__(self) -> None:
        self.before = 0
        self.after: Counter[bool] = Counter()

    async def before_consume(self, context: ConsumeContext) -> None:
        self.before += len(context.messages)

    async def after_consume(self, context: ConsumeContext) -> None:
        self.after[context.error is None] += len(context.messages)


def test_a_hook_that_is_added_while_messages_come_sees_those_that_come_later(
    mq: Client, topic: str, group: str
) -> None:
    handled: list[int] = []
    hook = Around()
    with mq.consumer(
        group, topic, handler=lambda message: handled.append(int(message.body)), from_where="earliest"
    ) as (consumer):
        wait_until(lambda: len(handled) == COUNT, DEADLINE_S, "all came")
        assert hook.before == 0
        consumer.add_hook(hook)
        with mq.producer("P") as producer:
            for number in range(COUNT, COUNT + 20):
                producer.send(Message(topic, b"%d" % number))
        wait_until(lambda: hook.after == {True: 20}, DEADLINE_S, "the hook has seen the new ones")
    assert hook.before == 20
    assert sorted(handled) == list(range(COUNT + 20))


def test_concurrency_can_be_raised_while_handlers_wait(mq: Client, topic: str, group: str) -> None:
    gate = threading.Event()
    begun: list[int] = []

    def handle(message: ReceivedMessage) -> None:
        begun.append(int(message.body))
        gate.wait(DEADLINE_S)

    with mq.consumer(group, topic, handler=handle, from_where="earliest", concurrency=1) as consumer:
        wait_until(lambda: len(begun) == 1, DEADLINE_S, "one has begun")
        consumer.concurrency = 7
        wait_until(lambda: len(begun) == 7, DEADLINE_S, "seven have begun")
        gate.set()
        wait_until(lambda: len(begun) == COUNT, DEADLINE_S, "all came")
    assert sorted(begun) == list(range(COUNT))
    assert committed(mq, group, topic) == COUNT
