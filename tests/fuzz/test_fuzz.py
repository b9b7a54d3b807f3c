"""Inputs by chance against the sanitized build, and whether the fuzzer would find what there is to be found."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from tests.fuzz.playing import FOUND, environment, missing, play, replay
from tests.fuzz.seeds import PLANTED, SEEDS, TARGETS
from tests.fuzz.twins import TWINS

INPUTS = int(float(os.environ.get("MQCORE_FUZZ_INPUTS", "1e7")))
"""Over all targets; ``make fuzz`` plays ten times as many."""
PLANTED_INPUTS = 2_000_000

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing())]


@pytest.mark.parametrize("target", TARGETS)
def test_no_input_reads_behind_its_end_or_breaks_a_promise(target: str, chance: random.Random) -> None:
    inputs = INPUTS // len(TARGETS)
    # The readable twin takes a hundred times as long.
    finding = play(target, inputs // 100 if target in TWINS else inputs, chance.getrandbits(32))
    assert finding is None, str(finding)


@pytest.mark.parametrize(
    ("target", "word"), [("planted_read", "heap-buffer-overflow"), ("planted_lie", "a promise is broken")]
)
def test_a_planted_defect_is_found_kept_and_played_again(target: str, word: str, chance: random.Random) -> None:
    finding = play(target, PLANTED_INPUTS, chance.getrandbits(32))
    assert finding is not None
    assert word in finding.output
    assert finding.path.parent == FOUND
    assert finding.path.read_bytes()[:2] == b"mq", "what broke it, and not another input"
    assert word in replay(target, finding.path)


def test_every_target_has_seeds() -> None:
    program = "import sys; sys.path.insert(0, 'build/sanitize'); import mqcore_fuzz; print(*mqcore_fuzz.target_names())"
    command = [sys.executable, "-c", program]
    names = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True).stdout.split()
    assert {*names, *TWINS} == {*SEEDS} == {*TARGETS, *PLANTED}
