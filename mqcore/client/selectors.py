"""How a producer chooses a queue: rotation, hash of a key, or chance.

A rotation starts at a random place, so that many producers started together do not all begin at the same broker.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from mqcore.client.messages import Message
from mqcore.protocol.hashing import java_string_hash
from mqcore.protocol.message import MessageQueue

QueueSelector = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""(queues in publish order, message) -> one of the queues."""

INDEX_MASK = 0x7FFFFFFF


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
                queue = self._turn()
                if queue.broker_name != avoid_broker:
                    return queue
        return self._turn()

    def _turn(self) -> MessageQueue:
        queue = self.queues[self._index % len(self.queues)]
        self._index = (self._index + 1) & INDEX_MASK
        return queue


def java_hash(key: str | int) -> int:
    """Return Java's hashCode of a String, an Integer (32 bits) or a Long (wider)."""
    if isinstance(key, str):
        return java_string_hash(key)
    if -(1 << 31) <= key < 1 << 31:
        return key
    folded = ((key ^ (key >> 32)) if key >= 0 else ((key & (1 << 64) - 1) ^ ((key & (1 << 64) - 1) >> 32))) & 0xFFFFFFFF
    return folded - (1 << 32) if folded >> 31 else folded


def select_by_hash(queues: Sequence[MessageQueue], key: str | int) -> MessageQueue:
    """Return the queue that Java's SelectMessageQueueByHash gives *key*: equal keys, equal queue."""
    return queues[abs(java_hash(key)) % len(queues)]


def select_by_random(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """Return any of the queues. Source: RocketMQ SelectMessageQueueByRandom.java."""
    return random.choice(queues)
