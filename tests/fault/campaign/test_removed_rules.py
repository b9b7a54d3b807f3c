"""Brokers that break a rule of the protocol lose what they acknowledged, and the campaign finds it.

Each rule has a schedule in which it matters, played with it and without it: with it nothing is found.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.failover.broken import LetsGoBeforeTheSwap, SwapsBeforeItHasAll, SwapsBeforeTheBit, TrustsItself
from tests.fault.campaign.faults.disks import forget_the_boot, tear_off
from tests.fault.campaign.faults.engines import engines_away
from tests.fault.campaign.faults.processes import (
    LEADS_WITHIN_S,
    a_slave,
    bury,
    epoch_of,
    leave_a_tail,
    linger,
    strike,
)
from tests.fault.campaign.faults.table import Work
from tests.fault.campaign.faults.wires import cut_from_brokers
from tests.fault.campaign.program import NEVER_ZEROES
from tests.fault.campaign.rig import Group
from tests.fault.campaign.round import PROGRAM, Setting, play
from tests.rigs import etcd, network
from tests.rigs.network import Direction

IN_SYNC_WITHIN_S: Final = 10.0
LATE_SET_S: Final = 2.0
BEHIND_S: Final = 0.7
GAP_S: Final = 4.0
SILENT_S: Final = 8.0
PATIENT: Final = {"haMaxTimeSlaveNotCatchup": "60000"}
"""Who has been away for a few seconds is not taken out again for that."""

NARROW_BYTES_PER_S: Final = 10_000.0

pytestmark = [
    pytest.mark.fault,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(etcd.missing_tools()), reason=etcd.missing_tools()),
]


def come_first_with_less(group: Group, chance: random.Random) -> None:
    """All machines lose their power. The one that has lost something is there first."""
    one = a_slave(group, chance)
    bury(group, strike(group, range(group.size)))
    tear_off(group, one, 1 << 14)
    forget_the_boot(group, one)
    epoch = epoch_of(group)
    group.start_again(one)
    linger(lambda: epoch_of(group) > epoch, LEADS_WITHIN_S)
    group.start_the_ended()


def be_stored_and_cut_off(group: Group, chance: random.Random) -> None:
    """A slave comes back into the set, hears nothing more, and is then the only one left of it."""
    one = a_slave(group, chance)
    group.brokers[one].kill()
    group.await_in_sync(group.size - 1)
    group.start_again(one)
    linger(lambda: _is_in_sync(group, one), IN_SYNC_WITHIN_S)
    with cut_from_brokers(group, one):
        time.sleep(BEHIND_S)
        _leave_alone(group, one)
    group.start_the_ended()


def come_back_over_a_narrow_wire(group: Group, chance: random.Random) -> None:
    """A slave that lacks something gets it slowly, and is then the only one left."""
    one, master = a_slave(group, chance), group.master_number()
    group.brokers[one].kill()
    group.await_in_sync(group.size - 1)
    time.sleep(GAP_S)

    def narrow(way: Direction) -> None:
        way.bytes_per_s = NARROW_BYTES_PER_S

    group.each_way([master], [one], narrow)
    group.start_again(one)
    linger(lambda: _is_in_sync(group, one), IN_SYNC_WITHIN_S)
    with cut_from_brokers(group, one):
        _leave_alone(group, one)
    group.start_the_ended()


def be_silent_without_engines(group: Group, chance: random.Random) -> None:
    """The master cannot take a silent slave out of the set, which is then the only one left of it."""
    one, epoch = a_slave(group, chance), epoch_of(group)
    # All of them: one that is left would keep what it was asked for, and do it when the others are back.
    with engines_away(group), cut_from_brokers(group, one):
        time.sleep(SILENT_S)
        bury(group, strike(group, group.others(one)))
    with cut_from_brokers(group, one):
        linger(lambda: epoch_of(group) > epoch, LEADS_WITHIN_S)
    group.start_the_ended()


def _leave_alone(group: Group, one: int) -> None:
    """Kill all but one broker, and give it time to lead."""
    epoch = epoch_of(group)
    bury(group, strike(group, group.others(one)))
    linger(lambda: epoch_of(group) > epoch, LEADS_WITHIN_S)


def _is_in_sync(group: Group, number: int) -> bool:
    state = group.view().state
    return state is not None and group.member_of(number) in state.isr


@dataclass(frozen=True, slots=True)
class Removal:
    """A rule, the schedule in which it matters, and what makes its lack matter for long enough."""

    rule: str
    work: Work
    options: tuple[str, ...] = ()
    needs_machines: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)


REMOVALS: Final = (
    Removal(TrustsItself.__name__, come_first_with_less),
    Removal(SwapsBeforeTheBit.__name__, be_stored_and_cut_off, ("--late-set", str(LATE_SET_S)), needs_machines=True),
    Removal(SwapsBeforeItHasAll.__name__, come_back_over_a_narrow_wire, needs_machines=True, properties=PATIENT),
    Removal(LetsGoBeforeTheSwap.__name__, be_silent_without_engines, needs_machines=True),
    Removal(NEVER_ZEROES, leave_a_tail),
)


def broken_rules(home: Path, removal: Removal, *, is_removed: bool) -> set[str]:
    program = (*PROGRAM, *removal.options, *(("--without", removal.rule) if is_removed else ()))
    setting = Setting(0, 0.0, has_machines=removal.needs_machines, program=program, properties=removal.properties)

    def work(group: Group, chance: random.Random) -> None:
        group.await_in_sync(group.size)
        removal.work(group, chance)

    report, _ = play(home, setting, work)
    print(report.line())
    for rule, what in report.violations[:5]:
        print(f"{rule}: {what}")
    return {rule for rule, _ in report.violations}


@pytest.mark.parametrize(
    "removal",
    [
        pytest.param(
            removal,
            id=removal.rule,
            marks=[pytest.mark.root, pytest.mark.skipif(bool(network.missing_tools()), reason=network.missing_tools())]
            if removal.needs_machines
            else [],
        )
        for removal in REMOVALS
    ],
)
def test_a_rule_that_is_taken_out_is_missed_and_one_that_is_kept_is_not(tmp_path: Path, removal: Removal) -> None:
    assert broken_rules(tmp_path / "with", removal, is_removed=False) == set()
    assert broken_rules(tmp_path / "without", removal, is_removed=True)
