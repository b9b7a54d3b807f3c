"""Which of several processes runs which tests (``pytest -n 2``).

A process that is nearly out of work takes the next module from a common queue, so the shares are not fixed. A module
is never torn in two, since its tests share brokers, and neither is a folder whose modules share what takes longer to
start than most of them run. What took longest when ``costs.tsv`` was written begins first, so that all processes end at
the same time. Modules that work and modules that wait run side by side: as many work as there are cores, as long as
there are some of both. Modules whose tests find JVMs warm that others of the folder have started go to half of the
processes, as long as there is something for the others.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from types import FrameType

import psutil
import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from . import costs_table
from .costs_table import NOTHING, Expected

TOGETHER = ("tests/spark",)
"""Folders whose tests share what one process has: Spark's JVM."""

SHARING = ("tests/interop",)
"""Folders of modules that share clients and tools of Java's with those that ran before them in the same process."""

WORKING = ("tests/unit", "tests/sim", "benchmarks/harness")
"""Folders of modules that work, as far as nothing else is known of them; those of others wait most of their time."""

WORK_SHARE = 0.5
"""Who needed more CPU than this part of the time worked. On a busy machine nobody gets all that he needs."""

CORES = os.cpu_count() or 1


def is_distributed(config: pytest.Config) -> bool:
    """Whether this is one of the processes that another one hands tests to."""
    return hasattr(config, "workerinput")


def is_below(path: PurePosixPath, folders: tuple[str, ...]) -> str:
    """Return the folder of *folders* that *path* is in, empty if there is none."""
    return next((folder for folder in folders if path.is_relative_to(folder)), "")


def path_of(node_id: str) -> PurePosixPath:
    """Return the path of the module of a test, relative to the root."""
    return PurePosixPath(node_id.partition("::")[0])


def scope_of(node_id: str) -> str:
    """Return the module of a test, or the folder that is not torn."""
    path = path_of(node_id)
    return is_below(path, TOGETHER) or str(path)


def expected_costs() -> dict[str, Expected]:
    """Scope to what it is expected to cost; a scope that is not there is short."""
    found: dict[str, Expected] = {}
    for module, one in costs_table.read().items():
        found[scope_of(module)] = found.get(scope_of(module), NOTHING) + one
    return found


def works(scope: str, costs: dict[str, Expected]) -> bool:
    """Whether *scope* keeps a core busy for most of its time."""
    if scope in costs:
        return costs[scope].cpu_s > WORK_SHARE * costs[scope].took_s
    return bool(is_below(PurePosixPath(scope), WORKING))


def shares(scope: str) -> bool:
    return bool(is_below(PurePosixPath(scope), SHARING))


def is_home(own: Iterable[str], others: Sequence[Iterable[str]]) -> bool:
    """Whether a process that has had the scopes *own* is one of those that take what shares; *others* had theirs."""
    homes = sum(any(map(shares, scopes)) for scopes in others)
    return any(map(shares, own)) or homes < max(1, (len(others) + 1) // 2)


def next_scope(
    queue: Iterable[str], under_way: Iterable[str], costs: dict[str, Expected], *, takes_sharing: bool | None = None
) -> str:
    """Return what a process takes from *queue* while the others have *under_way*."""
    wanted = sum(works(scope, costs) for scope in under_way) < CORES

    def misfit(scope: str) -> tuple[bool, bool]:
        return takes_sharing is not None and shares(scope) != takes_sharing, works(scope, costs) != wanted

    return min(queue, key=misfit)  # the first of equals


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if is_distributed(config):
        costs = expected_costs()
        items.sort(key=lambda item: -costs.get(scope_of(item.nodeid), NOTHING).took_s)


class ByModule(LoadScopeScheduling):
    """xdist's ``loadscope`` with modules for scopes, what takes long first, and work beside waiting."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        self._costs = expected_costs()

    def schedule(self) -> None:
        self.config.option.loadscopereorder = False
        super().schedule()

    def _assign_work_unit(self, node: WorkerController) -> None:
        # What a process was given last is what it is at, or will be at in a moment.
        others = [units for other, units in self.assigned_work.items() if other is not node]
        under_way = [next(reversed(units)) for units in others if units]
        takes_sharing = is_home(self.assigned_work[node], others)
        scope = next_scope(self.workqueue, under_way, self._costs, takes_sharing=takes_sharing)
        self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """Put back what *node* has not run, and return the test that it died in, which is over.

        xdist would have that test run again, by the next process, and the next.
        """
        units: dict[str, dict[str, bool]] = self.assigned_work.pop(node)
        died_in = next((test for tests in units.values() for test, is_over in tests.items() if not is_over), None)
        if died_in is None:
            return None
        units[self._split_scope(died_in)][died_in] = True
        left = {scope: tests for scope, tests in units.items() if not all(tests.values())}
        self.workqueue = OrderedDict({**left, **self.workqueue})
        for other in self.assigned_work:
            self._reschedule(other)
        return died_in


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByModule | None:
    if config.option.dist != "load":  # what -n alone means; another way was asked for by --dist
        return None
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    return ByModule(config, log)


def end(_number: int, _frame: FrameType | None) -> None:
    """Be interrupted, and have the processes interrupted that run the tests, as they are by a terminal."""
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGINT)
    raise KeyboardInterrupt
