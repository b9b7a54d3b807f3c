"""What each module has cost, the processes that it started included (``pytest --costs``): CPU and time, and when.

A test among real processes spends little in pytest's own process. Counted is what the process that runs the tests and
all its descendants have used, living ones and ended ones, between the first test of a module and its last: what several
modules share is its first user's. A descendant whose parent has not waited for it counts while it lives, and no longer.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Generator
from dataclasses import astuple, dataclass

import psutil
import pytest
from xdist.workermanage import WorkerController

from .scheduling import path_of

OUTPUT = "mqcore_costs"
SHOWN_MAX = 60


@dataclass(frozen=True, slots=True)
class Cost:
    """What one module has cost, where it ran and when it began, in seconds (CPU, time) and since the epoch (began)."""

    module: str
    cpu_s: float
    took_s: float
    began_s: float
    worker: str


_costs = pytest.StashKey[list[Cost]]()
_began = pytest.StashKey[tuple[str, float, float]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--costs", action="store_true", help="say what each module has cost: CPU of all processes, time")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_costs] = []


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
    if costs := config.stash[_costs]:
        terminalreporter.section("what modules have cost")
        for line in lines(costs):
            terminalreporter.write_line(line)


def lines(costs: list[Cost]) -> list[str]:
    """A table of what cost most, with when each module began, and which process ended when."""
    start_s = min(cost.began_s for cost in costs)
    found = [f"{'CPU s':>7} {'took s':>7} {'began s':>7} process module"]
    for cost in sorted(costs, key=lambda cost: -cost.cpu_s)[:SHOWN_MAX]:
        found.append(
            f"{cost.cpu_s:7.1f} {cost.took_s:7.1f} {cost.began_s - start_s:7.1f} {cost.worker:7} {cost.module}"
        )
    found.append(f"{sum(cost.cpu_s for cost in costs):7.1f} CPU s in all")
    for worker in sorted({cost.worker for cost in costs}):
        last = max((cost for cost in costs if cost.worker == worker), key=lambda cost: cost.began_s)
        found.append(f"{last.began_s + last.took_s - start_s:7.1f} s until {worker or 'the end'}: {last.module}")
    return found
