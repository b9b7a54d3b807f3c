"""Wall clocks that are set while brokers run."""

from __future__ import annotations

import random
import time
from typing import Final

from tests.fault.campaign.faults.pauses import AWAY_S, rest
from tests.fault.campaign.rig import Group

HOUR_S: Final = 3600.0
STROBE_S: Final = 0.05
STROBES: Final = 60


def set_a_clock(group: Group, chance: random.Random) -> None:
    """It is an hour ahead or behind for a while."""
    clock = group.clocks[chance.choice((group.master_number(), chance.randrange(group.size)))]
    clock.put_ahead(chance.choice((-HOUR_S, HOUR_S)))
    rest(chance, AWAY_S)
    clock.put_ahead(0.0)


def let_a_clock_jump(group: Group, chance: random.Random) -> None:
    """It jumps there and back every 50 ms."""
    clock = group.clocks[chance.choice((group.master_number(), chance.randrange(group.size)))]
    for number in range(STROBES):
        clock.put_ahead(chance.choice((-HOUR_S, HOUR_S, chance.uniform(-1.0, 1.0))) if number % 2 else 0.0)
        time.sleep(STROBE_S)
    clock.put_ahead(0.0)
