"""Java's DefaultLitePullConsumer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from mqcore.client import PullConsumer
from mqcore.client.model.subscription import Expression
from mqcore.compat.config import AclClientRPCHook
from mqcore.compat.consumer import MemberConfig, MessageSelector, expression_of
from mqcore.compat.message import MessageExt, MessageQueue, as_java, core_queue
from mqcore.errors import ClientError
from mqcore.protocol.message import MessageQueue as CoreMessageQueue


class TopicMessageQueueChangeListener:
    """Hears when a topic has other queues than before. Override ``on_changed``, or give a function."""

    def __init__(self, function: Callable[[str, set[MessageQueue]], object] | None = None) -> None:
        self._function = function

    def on_changed(self, topic: str, queues: set[MessageQueue]) -> None:
        if self._function is not None:
            self._function(topic, queues)


class DefaultLitePullConsumer(MemberConfig):
    """Is polled for messages. Either ``subscribe`` before or after ``start``, or ``assign`` queues after it.

    Java's ``seek_to_begin`` and the like take one queue; ``pause``, ``resume`` and ``assign`` take several.
    """

    def __init__(self, consumer_group: str = "", rpc_hook: AclClientRPCHook | None = None) -> None:
        super().__init__(consumer_group, rpc_hook)
        self._consumer: PullConsumer | None = None
        self._sub_expressions: dict[str, Expression] = {}

    # Settings.

    def set_auto_commit(self, auto_commit: bool) -> None:
        self._settings["auto_commit"] = auto_commit

    def set_auto_commit_interval_millis(self, interval_ms: int) -> None:
        self._settings["auto_commit_interval_s"] = interval_ms / 1000

    def set_poll_timeout_millis(self, timeout_ms: int) -> None:
        self._settings["poll_timeout_s"] = timeout_ms / 1000

    def set_pull_threshold_for_all(self, count: int) -> None:
        self._settings["pull_threshold_for_all"] = count

    def set_consume_max_span(self, span: int) -> None:
        self._settings["max_span"] = span

    def set_enable_msg_trace(self, enable: bool) -> None:
        self._settings["trace"] = enable

    def set_customized_trace_topic(self, topic: str) -> None:
        self._settings["trace_topic"] = topic

    def set_topic_metadata_check_interval_millis(self, interval_ms: int) -> None:
        self._settings["topic_check_interval_s"] = interval_ms / 1000

    def set_sub_expression_for_assign(self, topic: str, sub_expression: str) -> None:
        """Set the tags that are wanted of the queues of *topic* in ``assign``."""
        self._sub_expressions[topic] = sub_expression

    # Life cycle.

    def start(self) -> None:
        self._check_group()
        opened = self._open_client()
        try:
            self._consumer = opened.pull_consumer(self._group, self._topics, **self._settings)
            self._consumer.start()
        except BaseException:
            opened.close()
            raise

    def shutdown(self) -> None:
        """Commit what was polled if that is automatic, leave the group, close the connections."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()
        self._close_client()

    def is_running(self) -> bool:
        return self._consumer is not None

    # Which queues.

    def subscribe(self, topic: str, sub_expression: str | MessageSelector | None = "*") -> None:
        """Share the queues of *topic* with the other members of the group."""
        self._topics[topic] = expression_of(sub_expression)
        if self._consumer is not None:
            self._consumer.subscribe(topic, self._topics[topic])

    def unsubscribe(self, topic: str) -> None:
        self._topics.pop(topic, None)
        if self._consumer is not None:
            self._consumer.unsubscribe(topic)

    def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        return [MessageQueue.of(queue) for queue in self._running().queues(topic)]

    def assign(self, queues: Collection[CoreMessageQueue]) -> None:
        """Read exactly *queues*, whatever other members do."""
        expressions = {self._sub_expressions.get(queue.topic, MessageSelector.ALL) for queue in queues}
        if len(expressions) > 1:
            raise ClientError("the topics of the assigned queues have different expressions: one holds for all")
        wanted = [core_queue(queue) for queue in queues]
        self._running().assign(wanted, expression=next(iter(expressions), MessageSelector.ALL))

    def assignment(self) -> set[MessageQueue]:
        return {MessageQueue.of(queue) for queue in self._running().assignment}

    def register_topic_message_queue_change_listener(
        self, topic: str, listener: TopicMessageQueueChangeListener | Callable[[str, set[MessageQueue]], object]
    ) -> None:
        """Call *listener* when *topic* has other queues than at the last look."""
        heard = listener.on_changed if isinstance(listener, TopicMessageQueueChangeListener) else listener

        def changed(name: str, queues: Sequence[CoreMessageQueue]) -> None:
            heard(name, {MessageQueue.of(queue) for queue in queues})

        self._running().watch_queues(topic, changed)

    # Messages and offsets.

    def poll(self, timeout: float | None = None) -> list[MessageExt]:
        """Return the next messages, waiting at most *timeout* ms for them; what the last poll returned is then done."""
        return as_java(self._running().poll(None if timeout is None else timeout / 1000))

    def seek(self, queue: CoreMessageQueue, offset: int) -> None:
        self._running().seek(core_queue(queue), offset)

    def seek_to_begin(self, queue: CoreMessageQueue) -> None:
        self._running().seek_to_begin(core_queue(queue))

    def seek_to_end(self, queue: CoreMessageQueue) -> None:
        self._running().seek_to_end(core_queue(queue))

    def pause(self, queues: Iterable[CoreMessageQueue]) -> None:
        self._running().pause(*map(core_queue, queues))

    def resume(self, queues: Iterable[CoreMessageQueue]) -> None:
        self._running().resume(*map(core_queue, queues))

    def offset_for_timestamp(self, queue: CoreMessageQueue, timestamp_ms: int) -> int:
        return self._running().offset_for_time(core_queue(queue), timestamp_ms / 1000)

    def committed(self, queue: CoreMessageQueue) -> int:
        """Return the group's committed offset of *queue*, -1 when there is none."""
        offset = self._running().committed(core_queue(queue))
        return -1 if offset is None else offset

    def commit_sync(self) -> None:
        """Commit what has been polled."""
        self._running().commit()

    def commit(self, offsets: Mapping[CoreMessageQueue, int] | None = None) -> None:
        """Commit what has been polled, or certain offsets."""
        self._running().commit(None if offsets is None else {core_queue(q): offset for q, offset in offsets.items()})

    def _running(self) -> PullConsumer:
        if self._consumer is None:
            raise ClientError("The consumer not running, please start it first.")
        return self._consumer
