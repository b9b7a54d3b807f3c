"""What a group of a campaign is set to promise, and what a fault may cost it then."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import Final

FLUSH_INTERVAL_MS: Final = 200
UNFLUSHED_S: Final = 5.0
"""Disks have what was stored so long ago, by far: flushes are asked for every 0.2 s."""

LAG_S: Final = 2.0
"""Slaves of an asynchronous master have what was stored so long ago."""

LAZY: Final = {
    "flushIntervalCommitLog": str(FLUSH_INTERVAL_MS),
    "flushCommitLogThoroughInterval": str(FLUSH_INTERVAL_MS),
}


class Cost(Enum):
    """What is gone with all brokers that were in sync."""

    NOTHING = "nothing"
    UNFLUSHED = "what no disk had"


class Mode(StrEnum):
    """Which acknowledgements a group gives."""

    SYNC = "sync"
    """All that are in sync have the message in memory."""
    ASYNC = "async"
    """The master has it in memory: what lags behind may be lost with each master, and is given up by its readers."""
    FLUSHED = "flushed"
    """All that are in sync have it on their disks."""

    @property
    def properties(self) -> Mapping[str, str]:
        return PROPERTIES[self]

    def costs_from(self, cost: Cost, began_s: float) -> float:
        """Return from when on a fault may cost what was acknowledged, infinite if it may cost nothing."""
        lag_s = LAG_S if self is Mode.ASYNC else -math.inf
        unflushed_s = UNFLUSHED_S if cost is Cost.UNFLUSHED and self is not Mode.FLUSHED else -math.inf
        return began_s - max(lag_s, unflushed_s)


PROPERTIES: Final[Mapping[Mode, Mapping[str, str]]] = {
    Mode.SYNC: LAZY,
    Mode.ASYNC: {**LAZY, "brokerRole": "ASYNC_MASTER"},
    Mode.FLUSHED: {"haAckFlushed": "true", "flushDiskType": "SYNC_FLUSH"},
}
