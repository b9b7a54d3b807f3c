"""How a producer chooses queues. Hashes and choices by hash are those of client 4.9.8."""

from __future__ import annotations

from collections import Counter

import pytest

from mqcore.client.model.messages import Message
from mqcore.client.model.selectors import (
    Rotation,
    ShardKey,
    java_hash,
    select_by_hash,
    select_by_machine_room,
    select_by_random,
)
from mqcore.errors import ClientError
from mqcore.protocol.message import MessageQueue

# Key, Java's hashCode, choice among eight queues, choice among seven.
GOLDEN = [
    ("order-42", 1234255197, 5, 0),
    ("polygenelubricants", -2147483648, 0, 2),
    ("", 0, 0, 0),
    ("中文", 646394, 2, 0),
    ("😀", 1772899, 3, 2),
    (7, 7, 7, 0),
    (-7, -7, 7, 0),
    (-2147483648, -2147483648, 0, 2),
    (123456789012, -1097262584, 0, 5),
    (-123456789012, -1097262577, 1, 5),
    (5000000000, 705032705, 1, 6),
    (-9223372036854775808, -2147483648, 0, 2),
    (True, 1231, 7, 6),
    (False, 1237, 5, 5),
    (0.0, 0, 0, 0),
    (-0.0, -2147483648, 0, 2),
    (1.5, 1073217536, 0, 6),
    (-2.25, -1073610752, 0, 4),
    (1e300, -164130400, 0, 0),
    (float("nan"), 2146959360, 0, 0),
    (float("inf"), 2146435072, 0, 5),
]


def queues_on(*brokers: str, each: int = 2) -> list[MessageQueue]:
    return [MessageQueue("T", broker, queue_id) for broker in brokers for queue_id in range(each)]


@pytest.mark.parametrize(("key", "code", "of_eight", "of_seven"), GOLDEN)
def test_a_key_chooses_the_queue_that_the_java_client_chooses(
    key: ShardKey, code: int, of_eight: int, of_seven: int
) -> None:
    assert java_hash(key) == code
    assert select_by_hash(queues_on("b", each=8), key).queue_id == of_eight
    assert select_by_hash(queues_on("b", each=7), key).queue_id == of_seven


def test_a_rotation_takes_every_queue_in_turn() -> None:
    rotation = Rotation(queues_on("a", "b"), start=1)
    assert [rotation.next() for _ in range(8)] == [*rotation.queues[1:], *rotation.queues, *rotation.queues[:1]]


def test_rotations_start_at_random_places() -> None:
    first = Counter(Rotation(queues_on("a", "b")).next() for _ in range(400))
    assert len(first) == 4


def test_a_round_goes_over_all_queues_and_counts_as_one_turn() -> None:
    rotation = Rotation(queues_on("a", "b"), start=3)
    assert list(rotation.round()) == [rotation.queues[3], *rotation.queues[:3]]
    assert next(rotation.round()) == rotation.queues[0]
    assert rotation.next() == rotation.queues[1]


def test_the_queues_of_a_broker_take_turns() -> None:
    rotation = Rotation(queues_on("a", "b", each=3), start=0)
    of_b = rotation.queues_of("b")
    assert of_b == list(rotation.queues[3:])
    assert [rotation.next_of(of_b).queue_id for _ in range(4)] == [0, 1, 2, 0]
    assert rotation.queues_of("c") == []


def test_the_broker_that_failed_is_avoided() -> None:
    rotation = Rotation(queues_on("a", "b"), start=0)
    for _ in range(10):
        assert rotation.next(avoid_broker="a").broker_name == "b"


def test_the_only_broker_is_used_again_although_it_failed() -> None:
    rotation = Rotation(queues_on("a", each=3), start=0)
    assert len({rotation.next(avoid_broker="a") for _ in range(3)}) == 3


def test_an_index_past_java_s_largest_starts_again_at_zero() -> None:
    rotation = Rotation(queues_on("a", each=3), start=0x7FFFFFFF)
    assert [rotation.next().queue_id for _ in range(3)] == [0x7FFFFFFF % 3, 0, 1]


def test_a_random_choice_is_one_of_the_queues() -> None:
    queues = queues_on("a", each=3)
    assert {select_by_random(queues, Message("T", b"x")) for _ in range(200)} == set(queues)


def test_a_machine_room_is_told_by_the_broker_s_name() -> None:
    queues = queues_on("room1@a", "room2@a", "room2@b", "nowhere")
    select = select_by_machine_room(["room2", "room3"])
    assert {select(queues, Message("T", b"x")).broker_name for _ in range(200)} == {"room2@a", "room2@b"}


def test_without_a_queue_in_the_machine_room_nothing_is_chosen() -> None:
    select = select_by_machine_room({"nowhere"})
    with pytest.raises(ClientError, match=r"no queue of T is in the machine rooms \['nowhere'\]"):
        select(queues_on("room1@a", "nowhere"), Message("T", b"x"))
