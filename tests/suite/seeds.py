"""One random seed for a run, printed, from which every random choice of its tests follows.

Each run has another one, so that each run looks somewhere else; ``--seed N`` (or MQCORE_TEST_SEED) repeats it. A test
takes the fixture ``chance``, which depends on the seed and on the test alone: not on what ran before it, nor on the
process that runs it. Hypothesis is given the same seed, unless ``--hypothesis-seed`` names another.
"""

from __future__ import annotations

import os
import random

import pytest

VARIABLE = "MQCORE_TEST_SEED"
SEEDS = 1 << 32


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, help=f"seed of all random choices; random itself, or what {VARIABLE} says")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # The processes of xdist are given the options of the one that started them, after this.
    if config.option.seed is None:
        config.option.seed = int(os.environ.get(VARIABLE) or random.SystemRandom().randrange(SEEDS))
    # For what is no fixture.
    os.environ[VARIABLE] = str(config.option.seed)
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(config.option.seed)


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {replay(config)}"


def replay(config: pytest.Config) -> str:
    """Return the options that repeat this run's random choices."""
    seed, hypothesis_seed = config.option.seed, config.option.hypothesis_seed
    return f"--seed={seed}" + (f" --hypothesis-seed={hypothesis_seed}" if hypothesis_seed != str(seed) else "")


def seed_of(request: pytest.FixtureRequest) -> str:
    """Return the seed of this test: equal in each run with the same ``--seed``."""
    return f"{request.config.option.seed}/{request.node.nodeid}"


def chance_of_run(name: str) -> random.Random:
    """Random choices for what several tests share: they follow from the seed of the run and from *name*."""
    return random.Random(f"{os.environ[VARIABLE]}/{name}")


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """The random choices of this test."""
    return random.Random(seed_of(request))
