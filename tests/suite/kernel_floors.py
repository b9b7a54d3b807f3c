"""Whether the rooms of mqcore/_fast cimport only from the floors below them: python -m tests.suite.kernel_floors.

The floors are the table [tool.kernel-floors] in pyproject.toml; import-linter does not read Cython. A kernel's imports
of Python modules are not looked at: it hands over to its twin, which may stand anywhere.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNELS = "mqcore/_fast"
CIMPORT = re.compile(
    r"^\s*from mqcore\._fast\.(\w+)\.(\w+) c?import |^\s*c?import mqcore\._fast\.(\w+)\.(\w+)", re.MULTILINE
)


def floors_of(root: Path) -> dict[str, list[str]]:
    floors: dict[str, list[str]] = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["kernel-floors"]
    return floors


def breaches(root: Path, floors: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """What is not as *floors* say: "where: what", in the order of rooms. Floors must come from the ground up."""
    rooms = list(floors)
    for number, room in enumerate(rooms):
        for other in floors[room]:
            if other.partition(".")[0] not in rooms[:number]:
                yield f"pyproject.toml: {room} may take from {other}, which is not below it"
    for folder in sorted(path for path in (root / KERNELS).iterdir() if (path / "__init__.py").exists()):
        if folder.name not in floors:
            yield f"{folder.relative_to(root)}: has no floor in pyproject.toml"
            continue
        for source in sorted([*folder.glob("*.pyx"), *folder.glob("*.pxd")]):
            yield from breaches_in(source, root, folder.name, floors[folder.name])


def breaches_in(source: Path, root: Path, room: str, allowed: Sequence[str]) -> Iterator[str]:
    text = source.read_text()
    for match in CIMPORT.finditer(text):
        other, module = (match[1], match[2]) if match[1] else (match[3], match[4])
        if other != room and other not in allowed and f"{other}.{module}" not in allowed:
            line = text.count("\n", 0, match.end()) + 1
            yield f"{source.relative_to(root)}:{line}: {room} takes from {other}.{module}, which is not below it"


def main(root: Path) -> int:
    found = list(breaches(root, floors_of(root)))
    print("\n".join(found) or "kernels: every room stands on the floors below it")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(ROOT))
