"""Java's allocation strategies, for ``set_allocate_message_queue_strategy``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from mqcore.client.model.rebalance import (
    ConsistentHash,
    FixedQueues,
    MachineRooms,
    NearbyRooms,
    allocate_averagely,
    allocate_by_circle,
)
from mqcore.protocol.message import MessageQueue as CoreMessageQueue

Allocate = Callable[[str, Sequence[CoreMessageQueue], Sequence[str]], Iterable[CoreMessageQueue]]


class AllocateMessageQueueStrategy:
    """How the members of a group share the queues of a topic. All members must use the same one."""

    def __init__(self, allocate: Allocate) -> None:
        self.core = allocate


class AllocateMessageQueueAveragely(AllocateMessageQueueStrategy):
    """Each member gets the same number of neighbouring queues, the first ones one more."""

    def __init__(self) -> None:
        super().__init__(allocate_averagely)


class AllocateMessageQueueAveragelyByCircle(AllocateMessageQueueStrategy):
    """The queues are dealt like cards."""

    def __init__(self) -> None:
        super().__init__(allocate_by_circle)


class AllocateMessageQueueByConfig(AllocateMessageQueueStrategy):
    """Always the queues that were set, whatever the other members do."""

    def __init__(self) -> None:
        super().__init__(FixedQueues(()))

    def set_message_queue_list(self, queues: Sequence[CoreMessageQueue]) -> None:
        self.core = FixedQueues([CoreMessageQueue(q.topic, q.broker_name, q.queue_id) for q in queues])


class AllocateMessageQueueByMachineRoom(AllocateMessageQueueStrategy):
    """Only the queues of brokers in certain rooms, whose names are ``room@name``."""

    def __init__(self) -> None:
        super().__init__(MachineRooms(()))

    def set_consumeridcs(self, rooms: Collection[str]) -> None:
        self.core = MachineRooms(rooms)


class AllocateMachineRoomNearby(AllocateMessageQueueStrategy):
    """Every room's queues go to the members in that room; *inner* divides them there."""

    def __init__(
        self,
        inner: AllocateMessageQueueStrategy,
        room_of_broker: Callable[[str], str],
        room_of_client: Callable[[str], str],
    ) -> None:
        super().__init__(NearbyRooms(room_of_broker, room_of_client, inner.core))


class AllocateMessageQueueConsistentHash(AllocateMessageQueueStrategy):
    """Members stand on a ring, each *virtual_node_count* times; when one comes or goes, few queues move."""

    def __init__(self, virtual_node_count: int = 10) -> None:
        super().__init__(ConsistentHash(virtual_node_count))
