"""The members of a group must divide its queues exactly as Apache's clients do; the tables come from client 4.9.8."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqcore.client.model.rebalance import (
    STRATEGIES,
    ConsistentHash,
    FixedQueues,
    NearbyRooms,
    allocate,
    java_order,
    sorted_queues,
    strategy_of,
)
from mqcore.errors import ClientError, ConfigError
from mqcore.protocol.message import MessageQueue
from tests.interop.allocation_cases import divided
from tests.rows import walked

GOLDEN_FILE = Path(__file__).with_name("golden_allocations.tsv")
"""Lines that Allocate.java wrote with client 4.9.8."""

# Strategy, number of queues, number of members: the queue ids of each member in turn.
GOLDEN = """
AVG 1 1 : 0
AVG 1 4 : 0 - - -
AVG 2 2 : 0 1
AVG 2 3 : 0 1 -
AVG 2 8 : 0 1 - - - - - -
AVG 3 2 : 0,1 2
AVG 3 5 : 0 1 2 - -
AVG 4 2 : 0,1 2,3
AVG 4 3 : 0,1 2 3
AVG 5 2 : 0,1,2 3,4
AVG 5 3 : 0,1 2,3 4
AVG 7 2 : 0,1,2,3 4,5,6
AVG 7 3 : 0,1,2 3,4 5,6
AVG 7 4 : 0,1 2,3 4,5 6
AVG 7 5 : 0,1 2,3 4 5 6
AVG 7 8 : 0 1 2 3 4 5 6 -
AVG 8 3 : 0,1,2 3,4,5 6,7
AVG 8 5 : 0,1 2,3 4,5 6 7
AVG 8 8 : 0 1 2 3 4 5 6 7
AVG 16 3 : 0,1,2,3,4,5 6,7,8,9,10 11,12,13,14,15
AVG 16 5 : 0,1,2,3 4,5,6 7,8,9 10,11,12 13,14,15
AVG_BY_CIRCLE 1 4 : 0 - - -
AVG_BY_CIRCLE 3 2 : 0,2 1
AVG_BY_CIRCLE 4 3 : 0,3 1 2
AVG_BY_CIRCLE 5 3 : 0,3 1,4 2
AVG_BY_CIRCLE 7 2 : 0,2,4,6 1,3,5
AVG_BY_CIRCLE 7 5 : 0,5 1,6 2 3 4
AVG_BY_CIRCLE 8 3 : 0,3,6 1,4,7 2,5
AVG_BY_CIRCLE 16 3 : 0,3,6,9,12,15 1,4,7,10,13 2,5,8,11,14
AVG_BY_CIRCLE 16 8 : 0,8 1,9 2,10 3,11 4,12 5,13 6,14 7,15
""".strip().splitlines()


def queues_of(count: int) -> list[MessageQueue]:
    return [MessageQueue("T", "broker-a", queue_id) for queue_id in range(count)]


@pytest.mark.parametrize("row", GOLDEN)
def test_queues_are_divided_as_by_the_java_client(row: str) -> None:
    case, _, parts = row.partition(" : ")
    name, queue_count, member_count = case.split()
    members = [f"c{index}" for index in range(int(member_count))]
    for member, part in zip(members, parts.split(), strict=True):
        wanted = [] if part == "-" else [int(queue_id) for queue_id in part.split(",")]
        got = allocate(STRATEGIES[name], member, reversed(queues_of(int(queue_count))), reversed(members))
        assert [queue.queue_id for queue in got] == wanted, member


def test_every_strategy_divides_as_the_java_client_does_whatever_the_names() -> None:
    rows = GOLDEN_FILE.read_text(encoding="utf-8").splitlines()
    assert len(rows) == 60
    assert [divided(row.rpartition("\t")[0]) for row in rows] == rows


@walked("name", STRATEGIES)
@walked("queue_count", [1, 7, 8, 64])
@walked("member_count", [1, 2, 3, 7, 65])
def test_each_queue_has_exactly_one_owner(name: str, queue_count: int, member_count: int) -> None:
    members = [f"10.0.0.1@{index}#1" for index in range(member_count)]
    owned = [
        queue for member in members for queue in allocate(STRATEGIES[name], member, queues_of(queue_count), members)
    ]
    assert sorted(owned) == queues_of(queue_count)


def test_a_member_that_the_group_does_not_know_gets_nothing() -> None:
    assert allocate(STRATEGIES["AVG"], "stranger", queues_of(4), ["a", "b"]) == []
    assert allocate(STRATEGIES["AVG"], "a", [], ["a", "b"]) == []


def test_an_id_that_stands_twice_counts_twice() -> None:
    got = allocate(STRATEGIES["AVG"], "a", queues_of(4), ["a", "a"])
    assert [queue.queue_id for queue in got] == [0, 1]


def test_client_ids_are_sorted_as_java_sorts_strings() -> None:
    ids = ["10.0.0.1@2#5", "10.0.0.10@1", "10.0.0.1@10#5", "a", "A", "😀", "�", "é", "z", "10.0.0.1@DEFAULT"]
    assert [ids.index(text) for text in sorted(ids, key=java_order)] == [1, 2, 0, 9, 4, 3, 8, 7, 5, 6]


def test_queues_are_sorted_by_topic_then_broker_then_number() -> None:
    queues = [
        MessageQueue("T", "broker-b", 0),
        MessageQueue("T", "broker-a", 10),
        MessageQueue("T", "broker-a", 2),
        MessageQueue("T", "Broker-a", 1),
        MessageQueue("S", "broker-z", 1),
    ]
    assert sorted_queues(queues) == [queues[4], queues[3], queues[2], queues[1], queues[0]]


def test_an_unknown_strategy_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"got 'AVERAGE', wanted one of AVG, AVG_BY_CIRCLE"):
        strategy_of("AVERAGE")


def test_whoever_joins_or_leaves_a_ring_moves_few_queues() -> None:
    queues, members = queues_of(256), [f"10.0.0.1@{number}" for number in range(8)]
    before = {queue: member for member in members for queue in allocate(ConsistentHash(100), member, queues, members)}
    left = members[1:]
    after = {queue: member for member in left for queue in allocate(ConsistentHash(100), member, queues, left)}
    assert {queue for queue in queues if before[queue] != after[queue]} == {
        queue for queue in queues if before[queue] == members[0]
    }


def test_a_ring_without_places_gives_nobody_anything() -> None:
    assert allocate(ConsistentHash(0), "a", queues_of(4), ["a", "b"]) == []
    with pytest.raises(ConfigError, match="virtual_nodes: got -1"):
        ConsistentHash(-1)


def test_fixed_queues_do_not_depend_on_the_members() -> None:
    assert allocate(FixedQueues(queues_of(2)), "stranger", queues_of(4), ["a", "b"]) == queues_of(2)


def test_a_room_that_nobody_names_is_an_error() -> None:
    with pytest.raises(ClientError, match="nobody says in which machine room broker-a is"):
        allocate(NearbyRooms(lambda name: "", lambda name: "r"), "a", queues_of(4), ["a", "b"])
