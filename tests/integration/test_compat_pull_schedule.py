"""Java's schedule service for pulling, and messages that an old pull consumer gives back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from mqcore import compat
from mqcore.client import Client, Message
from mqcore.errors import ClientError
from mqcore.protocol.names import dlq_topic, retry_topic
from tests.integration.client_helpers import make_topic
from tests.rigs import RunningBroker, wire
from tests.waiting import wait_until

QUEUES = 4
DEADLINE_S = 60.0


@pytest.fixture
def topic(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    return make_topic(broker, request.node.name, queues=QUEUES)


@pytest.fixture
def group(topic: str) -> str:
    return f"G_{topic}"[:100]


class Member:
    """A schedule service whose task pulls what is there and commits it."""

    def __init__(self, broker: RunningBroker, group: str, topic: str) -> None:
        self.seen: list[bytes] = []
        self.calls: list[compat.MessageQueue] = []
        self._in_hand: set[compat.MessageQueue] = set()
        self.overlaps: list[compat.MessageQueue] = []
        self.service = compat.MQPullConsumerScheduleService(group)
        consumer = self.service.get_default_mq_pull_consumer()
        consumer.set_namesrv_addr(broker.name_server)
        consumer.set_heartbeat_broker_interval(200)
        self.service.set_message_model(compat.MessageModel.CLUSTERING)
        self.service.register_pull_task_callback(topic, self.pull)

    def pull(self, mq: compat.MessageQueue, context: compat.PullTaskContext) -> None:
        if mq in self._in_hand:
            self.overlaps.append(mq)
        self._in_hand.add(mq)
        self.calls.append(mq)
        consumer = context.get_pull_consumer()
        offset = max(0, consumer.fetch_consume_offset(mq, True))
        found = consumer.pull(mq, "*", offset, 8)
        self.seen += [message.get_body() for message in found.get_msg_found_list()]
        consumer.update_consume_offset(mq, found.get_next_begin_offset())
        context.set_pull_next_delay_time_millis(20)
        self._in_hand.discard(mq)

    def queues(self, topic: str) -> set[compat.MessageQueue]:
        return self.service.get_default_mq_pull_consumer().fetch_message_queues_in_balance(topic)

    def has_handed_over(self, topic: str) -> bool:
        """Whether the tasks of queues that went to others have ended: a call in hand may end behind the division."""
        tasks = set(self.service._tasks)
        return tasks == self.queues(topic) and self._in_hand <= tasks


def send(broker: RunningBroker, topic: str, numbers: range) -> set[bytes]:
    bodies = [b"%d" % number for number in numbers]
    with Client(broker.name_server) as mq, mq.producer("P") as producer:
        for body in bodies:
            producer.send(Message(topic, body))
    return set(bodies)


def committed(broker: RunningBroker, group: str, topic: str) -> int:
    """How many messages *group* has committed in all queues of *topic*."""
    offsets = [wire.consumer_offset(broker.broker_address, group, topic, queue_id) for queue_id in range(QUEUES)]
    return sum(offset or 0 for offset in offsets)


def test_every_queue_is_pulled_by_one_member_at_a_time(broker: RunningBroker, topic: str, group: str) -> None:
    first, second = Member(broker, group, topic), Member(broker, group, topic)
    first.service.start()
    try:
        sent = send(broker, topic, range(40))
        wait_until(lambda: set(first.seen) == sent, DEADLINE_S, "everything")
        assert len(first.queues(topic)) == QUEUES
        # What a member has pulled and not committed yet its successor may be given again.
        wait_until(lambda: committed(broker, group, topic) == len(sent), DEADLINE_S, "everything is committed")
        second.service.start()
        wait_until(lambda: len(second.queues(topic)) == QUEUES // 2, DEADLINE_S, "half of the queues")
        wait_until(lambda: len(first.queues(topic)) == QUEUES // 2, DEADLINE_S, "the other half")
        assert not first.queues(topic) & second.queues(topic)
        wait_until(lambda: first.has_handed_over(topic), DEADLINE_S, "no task of the queues that were given up")
        more = send(broker, topic, range(40, 80))
        wait_until(lambda: more <= {*first.seen, *second.seen}, DEADLINE_S, "everything that came later")
        assert sorted(first.seen + second.seen) == sorted(sent | more)
    finally:
        second.service.shutdown()
        wait_until(lambda: len(first.queues(topic)) == QUEUES, DEADLINE_S, "the queues of the one that left")
        first.service.shutdown()
    assert not first.overlaps
    assert not second.overlaps
    calls = len(first.calls)
    time.sleep(0.2)  # ten times the delay of a task: nothing is called after the shutdown
    assert len(first.calls) == calls


def test_a_task_that_raises_is_called_again_after_a_second(broker: RunningBroker, topic: str, group: str) -> None:
    called: list[float] = []
    service = compat.MQPullConsumerScheduleService(group)
    service.get_default_mq_pull_consumer().set_namesrv_addr(broker.name_server)

    def fail(mq: compat.MessageQueue, context: compat.PullTaskContext) -> None:
        assert context.get_pull_next_delay_time_millis() == 200
        if mq.get_queue_id() == 0:
            called.append(time.monotonic())
            context.set_pull_next_delay_time_millis(1)
            raise RuntimeError("no luck today")

    service.register_pull_task_callback(topic, compat.PullTaskCallback(fail))
    service.start()
    try:
        wait_until(lambda: len(called) >= 2, DEADLINE_S, "a second call")
    finally:
        service.shutdown()
    assert called[1] - called[0] >= 1.0


def test_a_task_may_shut_its_service_down(broker: RunningBroker, topic: str, group: str) -> None:
    ended = threading.Event()
    service = compat.MQPullConsumerScheduleService(group)
    service.get_default_mq_pull_consumer().set_namesrv_addr(broker.name_server)

    def end(_mq: compat.MessageQueue, _context: compat.PullTaskContext) -> None:
        service.shutdown()
        ended.set()

    service.register_pull_task_callback(topic, end)
    service.start()
    assert ended.wait(DEADLINE_S)


def test_registering_while_it_runs_takes_the_queues_of_the_topic(broker: RunningBroker, topic: str, group: str) -> None:
    member = Member(broker, group, topic)
    late = make_topic(broker, topic + "_late", queues=1)
    member.service.start()
    try:
        member.service.register_pull_task_callback(late, member.pull)
        sent = send(broker, late, range(3))
        wait_until(lambda: set(member.seen) == sent, DEADLINE_S, "the messages of the late topic")
    finally:
        member.service.shutdown()


# Giving back.


@pytest.fixture
def consumer(broker: RunningBroker, group: str) -> Iterator[compat.DefaultMQPullConsumer]:
    consumer = compat.DefaultMQPullConsumer(group)
    consumer.set_namesrv_addr(broker.name_server)
    consumer.start()
    yield consumer
    consumer.shutdown()


def pull_one(consumer: compat.DefaultMQPullConsumer, topic: str, offset: int = 0) -> compat.MessageExt:
    """Wait for the message at *offset* of the only queue of *topic* that has one."""
    found: list[compat.MessageExt] = []

    def look() -> bool:
        try:
            queues = consumer.fetch_subscribe_message_queues(topic)
        except ClientError:  # a retry topic comes with its first message, and its route a moment later
            return False
        for queue in queues:
            if consumer.max_offset(queue) > offset:
                found.extend(consumer.pull(queue, "*", offset, 1).get_msg_found_list())
        return bool(found)

    wait_until(look, DEADLINE_S, f"message {offset} of {topic}")
    return found[0]


def test_a_message_that_is_given_back_comes_again_in_the_retry_topic(
    broker: RunningBroker, topic: str, group: str, consumer: compat.DefaultMQPullConsumer
) -> None:
    send(broker, topic, range(1))
    message = pull_one(consumer, topic)
    given_back_at = time.time()
    consumer.send_message_back(message, 1)
    again = pull_one(consumer, retry_topic(group))
    assert (again.get_body(), again.get_reconsume_times()) == (b"0", 1)
    assert again.get_property("RETRY_TOPIC") == topic
    assert again.get_store_timestamp() / 1000 - given_back_at >= 0.9, "delay level 1 is a second"
    consumer.send_message_back(again, -1)
    dead = pull_one(consumer, dlq_topic(group))
    assert (dead.get_body(), dead.get_property("RETRY_TOPIC")) == (b"0", topic)


def test_a_message_that_has_failed_too_often_is_a_dead_letter(
    broker: RunningBroker, topic: str, group: str, consumer: compat.DefaultMQPullConsumer
) -> None:
    consumer.set_max_reconsume_times(0)
    send(broker, topic, range(1))
    consumer.send_message_back(pull_one(consumer, topic), 1)
    assert pull_one(consumer, dlq_topic(group)).get_body() == b"0"


def test_a_message_that_cannot_be_given_back_is_sent_anew(
    broker: RunningBroker, topic: str, group: str, consumer: compat.DefaultMQPullConsumer
) -> None:
    send(broker, topic, range(2))
    message = pull_one(consumer, topic)
    # The retry topic has to be there for it, as it is once something has been given back.
    consumer.send_message_back(message, 1)
    pull_one(consumer, retry_topic(group))
    scheduled = "SCHEDULE_TOPIC_XXXX"
    with Client(broker.name_server) as mq:
        queue = next(queue for queue in mq.queues(retry_topic(group)))
        level_four = compat.MessageQueue(scheduled, queue.broker_name, 3)
        end = mq.max_offset(level_four)
        consumer.send_message_back(message, 4, broker_name="nobody", consumer_group=group)
        wait_until(lambda: mq.max_offset(level_four) > end, DEADLINE_S, "a copy that waits at level 4")
        (copy,) = mq.pull(level_four, end, 1).messages
    assert (copy.body, copy.properties["REAL_TOPIC"]) == (message.get_body(), retry_topic(group))
    assert copy.properties["RECONSUME_TIME"] == "1"
