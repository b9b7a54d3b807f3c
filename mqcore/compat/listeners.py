"""Java's message listeners, and how mqcore's consumers call them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from mqcore.client import Done, ReceivedMessage, Retry
from mqcore.client.backoff import LEVELS_S
from mqcore.compat.enums import ConsumeConcurrentlyStatus, ConsumeOrderlyStatus
from mqcore.compat.message import MessageExt, MessageQueue, as_java
from mqcore.errors import ClientError

logger = logging.getLogger(__name__)

ACK_ALL = 2_147_483_647


class ConsumeConcurrentlyContext:
    """What a listener may change: which of its messages are done, and when the others come again."""

    def __init__(self, queue: MessageQueue) -> None:
        self._queue = queue
        self._ack_index = ACK_ALL
        self._delay_level = 0

    def get_message_queue(self) -> MessageQueue:
        return self._queue

    def get_ack_index(self) -> int:
        return self._ack_index

    def set_ack_index(self, index: int) -> None:
        """Say that the messages up to *index* (from 0) are done, and the ones behind it failed."""
        self._ack_index = index

    def get_delay_level_when_next_consume(self) -> int:
        return self._delay_level

    def set_delay_level_when_next_consume(self, level: int) -> None:
        """Choose when failed messages come again: by the broker's rule (0), at a delay level, or never (-1)."""
        self._delay_level = level


class ConsumeOrderlyContext:
    """What an orderly listener may change: how long its queue rests after a failure."""

    def __init__(self, queue: MessageQueue) -> None:
        self._queue = queue
        self._suspend_ms = -1

    def get_message_queue(self) -> MessageQueue:
        return self._queue

    def is_auto_commit(self) -> bool:
        return True

    def set_auto_commit(self, auto_commit: bool) -> None:
        """Accept true, as in most examples; manual commits are not there."""
        if not auto_commit:
            raise ClientError("orderly consumption commits after each batch: return a status instead")

    def get_suspend_current_queue_time_millis(self) -> int:
        return self._suspend_ms

    def set_suspend_current_queue_time_millis(self, pause_ms: int) -> None:
        """Let the queue rest so long after a failure, rounded up to 1, 5, 10 or 30 s."""
        self._suspend_ms = pause_ms


class MessageListenerConcurrently:
    """Consumes messages of all queues at once. Override ``consume_message``, or give a function."""

    def __init__(
        self,
        function: Callable[[list[MessageExt], ConsumeConcurrentlyContext], ConsumeConcurrentlyStatus] | None = None,
    ) -> None:
        self._function = function

    def consume_message(
        self, messages: list[MessageExt], context: ConsumeConcurrentlyContext
    ) -> ConsumeConcurrentlyStatus:
        """Consume *messages* and say whether they are done; an exception means that they come again."""
        if self._function is None:
            raise NotImplementedError("override consume_message, or give a function")
        return self._function(messages, context)

    def handle(self, messages: Sequence[ReceivedMessage]) -> Done:
        """Be a batch handler of mqcore.client."""
        context = ConsumeConcurrentlyContext(MessageQueue.of(messages[0].queue))
        status = self.consume_message(as_java(messages), context)
        level = context.get_delay_level_when_next_consume()
        if status is not ConsumeConcurrentlyStatus.CONSUME_SUCCESS:
            return Done(0, level)
        return Done(max(0, min(context.get_ack_index() + 1, len(messages))), level)


class MessageListenerOrderly:
    """Consumes the messages of each queue one after the other. Override ``consume_message``, or give a function."""

    def __init__(
        self, function: Callable[[list[MessageExt], ConsumeOrderlyContext], ConsumeOrderlyStatus] | None = None
    ) -> None:
        self._function = function

    def consume_message(self, messages: list[MessageExt], context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus:
        """Consume *messages* and say whether the queue may go on; else, or after an exception, they come again."""
        if self._function is None:
            raise NotImplementedError("override consume_message, or give a function")
        return self._function(messages, context)

    def handle(self, messages: Sequence[ReceivedMessage]) -> None:
        """Be a batch handler of mqcore.client."""
        context = ConsumeOrderlyContext(MessageQueue.of(messages[0].queue))
        status = self.consume_message(as_java(messages), context)
        if status not in (ConsumeOrderlyStatus.SUCCESS, ConsumeOrderlyStatus.COMMIT):
            raise Retry(pause_level(context.get_suspend_current_queue_time_millis()))


def pause_level(pause_ms: int) -> int:
    """Return the first delay level that is not shorter than *pause_ms*; 0, the setting's pause, for -1."""
    if pause_ms < 0:
        return 0
    return next((level for level, seconds in enumerate(LEVELS_S, 1) if seconds * 1000 >= pause_ms), len(LEVELS_S))
