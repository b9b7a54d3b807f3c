"""``python -m tests.fault.campaign.program``: a broker that can die at a point, or breaks a rule of the protocol.

    --without RULE      one of tests/failover/broken.py, or NeverZeroes: a cut leaves what it cuts off in its file
    --late-set SECONDS  the ha worker is told so late who must have what is confirmed: slow, and right all the same

What follows is for the broker.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import Final

from tests.fault.campaign import clocks

if __name__ == "__main__":
    # Before the imports of a broker, which are most of its start: another program may take this one's place.
    clocks.enter_time(["-m", __spec__.name, *sys.argv[1:]])

from mqcore.broker.__main__ import main as run_broker
from mqcore.broker.failover import driver
from mqcore.broker.failover.coordinator import Coordinator
from mqcore.broker.segment.group_log import SharedGroupLog
from mqcore.store import log_cut
from tests.failover import broken
from tests.fault.campaign import points

NEVER_ZEROES: Final = "NeverZeroes"


def take_out(rule: str) -> None:
    """Let this process break a rule."""
    if rule == NEVER_ZEROES:
        setattr(log_cut, log_cut.zero_from.__name__, lambda path, position: 0)
        return
    found = getattr(broken, rule)
    assert issubclass(found, Coordinator), f"{rule} is no rule of the coordinator"
    setattr(driver, Coordinator.__name__, found)


def tell_the_set_late(late_s: float) -> None:
    """Let what the ha worker is told of the required set come late, in its order."""
    require = SharedGroupLog.require

    def require_later(log: SharedGroupLog, generation: int, members: frozenset[int]) -> None:
        asyncio.get_running_loop().call_later(late_s, require, log, generation, members)

    setattr(SharedGroupLog, require.__name__, require_later)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--without", metavar="RULE")
    parser.add_argument("--late-set", type=float, metavar="SECONDS")
    own, of_broker = parser.parse_known_args()
    if own.without is not None:
        take_out(own.without)
    if own.late_set is not None:
        tell_the_set_late(own.late_set)
    told_by = os.environ.get(points.TOLD_BY)
    if told_by is not None:
        points.mark(Path(told_by))
    sys.argv = [sys.argv[0], *of_broker]
    return run_broker()


if __name__ == "__main__":
    sys.exit(main())
