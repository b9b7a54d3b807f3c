"""What the campaign breaks groups with does what it says: clocks, wires, and points to die at."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.fault.campaign import clocks, points
from tests.fault.campaign.clocks import AHEAD, Clock
from tests.rigs.network import BACKLOG_S, Direction

NEAR_S: Final = 60.0
HOUR_S: Final = 3600.0
ASK_TIME: Final = "import time; print(time.time(), time.monotonic())"
ASK_OTHER_TIME: Final = f"from tests.fault.campaign.clocks import enter_time; enter_time(['-c', {ASK_TIME!r}])"
DIE_THERE: Final = """
import sys
from pathlib import Path
from tests.fault.campaign import points
from mqcore.store import log_cut
points.STEPS = {"the zeros": (log_cut, "zero_from")}
points.mark(Path(sys.argv[1]))
log_cut.zero_from(sys.argv[2], 0)
print("lives")
"""
SIZE: Final = 100


def run(program: str, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], env={**os.environ, **(env or {})}, capture_output=True, text=True
    )


def times(program: str, env: Mapping[str, str]) -> tuple[float, float]:
    """What a process takes for the time: of its wall clock and its monotonic one, from this one's."""
    done = run(program, env=env)
    assert done.returncode == 0, done.stderr
    wall_s, monotonic_s = map(float, done.stdout.split())
    return wall_s - time.time(), monotonic_s - time.monotonic()


@pytest.mark.skipif(bool(clocks.missing_compiler()), reason=clocks.missing_compiler())
@pytest.mark.parametrize("ahead_s", [-HOUR_S, 0.0, HOUR_S])
def test_a_wall_clock_is_as_it_was_set_and_no_other_one(tmp_path: Path, ahead_s: float) -> None:
    clock = Clock(tmp_path / "clock")
    clock.put_ahead(ahead_s)
    wall_s, monotonic_s = times(ASK_TIME, clock.env)
    assert wall_s == pytest.approx(ahead_s, abs=NEAR_S)
    assert monotonic_s == pytest.approx(0, abs=NEAR_S)


@pytest.mark.root
@pytest.mark.skipif(bool(clocks.missing_namespaces()), reason=clocks.missing_namespaces())
def test_a_monotonic_clock_differs_from_the_start_of_its_process_on() -> None:
    wall_s, monotonic_s = times(ASK_OTHER_TIME, {AHEAD: str(int(HOUR_S))})
    assert wall_s == pytest.approx(0, abs=NEAR_S)
    assert monotonic_s == pytest.approx(HOUR_S, abs=NEAR_S)


@pytest.mark.parametrize(("point", "is_done"), [("before the zeros", False), ("behind the zeros", True)])
def test_a_process_dies_at_the_point_that_it_is_told(tmp_path: Path, point: str, is_done: bool) -> None:
    told_by, file = tmp_path / "point", tmp_path / "file"
    told_by.write_text(point)
    file.write_bytes(b"x")
    done = run(DIE_THERE, str(told_by), str(file))
    assert (done.returncode, done.stdout) == (-9, ""), done.stderr
    assert (file.read_bytes() == b"\0") is is_done
    assert not told_by.exists(), "its next life would die there as well"


def test_all_steps_are_there() -> None:
    assert all(callable(getattr(owner, name)) for owner, name in points.STEPS.values())


def test_a_narrow_wire_passes_so_much_in_a_second_and_loses_what_would_wait_long() -> None:
    chance = random.Random()
    read, write = os.pipe2(os.O_NONBLOCK)
    try:
        wire = Direction(source=-1, target=write, bytes_per_s=1000.0)
        for _ in range(20):
            wire.take(bytes(SIZE), 0.0, chance)
        # Who comes when others wait for longer than that is lost.
        assert wire.passed == int(BACKLOG_S * 1000 / SIZE) + 1
        assert wire.lost == 20 - wire.passed
        wire.deliver(0.25)
        assert len(os.read(read, 20 * SIZE)) == 2 * SIZE
        wire.deliver(1.0)
        assert len(os.read(read, 20 * SIZE)) == (wire.passed - 2) * SIZE
    finally:
        os.close(read)
        os.close(write)
