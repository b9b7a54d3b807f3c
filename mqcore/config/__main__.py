"""``python -m mqcore.config [--check]``: write ``docs/settings.md``, or fail if it is not what would be written."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from mqcore.config.page import page
from mqcore.written_page import write_or_check

PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0, or 1 if ``--check`` found the page missing or stale."""
    return write_or_check(PAGE, page, "python -m mqcore.config", argv)


if __name__ == "__main__":
    sys.exit(main())
