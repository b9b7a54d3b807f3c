"""Other commits of this repository, laid out and compiled beside the harness's own extensions, for comparisons."""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Final

from benchmarks.harness.native import BUILD, ROOT

BUILD_DEADLINE_S: Final = 900.0


def _run(command: list[str], folder: Path) -> bytes:
    """Run *command* and return its output. Raises RuntimeError with what it complained about."""
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=BUILD_DEADLINE_S)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr.decode(errors='replace')}")
    return done.stdout


def built_revision(revision: str, python: str = "", repository: Path = ROOT) -> Path:
    """Return the folder of *revision* with its extensions compiled for *python* (default: this interpreter).

    The files come from git's archive, so the work tree and the index are left alone. What is there is used again.
    """
    python = python or sys.executable
    commit = _run(["git", "rev-parse", "--verify", f"{revision}^{{commit}}"], repository).decode().strip()
    interpreter = hashlib.sha256(str(Path(python).absolute()).encode()).hexdigest()[:8]
    # The leading dot keeps type checkers and test collectors, which walk this package, out of other commits' sources.
    folder = BUILD / ".revisions" / f"{commit[:12]}-{interpreter}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = folder / "built"
        if not stamp.exists():
            with tarfile.open(fileobj=BytesIO(_run(["git", "archive", commit], repository))) as archive:
                archive.extractall(folder / "tree", filter="tar")
            _run([python, "setup.py", "--quiet", "build_ext", "--inplace"], folder / "tree")
            stamp.touch()
    return folder / "tree"
