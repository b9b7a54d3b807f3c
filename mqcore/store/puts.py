"""A message on its way into the store, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from mqcore.protocol.message import UNKNOWN_HOST, HostAddress


class PutStatus(StrEnum):
    """What became of a message. The spelling is RocketMQ's, since send-back answers with the name."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPEDFILE_FAILED = "CREATE_MAPEDFILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGECACHE_BUSY = "OS_PAGECACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    IN_SYNC_REPLICAS_NOT_ENOUGH = "IN_SYNC_REPLICAS_NOT_ENOUGH"
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = "LMQ_CONSUME_QUEUE_NUM_EXCEEDED"
    WHEEL_TIMER_MSG_ILLEGAL = "WHEEL_TIMER_MSG_ILLEGAL"
    WHEEL_TIMER_FLOW_CONTROL = "WHEEL_TIMER_FLOW_CONTROL"
    WHEEL_TIMER_NOT_ENABLE = "WHEEL_TIMER_NOT_ENABLE"


STORED_STATUSES = frozenset(
    {PutStatus.PUT_OK, PutStatus.FLUSH_DISK_TIMEOUT, PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.SLAVE_NOT_AVAILABLE}
)
"""The statuses that a producer counts as sent."""


@dataclass(slots=True)
class InnerMessage:
    """A message on its way into the store.

    ``properties_text`` is what is stored; ``properties`` is what the broker decides by. They differ on purpose where
    RocketMQ's do (WAIT is not stored; a delivered delayed message still has DELAY in its text). For a batch *body* is
    the encoded batch and *properties_text* what is appended to every member's own text.
    """

    topic: str
    queue_id: int
    body: bytes
    born_timestamp: int
    born_host: HostAddress
    store_host: HostAddress
    flag: int = 0
    sys_flag: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    properties_text: str = ""
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    wait_store_ok: bool = True


@dataclass(frozen=True, slots=True)
class PutResult:
    """What the store says of one put. For a batch the offsets are the first member's and the ids are comma-joined."""

    status: PutStatus
    physical_offset: int = 0
    size: int = 0
    queue_offset: int = 0
    message_id: str = ""
    store_timestamp: int = 0
    store_host: HostAddress = UNKNOWN_HOST
    count: int = 1

    @property
    def is_stored(self) -> bool:
        return self.status in STORED_STATUSES
