"""Java's message listeners, and how mqcore's consumers call them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from mqcore.cause_log import CauseLog
from mqcore.client import Done, ReceivedMessage, Retry, Rollback
from mqcore.compat.enums import ConsumeConcurrentlyStatus, ConsumeOrderlyStatus
from mqcore.compat.message import MessageExt, MessageQueue, as_java

log = CauseLog(logging.getLogger(__name__))

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
    """What an orderly listener may change: whether it commits by hand, and how long its queue rests after a failure."""

    def __init__(self, queue: MessageQueue) -> None:
        self._queue = queue
        self._auto_commit = True
        self._suspend_ms = -1

    def get_message_queue(self) -> MessageQueue:
        return self._queue

    def is_auto_commit(self) -> bool:
        return self._auto_commit

    def set_auto_commit(self, auto_commit: bool) -> None:
        """Say whether SUCCESS commits; when not, only COMMIT does, and ROLLBACK brings back what was not committed.

        It holds for this call of the listener: one that commits by hand says so each time.
        """
        self._auto_commit = auto_commit

    def get_suspend_current_queue_time_millis(self) -> int:
        return self._suspend_ms

    def set_suspend_current_queue_time_millis(self, pause_ms: int) -> None:
        """Let the queue rest so long after a failure, 10 to 30000 ms; -1 is the consumer's own pause."""
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
        """Consume *messages* and say whether the queue may go on; else, or after an exception, they come again.

        See ConsumeOrderlyStatus for what the four answers mean.
        """
        if self._function is None:
            raise NotImplementedError("override consume_message, or give a function")
        return self._function(messages, context)

    def handle(self, messages: Sequence[ReceivedMessage]) -> Done:
        """Be a batch handler of mqcore.client."""
        queue = messages[0].queue
        context = ConsumeOrderlyContext(MessageQueue.of(queue))
        status = self.consume_message(as_java(messages), context)
        pause_ms = context.get_suspend_current_queue_time_millis()
        pause_s = None if pause_ms < 0 else pause_ms / 1000
        match status:
            case ConsumeOrderlyStatus.SUCCESS:
                return Done(commit=context.is_auto_commit())
            case ConsumeOrderlyStatus.COMMIT | ConsumeOrderlyStatus.ROLLBACK if context.is_auto_commit():
                log.warning("answered as if it committed by hand, counts as SUCCESS", queue=queue, status=status.name)
                return Done()
            case ConsumeOrderlyStatus.COMMIT:
                return Done()
            case ConsumeOrderlyStatus.ROLLBACK:
                raise Rollback(pause_s)
            case _:  # SUSPEND_CURRENT_QUEUE_A_MOMENT, or nothing at all
                raise Retry(pause_s=pause_s)
