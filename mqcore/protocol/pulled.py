"""From the records in the answer of a pull to received messages: the readable twin of ``mqcore._fast.client.records``.

Take either from ``mqcore.protocol.codec``. The fast one decodes the head, the body and nothing else of each record;
what few handlers ask for, such as properties and hosts, it decodes when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from mqcore.protocol import properties as names
from mqcore.protocol.buffer import Buffer
from mqcore.protocol.message import MessageExt, MessageQueue
from mqcore.protocol.message_decoder import iterate_messages


class RecordFields:
    """The fields of a received message, as far as they come from the record or from the pull.

    *ext* is the record; what is asked of the message is looked up there. *held* and *settler* are the consumer's.
    """

    __slots__ = (
        "body_size",
        "consume_started_s",
        "ext",
        "held",
        "queue",
        "queue_offset",
        "settled",
        "settler",
        "topic",
    )

    def __init__(
        self,
        ext: MessageExt,
        queue: MessageQueue,
        *,
        topic: str | None = None,
        held: Any = None,
        settler: Any = None,
    ) -> None:
        self.ext = ext
        self.queue = queue
        self.queue_offset = ext.queue_offset
        self.body_size = len(ext.body)
        self.topic = ext.topic if topic is None else topic
        self.held = held
        self.settled = False
        self.consume_started_s = 0.0
        self.settler = settler

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
    def msg_id(self) -> str:
        """The id that the sender gave the message, or the offset id when it gave none."""
        return self.ext.msg_id

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


R = TypeVar("R")


def decode_pulled(
    kind: type[R],
    body: Buffer,
    queue: MessageQueue,
    tags: frozenset[str] | None,
    min_offset: int,
    max_offset: int,
    retry_topic: str | None,
    held: object,
    settler: object,
    acyclic: bool = False,
    shown: Callable[[str], str] | None = None,
) -> list[R]:
    """Return the messages of a pull, objects of *kind*, with the properties that a consumer adds.

    *tags* are those wanted, None for all: the broker compared hashes only. A message of *retry_topic* shows the topic
    to which it was sent first. *acyclic* promises that neither *held* nor *settler* leads back to a message: then the
    fast twin keeps the messages out of the cyclic garbage collector, which would look at each of them several times.
    *shown* tells what the application calls a topic; by default the broker's name.
    Raises ProtocolError at a record that contradicts the layout.
    """
    messages: list[R] = []
    for ext in iterate_messages(body):
        if tags is not None and ext.tags not in tags:
            continue
        complete(ext, queue.broker_name, min_offset, max_offset)
        topic = ext.topic
        if topic == retry_topic:
            topic = ext.properties.get(names.PROPERTY_RETRY_TOPIC, topic)
        if shown is not None:
            topic = shown(topic)
        make: Any = kind
        messages.append(make(ext, queue, topic=topic, held=held, settler=settler))
    return messages


def body_sizes(messages: Sequence[RecordFields]) -> int:
    """Return how many bytes the bodies of *messages* have together."""
    return sum([message.body_size for message in messages])


def complete(ext: MessageExt, broker_name: str, min_offset: int, max_offset: int) -> None:
    """Add to a pulled message what is not in its record. Source: RocketMQ PullAPIWrapper.java, processPullResult."""
    ext.broker_name = broker_name
    ext.properties[names.PROPERTY_MIN_OFFSET] = str(min_offset)
    ext.properties[names.PROPERTY_MAX_OFFSET] = str(max_offset)
    if ext.properties.get(names.PROPERTY_TRANSACTION_PREPARED, "").lower() == "true":
        ext.transaction_id = ext.unique_id
