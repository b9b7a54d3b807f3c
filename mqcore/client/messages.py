"""Messages as applications write and read them, and what a broker said about a sent one.

``mqcore.protocol.message`` has the wire's view of the same things: everything is a property there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from mqcore.client.errors import ClientStateError
from mqcore.client.validators import check_properties
from mqcore.codes import ResponseCode
from mqcore.protocol import properties as names
from mqcore.protocol.message import MessageExt, MessageQueue

if TYPE_CHECKING:
    from mqcore.client.process_queue import ProcessQueue

DELAY_LEVEL_MAX = 18

DEAD_LETTER = -1
"""The delay level that means: to the dead letter queue."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message to send. *keys* are business keys by which it can be found; *tag* is what consumers filter by.

    *delay_level* 1 to 18 holds it back for 1s 5s 10s 30s 1m 2m ... 2h (the broker's table); 0 delivers at once.
    With *wait_store_ok* false the broker answers before the message is flushed or replicated, whatever its mode.
    """

    topic: str
    body: bytes
    tag: str | None = field(default=None, kw_only=True)
    keys: Sequence[str] = field(default=(), kw_only=True)
    properties: Mapping[str, str] = field(default_factory=dict, kw_only=True, hash=False)
    delay_level: int = field(default=0, kw_only=True)
    flag: int = field(default=0, kw_only=True)
    wait_store_ok: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        if isinstance(self.body, str):
            raise TypeError("the body of a message is bytes: encode the text first")
        object.__setattr__(self, "body", bytes(self.body))
        object.__setattr__(self, "keys", (self.keys,) if isinstance(self.keys, str) else tuple(self.keys))
        object.__setattr__(self, "properties", dict(self.properties))
        check_properties(self.properties)

    def wire_properties(self) -> dict[str, str]:
        """Return the properties that travel: the application's, and tag, keys and the like."""
        properties = dict(self.properties)
        if self.tag:
            properties[names.PROPERTY_TAGS] = self.tag
        if self.keys:
            properties[names.PROPERTY_KEYS] = names.KEY_SEPARATOR.join(self.keys)
        if self.delay_level:
            properties[names.PROPERTY_DELAY_TIME_LEVEL] = str(self.delay_level)
        if not self.wait_store_ok:
            properties[names.PROPERTY_WAIT_STORE_MSG_OK] = "false"
        return properties


class SendStatus(IntEnum):
    """How safely a broker stored a message. All four mean stored; only SEND_OK means as safely as it was told to."""

    SEND_OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT


@dataclass(frozen=True, slots=True)
class SendReceipt:
    """What a broker said about one stored message. *offset* is its queue offset."""

    status: SendStatus
    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    offset: int
    transaction_id: str | None = None
    region_id: str = "DefaultRegion"
    trace_on: bool = True


class Settler(Protocol):
    """Who is told what became of a received message."""

    def ack(self, message: ReceivedMessage) -> None: ...

    def nack(self, message: ReceivedMessage, delay_level: int) -> None: ...


class ReceivedMessage:
    """A message that a consumer received. Times are ms since 1970.

    ``ack`` and ``nack`` are for messages got by iterating or by ``receive``; a handler says the same by returning or
    raising. They return at once: the offset is committed, or the message sent back, in the background.
    """

    __slots__ = (
        "_settler",
        "body_size",
        "consume_started_s",
        "ext",
        "held",
        "queue",
        "queue_offset",
        "settled",
        "topic",
    )

    def __init__(
        self,
        ext: MessageExt,
        queue: MessageQueue,
        *,
        topic: str | None = None,
        held: ProcessQueue[ReceivedMessage] | None = None,
        settler: Settler | None = None,
    ) -> None:
        self.ext = ext
        self.queue = queue
        self.queue_offset = ext.queue_offset
        self.body_size = len(ext.body)
        self.topic = ext.topic if topic is None else topic
        self.held = held
        self.settled = False
        self.consume_started_s = 0.0
        self._settler = settler

    def __repr__(self) -> str:
        return (
            f"ReceivedMessage(topic={self.topic!r}, broker={self.queue.broker_name!r}, queue_id={self.queue.queue_id}, "
            f"queue_offset={self.queue_offset}, msg_id={self.msg_id!r}, body_size={self.body_size})"
        )

    @property
    def body(self) -> bytes:
        return self.ext.body

    @property
    def tag(self) -> str | None:
        return self.ext.tags

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple((self.ext.keys or "").split())

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, those of the system too."""
        return self.ext.properties

    @property
    def msg_id(self) -> str:
        """The id that the sender gave the message, or the offset id when it gave none."""
        return self.ext.msg_id

    @property
    def offset_msg_id(self) -> str:
        return self.ext.offset_msg_id

    @property
    def born_timestamp(self) -> int:
        return self.ext.born_timestamp

    @property
    def store_timestamp(self) -> int:
        return self.ext.store_timestamp

    @property
    def reconsume_times(self) -> int:
        """How often the message was delivered before and sent back."""
        return self.ext.reconsume_times

    @property
    def flag(self) -> int:
        return self.ext.flag

    def ack(self) -> None:
        """The message is done."""
        self._settle().ack(self)

    def nack(self, delay_level: int = 0) -> None:
        """The message failed: deliver it again later, by the broker's schedule (0) or at *delay_level*."""
        self._settle().nack(self, delay_level)

    def reject(self) -> None:
        """The message can never succeed: send it to the dead letter queue now."""
        self._settle().nack(self, DEAD_LETTER)

    @property
    def is_dropped(self) -> bool:
        """Whether the consumer has given up the message's queue: another member gets the message."""
        return self.held is not None and self.held.dropped

    def settle_through(self, wrap: Callable[[Settler], Settler]) -> None:
        """Let ``ack`` and ``nack`` go through what *wrap* makes of the settler."""
        if self._settler is not None:
            self._settler = wrap(self._settler)

    def restart_timer(self) -> None:
        """Count the consume timeout from now on."""
        self.consume_started_s = time.time()

    def stop_timer(self) -> None:
        """Let the consume timeout not count until the timer is started again."""
        self.consume_started_s = 0.0

    def _settle(self) -> Settler:
        if self._settler is None:
            raise ClientStateError("a handler settles its message by returning or raising, not by ack or nack")
        if self.settled:
            raise ClientStateError(f"the message {self.msg_id} has been settled before")
        self.settled = True
        return self._settler
