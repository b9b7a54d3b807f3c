"""What each module has cost, the processes that it started included (``pytest --costs``): CPU and time, and when.

A test among real processes spends little in pytest's own process. Counted is what the process that runs the tests and
all its descendants have used, living ones and ended ones, between the first test of a module and its last: what several
modules share is its first user's. A descendant whose parent has not waited for it counts while it lives, and no longer.
``--write-costs`` also writes it down for later runs (``costs_table.py``).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Generator, Mapping
from dataclasses import astuple, dataclass

import psutil
import pytest
from xdist.workermanage import WorkerController

from . import costs_table
from .costs_table import NOTHING, Expected
from .scheduling import path_of

OUTPUT = "mqcore_costs"
SHOWN_MAX = 80
LATE_S = 20.0
"""What takes so much longer than is known of it may have begun too late."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one module has cost, where it ran and when it began, in seconds (CPU, time) and since the epoch (began)."""

    module: str
    cpu_s: float
    took_s: float
    began_s: float
    worker: str


@dataclass(frozen=True, slots=True)
class Machine:
    """What all processors together have been doing, in seconds, at one moment."""

    now_s: float
    idle_s: float
    all_s: float

    @classmethod
    def look(cls) -> Machine:
        times = psutil.cpu_times()
        # What is spent for guests is in user and nice, too.
        return cls(time.time(), times.idle + times.iowait, sum(times) - times.guest - times.guest_nice)

    def idle_since(self, before: Machine) -> float:
        """The part of their time that the processors had nothing to do."""
        return (self.idle_s - before.idle_s) / max(0.01, self.all_s - before.all_s)


_costs = pytest.StashKey[list[Cost]]()
_machine = pytest.StashKey[Machine]()
_began = pytest.StashKey[tuple[str, float, float]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--costs", action="store_true", help="say what each module has cost: CPU of all processes, time")
    parser.addoption("--write-costs", action="store_true", help="and write it to tests/suite/costs.tsv")


def pytest_configure(config: pytest.Config) -> None:
    config.option.costs |= config.option.write_costs
    config.stash[_costs] = []
    config.stash[_machine] = Machine.look()


def cpu_s() -> float:
    """Return the CPU seconds of this process and its descendants, ended ones included, so far."""
    total = 0.0
    own = psutil.Process()
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    if not item.config.option.costs:
        return (yield)
    stash, module = item.config.stash, str(path_of(item.nodeid))
    if _began not in stash:
        stash[_began] = module, cpu_s(), time.time()
    try:
        return (yield)
    finally:
        if nextitem is None or str(path_of(nextitem.nodeid)) != module:
            _, cpu_before_s, began_s = stash[_began]
            del stash[_began]
            worker = os.environ.get("PYTEST_XDIST_WORKER", "")
            cost = Cost(module, cpu_s() - cpu_before_s, time.time() - began_s, began_s, worker)
            stash[_costs].append(cost)


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[OUTPUT] = [astuple(cost) for cost in session.config.stash[_costs]]
    yield


def pytest_testnodedown(node: WorkerController) -> None:
    output = getattr(node, "workeroutput", None) or {}
    node.config.stash[_costs] += [Cost(*values) for values in output.get(OUTPUT, [])]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    costs = config.stash[_costs]
    if not costs:
        return
    terminalreporter.section("what modules have cost")
    known = costs_table.read()
    for line in [*lines(costs), *late(costs, known)]:
        terminalreporter.write_line(line)
    idle = Machine.look().idle_since(config.stash[_machine])
    terminalreporter.write_line(f"{idle:7.0%} of the processors' time idle")
    if config.option.write_costs:
        costs_table.write({cost.module: Expected(cost.cpu_s, cost.took_s) for cost in costs})


def lines(costs: list[Cost]) -> list[str]:
    """A table of what cost most CPU and time, with when each module began, and which process ended when."""
    start_s = min(cost.began_s for cost in costs)
    found = [f"{'CPU s':>7} {'took s':>7} {'began s':>7} process module"]
    for cost in sorted(costs, key=lambda cost: -cost.cpu_s - cost.took_s)[:SHOWN_MAX]:
        found.append(
            f"{cost.cpu_s:7.1f} {cost.took_s:7.1f} {cost.began_s - start_s:7.1f} {cost.worker:7} {cost.module}"
        )
    cpu_s, took_s = sum(cost.cpu_s for cost in costs), sum(cost.took_s for cost in costs)
    found.append(f"{cpu_s:7.1f} {took_s:7.1f} in all {len(costs)} modules")
    for worker in sorted({cost.worker for cost in costs}):
        last = max((cost for cost in costs if cost.worker == worker), key=lambda cost: cost.began_s)
        found.append(f"{last.began_s + last.took_s - start_s:7.1f} s until {worker or 'the end'}: {last.module}")
    return found


def late(costs: list[Cost], known: Mapping[str, Expected]) -> list[str]:
    """Which modules took much longer than is known of them."""
    return [
        f"{cost.took_s:7.1f} s and not {before:.1f} took {cost.module}: see tests/suite/costs.tsv"
        for cost in costs
        if cost.took_s > (before := known.get(cost.module, NOTHING).took_s) + LATE_S
    ]
