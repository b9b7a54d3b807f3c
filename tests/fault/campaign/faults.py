"""What is done to a group, how often, and how it is healed. A schedule is drawn from a seed, which plays it again."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import psutil

from tests.fault.campaign.rig import Group
from tests.fault.rig import worker_kind
from tests.rigs.network import Direction

KINDS_OF_WORKERS: Final = ("send", "pull", "reput", "flush", "ha")
AWAY_S: Final = (0.1, 10.0)
STOPPED_S: Final = (0.5, 12.0)
CUT_S: Final = (1.0, 10.0)
FLAP_S: Final = (0.2, 1.5)
SLOW_S: Final = 0.2

Work = Callable[[Group, random.Random], None]
"""Breaks something, waits, and heals it."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A fault; *weight* says how often it comes, beside the others. It may need others than one broker, or wires."""

    work: Work
    weight: int
    needs_group: bool = False
    needs_wires: bool = False

    def fits(self, group: Group) -> bool:
        """Whether there is something in *group* that it can break."""
        return (group.size > 1 or not self.needs_group) and (group.switch is not None or not self.needs_wires)

    @property
    def name(self) -> str:
        return self.work.__name__


def rest(chance: random.Random, limits: tuple[float, float]) -> None:
    time.sleep(chance.uniform(*limits))


# Processes.


def kill_the_master(group: Group, chance: random.Random) -> None:
    _kill_and_start(group, [group.master_number()], chance)


def kill_a_broker(group: Group, chance: random.Random) -> None:
    _kill_and_start(group, [chance.randrange(group.size)], chance)


def kill_all_brokers(group: Group, chance: random.Random) -> None:
    _kill_and_start(group, chance.sample(range(group.size), group.size), chance)


def _kill_and_start(group: Group, numbers: Sequence[int], chance: random.Random) -> None:
    for number in numbers:
        group.brokers[number].kill()
    rest(chance, AWAY_S)
    for number in numbers:
        group.start_again(number)


def stop_the_master_in_order(group: Group, chance: random.Random) -> None:
    number = group.master_number()
    group.brokers[number].stop()
    rest(chance, AWAY_S)
    group.start_again(number)


def wipe_a_slave(group: Group, chance: random.Random) -> None:
    """It loses its disk, and comes back as a new member."""
    master = group.master_number()
    number = chance.choice([number for number in range(group.size) if number != master])
    group.brokers[number].kill()
    shutil.rmtree(group.brokers[number].store_dir)
    group.start_again(number)


def kill_a_worker(group: Group, chance: random.Random) -> None:
    kind = chance.choice(KINDS_OF_WORKERS)
    for process in _workers(group, group.master_number(), kind):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _workers(group: Group, number: int, kind: str) -> list[psutil.Process]:
    return [process for process in group.brokers[number].workers() if worker_kind(process) == kind]


@contextlib.contextmanager
def _stopped(processes: Sequence[psutil.Process]) -> Iterator[None]:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)


def hold_the_master(group: Group, chance: random.Random) -> None:
    """The whole master stands still, as a machine does that is moved."""
    broker = group.master()
    with _stopped([psutil.Process(broker.pid), *broker.workers()]):
        rest(chance, STOPPED_S)


def hold_a_process_of_the_master(group: Group, chance: random.Random) -> None:
    number = group.master_number()
    kind = chance.choice(("broker", "ha", "send"))
    processes = [psutil.Process(group.brokers[number].pid)] if kind == "broker" else _workers(group, number, kind)
    with _stopped(processes):
        rest(chance, STOPPED_S)


def hold_a_slave(group: Group, chance: random.Random) -> None:
    master = group.master_number()
    broker = group.brokers[chance.choice([number for number in range(group.size) if number != master])]
    with _stopped([psutil.Process(broker.pid), *broker.workers()]):
        rest(chance, STOPPED_S)


# etcd.


def kill_an_engine(group: Group, chance: random.Random) -> None:
    _without_engines(group, [chance.randrange(group.engine_count)], chance)


def kill_most_engines(group: Group, chance: random.Random) -> None:
    """No state can be read or changed until one is back; the master goes on."""
    _without_engines(group, chance.sample(range(group.engine_count), 2), chance)


def _without_engines(group: Group, numbers: Sequence[int], chance: random.Random) -> None:
    for number in numbers:
        group.engines[number].kill()
    rest(chance, AWAY_S)
    for number in numbers:
        group.start_engine(number)


def hold_an_engine(group: Group, chance: random.Random) -> None:
    pid = group.engines[chance.randrange(group.engine_count)].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        rest(chance, STOPPED_S)
    finally:
        os.kill(pid, signal.SIGCONT)


# Wires.


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
    slave = chance.choice([number for number in range(group.size) if number != master])
    engines = range(group.size, group.outside)
    group.each_way((master, slave), engines, _cut)
    group.each_way(engines, (master, slave), _cut)
    rest(chance, CUT_S)
    _heal(group)


def part_each_from_the_next(group: Group, chance: random.Random) -> None:
    """A ring: each broker misses one of the others."""
    for one, other in itertools.pairwise([*range(group.size), 0]):
        group.each_way([one], [other], _cut)
    rest(chance, CUT_S)
    _heal(group)


def flap(group: Group, chance: random.Random) -> None:
    master = group.master_number()
    for _ in range(chance.randint(2, 5)):
        _part(group, [master], chance)
        rest(chance, FLAP_S)
        _heal(group)
        rest(chance, FLAP_S)


def be_slow(group: Group, chance: random.Random) -> None:
    master = group.master_number()
    other = chance.choice([number for number in range(group.outside) if number != master])

    def delay(way: Direction) -> None:
        way.delay_s = SLOW_S

    group.each_way([master], [other], delay)
    group.each_way([other], [master], delay)
    rest(chance, CUT_S)
    _heal(group)


FAULTS: Final = (
    Kind(kill_the_master, 6),
    Kind(kill_a_broker, 3),
    Kind(kill_all_brokers, 2),
    Kind(stop_the_master_in_order, 3),
    Kind(wipe_a_slave, 2, needs_group=True),
    Kind(kill_a_worker, 4),
    Kind(hold_the_master, 4),
    Kind(hold_a_process_of_the_master, 4),
    Kind(hold_a_slave, 2, needs_group=True),
    Kind(kill_an_engine, 2, needs_group=True),
    Kind(kill_most_engines, 2, needs_group=True),
    Kind(hold_an_engine, 1, needs_group=True),
    Kind(part_the_master, 4, needs_wires=True),
    Kind(part_the_master_and_the_clients, 4, needs_wires=True),
    Kind(part_the_engines_from_the_master_and_a_slave, 2, needs_group=True, needs_wires=True),
    Kind(part_each_from_the_next, 2, needs_group=True, needs_wires=True),
    Kind(flap, 2, needs_wires=True),
    Kind(be_slow, 2, needs_wires=True),
)


def draw(chance: random.Random, group: Group) -> Kind:
    """Return the next fault of a schedule."""
    kinds = [kind for kind in FAULTS if kind.fits(group)]
    return chance.choices(kinds, [kind.weight for kind in kinds])[0]
