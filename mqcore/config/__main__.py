"""``python -m mqcore.config [--check]``: write ``docs/settings.md``, or fail if it is not what would be written."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from mqcore.config.page import page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0, or 1 if ``--check`` found the page missing or stale."""
    parser = argparse.ArgumentParser(
        prog="python -m mqcore.config", description="Write docs/settings.md from the table."
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is stale")
    parser.add_argument("--page", type=Path, default=PAGE, help="another file than %(default)s")
    arguments = parser.parse_args(argv)
    wanted = page()
    if arguments.check:
        if arguments.page.exists() and arguments.page.read_text(encoding="utf-8") == wanted:
            return 0
        print(f"{arguments.page} is stale; run python -m mqcore.config", file=sys.stderr)
        return 1
    arguments.page.parent.mkdir(parents=True, exist_ok=True)
    arguments.page.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
