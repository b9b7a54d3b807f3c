"""How the members of a group divide the queues of a topic.

Every member computes the whole division for itself and takes its own part, so all of them, in whatever language, must
sort and divide exactly alike. This module is pure: names in, queues out. To apply them is consume/assignment.py's work.
Source: RocketMQ client/consumer/rebalance/*.java.
"""

from __future__ import annotations

import bisect
import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from mqcore.errors import ClientError, ConfigError
from mqcore.protocol.message import MessageQueue

Strategy = Callable[[str, Sequence[MessageQueue], Sequence[str]], Iterable[MessageQueue]]
"""(own client id, sorted queues, sorted client ids of all members, the own one among them) -> own queues.

All members must use the same one. What it raises leaves the member with the queues it has.
"""

VIRTUAL_NODES = 10
ROOM_SEPARATOR = "@"


def java_order(text: str) -> bytes:
    """Return a key that sorts as Java compares strings: by UTF-16 code unit, not by code point."""
    return text.encode("utf-16-be", "surrogatepass")


def sorted_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Sort by topic, then broker name, then queue id as a number. Source: RocketMQ MessageQueue.java, compareTo."""
    return sorted(queues, key=lambda queue: (java_order(queue.topic), java_order(queue.broker_name), queue.queue_id))


def allocate_averagely(client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
    """Give every member one run of neighbouring queues; the first members get the odd ones.

    Source: RocketMQ AllocateMessageQueueAveragely.java.
    """
    index, members = client_ids.index(client_id), len(client_ids)
    odd = len(queues) % members
    gets_odd = odd > 0 and index < odd
    if len(queues) <= members:
        size = 1
    else:
        size = len(queues) // members + (1 if gets_odd else 0)
    start = index * size if gets_odd else index * size + odd
    return list(queues[start : start + size])


def allocate_by_circle(client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
    """Deal the queues like cards. Source: RocketMQ AllocateMessageQueueAveragelyByCircle.java."""
    return list(queues[client_ids.index(client_id) :: len(client_ids)])


@dataclass(frozen=True)
class FixedQueues:
    """Always the same queues, whatever the other members do. Source: RocketMQ AllocateMessageQueueByConfig.java.

    The queues of the group's retry topic must be named too if failed messages are to come here again.
    """

    queues: Sequence[MessageQueue]

    def __call__(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> Iterable[MessageQueue]:
        return self.queues


@dataclass(frozen=True)
class MachineRooms:
    """Only the queues of brokers in certain rooms; such a broker's name is ``room@name``.

    Source: RocketMQ AllocateMessageQueueByMachineRoom.java.
    """

    rooms: Collection[str]

    def __call__(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> Iterable[MessageQueue]:
        near = [queue for queue in queues if self._is_near(queue.broker_name)]
        index = client_ids.index(client_id)
        share, odd = divmod(len(near), len(client_ids))
        mine = near[share * index : share * (index + 1)]
        if odd > index:
            mine.append(near[index + share * len(client_ids)])
        return mine

    def _is_near(self, broker_name: str) -> bool:
        # Java's split drops empty parts at the end, and no others.
        parts = broker_name.rstrip(ROOM_SEPARATOR).split(ROOM_SEPARATOR)
        return len(parts) == 2 and parts[0] in self.rooms


@dataclass(frozen=True)
class NearbyRooms:
    """Every room's queues go to the members in that room; those of a room without members go to all.

    *room_of_broker* and *room_of_client* say where a broker (by name) and a member (by client id) live; an empty answer
    is an error. *inner* divides each part. Source: RocketMQ AllocateMachineRoomNearby.java.
    """

    room_of_broker: Callable[[str], str]
    room_of_client: Callable[[str], str]
    inner: str | Strategy = "AVG"

    def __call__(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> Iterable[MessageQueue]:
        inner = strategy_of(self.inner)
        queues_in: defaultdict[str, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            queues_in[_room(self.room_of_broker, queue.broker_name)].append(queue)
        members_in: defaultdict[str, list[str]] = defaultdict(list)
        for member in client_ids:
            members_in[_room(self.room_of_client, member)].append(member)
        own_room = _room(self.room_of_client, client_id)
        mine: list[MessageQueue] = []
        if own_room in queues_in:
            mine += allocate_sorted(inner, client_id, queues_in.pop(own_room), members_in[own_room])
        for room in sorted(queues_in, key=java_order):
            if room not in members_in:
                mine += allocate_sorted(inner, client_id, queues_in[room], client_ids)
        return mine


def _room(room_of: Callable[[str], str], name: str) -> str:
    room = room_of(name)
    if not room:
        raise ClientError(f"nobody says in which machine room {name} is")
    return room


def java_md5_head(text: str) -> int:
    """Return the first four bytes of the MD5 of *text* as a number, as RocketMQ's ring hashes."""
    digest = hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


@dataclass(frozen=True)
class ConsistentHash:
    """Members stand on a ring, each *virtual_nodes* times; a queue goes to the next member clockwise.

    When a member comes or goes only a few queues move. Source: RocketMQ AllocateMessageQueueConsistentHash.java,
    ConsistentHashRouter.java.
    """

    virtual_nodes: int = VIRTUAL_NODES
    hash_of: Callable[[str], int] = field(default=java_md5_head)

    def __post_init__(self) -> None:
        if self.virtual_nodes < 0:
            raise ConfigError(f"virtual_nodes: got {self.virtual_nodes}, wanted 0 or more")

    def __call__(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> Iterable[MessageQueue]:
        ring: dict[int, str] = {}
        for member in client_ids:
            # An id that stands twice goes on counting where the first left off, less what was overwritten since.
            first = sum(owner == member for owner in ring.values()) if client_ids.count(member) > 1 else 0
            for number in range(first, first + self.virtual_nodes):
                ring[self.hash_of(f"{member}-{number}")] = member
        places = sorted(ring)
        return [queue for queue in queues if places and ring[self._place(places, queue)] == client_id]

    def _place(self, places: Sequence[int], queue: MessageQueue) -> int:
        name = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
        at = bisect.bisect_left(places, self.hash_of(name))
        return places[at if at < len(places) else 0]


STRATEGIES: dict[str, Strategy] = {
    "AVG": allocate_averagely,
    "AVG_BY_CIRCLE": allocate_by_circle,
    "CONSISTENT_HASH": ConsistentHash(),
}
"""The strategies that need nothing but their name."""


def strategy_of(given: str | Strategy) -> Strategy:
    """Return the strategy that RocketMQ calls *given*, or *given* itself; ConfigError when there is none."""
    if callable(given):
        return given
    try:
        return STRATEGIES[given]
    except (KeyError, TypeError):
        raise ConfigError(
            f"setting strategy: got {given!r}, wanted one of {', '.join(STRATEGIES)}, FixedQueues, MachineRooms, "
            "NearbyRooms, ConsistentHash or a function of yours"
        ) from None


def allocate(
    strategy: Strategy, client_id: str, queues: Iterable[MessageQueue], client_ids: Iterable[str]
) -> list[MessageQueue]:
    """Return the queues of *client_id* among *client_ids*, in order. Both are sorted here.

    Nothing when there are no queues, or when the group does not know *client_id* (yet). An id that stands twice counts
    twice, as it does for the members in other languages.
    """
    return allocate_sorted(strategy, client_id, sorted_queues(queues), sorted(client_ids, key=java_order))


def allocate_sorted(
    strategy: Strategy, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    if isinstance(strategy, FixedQueues):
        return list(strategy.queues)  # the one that does not look at the members
    if not queues or client_id not in client_ids:
        return []
    return list(strategy(client_id, queues, client_ids))
