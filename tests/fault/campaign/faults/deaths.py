"""Brokers that die at a point of an election, of a change of the in-sync set or of a cut."""

from __future__ import annotations

import contextlib
import random
import time
from typing import Final

from tests.fault.campaign.faults.pauses import AWAY_S, rest
from tests.fault.campaign.faults.processes import a_slave, all_processes, leave_a_tail, linger, stopped
from tests.fault.campaign.faults.roles import name_next
from tests.fault.campaign.points import STEPS
from tests.fault.campaign.rig import Group
from tests.rigs.process import ChildError

SILENT_S: Final = 3.0
DIES_WITHIN_S: Final = 10.0


def die_at_a_point(group: Group, chance: random.Random) -> None:
    """Whoever comes to a point first dies there. Not every step is taken each time: then nobody dies."""
    point = f"{chance.choice(('before', 'behind'))} {chance.choice(list(STEPS))}"
    print(f"the point: {point}", flush=True)
    for number in range(group.size):
        group.point_of(number).write_text(point)
    try:
        # One that is started may die while it starts.
        with contextlib.suppress(ChildError):
            chance.choice((_name_another, leave_a_tail, _let_a_slave_go))(group, chance)
        linger(lambda: not all(broker.child.is_alive for broker in group.brokers), DIES_WITHIN_S)
    finally:
        for number in range(group.size):
            group.point_of(number).unlink(missing_ok=True)
    rest(chance, AWAY_S)
    group.start_the_ended()


def _name_another(group: Group, chance: random.Random) -> None:
    name_next(group, a_slave(group, chance))


def _let_a_slave_go(group: Group, chance: random.Random) -> None:
    """It is taken out of the set, and in again."""
    with stopped(all_processes(group, a_slave(group, chance))):
        time.sleep(SILENT_S)
