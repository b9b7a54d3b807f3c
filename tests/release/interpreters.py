"""The CPythons of a machine that wheels can be built for: pyenv's, those of a build image, and those on the path."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14")
"""Those that wheels are published for."""

LOOK: Final = """
import json, os, sys, sysconfig
print(json.dumps({
    "version": "%d.%d.%d" % sys.version_info[:3],
    "is_final": sys.version_info.releaselevel == "final",
    "name": sys.implementation.name,
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "has_headers": os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")),
}))
"""
LOOK_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Interpreter:
    """One CPython with its headers."""

    path: Path
    full_version: str

    @property
    def version(self) -> str:
        return self.full_version.rpartition(".")[0]

    @property
    def tag(self) -> str:
        """As wheels name it: cp311."""
        return "cp" + self.version.replace(".", "")


def find(versions: Sequence[str] = VERSIONS) -> tuple[list[Interpreter], dict[str, str]]:
    """Return an interpreter for each of *versions* that the machine has, and of the others why there is none."""
    found: dict[str, Interpreter] = {}
    left_out = dict.fromkeys(versions, "no such interpreter among those of pyenv, a build image, or the path")
    for path in candidates(versions):
        facts = look(path)
        version = facts.get("version", "").rpartition(".")[0]
        if version not in left_out or version in found:
            continue
        if reason := unfit(facts):
            left_out[version] = f"{path}: {reason}"
        else:
            found[version] = Interpreter(path, facts["version"])
    return [found[version] for version in versions if version in found], {
        version: reason for version, reason in left_out.items() if version not in found
    }


def candidates(versions: Sequence[str]) -> Iterator[Path]:
    """Paths of interpreters, the preferred ones first: those that are nobody's system."""
    homes = [
        Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions",
        Path("/opt/python"),  # the images of manylinux
        Path(os.environ.get("RUNNER_TOOL_CACHE", "/opt/hostedtoolcache")) / "Python",
    ]
    for home in homes:
        for directory in sorted(home.glob("*"), key=by_version, reverse=True):
            yield from (path for path in (directory / "bin/python3", directory / "x64/bin/python3") if path.is_file())
    yield Path(sys.base_prefix, "bin", "python3")
    yield from (Path(found) for version in versions if (found := shutil.which(f"python{version}")))


def by_version(directory: Path) -> list[int]:
    return [int(part) for part in directory.name.split(".") if part.isdigit()]


def look(path: Path) -> dict[str, str]:
    """What the interpreter at *path* says of itself; nothing if it does not run."""
    try:
        done = subprocess.run([path, "-c", LOOK], capture_output=True, text=True, timeout=LOOK_S, check=False)
        facts: dict[str, str] = json.loads(done.stdout) if done.returncode == 0 else {}
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return {}
    return facts


def unfit(facts: dict[str, str]) -> str:
    """Why no wheel can be built with an interpreter, empty if one can."""
    if facts["name"] != "cpython":
        return f"is {facts['name']}, wanted cpython"
    if facts["free_threaded"]:
        return "is free-threaded, which the extensions are not made for"
    if not facts["is_final"]:
        return "is no final release"
    return "" if facts["has_headers"] else "has no Python.h"
