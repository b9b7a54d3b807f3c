"""Keeps the cores from sleeping, at no cost for whoever has work for them.

On a virtual machine a core that sleeps is woken through the hypervisor, and whoever wakes it is charged for that: tens
of microseconds, many times what a small request takes. A process of the idle class runs only where nobody else does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SPIN = """
import os, sys
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
os.sched_setaffinity(0, {int(sys.argv[1])})
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""


@contextmanager
def cores_awake() -> Iterator[None]:
    """Have a process of the idle class spin on each core that this one may use."""
    spinners = [subprocess.Popen([sys.executable, "-c", _SPIN, str(core)]) for core in sorted(os.sched_getaffinity(0))]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
        for spinner in spinners:
            spinner.wait()
