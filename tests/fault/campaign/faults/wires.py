"""Wires between the machines of a group that are cut, both ways or one, and such as are slow."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tests.fault.campaign.faults.pauses import AWAY_S, CUT_S, rest
from tests.fault.campaign.faults.processes import a_slave
from tests.fault.campaign.rig import Group
from tests.rigs.network import Direction

BEHIND_S: Final = (0.1, 8.0)
FLAP_S: Final = (0.2, 3.0)
SLOW_S: Final = 0.2
THIN_BYTES_PER_S: Final = (50_000.0, 1_000_000.0)
"""The lower one is less than what the clients send."""


def _cut(way: Direction) -> None:
    way.loss = 1.0


def _heal(group: Group) -> None:
    assert group.switch is not None  # faults of wires are left out where there are none
    group.switch.heal()


def _part(group: Group, some: Sequence[int], chance: random.Random) -> None:
    """Cut all wires between *some* machines and the others, both ways or one."""
    others = [number for number in range(group.outside + 1) if number not in some]
    way = chance.choice(("both", "out", "in"))
    if way != "in":
        group.each_way(some, others, _cut)
    if way != "out":
        group.each_way(others, some, _cut)


def _cut_between(group: Group, ones: Sequence[int], others: Sequence[int]) -> None:
    group.each_way(ones, others, _cut)
    group.each_way(others, ones, _cut)


def part_the_master(group: Group, chance: random.Random) -> None:
    _part(group, [group.master_number()], chance)
    rest(chance, CUT_S)
    _heal(group)


def part_the_master_and_the_clients(group: Group, chance: random.Random) -> None:
    """They see each other, and nobody else: what is sent there must not be acknowledged."""
    _part(group, [group.master_number(), group.outside], chance)
    rest(chance, CUT_S)
    _heal(group)


def part_the_engines_from_the_master_and_a_slave(group: Group, chance: random.Random) -> None:
    master = group.master_number()
    _cut_between(group, (master, a_slave(group, chance)), range(group.size, group.outside))
    rest(chance, CUT_S)
    _heal(group)


def part_each_from_the_next(group: Group, chance: random.Random) -> None:
    """A ring: each broker misses one of the others."""
    for one, other in itertools.pairwise([*range(group.size), 0]):
        group.each_way([one], [other], _cut)
    rest(chance, CUT_S)
    _heal(group)


def leave_one_bridge(group: Group, chance: random.Random) -> None:
    """One broker and one etcd see all, the others see these and their own half."""
    _, *halves = chance.sample(range(group.size), group.size)
    _, *engines = chance.sample(range(group.size, group.outside), group.engine_count)
    _cut_between(group, (halves[0], engines[0]), (halves[1], engines[1]))
    rest(chance, CUT_S)
    _heal(group)


@contextlib.contextmanager
def cut_from_brokers(group: Group, number: int) -> Iterator[None]:
    """Let no other broker's packets reach one, nor its any other: not even those that a kernel sends for the dead."""
    _cut_between(group, [number], group.others(number))
    try:
        yield
    finally:
        _heal(group)


def leave_one_behind(group: Group, chance: random.Random) -> None:
    """A slave hears nothing of the others for a while, then they die: if it leads, it has everything."""
    one = a_slave(group, chance)
    with cut_from_brokers(group, one):
        rest(chance, BEHIND_S)
        for number in group.others(one):
            group.brokers[number].kill()
        rest(chance, AWAY_S)
    group.start_the_ended()


def flap(group: Group, chance: random.Random) -> None:
    master = group.master_number()
    for _ in range(chance.randint(2, 5)):
        _part(group, [master], chance)
        rest(chance, FLAP_S)
        _heal(group)
        rest(chance, FLAP_S)


def make_a_wire_slow(group: Group, chance: random.Random) -> None:
    def delay(way: Direction) -> None:
        way.delay_s = SLOW_S

    _change_a_wire(group, chance, delay)


def make_a_wire_thin(group: Group, chance: random.Random) -> None:
    bytes_per_s = chance.choice(THIN_BYTES_PER_S)

    def narrow(way: Direction) -> None:
        way.bytes_per_s = bytes_per_s

    _change_a_wire(group, chance, narrow)


def _change_a_wire(group: Group, chance: random.Random, change: Callable[[Direction], None]) -> None:
    master = group.master_number()
    other = chance.choice([number for number in range(group.outside) if number != master])
    group.each_way([master], [other], change)
    group.each_way([other], [master], change)
    rest(chance, CUT_S)
    _heal(group)
