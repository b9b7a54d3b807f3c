"""Pages that are written from tables: the one command line of all the programs that write one."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path


def write_or_check(path: Path, text: Callable[[], str], command: str, argv: Sequence[str] | None) -> int:
    """Write what *text* returns to *path*, or with ``--check`` compare the two. Returns the exit status.

    That is 1 if the page is missing or stale; *command*, which is named then, is what *argv* belongs to.
    """
    parser = argparse.ArgumentParser(prog=command, description=f"Write {path.name}.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is stale")
    parser.add_argument("--page", type=Path, default=path, help="another file than %(default)s")
    arguments = parser.parse_args(argv)
    wanted = text()
    if arguments.check:
        if arguments.page.exists() and arguments.page.read_text(encoding="utf-8") == wanted:
            return 0
        print(f"{arguments.page} is stale; run {command}", file=sys.stderr)
        return 1
    arguments.page.parent.mkdir(parents=True, exist_ok=True)
    arguments.page.write_text(wanted, encoding="utf-8")
    return 0
