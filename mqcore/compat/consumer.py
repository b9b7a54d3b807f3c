"""Java's DefaultMQPushConsumer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import ClassVar

from mqcore.client import Consumer, Sql
from mqcore.client.model.subscription import Expression
from mqcore.compat.allocation import AllocateMessageQueueStrategy
from mqcore.compat.config import AclClientRPCHook, ClientConfig
from mqcore.compat.enums import ConsumeConcurrentlyStatus, ConsumeFromWhere, MessageModel
from mqcore.compat.listeners import (
    ConsumeConcurrentlyContext,
    MessageListenerConcurrently,
    MessageListenerOrderly,
)
from mqcore.compat.message import MessageExt
from mqcore.errors import ClientError

TIMESTAMP_FORMAT = "%Y%m%d%H%M%S"

Listener = (
    MessageListenerConcurrently
    | MessageListenerOrderly
    | Callable[[list[MessageExt], ConsumeConcurrentlyContext], ConsumeConcurrentlyStatus]
)
"""A function counts as a MessageListenerConcurrently."""


class MessageSelector:
    """Which messages of a topic are wanted: ``by_tag("a || b")`` or ``by_sql("price > 3")``."""

    ALL: ClassVar[str] = "*"

    def __init__(self, expression: Expression) -> None:
        self.expression = expression

    @classmethod
    def by_tag(cls, tags: str) -> MessageSelector:
        return cls(tags)

    @classmethod
    def by_sql(cls, text: str) -> MessageSelector:
        return cls(Sql(text))


def expression_of(given: str | MessageSelector | None) -> Expression:
    """Return what ``subscribe`` was given in the form of mqcore.client; None and "" are all messages."""
    if isinstance(given, MessageSelector):
        return given.expression
    return given or MessageSelector.ALL


class MemberConfig(ClientConfig):
    """What Java's consumers have in common."""

    def __init__(self, consumer_group: str, rpc_hook: AclClientRPCHook | None) -> None:
        super().__init__(rpc_hook)
        self._group = consumer_group
        self._topics: dict[str, Expression] = {}

    def get_consumer_group(self) -> str:
        return self._group

    def set_consumer_group(self, group: str) -> None:
        self._group = group

    def set_message_model(self, model: MessageModel) -> None:
        self._settings["message_model"] = str(model)

    def set_consume_from_where(self, where: ConsumeFromWhere) -> None:
        self._settings["from_where"] = str(where)

    def set_consume_timestamp(self, text: str) -> None:
        """Set where CONSUME_FROM_TIMESTAMP begins: ``yyyyMMddHHmmss``, local time."""
        self._settings["from_timestamp"] = datetime.strptime(text, TIMESTAMP_FORMAT)

    def set_allocate_message_queue_strategy(self, strategy: AllocateMessageQueueStrategy) -> None:
        self._settings["strategy"] = strategy.core

    def set_pull_batch_size(self, count: int) -> None:
        self._settings["pull_batch_size"] = count

    def set_pull_threshold_for_queue(self, count: int) -> None:
        self._settings["pull_threshold_for_queue"] = count

    def set_pull_threshold_size_for_queue(self, mib: int) -> None:
        self._settings["pull_threshold_size_for_queue_mib"] = mib

    def _check_group(self) -> None:
        if not self._group:
            raise ClientError("the consumer has no group: give one, or call set_consumer_group")


class DefaultMQPushConsumer(MemberConfig):
    """Calls a listener for messages. Set it up, ``subscribe``, ``register_message_listener``, ``start``, ``shutdown``.

    Unlike a JVM, Python ends when the main thread does: a program without other work calls ``join``.
    """

    def __init__(
        self,
        consumer_group: str = "",
        rpc_hook: AclClientRPCHook | None = None,
        allocate_message_queue_strategy: AllocateMessageQueueStrategy | None = None,
        enable_msg_trace: bool = False,
        customized_trace_topic: str | None = None,
    ) -> None:
        super().__init__(consumer_group, rpc_hook)
        self._listener: MessageListenerConcurrently | MessageListenerOrderly | None = None
        self._consumer: Consumer | None = None
        if allocate_message_queue_strategy is not None:
            self.set_allocate_message_queue_strategy(allocate_message_queue_strategy)
        if enable_msg_trace:
            self._settings |= {"trace": True, "trace_topic": customized_trace_topic}

    # Settings.

    def set_consume_thread_min(self, count: int) -> None:
        """Accept Java's lower number of threads: here ``set_consume_thread_max`` alone counts."""
        self._settings.setdefault("concurrency", count)

    def set_consume_thread_max(self, count: int) -> None:
        self._settings["concurrency"] = count

    def set_consume_message_batch_max_size(self, count: int) -> None:
        self._settings["batch_size"] = count

    def set_max_reconsume_times(self, times: int) -> None:
        self._settings["max_reconsume_times"] = times

    def set_suspend_current_queue_time_millis(self, pause_ms: int) -> None:
        self._settings["suspend_queue_s"] = pause_ms / 1000

    def set_consume_timeout(self, minutes: float) -> None:
        self._settings["consume_timeout_s"] = minutes * 60

    def set_consume_concurrently_max_span(self, span: int) -> None:
        self._settings["max_span"] = span

    def set_pull_interval(self, interval_ms: int) -> None:
        self._settings["pull_interval_s"] = interval_ms / 1000

    def set_pull_threshold_for_topic(self, count: int) -> None:
        self._settings["pull_threshold_for_topic"] = count

    def set_pull_threshold_size_for_topic(self, mib: int) -> None:
        self._settings["pull_threshold_size_for_topic_mib"] = mib

    def set_post_subscription_when_pull(self, post: bool) -> None:
        self._settings["send_expression_with_pull"] = post

    def set_await_termination_millis_when_shutdown(self, wait_ms: int) -> None:
        self._client_settings["close_timeout_s"] = wait_ms / 1000

    # What to consume, and who does.

    def subscribe(self, topic: str, sub_expression: str | MessageSelector | None = "*") -> None:
        """Want messages of *topic*: all, those with tags (``a || b``), or those that a MessageSelector chooses."""
        self._topics[topic] = expression_of(sub_expression)
        if self._consumer is not None:
            self._consumer.subscribe(topic, self._topics[topic])

    def unsubscribe(self, topic: str) -> None:
        self._topics.pop(topic, None)
        if self._consumer is not None:
            self._consumer.unsubscribe(topic)

    def register_message_listener(self, listener: Listener) -> None:
        """Set who consumes. The kind of listener decides whether each queue's order is kept."""
        self._check_not_started()
        known = isinstance(listener, MessageListenerConcurrently | MessageListenerOrderly)
        self._listener = listener if known else MessageListenerConcurrently(listener)  # type: ignore[assignment, arg-type]

    # Life cycle.

    def start(self) -> None:
        self._check_group()
        if self._listener is None:
            raise ClientError("messageListener is null")
        opened = self._open_client()
        try:
            self._consumer = opened.consumer(
                self._group,
                self._topics,
                batch_handler=self._listener.handle,
                orderly=isinstance(self._listener, MessageListenerOrderly),
                **self._settings,
            )
            self._consumer.start()
        except BaseException:
            opened.close()
            raise

    def shutdown(self) -> None:
        """Finish the messages in hand, commit offsets, leave the group, close the connections."""
        if self._consumer is not None:
            self._consumer.close()
        self._close_client()

    def join(self) -> None:
        """Return when the consumer has been shut down: the last line of a program that does nothing else."""
        if self._consumer is not None:
            self._consumer.wait_closed()

    def suspend(self) -> None:
        self._running().pause()

    def resume(self) -> None:
        self._running().resume()

    def _running(self) -> Consumer:
        if self._consumer is None:
            raise ClientError("The consumer service state not OK, CREATE_JUST: call start first")
        return self._consumer

    def _check_not_started(self) -> None:
        if self._consumer is not None:
            raise ClientError("the listener is set before start")
