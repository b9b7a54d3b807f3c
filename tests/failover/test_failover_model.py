"""The failover protocol, played: random schedules on the coordinator of a broker; nothing acknowledged is lost in any.

Each rule that this rests on is taken out once, and the model must then find a loss. A model that finds nothing proves
nothing. Where nothing is broken any more a group has a master again, and all are in sync.
"""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from random import Random

import pytest

from tests.failover.broken import RULES, SERVICE_RULES, Rule, world_of
from tests.failover.replica import StuckError, Violation
from tests.failover.world import World

STEPS = 800
RUNS = 600
MILLION = 1_000_000
HEALED_EVERY = 4
"""Of so many schedules, one ends with nothing broken any more."""
RUNS_AT_ONCE = 10_000
"""What one process of the long form plays before it says so."""
NICE = 19
RUNS_UNTIL_FOUND = 5_000
"""The rarest loss is found in one of a hundred runs."""


def play(world: type[World], chance: Random, *, heals: bool) -> Counter[str]:
    """Play a schedule, and heal it; what happened, counted. Raises Violation with the seed that finds it again."""
    seed = chance.getrandbits(48)
    schedule = world(Random(seed))
    try:
        schedule.run(STEPS)
        if heals:
            schedule.heal()
    except Violation as violation:
        violation.add_note(f"World(Random({seed})).run({STEPS}){', then heal()' if heals else ''}")
        raise
    return schedule.done + Counter(runs=1, acknowledged=len(schedule.acknowledged), in_sync=schedule.in_sync_max)


def play_many(runs: int, chance: Random) -> Counter[str]:
    """Play so many schedules; what happened in all of them, counted."""
    done: Counter[str] = Counter()
    for number in range(runs):
        done += play(World, chance, heals=number % HEALED_EVERY == 0)
    return done


def check_what_happened(done: Counter[str], runs: int) -> None:
    """The schedules have in them what they are for."""
    for name in ("lead", "kill", "unknown", "acknowledged"):
        assert done[name] > runs, (name, done)
    for name in ("power", "killed in a cut", "leave"):
        assert done[name] > runs // 3, (name, done)
    assert done["in_sync"] > 1.8 * runs, done
    assert done["demote"] > runs // 20, done
    assert done["given away"] > runs // 60, done
    assert done["unclean"] > runs // 60, done
    assert done["healed"] >= runs // HEALED_EVERY, done


def play_until_found(world: type[World], chance: Random, *, heals: bool) -> None:
    for _ in range(RUNS_UNTIL_FOUND):
        play(world, chance, heals=heals)


def test_nothing_acknowledged_is_lost(chance: Random) -> None:
    check_what_happened(play_many(RUNS, chance), RUNS)


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_nothing_acknowledged_is_lost_in_a_million_runs(chance: Random) -> None:
    chances = [Random(chance.getrandbits(64)) for _ in range(MILLION // RUNS_AT_ONCE)]
    done: Counter[str] = Counter()
    # Tests among real processes, beside it, go first.
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), initializer=os.nice, initargs=(NICE,)) as players:
        for found in players.map(play_many, repeat(RUNS_AT_ONCE), chances):
            done += found
            print(f"played {done['runs']:,}", flush=True)
    check_what_happened(done, MILLION)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_without_a_rule_something_is_lost(rule: Rule, chance: Random) -> None:
    with pytest.raises(Violation):
        play_until_found(world_of(rule), chance, heals=False)


@pytest.mark.parametrize("rule", SERVICE_RULES, ids=lambda rule: rule.__name__)
def test_without_a_rule_a_group_waits_for_ever(rule: Rule, chance: Random) -> None:
    with pytest.raises(StuckError):
        play_until_found(world_of(rule), chance, heals=True)
