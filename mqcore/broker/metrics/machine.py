"""What the kernel says of the broker's processes and of the machine.

By these figures it is told what holds a broker back: processors (time used), too many who want them (time waited for
one, switches that were not asked for), or the disk (iowait, the pressure of io).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

import psutil

from mqcore.broker.figures import ProcessFigures
from mqcore.broker.metrics.bounds import Thing

PROC: Final = Path("/proc")
NS_PER_S: Final = 1e9
US_PER_S: Final = 1e6
CPU_MODES: Final = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
SWITCHES: Final = {"voluntary_ctxt_switches": "voluntary", "nonvoluntary_ctxt_switches": "involuntary"}
"""Line of /proc/PID/task/TID/status to what it is called here."""


def resources_of(process: ProcessFigures) -> Thing:
    """Return memory, threads and descriptors of a process; nothing if it has ended."""
    try:
        known = psutil.Process(process.pid)
        with known.oneshot():
            return {
                "resident": known.memory_info().rss,
                "threads": known.num_threads(),
                "descriptors": known.num_fds(),
                "block_wait_s": known.cpu_times().iowait,
            }
    except (psutil.Error, OSError):
        return {}


def cpu_things(process: ProcessFigures) -> list[Thing]:
    """Return the processor time of a process, by mode."""
    try:
        times = psutil.Process(process.pid).cpu_times()
    except psutil.Error:
        return []
    return [{"mode": "user", "cpu_s": times.user}, {"mode": "system", "cpu_s": times.system}]


class ThreadCounts:
    """What the kernel counts for each thread of a process, over all that it has had.

    A thread that ends takes its counts along, and what is told must not fall.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[int, str], dict[str, int]] = {}
        self._totals: Counter[tuple[int, str]] = Counter()

    def runqueue_wait_s(self, pid: int) -> float:
        """Return for how long threads of the process could run and had no processor."""
        # Time run, time waited for a processor, both ns, and how often it got one.
        waits = {thread: int(text.split()[1]) for thread, text in _of_each_thread(pid, "schedstat")}
        return self._total(pid, "wait", waits) / NS_PER_S

    def switch_things(self, pid: int) -> list[Thing]:
        """Return how often they gave a processor away, or lost one."""
        counts: dict[str, dict[str, int]] = {switch: {} for switch in SWITCHES.values()}
        for thread, text in _of_each_thread(pid, "status"):
            for line in text.splitlines():
                name, _, value = line.partition(":")
                if name in SWITCHES:
                    counts[SWITCHES[name]][thread] = int(value)
        return [{"switch": switch, "switches": self._total(pid, switch, threads)} for switch, threads in counts.items()]

    def keep(self, pids: Collection[int]) -> None:
        """Forget all other processes."""
        for key in [key for key in self._last if key[0] not in pids]:
            del self._last[key], self._totals[key]

    def _total(self, pid: int, what: str, now: dict[str, int]) -> int:
        before = self._last.get((pid, what), {})
        # A thread with less than before is another one with its number.
        grown = (count - before.get(thread, 0) if count >= before.get(thread, 0) else count
                 for thread, count in now.items())  # fmt: skip
        self._totals[pid, what] += sum(grown)
        self._last[pid, what] = now
        return self._totals[pid, what]


def host_thing() -> Thing:
    """Return what is said of the machine as a whole."""
    load1, load5, load15 = os.getloadavg()
    memory = psutil.virtual_memory()
    return {
        "load1": load1,
        "load5": load5,
        "load15": load15,
        "processors": len(os.sched_getaffinity(0)),
        "memory_total": memory.total,
        "memory_available": memory.available,
    }


def host_mode_things() -> list[Thing]:
    """Return the time that the machine's processors have spent, by mode."""
    times = psutil.cpu_times()
    return [{"mode": mode, "cpu_s": getattr(times, mode)} for mode in CPU_MODES if hasattr(times, mode)]


def pressure_things() -> list[Thing]:
    """Return for how long some or all tasks have waited for a resource; nothing where the kernel does not say."""
    return [thing for path in sorted(PROC.glob("pressure/*")) for thing in _pressures(path)]


def _pressures(path: Path) -> Iterable[Thing]:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        extent, *facts = line.split()
        total = dict(fact.partition("=")[::2] for fact in facts).get("total", "0")
        yield {"resource": path.name, "extent": extent, "waited_s": int(total) / US_PER_S}


def _of_each_thread(pid: int, name: str) -> Iterator[tuple[str, str]]:
    """Give each thread, and what the kernel's file *name* says of it, as far as they are still there."""
    for path in (PROC / str(pid) / "task").glob(f"*/{name}"):
        try:
            yield path.parent.name, path.read_text()
        except OSError:
            continue
