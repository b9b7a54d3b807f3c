"""What a test run that was killed leaves behind, and how the next one clears it away."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import psutil

PREFIX = "mqcore-testing-"
LOCK_NAME = "alive"
STALE_AFTER_S = 60.0
POLL_S = 0.01


def make_directory() -> tuple[Path, BinaryIO]:
    """Make a temporary directory; it counts as in use until the file is closed, or the process has ended."""
    directory = Path(tempfile.mkdtemp(prefix=PREFIX))
    lock = (directory / LOCK_NAME).open("wb")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return directory, lock


def remove_stale_directories() -> None:
    """Remove the directories of test runs that were killed together with their brokers."""
    for directory in Path(tempfile.gettempdir()).glob(PREFIX + "*"):
        try:
            if time.time() - directory.stat().st_mtime < STALE_AFTER_S:
                continue
            with (directory / LOCK_NAME).open("r+b") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
        except OSError:
            continue  # in use, not ours, or gone meanwhile


def children_of(pid: int) -> list[psutil.Process]:
    """Return the live descendants of process *pid*."""
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def has_ended(process: psutil.Process) -> bool:
    """Whether nothing of *process* runs any more.

    Who takes in orphans may leave them lying there for a second or two, in containers above all: they have ended.
    """
    try:
        if not process.is_running():
            return True
        # One whose other threads still run is called a zombie, too.
        return process.status() == psutil.STATUS_ZOMBIE and len(list(Path(f"/proc/{process.pid}/task").iterdir())) <= 1
    except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
        return True


def wait_ended(processes: Sequence[psutil.Process], deadline_s: float) -> None:
    """Wait until all have ended; what has not after *deadline_s* is killed."""
    left = those_left(processes, deadline_s)
    for process in left:
        process.kill()
    those_left(left, deadline_s)


def those_left(processes: Sequence[psutil.Process], deadline_s: float) -> list[psutil.Process]:
    """Wait until all have ended, at most *deadline_s*; return those that have not."""
    deadline = time.monotonic() + deadline_s
    left = [process for process in processes if not has_ended(process)]
    while left and time.monotonic() < deadline:
        time.sleep(POLL_S)
        left = [process for process in left if not has_ended(process)]
    return left
