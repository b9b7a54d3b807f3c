"""The npm client ali-ons, by the driver in tests/interop/node.

Its packages are installed once, in the versions of the lock file, into tests/interop/node/node_modules.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from .drivers import Driver
from .maven import build_lock, content_hash, run_build

PROJECT = Path(__file__).resolve().parent.parent / "interop" / "node"


def missing_tools() -> str:
    """The reason why nothing of Node can run here, empty if it can."""
    absent = [tool for tool in ("node", "npm") if shutil.which(tool) is None]
    return f"not installed: {', '.join(absent)}" if absent else ""


def install() -> None:
    """Install the packages, unless those of this lock file are there."""
    modules = PROJECT / "node_modules"
    wanted = content_hash(PROJECT / "package.json", PROJECT / "package-lock.json")
    with build_lock(PROJECT / "target"):
        stamp = modules / ".installed"
        if not stamp.is_file() or stamp.read_text() != wanted:
            run_build(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=PROJECT)
            stamp.write_text(wanted)


class AliOns(Driver):
    """The client ali-ons. *directory* takes logs and reports; its keys begin with N."""

    def __init__(self, directory: Path) -> None:
        install()
        super().__init__(["node", PROJECT / "driver.js"], directory)
