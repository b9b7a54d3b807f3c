"""What is written from tables: that in ``docs/metrics.md``, and the dashboard. ``python -m mqcore.broker.metrics``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from mqcore.broker.metrics.dashboard import DASHBOARD, text
from mqcore.broker.metrics.rows import NOT_SERVED, ROWS, MetricFamily, MetricRow

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"
COMMAND: Final = "python -m mqcore.broker.metrics"
BEGIN: Final = (
    f"<!-- From here on written by `{COMMAND}` from mqcore/broker/metrics/rows.py; do not edit it by hand. -->"
)


def table() -> str:
    """Return what stands behind BEGIN."""
    return "\n".join([BEGIN, *_lines(), ""])


def _lines() -> Iterator[str]:
    for family in MetricFamily:
        yield from ("", f"## Names of {family}", "", "| Name | Kind | Labels | Unit | What it says | From |")
        yield "| --- | --- | --- | --- | --- | --- |"
        yield from (_line(row) for row in ROWS if row.family is family)
    yield from ("", "## Names of RocketMQ that are not given", "", "| Name | Why |", "| --- | --- |")
    yield from (f"| `{name}` | {why} |" for name, why in NOT_SERVED.items())


def _line(row: MetricRow) -> str:
    labels = ", ".join(row.labels)
    return f"| `{row.name}` | {row.kind} | {labels} | {row.unit} | {row.help} | {row.source} |"


def page(written: str) -> str:
    """Return *written*, a page, with the table of now. Raises ValueError if it has no place for one."""
    return written[: written.index(BEGIN)] + table()


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0, or 1 if ``--check`` found a file stale."""
    parser = argparse.ArgumentParser(prog=COMMAND, description="Write the table of docs/metrics.md, and the dashboard.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is stale")
    parser.add_argument("--page", type=Path, default=PAGE, help="another page than %(default)s")
    parser.add_argument("--dashboard", type=Path, default=DASHBOARD, help="another file than %(default)s")
    arguments = parser.parse_args(argv)
    dashboard: Path = arguments.dashboard
    wanted = {
        arguments.page: page(arguments.page.read_text(encoding="utf-8")),
        dashboard: text(),
    }
    stale = [path for path, content in wanted.items() if not path.exists() or path.read_text("utf-8") != content]
    if arguments.check:
        for path in stale:
            print(f"{path} is stale; run {COMMAND}", file=sys.stderr)
        return int(bool(stale))
    for path in stale:
        path.write_text(wanted[path], encoding="utf-8")
    return 0
