"""Orderly listeners that commit by hand: mqcore.compat's does what Java's does, answer by answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from mqcore import compat
from mqcore.client import Client, Message
from mqcore.compat import ConsumeOrderlyContext, ConsumeOrderlyStatus, MessageExt
from tests.rigs import JavaConsumer, JavaDriver, ReceivedMessage, RunningBroker, make_topic
from tests.rigs.reports import read_received
from tests.waiting import wait_until

pytestmark = pytest.mark.compat

DEADLINE_S = 120.0
MESSAGES = 10

SCRIPTS = {
    "commits and a rollback": "SUCCESS,SUCCESS,COMMIT,SUCCESS,SUCCESS,ROLLBACK,SUCCESS,SUCCESS,COMMIT,SUCCESS",
    "failures among kept ones": "SUCCESS,SUSPEND_CURRENT_QUEUE_A_MOMENT,SUCCESS,null,COMMIT,null,SUCCESS,ROLLBACK",
    "nothing is ever committed": "SUCCESS,SUSPEND_CURRENT_QUEUE_A_MOMENT,ROLLBACK",
}
"""Name to answers; when they have been given, the listener says SUCCESS."""


class Seen(NamedTuple):
    """What became of a script: (number, failures before) of each delivery, and the group's offset at the end."""

    deliveries: list[tuple[int, int]]
    committed: int


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_of_answers_has_the_same_course_in_both_languages(
    mq_broker: RunningBroker, java_4_9_8: JavaDriver, name: str
) -> None:
    topic = make_topic(mq_broker, f"ByHand_{name}", queues=1)
    with Client(mq_broker.name_server) as mq:
        with mq.producer("P") as producer:
            for number in range(MESSAGES):
                producer.send(Message(topic, b"%d" % number))
        wanted = of_java(mq, java_4_9_8, mq_broker, topic, SCRIPTS[name])
        assert of_python(mq, mq_broker, topic, SCRIPTS[name], len(wanted.deliveries)) == wanted


def is_over(deliveries: Sequence[tuple[int, int]], script: str) -> bool:
    """Whether all answers were given, and the last message was taken after them: nothing comes after that."""
    return len(deliveries) > script.count(",") and deliveries[-1][0] == MESSAGES - 1


def seen_by(consumer: JavaConsumer) -> list[tuple[int, int]]:
    """What a consumer that is still running has reported."""
    return [(message.queue_offset, message.reconsume_times) for message in read_received(consumer.report)]


def end_of_last_commit(received: Sequence[ReceivedMessage]) -> int:
    """Where the last answer COMMIT has put the group's offset, 0 without one."""
    commits = [message.queue_offset for message in received if message.outcome.startswith("COMMIT@")]
    return commits[-1] + 1 if commits else 0


def of_java(mq: Client, java: JavaDriver, broker: RunningBroker, topic: str, script: str) -> Seen:
    group = topic + "_java"
    options = {"listener": "orderly", "batch_size": 1, "answers": script, "suspend_ms": 20, "live": 1}
    with java.consumer(broker.name_server, topic, group, **options) as consumer:
        wait_until(lambda: is_over(seen_by(consumer), script), DEADLINE_S, f"{group} has had all answers")
        received = consumer.stop()
    deliveries = [(message.queue_offset, message.reconsume_times) for message in received]
    assert is_over(deliveries, script)
    # Java does not wait for the answer to its last commit.
    end = end_of_last_commit(received)
    wait_until(lambda: committed(mq, group, topic) == end, DEADLINE_S, f"{group} has committed up to {end}")
    return Seen(deliveries, end)


def of_python(mq: Client, broker: RunningBroker, topic: str, script: str, count: int) -> Seen:
    group = topic + "_python"
    answers = script.split(",")
    deliveries: list[tuple[int, int]] = []

    def consume(messages: list[MessageExt], context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus | None:
        context.set_auto_commit(False)
        deliveries.extend((message.get_queue_offset(), message.get_reconsume_times()) for message in messages)
        answer = answers.pop(0) if answers else "SUCCESS"
        return None if answer == "null" else ConsumeOrderlyStatus[answer]

    consumer = compat.DefaultMQPushConsumer(group)
    consumer.set_namesrv_addr(broker.name_server)
    consumer.set_consume_from_where(compat.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer.set_suspend_current_queue_time_millis(20)
    consumer.subscribe(topic)
    consumer.register_message_listener(compat.MessageListenerOrderly(consume))
    consumer.start()
    try:
        wait_until(lambda: len(deliveries) >= count and is_over(deliveries, script), DEADLINE_S, f"{group} is through")
    finally:
        consumer.shutdown()
    return Seen(deliveries, committed(mq, group, topic))


def committed(mq: Client, group: str, topic: str) -> int:
    (queue,) = mq.queues(topic)
    return mq.committed_offset(group, queue) or 0
