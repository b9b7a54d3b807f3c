"""Received messages that a test makes itself, to hand them to a handler without a broker."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum

from mqcore import clock
from mqcore.client.model.messages import DEAD_LETTER, Message, ReceivedMessage, moment_ms
from mqcore.protocol import properties as names
from mqcore.protocol.message import MessageExt, MessageQueue

_offsets = itertools.count()


class Settled(Enum):
    """What a program said became of a message."""

    ACKED = "acked"
    FAILED = "failed"
    REJECTED = "rejected"


class MadeMessage(ReceivedMessage):
    """A received message that remembers how it was settled: *outcome*, None while it is not, and *delay_level*."""

    __slots__ = ("delay_level", "outcome")

    outcome: Settled | None
    delay_level: int


class _Remembering:
    """Takes the place of the consumer."""

    def ack(self, message: ReceivedMessage) -> None:
        self._note(message, Settled.ACKED, 0)

    def ack_all(self, messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            self.ack(message)

    def nack(self, message: ReceivedMessage, delay_level: int) -> None:
        self._note(message, Settled.REJECTED if delay_level == DEAD_LETTER else Settled.FAILED, delay_level)

    @staticmethod
    def _note(message: ReceivedMessage, outcome: Settled, delay_level: int) -> None:
        assert isinstance(message, MadeMessage)
        message.outcome, message.delay_level = outcome, delay_level


def message(
    body: bytes = b"",
    *,
    topic: str = "Test",
    tag: str | None = None,
    keys: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    queue: MessageQueue | None = None,
    queue_offset: int | None = None,
    reconsume_times: int = 0,
    born_at: datetime | int | None = None,
    stored_at: datetime | int | None = None,
) -> MadeMessage:
    """Return a message as a consumer would get it, for a test of a handler, or of what it hands messages on to.

    It is the next one of queue 0 of *topic* at a broker called ``test``, or of *queue*; born and stored now, or at
    other times, datetimes with a time zone or ms since 1970. What ``ack``, ``nack`` or ``reject`` said is in its
    ``outcome``. Raises ArgumentError for properties that could not have been sent.
    """
    offset = next(_offsets) if queue_offset is None else queue_offset
    place = MessageQueue(topic, "test", 0) if queue is None else queue
    sent = Message(topic, body, tag=tag, keys=keys, properties=properties).wire_properties()
    ext = MessageExt(
        topic,
        body,
        properties={names.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX: f"{offset:032X}", **sent},
        broker_name=place.broker_name,
        queue_id=place.queue_id,
        queue_offset=offset,
        born_timestamp=clock.now_ms() if born_at is None else moment_ms("born_at", born_at),
        store_timestamp=clock.now_ms() if stored_at is None else moment_ms("stored_at", stored_at),
        reconsume_times=reconsume_times,
    )
    made = MadeMessage(ext, place, topic=topic, settler=_Remembering())
    made.outcome, made.delay_level = None, 0
    return made
