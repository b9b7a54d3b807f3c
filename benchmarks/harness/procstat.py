"""Processor time of one process tree and of the whole machine, from /proc, and the share that others used.

Resolution is one clock tick (10 ms): a run of 2 s on a busy core is exact to half a percent.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
PROC: Final = Path("/proc")
KERNEL_THREADS_PID: Final = 2
QUIET_INTERVAL_S: Final = 0.5

# Positions in /proc/PID/stat after the command name, which may itself hold blanks and brackets.
PARENT_AT: Final = 1
CPU_TIMES_AT: Final = slice(11, 15)  # utime, stime, and both of the children that have ended and were waited for
# Columns of /proc/stat's first line that mean work: user, nice, system, irq, softirq, steal (not idle, iowait, guest).
BUSY_COLUMNS: Final = (0, 1, 2, 5, 6, 7)


def _stat_fields(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the state on, or None if the process has ended."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text[text.rindex(")") + 2 :].split()


def process_tree(root: int) -> dict[int, list[str]]:
    """Return the stat fields of *root* and all its living descendants by pid; empty if *root* has ended."""
    stats = {
        int(entry.name): fields
        for entry in PROC.iterdir()
        if entry.name.isdigit() and (fields := _stat_fields(int(entry.name))) is not None
    }
    tree: dict[int, list[str]] = {}
    found = [root] if root in stats else []
    while found:
        pid = found.pop()
        tree[pid] = stats[pid]
        found += [child for child, fields in stats.items() if int(fields[PARENT_AT]) == pid]
    return tree


def tree_cpu_seconds(root: int) -> float:
    """Return user and system time of *root*, its descendants and those of them that have ended, seconds.

    A process that ends moves its time into its parent's account: the sum never falls if *root* waits for its children.
    Raises ProcessLookupError if *root* has ended.
    """
    tree = process_tree(root)
    if not tree:
        raise ProcessLookupError(f"no process with pid {root}")
    return sum(int(ticks) for fields in tree.values() for ticks in fields[CPU_TIMES_AT]) / TICKS_PER_SECOND


def machine_busy_seconds() -> float:
    """Return the time all processors have worked since boot, seconds, stolen time included."""
    columns = (PROC / "stat").read_text().split("\n", 1)[0].split()[1:]
    return sum(int(columns[column]) for column in BUSY_COLUMNS) / TICKS_PER_SECOND


def kernel_cpu_seconds() -> dict[int, float]:
    """Return the time of each of the kernel's own threads by pid, seconds; empty where they cannot be seen.

    One by one, because kernel threads come and go, and the time of one that has gone is in nobody's account.
    """
    try:
        name = (PROC / str(KERNEL_THREADS_PID) / "comm").read_text().strip()
    except FileNotFoundError:
        return {}
    tree = process_tree(KERNEL_THREADS_PID) if name == "kthreadd" else {}
    return {pid: sum(map(int, fields[CPU_TIMES_AT])) / TICKS_PER_SECOND for pid, fields in tree.items()}


def await_quiet(busy_share_max: float, seconds_max: float) -> bool:
    """Wait until the whole machine was that idle for QUIET_INTERVAL_S; False if it was not within *seconds_max*."""
    deadline = time.monotonic() + seconds_max
    while time.monotonic() < deadline:
        first = CpuReading.take(None)
        time.sleep(QUIET_INTERVAL_S)
        if CpuUse.between(first, CpuReading.take(None)).others_share <= busy_share_max:
            return True
    return False


@dataclass(frozen=True, slots=True)
class CpuReading:
    """Processor times at one moment, seconds."""

    wall: float
    machine: float
    kernel: dict[int, float]
    broker: float
    replicas: float
    load: float

    @classmethod
    def take(cls, broker_pid: int | None, replica_pids: Iterable[int] = ()) -> CpuReading:
        """Read all clocks; the broker's stays 0 if its pid is not known."""
        own = os.times()
        broker = tree_cpu_seconds(broker_pid) if broker_pid is not None else 0.0
        replicas = sum(map(tree_cpu_seconds, replica_pids))
        return cls(
            time.monotonic(), machine_busy_seconds(), kernel_cpu_seconds(), broker, replicas, own.user + own.system
        )


@dataclass(frozen=True, slots=True)
class CpuUse:
    """What happened between two readings. Shares are of all processors' time, 0 to 1."""

    broker_seconds: float
    replica_seconds: float
    load_seconds: float
    kernel_share: float
    """Work of the kernel's threads that are still there; writing to disk is most of it."""
    others_share: float
    """Work of neither broker, replicas, load nor kernel threads."""

    @classmethod
    def between(cls, first: CpuReading, last: CpuReading) -> CpuUse:
        """Subtract *first* from *last*. The ticks of /proc/stat are coarser than the rest: a negative share is none."""
        broker = last.broker - first.broker
        replicas = last.replicas - first.replicas
        load = last.load - first.load
        kernel = sum(seconds - first.kernel.get(pid, 0.0) for pid, seconds in last.kernel.items())
        others = last.machine - first.machine - broker - replicas - load - kernel
        capacity = (last.wall - first.wall) * (os.cpu_count() or 1)
        return cls(broker, replicas, load, kernel / capacity, max(0.0, others / capacity))
