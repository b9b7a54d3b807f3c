"""RocketMQ's delay levels: how long a message of each waits, unless a broker's messageDelayLevel says otherwise."""

from __future__ import annotations

import bisect
import re
from datetime import timedelta
from itertools import pairwise
from typing import Final

DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Return the delay of each level in milliseconds; entry 0 is level 1. Parts are separated by single spaces.

    Raises ValueError with what was wanted.
    """
    levels = []
    for part in text.split(" "):
        match = re.fullmatch(r"([0-9]{1,9})([smhd])", part)
        if match is None:
            raise ValueError("delays such as 1s 5m 2h 1d, separated by single spaces")
        levels.append(int(match[1]) * UNITS_MS[match[2]])
    return tuple(levels)


DELAY_LEVELS_MS: Final = parse_delay_levels(DELAY_LEVELS)
DELAY_LEVELS_S: Final = tuple(delay_ms // 1000 for delay_ms in DELAY_LEVELS_MS)
DELAY_LEVEL_MAX: Final = len(DELAY_LEVELS_MS)
FIRST_RETRY_LEVEL: Final = 3
"""What a message that was sent back waits before its first retry; one level more for each further one."""


def seconds_of(delay: timedelta | float) -> float:
    return delay.total_seconds() if isinstance(delay, timedelta) else delay


def exact_level_of(delay: timedelta | float) -> int | None:
    """Return the level that holds a message back for *delay* (a timedelta, or seconds) at brokers with the usual table.

    None: no level does, and it takes a timer.
    """
    seconds = seconds_of(delay)
    if seconds == 0:
        return 0
    return DELAY_LEVELS_S.index(seconds) + 1 if seconds in DELAY_LEVELS_S else None


def level_of(delay: timedelta | float) -> int:
    """Return the first level that waits at least *delay* (a timedelta, or seconds), or the last one."""
    return min(bisect.bisect_left(DELAY_LEVELS_S, seconds_of(delay)) + 1, DELAY_LEVEL_MAX)


# Who looks for the level of a time goes by halves.
assert all(shorter < longer for shorter, longer in pairwise(DELAY_LEVELS_MS))
assert all(delay_ms % 1000 == 0 for delay_ms in DELAY_LEVELS_MS)
