"""Plain handlers take messages in threads of their own: whatever they do with them, each counts as it should."""

from __future__ import annotations

import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence

import pytest

from mqcore.client import Client, ConsumeContext, ConsumerHook, Done, Message, ReceivedMessage, Reject, Retry, Rollback
from mqcore.client.settings.options import ConsumerOptions
from tests.integration.client_helpers import make_topic
from tests.rigs import RunningBroker
from tests.waiting import wait_until

DEADLINE_S = 60.0
QUEUES = 3
COUNT = 300


@pytest.fixture
def mq(broker: RunningBroker) -> Iterator[Client]:
    with Client(broker.name_server, close_timeout_s=DEADLINE_S) as client:
        yield client


@pytest.fixture
def topic(broker: RunningBroker, mq: Client, request: pytest.FixtureRequest) -> str:
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


# In order.

ORDERLY: ConsumerOptions = {"orderly": True, "from_where": "earliest", "suspend_queue_s": 0.01}


class InOrder:
    """A handler that notes each call by queue, and fails where *fails* says so: by the number of the call so far."""

    def __init__(self, outcome: Callable[[ReceivedMessage, int], object]) -> None:
        self.outcome = outcome
        self.calls: defaultdict[int, list[int]] = defaultdict(list)  # offsets by queue
        self.at_work: Counter[int] = Counter()

    def __call__(self, message: ReceivedMessage) -> object:
        queue_id = message.queue.queue_id
        self.at_work[queue_id] += 1
        try:
            assert self.at_work[queue_id] == 1, "two messages of a queue at once"
            times = self.calls[queue_id].count(message.queue_offset)
            self.calls[queue_id].append(message.queue_offset)
            return self.outcome(message, times)
        finally:
            self.at_work[queue_id] -= 1

    def have_all(self, each: int) -> bool:
        return all(each - 1 in self.calls[queue_id] for queue_id in range(QUEUES))


EACH = COUNT // QUEUES


@pytest.mark.parametrize("how", ["each", "batches of one", "batches"])
def test_a_message_that_fails_holds_up_its_queue_and_comes_again_until_it_is_done(
    mq: Client, topic: str, group: str, how: str
) -> None:
    # Queue and offset to how often: of a batch that was done in part, all that is left has failed once more.
    failed: Counter[tuple[int, int]] = Counter()
    wrong: list[tuple[int, int, int]] = []

    def place(message: ReceivedMessage) -> tuple[int, int]:
        return message.queue.queue_id, message.queue_offset

    def outcome(message: ReceivedMessage, times: int) -> None:
        if message.reconsume_times != failed[place(message)]:
            wrong.append((*place(message), message.reconsume_times))
        if message.queue_offset % 20 == 7 and times < 2:
            raise ValueError("not yet")

    handler = InOrder(outcome)

    def handle_one(message: ReceivedMessage) -> None:
        try:
            handler(message)
        except ValueError:
            failed[place(message)] += 1
            raise

    def handle(messages: Sequence[ReceivedMessage]) -> Done:
        for number, message in enumerate(messages):
            try:
                handler(message)
            except ValueError:
                failed.update(map(place, messages[number:]))
                return Done(number)
        return Done()

    size = 8 if how == "batches" else 1
    with (
        mq.consumer(group, topic, handler=handle_one, **ORDERLY)
        if how == "each"
        else mq.consumer(group, topic, batch_handler=handle, batch_size=size, **ORDERLY)
    ):
        wait_until(lambda: handler.have_all(EACH), DEADLINE_S, "the last of each queue")
    assert wrong == []
    wanted = [offset for offset in range(EACH) for _ in range(3 if offset % 20 == 7 else 1)]
    assert handler.calls == dict.fromkeys(range(QUEUES), wanted)
    assert committed(mq, group, topic) == COUNT


def test_in_order_a_rejected_message_and_one_that_failed_too_often_let_the_others_go_on(
    mq: Client, topic: str, group: str
) -> None:
    def outcome(message: ReceivedMessage, _times: int) -> None:
        if message.queue_offset == 30:
            raise Reject
        if message.queue_offset == 31:
            raise ValueError("never")

    handler = InOrder(outcome)
    with mq.consumer(group, topic, handler=handler, max_reconsume_times=2, **ORDERLY):
        wait_until(lambda: handler.have_all(EACH), DEADLINE_S, "the last of each queue")
    wanted = [*range(31), 31, 31, 31, *range(32, EACH)]
    assert handler.calls == dict.fromkeys(range(QUEUES), wanted)
    assert committed(mq, group, topic) == COUNT


def test_in_order_what_is_not_committed_is_taken_back_by_a_rollback(mq: Client, topic: str, group: str) -> None:
    def outcome(message: ReceivedMessage, times: int) -> Done | None:
        offset = message.queue_offset
        if offset == 12 and times == 0:
            raise Rollback  # nothing was kept: it comes again alone
        if 20 <= offset < 25:
            return Done(commit=False)
        if offset == 25 and times == 0:
            raise Rollback
        return None

    handler = InOrder(outcome)
    with mq.consumer(group, topic, handler=handler, **ORDERLY):
        wait_until(lambda: handler.have_all(EACH), DEADLINE_S, "the last of each queue")
    wanted = [*range(13), *range(12, 26), *range(20, EACH)]
    assert handler.calls == dict.fromkeys(range(QUEUES), wanted)
    assert committed(mq, group, topic) == COUNT


def test_in_order_a_consumer_that_is_closed_hands_on_just_behind_what_it_has_done(
    mq: Client, topic: str, group: str
) -> None:
    first = InOrder(lambda message, _times: closing.set() if message.queue_offset == 41 else None)
    closing = threading.Event()
    with mq.consumer(group, topic, handler=first, concurrency=2, **ORDERLY):
        assert closing.wait(DEADLINE_S)
    second = InOrder(lambda _message, _times: None)
    with mq.consumer(group, topic, handler=second, **ORDERLY):
        wait_until(
            lambda: sum(map(len, [*first.calls.values(), *second.calls.values()])) >= COUNT, DEADLINE_S, "all came"
        )
    for queue_id in range(QUEUES):
        assert first.calls[queue_id] + second.calls[queue_id] == list(range(EACH))


def test_in_order_slow_handlers_give_way_after_each_message(
    broker: RunningBroker, mq: Client, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A member that joins gets its queues although the first is in the middle of much work.

    What the first has in hand for longer than it is waited for comes again, in its place.
    """
    turns = threading.Semaphore(0)

    def wait_for_turn(_message: ReceivedMessage, _times: int) -> None:
        turns.acquire(timeout=DEADLINE_S)

    first, second = InOrder(wait_for_turn), InOrder(lambda _message, _times: None)
    settings: ConsumerOptions = {**ORDERLY, "rebalance_interval_s": 0.1}
    with mq.consumer(group, topic, handler=first, concurrency=3, **settings) as one:
        wait_until(lambda: len(first.calls) == QUEUES, DEADLINE_S, "every queue is begun")
        with Client(broker.name_server) as other, other.consumer(group, topic, handler=second, **settings) as two:

            def is_shared() -> bool:
                turns.release()  # a message at a time
                held = [[queue for queue in member.queues if queue.topic == topic] for member in (one, two)]
                return bool(held[1]) and sum(map(len, held)) == QUEUES

            wait_until(is_shared, DEADLINE_S, "the queues are shared")
            for _ in range(COUNT):
                turns.release()
            wait_until(
                lambda: all(
                    {*first.calls[queue_id], *second.calls[queue_id]} == {*range(EACH)} for queue_id in range(QUEUES)
                ),
                DEADLINE_S,
                "all came",
            )
    for queue_id in range(QUEUES):
        mine, others = first.calls[queue_id], second.calls[queue_id]
        begin = others[0] if others else EACH
        assert mine == list(range(len(mine)))
        assert others == list(range(begin, EACH))
        assert begin == len(mine) or (begin < len(mine) and "queue is still in work" in caplog.text)
