"""What modules have cost, as last written down in ``costs.tsv``: by it runs of several processes are ordered.

``pytest --write-costs`` writes it anew, of the modules that it runs; ``make costs`` does for all of ``make test``. Only
their order counts, so it need not be fresh: ``--costs`` names what is dear and not in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_name("costs.tsv")
ROOT = Path(__file__).resolve().parents[2]
WORTH_S = 4.0
"""What takes less time is not written down."""


@dataclass(frozen=True, slots=True)
class Expected:
    """CPU of all processes, and time, in seconds."""

    cpu_s: float
    took_s: float

    def __add__(self, other: Expected) -> Expected:
        return Expected(self.cpu_s + other.cpu_s, self.took_s + other.took_s)


NOTHING = Expected(0.0, 0.0)


def read(path: Path = TABLE) -> dict[str, Expected]:
    """Module to what it has cost."""
    rows = [line.split("\t") for line in path.read_text().splitlines()]
    return {module: Expected(float(cpu_s), float(took_s)) for cpu_s, took_s, module in rows}


def write(costs: Mapping[str, Expected], path: Path = TABLE, root: Path = ROOT) -> None:
    """Put *costs* into the file; modules that have not run keep their rows, those that are gone lose them."""
    known = {**(read(path) if path.exists() else {}), **costs}
    kept = {module: one for module, one in known.items() if one.took_s >= WORTH_S and (root / module).exists()}
    rows = sorted(kept.items(), key=lambda row: -row[1].took_s)
    path.write_text("".join(f"{one.cpu_s:.1f}\t{one.took_s:.1f}\t{module}\n" for module, one in rows))
