"""``make sbom``: which packages are there after ``pip install mqcore[...]``, in CycloneDX's form, in build/sbom.

It is written by cyclonedx-py from an empty environment with the wheel of this interpreter and what that brings.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Final

from mqcore.version import __version__
from tests.release.source_tree import ROOT, source_date
from tests.release.wheels import DIST

TARGET: Final = ROOT / "build" / "sbom" / "mqcore.cdx.json"
NOT_LISTED: Final = frozenset({"dev", "docs", "release", "spark"})
"""Extras that are for this repository, or bring a distribution with a list of its own."""


def shipped_extras() -> str:
    """What pyproject.toml offers to those who run mqcore, separated by commas."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return ",".join(sorted(table.keys() - NOT_LISTED))


def newest_wheel(directory: Path = DIST) -> Path:
    """The wheel of this interpreter. Raises FileNotFoundError, which names what to do, if there is none."""
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    found = sorted(directory.glob(f"mqcore-*-{tag}-{tag}-*_x86_64.whl"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise FileNotFoundError(f"no wheel for {tag} in {directory}: make wheels builds it")
    return found[-1]


def write_sbom(wheel: Path, target: Path = TARGET, extras: str = "") -> Path:
    """Write the list of parts of an installation of *wheel*; *extras* are all of those that are shipped by default."""
    extras = extras or shipped_extras()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        python = Path(home) / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, "install", "--quiet")
        subprocess.run([*pip, f"mqcore[{extras}] @ {wheel.as_uri()}"], check=True)
        module = (
            sys.executable,
            "-m",
            "cyclonedx_py",
            "environment",
            "--output-reproducible",
            "--output-format",
            "JSON",
        )
        subprocess.run([*module, "--pyproject", ROOT / "pyproject.toml", "--output-file", target, python], check=True)
    name_root(target)
    return target


def name_root(target: Path) -> None:
    """Give the package itself its version, which pyproject.toml leaves to the package."""
    parts = json.loads(target.read_text())
    parts["metadata"]["component"] |= {"version": __version__, "purl": f"pkg:pypi/mqcore@{__version__}"}
    target.write_text(json.dumps(parts, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    print(f"wrote {write_sbom(newest_wheel()).relative_to(ROOT)}, of {source_date()}")
