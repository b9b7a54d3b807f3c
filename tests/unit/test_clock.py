"""The doors to time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mqcore import clock

ROOT = Path(__file__).resolve().parent.parent.parent
ONE_OF_THE_DOORS = re.compile(r"\btime\.(time|time_ns|monotonic|monotonic_ns|perf_counter)\b|from time import")

MAKES_NAMES_ONLY = "identity.py"
"""Where the time makes a name unique and nothing is measured."""


def test_all_clocks_show_the_time_of_who_stands_in_and_are_real_again_behind_it() -> None:
    elapsed_s = 0.0
    before_s = clock.now_s()
    with clock.stand_in(lambda: elapsed_s, epoch_s=1_000_000.0):
        elapsed_s = 12.5
        assert (clock.now_s(), clock.monotonic_s()) == (1_000_012.5, 12.5)
        assert (clock.now_ms(), clock.monotonic_ms()) == (1_000_012_500, 12_500)
    assert clock.now_s() >= before_s
    assert clock.now_ms() >= before_s * 1000 - 1


def test_who_listens_to_another_time_is_forgotten_with_it() -> None:
    heard: list[str] = []
    with clock.stand_in(lambda: 0.0, epoch_s=0.0):
        clock.on_move(lambda: heard.append("inside"))
        clock.put_ahead(0)
    clock.put_ahead(0)
    assert heard == ["inside"]


def test_the_clocks_are_real_again_after_an_error() -> None:
    before_s = clock.now_s()
    with pytest.raises(KeyError), clock.stand_in(lambda: 0.0, epoch_s=0.0):
        raise KeyError
    assert clock.now_s() >= before_s


@pytest.mark.parametrize("room", ["client", "remoting", "namesrv"])
def test_nobody_goes_past_the_doors(room: str) -> None:
    past = {
        f"{path.name}: {found.group()}"
        for path in (ROOT / "mqcore" / room).glob("*.py")
        if path.name != MAKES_NAMES_ONLY
        for found in ONE_OF_THE_DOORS.finditer(path.read_text(encoding="utf-8"))
    }
    assert past == set()
