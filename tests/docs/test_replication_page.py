"""docs/replication.md names tests for each fault and each kind of master, and those tests exist and have that kind."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE_HEAD = "| What happens |"
ROLES = {"A": "ASYNC_MASTER", "S": "SYNC_MASTER"}
NOT_PROMISED = "not promised"


def shown_by() -> list[str]:
    """The last cell of each row of the table of faults."""
    lines = (ROOT / "docs" / "replication.md").read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(TABLE_HEAD)) + 2
    rows = lines[first : lines.index("", first)]
    return [row.strip("|").split("|")[-1].strip() for row in rows]


def modules(cell: str) -> dict[str, list[str]]:
    """By kind of master the modules that a cell names for it."""
    parts = {part[0]: part for part in re.split(r"(?:^|; |: )(?=[AS] )", cell) if part[:2] in ("A ", "S ")}
    return {kind: re.findall(r"`([\w/]+)`", part) for kind, part in parts.items()}


def has_role(name: str, role: str) -> bool:
    """Whether the tests of a module start such a master; ASYNC_MASTER is what a broker is that is told nothing."""
    text = (ROOT / "tests" / f"{name}.py").read_text()
    return re.search(rf'"{role}"', text) is not None or (role == ROLES["A"] and "MqcoreBroker(" in text)


def test_each_cell_names_tests_that_exist_or_is_not_promised() -> None:
    cells = shown_by()
    assert len(cells) >= 10
    for cell in cells:
        assert cell == NOT_PROMISED or modules(cell).keys() == ROLES.keys(), cell
        for name in re.findall(r"`([\w/]+)`", cell):
            assert (ROOT / "tests" / f"{name}.py").is_file(), name


def test_the_tests_that_are_named_have_that_kind_of_master() -> None:
    before: dict[str, list[str]] = {}
    for cell in shown_by():
        if cell == NOT_PROMISED:
            continue
        found = modules(cell)
        for kind, role in ROLES.items():
            names = found[kind] or before[kind]
            assert found[kind] or "as in the row above" in cell, cell
            assert any(has_role(name, role) for name in names), (cell, role)
        before = found
