"""Simulated schedules: where their worlds write, and what was played, for the end of the run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sim.schedules import TALLIES

MEMORY = Path("/dev/shm")
"""Where writing costs nothing: thousands of worlds write their brokers' tables."""


@pytest.fixture
def root(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of the worlds of one test."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="mqcore-sim-", dir=MEMORY if MEMORY.is_dir() else tmp_path) as made:
        yield Path(made)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if TALLIES:
        terminalreporter.section("simulated schedules")
        for tally in TALLIES:
            terminalreporter.line(str(tally))
