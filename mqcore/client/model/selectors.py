"""How a producer chooses a queue: rotation, hash of a key, chance, machine room, or a function of its own.

A rotation starts at a random place, so that many producers started together do not all begin at the same broker.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Collection, Iterator, Sequence

from mqcore.client.model.messages import Message
from mqcore.errors import ClientError
from mqcore.protocol.hashing import java_string_hash
from mqcore.protocol.message import MessageQueue

QueueSelector = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""(queues in publish order, message) -> one of the queues."""

ShardKey = str | int | float | bool
"""What a message may be sharded by: the key types whose hash is the same in Java."""

INDEX_MASK = 0x7FFFFFFF
ROOM_SEPARATOR = "@"
"""Between the machine room and the rest of a broker's name, as in ``room-1@broker-a``."""


class Rotation:
    """The turn among the queues of one topic. Source: RocketMQ TopicPublishInfo.java, ThreadLocalIndex.java."""

    __slots__ = ("_index", "queues")

    def __init__(self, queues: Sequence[MessageQueue], start: int | None = None) -> None:
        self.queues = tuple(queues)
        self._index = random.getrandbits(31) if start is None else start

    def next(self, avoid_broker: str | None = None) -> MessageQueue:
        """Return the queue whose turn it is; one on another broker than *avoid_broker* if there is any."""
        if avoid_broker is not None:
            for _ in self.queues:
                queue = self.next_of(self.queues)
                if queue.broker_name != avoid_broker:
                    return queue
        return self.next_of(self.queues)

    def next_of(self, queues: Sequence[MessageQueue]) -> MessageQueue:
        """Return the one of *queues* whose turn it is, by the same count as all others."""
        queue = queues[self._index % len(queues)]
        self._index = (self._index + 1) & INDEX_MASK
        return queue

    def round(self) -> Iterator[MessageQueue]:
        """Go over all queues once, beginning with the one whose turn it is; this counts as one turn, not as many."""
        start, self._index = self._index, (self._index + 1) & INDEX_MASK
        for step in range(len(self.queues)):
            yield self.queues[(start + step) % len(self.queues)]

    def queues_of(self, broker_name: str) -> list[MessageQueue]:
        """Return the queues on one broker, by queue id."""
        return [queue for queue in self.queues if queue.broker_name == broker_name]


def java_hash(key: ShardKey) -> int:
    """Return Java's hashCode of a String, a Boolean, an Integer (32 bits), a Long (wider) or a Double."""
    if isinstance(key, str):
        return java_string_hash(key)
    if isinstance(key, bool):
        return 1231 if key else 1237
    if isinstance(key, float):
        # Double.doubleToLongBits has one bit pattern for all NaNs.
        return _long_hash(int.from_bytes(struct.pack(">d", key)) if key == key else 0x7FF8 << 48)
    return key if -(1 << 31) <= key < 1 << 31 else _long_hash(key)


def _long_hash(value: int) -> int:
    bits = value & (1 << 64) - 1
    folded = (bits ^ (bits >> 32)) & 0xFFFFFFFF
    return folded - (1 << 32) if folded >> 31 else folded


def select_by_hash(queues: Sequence[MessageQueue], key: ShardKey) -> MessageQueue:
    """Return the queue that Java's SelectMessageQueueByHash gives *key*: equal keys, equal queue."""
    return queues[abs(java_hash(key)) % len(queues)]


def select_by_random(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """Return any of the queues. Source: RocketMQ SelectMessageQueueByRandom.java."""
    return random.choice(queues)


def select_by_machine_room(rooms: Collection[str]) -> QueueSelector:
    """Return a selector that chooses by chance among the queues of brokers in *rooms*.

    A broker tells its room by its name: ``room@name``, as AllocateMessageQueueByMachineRoom reads it. Without a broker
    in *rooms* the send is refused; Java's SelectMessageQueueByMachineRoom is an empty shell that refuses every send.
    """
    wanted = frozenset(rooms)

    def select(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        near = [queue for queue in queues if room_of(queue.broker_name) in wanted]
        if not near:
            raise ClientError(f"no queue of {message.topic} is in the machine rooms {sorted(wanted)}")
        return random.choice(near)

    return select


def room_of(broker_name: str) -> str | None:
    """Return the machine room that a broker's name tells, or None when it tells none."""
    room, separator, _ = broker_name.partition(ROOM_SEPARATOR)
    return room if separator else None
