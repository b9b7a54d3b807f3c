"""Clocks of brokers that are not the machine's: wall clocks that are set meanwhile, other monotonic ones from a start.

Wall clocks are those of a library that is loaded before the C library (``clock.c``). Monotonic ones and those since the
boot differ by a time namespace, as between machines; they cannot be set while they go.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.rigs.maven import BUILT, build_lock

SOURCE: Final = Path(__file__).with_name("clock.c")
CLOCK: Final = "MQCORE_CAMPAIGN_CLOCK"
AHEAD: Final = "MQCORE_CAMPAIGN_MONOTONIC_AHEAD_S"
OUTSIDE: Final = "MQCORE_CAMPAIGN_OUTSIDE"
NS_PER_S: Final = 1_000_000_000
NEW_TIME: Final = 0x00000080
OFFSETS: Final = Path("/proc/self/timens_offsets")
NAMESPACE: Final = Path("/proc/self/ns/time")


def missing_compiler() -> str:
    """Why there can be no such wall clocks here; empty if there can."""
    return "" if shutil.which("cc") else "needs a C compiler (cc)"


def missing_namespaces() -> str:
    """Why monotonic clocks of brokers cannot differ here; empty if they can."""
    if os.geteuid() != 0:
        return "needs root: time namespaces"
    return "" if OFFSETS.exists() else "the kernel has no time namespaces"


def library() -> Path:
    """The library that is to be loaded first; built once."""
    directory = BUILT / "clock"
    built = directory / f"clock-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]}.so"
    with build_lock(directory):
        if not built.exists():
            unfinished = built.with_suffix(".unfinished")
            subprocess.run(["cc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", unfinished, SOURCE], check=True)
            unfinished.rename(built)
    return built


class Clock:
    """The wall clock of a broker. What it is ahead of the machine's stands in the file *path*."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.write_bytes(bytes(8))
        self.env = {"LD_PRELOAD": str(library()), CLOCK: str(path)}

    def put_ahead(self, duration_s: float) -> None:
        """Let it be so far ahead of the machine's, or behind it."""
        with self._path.open("r+b", buffering=0) as file:
            file.write(struct.pack("=q", int(duration_s * NS_PER_S)))


def enter_time(command: Sequence[str]) -> None:
    """If this process is to have other monotonic clocks than the machine, run *command* in its place, with them."""
    if os.environ.get(OUTSIDE) == str(NAMESPACE.readlink()):
        raise OSError("the kernel lets no process enter a time namespace with its next program")
    ahead_s = os.environ.pop(AHEAD, "")
    if not ahead_s:
        return
    os.environ[OUTSIDE] = str(NAMESPACE.readlink())
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_TIME) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"no time namespace: {os.strerror(number)}")
    OFFSETS.write_text(f"monotonic {ahead_s} 0\nboottime {ahead_s} 0\n")
    os.execv(sys.executable, [sys.executable, *command])
