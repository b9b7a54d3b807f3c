"""Old pull consumers of Python beside consumers of Java: they divide queues alike, and give messages back alike."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mqcore import compat
from tests.rigs import JavaDriver, QueueName, RunningBroker, gather, wire
from tests.waiting import wait_until

pytestmark = pytest.mark.compat

QUEUES = 4
COUNT = 200
REFUSED_EACH = 5
"""Of so many messages one is given back: not a multiple of the queues, so that each queue has some."""

DEADLINE_S = 120.0


class Puller:
    """A schedule service in the group of *topic*; it gives back each message whose key is in *refused*, once.

    A task may go on for a moment when its queue has become another member's. So each looks whether that is so, and the
    queues are shared only when no pull is under way that began before.
    """

    def __init__(self, broker: RunningBroker, topic: str, refused: set[str]) -> None:
        self.keys: list[str] = []
        self._topic = topic
        self._refused = refused
        self._pulled: dict[object, compat.MessageQueue] = {}
        self.service = compat.MQPullConsumerScheduleService(f"G_{topic}")
        consumer = self.service.get_default_mq_pull_consumer()
        consumer.set_namesrv_addr(broker.name_server)
        self.service.register_pull_task_callback(topic, self._pull)
        self.service.start()

    def _pull(self, mq: compat.MessageQueue, context: compat.PullTaskContext) -> None:
        call = object()
        self._pulled[call] = mq
        try:
            if mq in self._own():
                self._pull_own(mq, context.get_pull_consumer())
        finally:
            del self._pulled[call]

    def _pull_own(self, mq: compat.MessageQueue, consumer: compat.DefaultMQPullConsumer) -> None:
        found = consumer.pull(mq, "*", max(0, consumer.fetch_consume_offset(mq, True)), 32)
        for message in found.get_msg_found_list():
            key = message.get_keys() or ""
            if key in self._refused:
                consumer.send_message_back(message, 1)
            else:
                self.keys.append(key)
        consumer.update_consume_offset(mq, found.get_next_begin_offset())

    def _own(self) -> set[compat.MessageQueue]:
        return self.service.get_default_mq_pull_consumer().fetch_message_queues_in_balance(self._topic)

    def queues(self) -> list[QueueName]:
        """The queues that this member has, and those that it still pulls."""
        own = self._own()  # before the look at the pulls: one that begins later sees this division, or a younger one
        pulled = list(self._pulled.values())
        return sorted(QueueName(queue.get_broker_name(), queue.get_queue_id()) for queue in {*own, *pulled})


def is_shared(*shares: Sequence[QueueName]) -> bool:
    """Whether each queue has one owner, and each owner as many."""
    everything = [QueueName("broker-a", number) for number in range(QUEUES)]
    return sorted(queue for share in shares for queue in share) == everything and all(
        len(share) == QUEUES // len(shares) for share in shares
    )


def is_done(broker: RunningBroker, topic: str) -> bool:
    """Whether the group of *topic* has committed all its messages."""
    return all(
        wire.consumer_offset(broker.broker_address, f"G_{topic}", topic, number)
        == wire.max_offset(broker.broker_address, topic, number)
        for number in range(QUEUES)
    )


def test_a_schedule_service_shares_queues_with_java_and_a_java_consumer_gets_what_it_gives_back(
    mq_broker: RunningBroker, java_4_9_8: JavaDriver, topic: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = gather(tmp_path_factory.mktemp("text") / "lines.txt", COUNT)
    everything = {f"L{line}" for line in range(COUNT)}
    refused = {f"L{line}" for line in range(0, COUNT, REFUSED_EACH)}
    puller = Puller(mq_broker, topic, refused)
    try:
        with java_4_9_8.lite_consumer(mq_broker.name_server, topic, f"G_{topic}", poll_ms=1000) as other:
            wait_until(lambda: is_shared(puller.queues(), other.queues()), DEADLINE_S, "the queues are shared")
            others = {name.queue_id for name in other.queues()}
            # Asynchronous sends go round the queues once for each thread of Java's: nobody gets exactly half.
            sent = java_4_9_8.produce(mq_broker.name_server, topic, text.path, mode="sync").sent
            theirs = {message.key for message in sent if message.queue_id in others}
            wait_until(lambda: other.count() >= len(theirs), DEADLINE_S, "what is in Java's queues")
            # The puller takes over Java's queues at once, before Java's last commit may have come.
            wait_until(lambda: is_done(mq_broker, topic), DEADLINE_S, "everything is committed")
            received = other.stop()
        assert sorted(message.key for message in received) == sorted(theirs)
        given_back = refused - theirs
        mine = everything - given_back - theirs
    finally:
        puller.service.shutdown()
    assert sorted(puller.keys) == sorted(mine)
    assert given_back
    # A push consumer of the group gets what was given back from the retry topic, as failed once.
    with java_4_9_8.consumer(mq_broker.name_server, topic, f"G_{topic}", poll_ms=500) as consumer:
        wait_until(lambda: consumer.count() >= len(given_back), DEADLINE_S, "what was given back")
        received = consumer.stop()
    assert {(message.key, message.reconsume_times) for message in received} == {(key, 1) for key in given_back}
