"""Simulated schedules: where their worlds write, which seeds they have, and what was played, for the end of the run."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sim.schedules import SEED_BITS, Player
from tests.sim.world import quiet

MEMORY = Path("/dev/shm")
"""Where writing costs nothing: thousands of worlds write their brokers' tables."""

PLAYED = "simulated"


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """The directory of the worlds of one test."""
    with tempfile.TemporaryDirectory(prefix="mqcore-sim-", dir=MEMORY if MEMORY.is_dir() else tmp_path) as made:
        yield Path(made)


@pytest.fixture
def player(chance: random.Random, request: pytest.FixtureRequest) -> Iterator[Player]:
    """Plays schedules with seeds that follow from the run's."""
    player = Player(chance.getrandbits(SEED_BITS))
    yield player
    # Reports carry these from the processes of xdist to the one that speaks.
    request.node.user_properties += [(PLAYED, str(tally)) for tally in player.tallies]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines = {
        str(line): None
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, line in getattr(report, "user_properties", ())
        if name == PLAYED
    }
    if lines:
        terminalreporter.section("simulated schedules")
        for line in lines:
            terminalreporter.line(line)


@pytest.fixture
def quietly() -> Iterator[None]:
    """What parts log about simulated failures tells nobody anything."""
    with quiet():
        yield
