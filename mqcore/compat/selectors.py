"""Java's queue selectors, for ``producer.send(message, selector, argument)``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from mqcore import client
from mqcore.client.model.selectors import ShardKey, select_by_hash, select_by_machine_room, select_by_random
from mqcore.compat.message import Message, MessageQueue
from mqcore.protocol.message import MessageQueue as CoreMessageQueue

SelectFunction = Callable[[Sequence[MessageQueue], Message, object], CoreMessageQueue]
"""(queues, message, argument of send) -> one of the queues."""


class MessageQueueSelector:
    """Chooses the queue of a message. Override ``select``, or give a function to the constructor."""

    def __init__(self, function: SelectFunction | None = None) -> None:
        self._function = function

    def select(self, queues: Sequence[MessageQueue], message: Message, argument: object) -> CoreMessageQueue:
        """Return the one of *queues* to which *message* is to go."""
        if self._function is None:
            raise NotImplementedError("override select, or give a function")
        return self._function(queues, message, argument)


class SelectMessageQueueByHash(MessageQueueSelector):
    """By the hash of the argument, which Java's producers compute alike: equal arguments, equal queue."""

    def select(self, queues: Sequence[MessageQueue], message: Message, argument: object) -> CoreMessageQueue:
        key: ShardKey = argument if isinstance(argument, str | int | float | bool) else str(argument)
        return select_by_hash(queues, key)


class SelectMessageQueueByRandom(MessageQueueSelector):
    """Any of the queues."""

    def select(self, queues: Sequence[MessageQueue], message: Message, argument: object) -> CoreMessageQueue:
        return select_by_random(queues, message.to_core())


class SelectMessageQueueByMachineRoom(MessageQueueSelector):
    """Any queue of a broker in certain machine rooms. (Java's class of this name chooses nothing.)"""

    def __init__(self) -> None:
        super().__init__()
        self._rooms: Collection[str] = ()

    def get_consumeridcs(self) -> Collection[str]:
        return self._rooms

    def set_consumeridcs(self, rooms: Collection[str]) -> None:
        self._rooms = rooms

    def select(self, queues: Sequence[MessageQueue], message: Message, argument: object) -> CoreMessageQueue:
        return select_by_machine_room(self._rooms)(queues, message.to_core())


def for_core(
    selector: MessageQueueSelector | SelectFunction, message: Message, argument: object
) -> Callable[[Sequence[CoreMessageQueue], client.Message], CoreMessageQueue]:
    """Return *selector* as ``mqcore.client`` calls it."""
    choose = selector.select if isinstance(selector, MessageQueueSelector) else selector

    def select(queues: Sequence[CoreMessageQueue], _: client.Message) -> CoreMessageQueue:
        chosen = choose([MessageQueue.of(queue) for queue in queues], message, argument)
        return CoreMessageQueue(chosen.topic, chosen.broker_name, chosen.queue_id)

    return select
