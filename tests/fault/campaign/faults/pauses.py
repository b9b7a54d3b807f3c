"""How long what is broken stays so, seconds."""

from __future__ import annotations

import random
import time
from typing import Final

AWAY_S: Final = (0.1, 10.0)
STOPPED_S: Final = (0.5, 30.0)
CUT_S: Final = (1.0, 10.0)


def rest(chance: random.Random, limits: tuple[float, float]) -> None:
    """Let a time between the limits pass: of all lengths, short ones as likely as long ones."""
    shortest, longest = limits
    time.sleep(shortest * (longest / shortest) ** chance.random())
