"""Debian's Python for another processor, run by qemu: unpacked beside what else tests build, and not installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.rigs.maven import BUILT, build_lock

PLACE: Final = BUILT / "aarch64"
VERSION: Final = "3.11"
"""That of Debian 12."""

PACKAGES: Final = (f"python{VERSION}", "libssl3", "libstdc++6")
EMULATOR: Final = "qemu-aarch64-static"
# A state of its own: this machine's list of processors stays as it is.
APT: Final = """
APT::Architecture "arm64";
APT::Architectures {{ "arm64"; }};
Dir::State "{place}/state";
Dir::State::status "{place}/status";
Dir::Cache "{place}/cache";
"""
WHEELS: Final = ("manylinux2014_aarch64", *(f"manylinux_2_{minor}_aarch64" for minor in (17, 24, 26, 27, 28)))


def missing_tools() -> str:
    """The reason why none can be run here, empty if one can."""
    missing = [tool for tool in ("apt-get", "dpkg-deb") if shutil.which(tool) is None]
    if missing:
        return f"not installed: {', '.join(missing)}, which bring Python for aarch64 and qemu"
    try:
        _unpack()
    except subprocess.CalledProcessError as error:
        return f"no Python for aarch64: {error.stderr.decode(errors='replace').strip()[-200:]}"
    return ""


def _unpack() -> None:
    with build_lock(PLACE):
        if (PLACE / "ready").exists():
            return
        for directory in ("state/lists/partial", "cache/archives/partial", "root", "emulator"):
            (PLACE / directory).mkdir(parents=True, exist_ok=True)
        (PLACE / "status").touch()
        config = PLACE / "apt.conf"
        config.write_text(APT.format(place=PLACE))
        _run("apt-get", "download", "qemu-user-static")
        _run("apt-get", "update", config=config)
        _run("apt-get", "install", "--yes", "--no-install-recommends", "--download-only", *PACKAGES, config=config)
        for package in (PLACE / "cache/archives").glob("*.deb"):
            _run("dpkg-deb", "-x", package, PLACE / "root")
        (emulator,) = PLACE.glob("qemu-user-static_*.deb")
        _run("dpkg-deb", "-x", emulator, PLACE / "emulator")
        (PLACE / "ready").touch()


def _run(*command: str | Path, config: Path | None = None) -> None:
    env = os.environ if config is None else {**os.environ, "APT_CONFIG": str(config)}
    subprocess.run(command, cwd=PLACE, env=env, capture_output=True, check=True)


def install(wheel: Path, target: Path) -> None:
    """Put *wheel*, and what it needs for that processor, into *target*."""
    platforms = [word for name in WHEELS for word in ("--platform", name)]
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--target", target)
    subprocess.run([*pip, *platforms, "--python-version", VERSION, "--only-binary", ":all:", wheel], check=True)


def run(program: str, packages: Path) -> str:
    """Run *program* with what is in *packages*; what it prints."""
    command = [PLACE / "emulator/usr/bin" / EMULATOR, "-L", PLACE / "root", PLACE / "root/usr/bin" / f"python{VERSION}"]
    env = {**os.environ, "PYTHONPATH": str(packages)}
    done = subprocess.run([*command, "-c", program], cwd=packages, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
