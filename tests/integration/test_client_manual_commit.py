"""Orderly consumption with commits by hand: what is consumed without a commit stays in front of the group's offset."""

from __future__ import annotations

import asyncio
import logging
import pickle
import time
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from mqcore import aio, compat
from mqcore.client import Client, Done, Message, ReceivedMessage, Rollback
from mqcore.compat import ConsumeOrderlyContext, ConsumeOrderlyStatus, MessageExt
from mqcore.protocol.bodies import CMResult
from tests.integration.client_helpers import committed, eventually, make_topic
from tests.rigs import RunningBroker
from tests.waiting import wait_until

KEPT = Done(commit=False)


@pytest.fixture
async def mq(broker: RunningBroker) -> AsyncIterator[aio.Client]:
    async with aio.Client(broker.name_server) as client:
        yield client


@pytest.fixture
def topic(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    """A topic with one queue: its messages have one order."""
    return make_topic(broker, request.node.name, queues=1)


@pytest.fixture
def group(topic: str) -> str:
    return "G_" + topic


async def send(mq: aio.Client, topic: str, count: int) -> None:
    async with mq.producer("P_" + topic) as producer:
        for number in range(count):
            await producer.send(aio.Message(topic, b"%d" % number))


class Script:
    """A handler that answers one call after the other as it was told, and then keeps what it gets."""

    def __init__(self, *answers: object) -> None:
        self._answers = list(answers)
        self.seen: list[int] = []
        self.times: list[float] = []

    async def __call__(self, message: aio.ReceivedMessage) -> object:
        self.seen.append(int(message.body))
        self.times.append(time.monotonic())
        answer = self._answers.pop(0) if self._answers else KEPT
        if isinstance(answer, Exception):
            raise answer
        return answer


ORDERLY = {"orderly": True, "from_where": "earliest", "suspend_queue_s": 0.01}


async def test_what_was_not_committed_comes_again_to_the_next_member(mq: aio.Client, topic: str, group: str) -> None:
    await send(mq, topic, 6)
    script = Script(KEPT, KEPT, None, KEPT, KEPT, KEPT)
    async with mq.consumer(group, topic, handler=script, **ORDERLY):
        await eventually(lambda: len(script.seen) == 6, "all messages")
    assert script.seen == [0, 1, 2, 3, 4, 5]
    assert await committed(mq, group, topic) == 3, "the plain return committed the two that were kept before it, too"
    again = Script(*[None] * 3)
    async with mq.consumer(group, topic, handler=again, **ORDERLY):
        await eventually(lambda: len(again.seen) == 3, "the rest")
    assert again.seen == [3, 4, 5]
    assert await committed(mq, group, topic) == 6


async def test_a_rollback_brings_back_everything_since_the_last_commit(mq: aio.Client, topic: str, group: str) -> None:
    await send(mq, topic, 5)
    script = Script(None, KEPT, KEPT, Rollback(), KEPT, KEPT, None, None)
    reconsumed: list[int] = []

    async def handle(message: aio.ReceivedMessage) -> object:
        reconsumed.append(message.reconsume_times)
        return await script(message)

    async with mq.consumer(group, topic, handler=handle, **ORDERLY):
        await eventually(lambda: len(script.seen) == 8, "all messages, three of them twice")
    assert script.seen == [0, 1, 2, 3, 1, 2, 3, 4]
    assert set(reconsumed) == {0}, "a rollback is no failure of its messages"
    assert await committed(mq, group, topic) == 5


async def test_a_failure_brings_back_its_own_message_and_commits_nothing_kept_before(
    mq: aio.Client, topic: str, group: str
) -> None:
    await send(mq, topic, 4)
    script = Script(KEPT, KEPT, ValueError("not yet"), KEPT, ValueError("nor that"))
    async with mq.consumer(group, topic, handler=script, **ORDERLY):
        await eventually(lambda: len(script.seen) == 6, "two of the messages twice")
    assert script.seen == [0, 1, 2, 2, 3, 3]
    assert await committed(mq, group, topic) == 0


async def test_a_dead_letter_among_kept_messages_commits_none_of_them(mq: aio.Client, topic: str, group: str) -> None:
    await send(mq, topic, 4)
    script = Script(KEPT, aio.Reject(), KEPT, Rollback(), KEPT, KEPT, KEPT, KEPT)
    async with mq.consumer(group, topic, handler=script, **ORDERLY):
        await eventually(lambda: len(script.seen) == 8, "everything again after the rollback")
    assert script.seen == [0, 1, 2, 3, 0, 1, 2, 3]
    assert await committed(mq, group, topic) == 0


async def test_a_dead_letter_with_nothing_kept_before_it_is_committed(mq: aio.Client, topic: str, group: str) -> None:
    await send(mq, topic, 2)
    script = Script(aio.Reject(), KEPT)
    async with mq.consumer(group, topic, handler=script, **ORDERLY):
        await eventually(lambda: len(script.seen) == 2, "both messages")
    assert await committed(mq, group, topic) == 1


async def test_part_of_a_batch_can_be_kept_while_the_rest_comes_again(mq: aio.Client, topic: str, group: str) -> None:
    await send(mq, topic, 6)
    async with asyncio.timeout(60):
        while await mq.max_offset((await mq.queues(topic))[0]) < 6:  # so that one pull finds them all
            await asyncio.sleep(0.01)
    batches: list[list[int]] = []
    answers: list[Done | None] = [Done(2, commit=False), Done(1), Done(commit=False)]

    async def handle(messages: Sequence[aio.ReceivedMessage]) -> Done | None:
        batches.append([int(message.body) for message in messages])
        return answers.pop(0) if answers else None

    async with mq.consumer(group, topic, batch_handler=handle, batch_size=3, **ORDERLY) as consumer:
        await eventually(lambda: len(batches) == 3, "three batches")
        await consumer.persist_offsets()
        assert batches == [[0, 1, 2], [2, 3, 4], [3, 4, 5]]
        assert await committed(mq, group, topic) == 3, "the second answer committed what the first one kept"
    assert await committed(mq, group, topic) == 3


async def test_a_rollback_and_a_retry_rest_exactly_as_long_as_they_say(mq: aio.Client, topic: str, group: str) -> None:
    await send(mq, topic, 1)
    script = Script(Rollback(pause_s=0.3), aio.Retry(pause_s=0.6), None)
    async with mq.consumer(group, topic, handler=script, **{**ORDERLY, "suspend_queue_s": 20.0}):
        await eventually(lambda: len(script.seen) == 3, "the message twice again")
    first, second = (later - earlier for earlier, later in zip(script.times, script.times[1:], strict=False))
    assert 0.3 <= first < 20.0
    assert 0.6 <= second < 20.0


async def test_a_queue_full_of_kept_messages_says_so(
    mq: aio.Client, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    await send(mq, topic, 40)
    commit = asyncio.Event()
    seen: list[int] = []

    async def handle(message: aio.ReceivedMessage) -> object:
        seen.append(int(message.body))
        return None if commit.is_set() else KEPT

    settings = {**ORDERLY, "pull_threshold_for_queue": 5, "pull_batch_size": 4}
    with caplog.at_level(logging.WARNING, "mqcore.client.consume.push.orderly"):
        async with mq.consumer(group, topic, handler=handle, **settings):
            await eventually(lambda: "nothing more is pulled before a commit" in caplog.text, "the warning")
    assert len(seen) < 40
    assert await committed(mq, group, topic) == 0
    commit.set()
    seen.clear()
    async with mq.consumer(group, topic, handler=handle, **settings):
        await eventually(lambda: len(seen) == 40, "with commits it goes on")
    assert await committed(mq, group, topic) == 40


@pytest.mark.parametrize("answer", [KEPT, Rollback()], ids=["kept", "rollback"])
async def test_concurrent_handlers_cannot_commit_by_hand(
    mq: aio.Client, topic: str, group: str, answer: object, caplog: pytest.LogCaptureFixture
) -> None:
    await send(mq, topic, 1)
    script = Script(answer)
    async with mq.consumer(group, topic, handler=script, from_where="earliest"):
        await eventually(lambda: "handler failed" in caplog.text, "a warning, and the message goes back")
    assert script.seen == [0]


def test_the_plain_face_keeps_and_commits_too(broker: RunningBroker, topic: str, group: str) -> None:
    with Client(broker.name_server) as mq:
        with mq.producer("P") as producer:
            for number in range(6):
                producer.send(Message(topic, b"%d" % number))
        held: list[bytes] = []
        written: list[list[bytes]] = []

        def handle(message: ReceivedMessage) -> Done:
            held.append(message.body)
            if len(held) < 3:
                return Done(commit=False)
            if not written:
                written.append([])
                held.clear()
                raise Rollback
            written.append(list(held))
            held.clear()
            return Done()

        with mq.consumer(group, topic, handler=handle, orderly=True, from_where="earliest", suspend_queue_s=0.01):
            wait_until(lambda: len(written) == 3, describe="a rollback and two commits")
        assert written == [[], [b"0", b"1", b"2"], [b"3", b"4", b"5"]]
        assert sum(mq.committed_offset(group, queue) or 0 for queue in mq.queues(topic)) == 6


def test_a_tool_sees_what_is_kept(broker: RunningBroker, topic: str, group: str) -> None:
    with Client(broker.name_server) as mq:
        with mq.producer("P") as producer:
            for number in range(4):
                receipt = producer.send(Message(topic, b"%d" % number))
        seen: list[bytes] = []

        def handle(message: ReceivedMessage) -> Done:
            seen.append(message.body)
            if message.body == b"3":
                raise Rollback(20.0)
            return Done(commit=message.body == b"0")

        with mq.consumer(group, topic, handler=handle, orderly=True, from_where="earliest"):
            wait_until(lambda: len(seen) == 4, describe="all messages")
            wait_until(lambda: kept_offsets(mq, group) == (0, 3), describe="nothing is taken after the rollback")
            told = mq.admin.consume_directly(group, mq.client_id, receipt.offset_msg_id)
            assert (told.order, told.auto_commit, told.consume_result) == (True, False, CMResult.CR_ROLLBACK)


def kept_offsets(mq: Client, group: str) -> tuple[int, int]:
    """How many messages are consumed and not committed, and how many wait, as the member reports."""
    info = mq.admin.consumer_running_info(group, mq.client_id)
    rows = [row for queue, row in info.mq_table.items() if not queue.topic.startswith("%")]
    return sum(row.transaction_msg_count for row in rows), sum(row.cached_msg_count for row in rows)


Consume = Callable[[list[MessageExt], ConsumeOrderlyContext], ConsumeOrderlyStatus | None]


def test_a_java_listener_commits_by_hand(broker: RunningBroker, topic: str, group: str) -> None:
    producer = compat.DefaultMQProducer("P")
    producer.set_namesrv_addr(broker.name_server)
    producer.start()
    for number in range(5):
        producer.send(compat.Message(topic, b"%d" % number))
    producer.shutdown()
    status = ConsumeOrderlyStatus
    answers = [status.SUCCESS, status.COMMIT, status.SUCCESS, status.ROLLBACK, None, status.SUCCESS, status.SUCCESS]
    seen: list[int] = []

    def consume(messages: list[MessageExt], context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus | None:
        context.set_auto_commit(False)
        context.set_suspend_current_queue_time_millis(10)
        seen.extend(int(message.get_body()) for message in messages)
        return answers.pop(0) if answers else status.SUCCESS

    run_listener(broker, topic, group, consume, lambda: len(seen) == 8)
    assert seen == [0, 1, 2, 3, 2, 2, 3, 4]
    with Client(broker.name_server) as mq:
        assert sum(mq.committed_offset(group, queue) or 0 for queue in mq.queues(topic)) == 2

    def consume_at_once(messages: list[MessageExt], context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus:
        seen.extend(int(message.get_body()) for message in messages)
        return status.ROLLBACK  # without set_auto_commit(False) it counts as SUCCESS, as in Java

    run_listener(broker, topic, group, consume_at_once, lambda: len(seen) == 11)
    assert seen[8:] == [2, 3, 4]
    with Client(broker.name_server) as mq:
        assert sum(mq.committed_offset(group, queue) or 0 for queue in mq.queues(topic)) == 5


def run_listener(broker: RunningBroker, topic: str, group: str, consume: Consume, until: Callable[[], bool]) -> None:
    consumer = compat.DefaultMQPushConsumer(group)
    consumer.set_namesrv_addr(broker.name_server)
    consumer.set_consume_from_where(compat.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer.subscribe(topic)
    consumer.register_message_listener(compat.MessageListenerOrderly(consume))
    consumer.start()
    try:
        wait_until(until, 60, "the listener has seen what it is to see")
    finally:
        consumer.shutdown()


@pytest.mark.parametrize("raised", [Rollback(), Rollback(1.5), aio.Retry(3), aio.Retry(pause_s=0.5)], ids=repr)
def test_what_handlers_raise_pickles(raised: Rollback | aio.Retry) -> None:
    copy = pickle.loads(pickle.dumps(raised))
    assert (type(copy), copy.pause_s, copy.args) == (type(raised), raised.pause_s, raised.args)
