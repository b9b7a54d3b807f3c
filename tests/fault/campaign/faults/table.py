"""All that is done to a group: how often, what it needs, and what it may cost. A schedule is drawn from a seed."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tests.fault import ext4
from tests.fault.campaign.clocks import missing_compiler
from tests.fault.campaign.evidence import Fault
from tests.fault.campaign.faults import clocks, deaths, disks, engines, processes, roles, wires
from tests.fault.campaign.modes import Cost, Mode
from tests.fault.campaign.rig import Group
from tests.rigs import network

Work = Callable[[Group, random.Random], None]
"""Breaks something, waits, and heals it."""

SILENT_S: Final = 6.0
ENGINE_S: Final = 12.0
LOAD_MAX: Final = 5.0
"""What waits for leases and clocks most of all is not slowed down without end."""


class Need(Enum):
    """What a fault cannot be done without."""

    GROUP = "a group"
    WIRES = "wires"
    DISKS = "disks"
    CLOCKS = "clocks"

    def is_met_by(self, group: Group) -> bool:
        match self:
            case Need.GROUP:
                return group.size > 1
            case Need.WIRES:
                return group.switch is not None
            case Need.DISKS:
                return bool(group.disks)
            case Need.CLOCKS:
                return bool(group.clocks)

    @property
    def missing(self) -> str:
        """Why this machine has not got it; empty if it has."""
        match self:
            case Need.GROUP:
                return ""
            case Need.WIRES:
                return network.missing_tools()
            case Need.DISKS:
                return ext4.missing_means()
            case Need.CLOCKS:
                return missing_compiler()


@dataclass(frozen=True, slots=True)
class Kind:
    """A fault; *weight* says how often it comes, beside the others.

    *back_within_s*: so soon after it was healed messages are acknowledged again, where nothing else runs.
    """

    work: Work
    weight: int
    needs: frozenset[Need] = frozenset()
    cost: Cost = Cost.NOTHING
    back_within_s: float = SILENT_S

    def fits(self, group: Group) -> bool:
        """Whether there is something in *group* that it can break."""
        return all(need.is_met_by(group) for need in self.needs)

    @property
    def name(self) -> str:
        return self.work.__name__

    def do(self, group: Group, chance: random.Random, mode: Mode) -> Fault:
        """Break it and heal it."""
        began_s = time.monotonic()
        self.work(group, chance)
        healed_s = time.monotonic()
        within_s = self.back_within_s * min(load(), LOAD_MAX)
        return Fault(self.name, began_s, healed_s, mode.costs_from(self.cost, began_s), within_s)


def load() -> float:
    """How many processes want each processor, at least one."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def _kinds(rows: Iterable[tuple[Work, int]], *needs: Need, within_s: float = SILENT_S) -> tuple[Kind, ...]:
    return tuple(Kind(work, weight, frozenset(needs), back_within_s=within_s) for work, weight in rows)


FAULTS: Final = (
    *_kinds(
        (
            (processes.kill_the_master, 6),
            (processes.kill_a_broker, 3),
            (processes.kill_all_brokers, 2),
            (processes.stop_the_master_in_order, 3),
            (processes.kill_a_worker, 4),
            (processes.hold_the_master, 4),
            (processes.hold_a_process, 4),
        )
    ),
    *_kinds(
        (
            (processes.stop_a_slave_in_order, 2),
            (processes.hold_a_slave, 2),
            (processes.leave_a_tail, 3),
            (processes.leave_one_alone, 4),
            (roles.switch_again_and_again, 3),
            (roles.wipe_a_slave, 2),
            (roles.start_a_copy, 1),
            (deaths.die_at_a_point, 6),
        ),
        Need.GROUP,
    ),
    *_kinds(
        (
            (engines.kill_an_engine, 2),
            (engines.kill_most_engines, 2),
            (engines.hold_the_leading_engine, 2),
            (engines.slow_an_engine_down, 1),
            (engines.restore_the_engines, 1),
        ),
        Need.GROUP,
        within_s=ENGINE_S,
    ),
    *_kinds(((wires.part_the_master, 4), (wires.part_the_master_and_the_clients, 4), (wires.flap, 2)), Need.WIRES),
    *_kinds(
        (
            (wires.part_the_engines_from_the_master_and_a_slave, 2),
            (wires.part_each_from_the_next, 2),
            (wires.leave_one_bridge, 2),
            (wires.leave_one_behind, 4),
            (wires.make_a_wire_slow, 2),
            (wires.make_a_wire_thin, 2),
        ),
        Need.WIRES,
        Need.GROUP,
        within_s=ENGINE_S,
    ),
    *_kinds(((clocks.set_a_clock, 3), (clocks.let_a_clock_jump, 3)), Need.CLOCKS),
    *_kinds(((disks.tear_a_tail, 3), (disks.die_together, 3), (disks.flip_a_bit, 2)), Need.GROUP),
    *_kinds(
        (
            (disks.lose_power_of_one, 4),
            (disks.fail_a_disk, 2),
            (disks.fill_the_disk_of_the_next_master, 2),
        ),
        Need.DISKS,
        Need.GROUP,
    ),
    *_kinds(((disks.fill_a_disk, 2),), Need.DISKS),
    Kind(disks.lose_power_of_all, 2, frozenset({Need.DISKS}), Cost.UNFLUSHED),
)


def draw(chance: random.Random, group: Group) -> Kind:
    """Return the next fault of a schedule."""
    kinds = [kind for kind in FAULTS if kind.fits(group)]
    return chance.choices(kinds, [kind.weight for kind in kinds])[0]


def left_out() -> list[str]:
    """Which faults cannot be done on this machine, each with the reason."""
    return [
        f"{kind.name}: {need.missing}"
        for kind in FAULTS
        for need in sorted(kind.needs, key=lambda need: need.value)
        if need.missing
    ]
