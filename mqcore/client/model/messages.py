"""Messages as applications write and read them.

``mqcore.protocol.message`` has the wire's view of the same things: everything is a property there.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol, Self

from mqcore import clock
from mqcore.client.errors import ArgumentError, ClientStateError
from mqcore.client.model.validators import check_properties
from mqcore.delay_levels import exact_level_of, level_of, seconds_of
from mqcore.lazy_names import lazy_names
from mqcore.protocol import properties as names
from mqcore.protocol.codec import RecordFields

if TYPE_CHECKING:
    from mqcore.client.model.process_queue import ProcessQueue

DEAD_LETTER = -1
"""The delay level that means: to the dead letter queue."""


SHOWN_BYTES = 64


@dataclass(frozen=True, slots=True, init=False)
class Message:
    """A message to send. *keys* are business keys by which it can be found; *tag* is what consumers filter by.

    *delay_level* 1 to 18 holds it back for 1s 5s 10s 30s 1m 2m ... 2h (the broker's table); 0 delivers at once.
    *delay*, in seconds or as a timedelta, takes one of these times as its level, and any other as a timer, in steps of
    a millisecond; *deliver_at*, a datetime with its time zone or ms since the epoch, is a timer too. Timers are
    for brokers that have them, mqcore and RocketMQ 5: RocketMQ 4 delivers at once. The receipt's *recall_handle* tells.
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
    delay: InitVar[timedelta | float | None] = field(default=None, kw_only=True)
    deliver_at: InitVar[datetime | int | None] = field(default=None, kw_only=True)

    def __init__(
        self,
        topic: str,
        body: bytes,
        *,
        tag: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        delay_level: int = 0,
        flag: int = 0,
        wait_store_ok: bool = True,
        delay: timedelta | float | None = None,
        deliver_at: datetime | int | None = None,
    ) -> None:
        # One message is made for each send, and what dataclass would write here takes twice as long.
        _set_topic(self, topic)
        _set_body(self, body)
        _set_tag(self, tag)
        _set_keys(self, keys)
        _set_properties(self, {} if properties is None else properties)
        _set_delay_level(self, delay_level)
        _set_flag(self, flag)
        _set_wait_store_ok(self, wait_store_ok)
        if (
            properties is not None
            or delay is not None
            or deliver_at is not None
            or type(body) is not bytes
            or type(keys) is not tuple
        ):
            self.__post_init__(delay, deliver_at)

    def __post_init__(self, delay: timedelta | float | None, deliver_at: datetime | int | None) -> None:
        # Only what changes something is done; the classes of other modules that extend this one come here always.
        if type(self.body) is not bytes:
            if isinstance(self.body, str):
                raise TypeError("the body of a message is bytes: encode the text first")
            object.__setattr__(self, "body", bytes(self.body))
        if type(self.keys) is not tuple:
            object.__setattr__(self, "keys", (self.keys,) if isinstance(self.keys, str) else tuple(self.keys))
        object.__setattr__(self, "properties", dict(self.properties))
        if self.properties:
            check_properties(self.properties)
        if (delay is not None) + (deliver_at is not None) + bool(self.delay_level) > 1:
            raise ArgumentError("give one of delay, deliver_at and delay_level")
        if delay is not None and (level := exact_level_of(delay)) is not None:
            object.__setattr__(self, "delay_level", level)
        elif delay is not None:
            self.properties[names.PROPERTY_TIMER_DELAY_MS] = str(delay_ms_of(delay))  # type: ignore[index]
        elif deliver_at is not None:
            self.properties[names.PROPERTY_TIMER_DELIVER_MS] = str(moment_ms("deliver_at", deliver_at))  # type: ignore[index]

    def __repr__(self) -> str:
        shown = (f"{found.name}={shortened(getattr(self, found.name))}" for found in fields(self))
        return f"{type(self).__name__}({', '.join(shown)})"

    def with_properties(self, added: Mapping[str, str]) -> Self:
        """Return a copy that has the properties *added*, too: those of the same names are replaced."""
        check_properties(added)
        if type(self) is Message:
            made = object.__new__(type(self))
            for name, put in _PUTS:
                put(made, getattr(self, name))
        else:
            made = copy.copy(self)  # whatever the class of somebody else has besides; three times as long
        _set_properties(made, {**self.properties, **added})
        return made

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


# The doors to the fields of a frozen object, each looked up once.
(
    _set_topic,
    _set_body,
    _set_tag,
    _set_keys,
    _set_properties,
    _set_delay_level,
    _set_flag,
    _set_wait_store_ok,
) = (getattr(Message, found.name).__set__ for found in fields(Message))

_PUTS = tuple((found.name, getattr(Message, found.name).__set__) for found in fields(Message))


def shortened(value: object) -> str:
    """Return the repr of *value*, of bytes no more than the first SHOWN_BYTES, as it goes into logs."""
    if not isinstance(value, bytes) or len(value) <= SHOWN_BYTES:
        return repr(value)
    return f"{value[:SHOWN_BYTES]!r}... {len(value)} bytes"


def delay_ms_of(delay: timedelta | float) -> int:
    """Return *delay* (a timedelta, or seconds) in ms, rounded up. Raises ArgumentError for one that is not ahead."""
    seconds = seconds_of(delay)
    if not 0 < seconds < math.inf:
        raise ArgumentError(f"delay: got {seconds:g} s, wanted more than 0")
    return math.ceil(round(seconds * 1000, 3))


def moment_ms(name: str, moment: datetime | int) -> int:
    """Return *moment* in ms since the epoch. Raises ArgumentError for a datetime that could be of any place."""
    if not isinstance(moment, datetime):
        return moment
    if moment.tzinfo is None:
        raise ArgumentError(f"{name}: {moment} has no time zone; datetime.now().astimezone() has")
    return math.ceil(round(moment.timestamp() * 1000, 3))


def has_timer(properties: Mapping[str, str]) -> bool:
    """Whether a message with these properties waits for a time, where the broker has timers."""
    return any(name in properties for name in names.TIMER_REQUESTS)


def waits_from(properties: Mapping[str, str], now_ms: int) -> bool:
    """Whether a timer among these properties has not run off by *now_ms*. A delay level wins, as at the broker."""
    if names.PROPERTY_DELAY_TIME_LEVEL in properties or not has_timer(properties):
        return False
    if names.PROPERTY_TIMER_DELAY_SEC in properties or names.PROPERTY_TIMER_DELAY_MS in properties:
        return True
    text = properties[names.PROPERTY_TIMER_DELIVER_MS]
    return text.isdecimal() and int(text) > now_ms


class MessageKind(IntEnum):
    """What kind of message was sent. The values are the numbers in trace records."""

    NORMAL = 0
    HALF = 1
    COMMIT = 2
    DELAY = 3

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> MessageKind:
        """Return what the properties of a message that is being sent say. Source: DefaultMQProducerImpl.java."""
        if names.PROPERTY_DELAY_TIME_LEVEL in properties or names.PROPERTY_START_DELIVER_TIME in properties:
            return cls.DELAY
        if has_timer(properties):
            return cls.DELAY
        return cls.HALF if properties.get(names.PROPERTY_TRANSACTION_PREPARED) == "true" else cls.NORMAL


class Settler(Protocol):
    """Who is told what became of a received message."""

    def ack(self, message: ReceivedMessage) -> None: ...

    def ack_all(self, messages: Sequence[ReceivedMessage]) -> None: ...

    def nack(self, message: ReceivedMessage, delay_level: int) -> None: ...


class ReceivedMessage(RecordFields):
    """A message that a consumer received. Times are ms since 1970.

    ``ack`` and ``nack`` are for messages got by iterating or by ``receive``; a handler says the same by returning or
    raising. They return at once: the offset is committed, or the message sent back, in the background.
    """

    __slots__ = ()

    held: ProcessQueue[ReceivedMessage] | None
    settler: Settler | None

    def __repr__(self) -> str:
        return (
            f"ReceivedMessage(topic={self.topic!r}, broker={self.queue.broker_name!r}, queue_id={self.queue.queue_id}, "
            f"queue_offset={self.queue_offset}, msg_id={self.msg_id!r}, body_size={self.body_size})"
        )

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, those of the system too."""
        return self.ext.properties

    @property
    def offset_msg_id(self) -> str:
        return self.ext.offset_msg_id

    @property
    def born_at(self) -> datetime:
        """When the sender made the message, by its clock; ``born_timestamp`` as a datetime in UTC."""
        return datetime.fromtimestamp(self.born_timestamp / 1000, UTC)

    @property
    def stored_at(self) -> datetime:
        """When the broker stored the message; ``store_timestamp`` as a datetime in UTC."""
        return datetime.fromtimestamp(self.store_timestamp / 1000, UTC)

    def ack(self) -> None:
        """The message is done."""
        self._settle().ack(self)

    def nack(self, delay_level: int = 0, *, delay: timedelta | float | None = None) -> None:
        """The message failed: deliver it again later, by the broker's schedule (0) or at *delay_level*.

        *delay*, in seconds or as a timedelta, stands for the first level that waits as long, or for the last.
        """
        self._settle().nack(self, delay_level if delay is None else level_of(delay))

    def reject(self) -> None:
        """The message can never succeed: send it to the dead letter queue now."""
        self._settle().nack(self, DEAD_LETTER)

    @property
    def is_dropped(self) -> bool:
        """Whether the consumer has given up the message's queue: another member gets the message."""
        return self.held is not None and self.held.dropped

    def settle_through(self, wrap: Callable[[Settler], Settler]) -> None:
        """Let ``ack`` and ``nack`` go through what *wrap* makes of the settler."""
        if self.settler is not None:
            self.settler = wrap(self.settler)

    def anew(self, settler: Settler) -> ReceivedMessage:
        """Return the message for another delivery, to be settled by *settler*.

        It is another object, so that who had the message before, and has settled it, cannot settle this delivery too.
        """
        return ReceivedMessage(self.ext, self.queue, topic=self.topic, held=self.held, settler=settler)

    def restart_timer(self) -> None:
        """Count the consume timeout from now on."""
        self.consume_started_s = clock.now_s()

    def stop_timer(self) -> None:
        """Let the consume timeout not count until the timer is started again."""
        self.consume_started_s = 0.0

    def _settle(self) -> Settler:
        if self.settler is None:
            raise ClientStateError("a handler settles its message by returning or raising, not by ack or nack")
        if self.settled:
            raise ClientStateError(f"the message {self.msg_id} has been settled before")
        self.settled = True
        return self.settler


# What a broker says of a message stood here once, and pickles say so.
__getattr__ = lazy_names(globals(), dict.fromkeys(("SendReceipt", "SendStatus"), "mqcore.client.model.receipt"))
