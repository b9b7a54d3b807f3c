"""mqcore divides queues exactly as Apache's clients do, whatever the strategy, the names and the number of members."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.interop.allocation_cases import cases, divided
from tests.rigs import JavaDriver

pytestmark = pytest.mark.compat

COUNT = 1_500


def test_every_strategy_gives_each_member_the_queues_that_java_gives_it(
    java: JavaDriver, tmp_path: Path, chance: random.Random
) -> None:
    lines = list(cases(COUNT, chance))
    path = tmp_path / "cases.tsv"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    wanted = java.allocate(path)
    assert len(wanted) == COUNT
    wrong = [(want, got) for want, got in zip(wanted, map(divided, lines), strict=True) if want != got]
    assert wrong[:3] == []
