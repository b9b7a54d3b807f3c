"""Cases of dividing queues among members, as Allocate.java reads them, and what mqcore makes of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

from mqcore.client.model.rebalance import (
    STRATEGIES,
    ConsistentHash,
    FixedQueues,
    MachineRooms,
    NearbyRooms,
    Strategy,
    allocate,
    java_order,
    sorted_queues,
)
from mqcore.protocol.message import MessageQueue

TOPICS = ("T", "%RETRY%G", "Bestellung\u00e9n", "\U0001f4e6", "\uff21")
BROKERS = ("broker-a", "broker-b", "Broker-a", "eu-1", "us-1", "us-2", "\U0001f4e6-1", "\uff21-1")
ROOM_BROKERS = ("r1@a", "r1@b", "r2@a", "r3@a", "r1", "r1@a@", "@a", "r1@a@b", "r2@@")
ROOMS = ("r1", "r2", "r3", "")
NEAR_CLIENTS = ("eu-", "us-", "asia-", "\U0001f4e6-", "\uff21-")


def room_of(name: str) -> str:
    """The name up to the first hyphen; empty when it has none."""
    head, hyphen, _ = name.partition("-")
    return head if hyphen else ""


def strategy_for(name: str, parameter: str) -> Strategy:
    """The strategy that Allocate.java makes of the same two words."""
    if name == "CONSISTENT_HASH":
        return ConsistentHash(int(parameter)) if parameter else STRATEGIES[name]
    if name == "CONFIG":
        return FixedQueues(read_queues(parameter))
    if name == "MACHINE_ROOM":
        return MachineRooms(parameter.split(",") if parameter else [])
    if name == "MACHINE_ROOM_NEARBY":
        return NearbyRooms(room_of, room_of, parameter)
    return STRATEGIES[name]


def read_queues(text: str) -> list[MessageQueue]:
    rows = [row.split(":") for row in text.split(",")] if text else []
    return [MessageQueue(topic, broker, int(queue_id)) for topic, broker, queue_id in rows]


def divided(line: str) -> str:
    """Return the case *line* with the part of each member behind it, as Allocate.java writes it."""
    name, parameter, members_text, queues_text = line.split("\t")
    members, queues = members_text.split(","), read_queues(queues_text)
    order = sorted_queues(queues)

    def part(member: str) -> str:
        try:
            mine = allocate(strategy_for(name, parameter), member, queues, members)
        except Exception:
            return "!"
        return ",".join(str(order.index(queue) if queue in order else -1) for queue in mine) or "-"

    return f"{line}\t{' '.join(part(member) for member in sorted(members, key=java_order))}"


def cases(count: int, rng: random.Random) -> Iterator[str]:
    """Yield *count* random cases of every strategy."""
    makers: Sequence[Callable[[random.Random], str]] = (_plain, _plain, _hashed, _fixed, _by_room, _nearby)
    for number in range(count):
        yield makers[number % len(makers)](rng)


def _queues(rng: random.Random, brokers: Sequence[str] = BROKERS) -> str:
    topic = rng.choice(TOPICS)
    rows = [
        f"{topic}:{broker}:{queue_id}"
        for broker in rng.sample(brokers, rng.randint(1, min(4, len(brokers))))
        for queue_id in range(rng.choice((1, 2, 4, 8, 11)))
    ]
    rng.shuffle(rows)
    return ",".join(rows)


def _members(rng: random.Random, prefixes: Sequence[str] = ("10.0.0.", "192.168.1.", "\U0001f4e6", "\uff21")) -> str:
    names = [
        f"{rng.choice(prefixes)}{rng.randint(1, 30)}@{rng.randint(1, 40_000)}#{rng.randint(1, 10**15)}"
        for _ in range(rng.choice((1, 2, 3, 3, 5, 9, 17)))
    ]
    if rng.random() < 0.1:
        names.append(names[0])  # two clients with one id: a mistake that happens
    rng.shuffle(names)
    return ",".join(names)


def _plain(rng: random.Random) -> str:
    return "\t".join((rng.choice(("AVG", "AVG_BY_CIRCLE")), "", _members(rng), _queues(rng)))


def _hashed(rng: random.Random) -> str:
    return "\t".join(("CONSISTENT_HASH", rng.choice(("", "", "0", "1", "3", "10", "40")), _members(rng), _queues(rng)))


def _fixed(rng: random.Random) -> str:
    queues = _queues(rng)
    rows = queues.split(",")
    return "\t".join(("CONFIG", ",".join(rng.sample(rows, rng.randint(0, len(rows)))), _members(rng), queues))


def _by_room(rng: random.Random) -> str:
    rooms = ",".join(rng.sample(ROOMS, rng.randint(1, len(ROOMS))))
    return "\t".join(("MACHINE_ROOM", rooms, _members(rng), _queues(rng, ROOM_BROKERS)))


def _nearby(rng: random.Random) -> str:
    inner = rng.choice(("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"))
    prefixes = (*NEAR_CLIENTS, "nowhere") if rng.random() < 0.1 else NEAR_CLIENTS
    return "\t".join(("MACHINE_ROOM_NEARBY", inner, _members(rng, prefixes), _queues(rng)))
