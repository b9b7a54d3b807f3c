"""docs/replication.md names a test for each fault, and those tests exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE_HEAD = "| What happens |"


def shown_by() -> list[str]:
    """The last cell of each row of the table of faults."""
    lines = (ROOT / "docs" / "replication.md").read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(TABLE_HEAD)) + 2
    rows = lines[first : lines.index("", first)]
    return [row.strip("|").split("|")[-1].strip() for row in rows]


def test_each_fault_names_tests_that_exist_or_is_not_promised() -> None:
    cells = shown_by()
    assert len(cells) >= 10
    for cell in cells:
        names = re.findall(r"`([\w/]+)`", cell)
        assert names or cell == "not promised", cell
        for name in names:
            assert (ROOT / "tests" / f"{name}.py").is_file(), name
