"""What the tests of loss have in common."""

from __future__ import annotations

import random

import pytest

from tests.fault.rig import FLUSH_MODES


@pytest.fixture(params=["either", *(pytest.param(mode, marks=pytest.mark.slow) for mode in FLUSH_MODES)])
def flush_mode(request: pytest.FixtureRequest, chance: random.Random) -> dict[str, str]:
    """A broker's settings for one of the flush modes: in long runs for each, otherwise for one that chance takes."""
    mode = chance.choice(list(FLUSH_MODES)) if request.param == "either" else request.param
    print(f"flush mode: {mode}")
    return FLUSH_MODES[mode]
