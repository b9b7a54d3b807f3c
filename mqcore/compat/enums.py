"""Java's enumerations, with Java's names of their members."""

from __future__ import annotations

from enum import Enum, StrEnum

from mqcore.client import SendStatus

__all__ = [
    "ConsumeConcurrentlyStatus",
    "ConsumeFromWhere",
    "ConsumeOrderlyStatus",
    "LocalTransactionState",
    "MessageModel",
    "SendStatus",
]


class ConsumeFromWhere(StrEnum):
    """Where a group starts in a queue for which it has no offset."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class MessageModel(StrEnum):
    """Whether the members of a group share the messages or each gets them all."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumeConcurrentlyStatus(Enum):
    """What a MessageListenerConcurrently says about its messages."""

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"


class ConsumeOrderlyStatus(Enum):
    """What a MessageListenerOrderly says about its messages.

    SUCCESS: consumed; committed too, unless the listener commits by hand (``context.set_auto_commit(False)``).
    SUSPEND_CURRENT_QUEUE_A_MOMENT: failed, the queue rests and they come again.
    COMMIT, by hand: consumed, and everything since the last commit is committed.
    ROLLBACK, by hand: everything since the last commit comes again. Without ``set_auto_commit(False)`` these two count
    as SUCCESS, as in Java.
    """

    SUCCESS = "SUCCESS"
    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


class LocalTransactionState(Enum):
    """The outcome of a local transaction. UNKNOW is Java's spelling."""

    COMMIT_MESSAGE = "COMMIT_MESSAGE"
    ROLLBACK_MESSAGE = "ROLLBACK_MESSAGE"
    UNKNOW = "UNKNOW"
