"""Which of several processes runs which tests (``pytest -n 2``).

A process that is nearly out of work takes the next module from a common queue, so the shares are not fixed. A module
is never torn in two, since its tests share brokers, and neither is a folder whose modules share what takes longer to
start than most of them run. The queue begins with the folders that take longest, and ends with the many short modules
of unit tests, so that all processes end at the same time; the few of those that take long come before the others.
"""

from __future__ import annotations

import contextlib
import signal
from collections import OrderedDict
from pathlib import PurePosixPath
from types import FrameType

import psutil
import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

TOGETHER = ("tests/spark",)
"""Folders whose tests share what one process has: Spark's JVM."""

FIRST = (
    *("tests/spark", "tests/interop", "tests/docs", "tests/integration", "tests/compat", "tests/fault"),
    *("benchmarks/harness", "tests/sim", "tests/unit/test_suite.py", "tests/unit/test_client_typing.py"),
)
"""Folders and modules in the order of the queue. What is not named here follows, in the order of collection."""


def is_distributed(config: pytest.Config) -> bool:
    """Whether this is one of the processes that another one hands tests to."""
    return hasattr(config, "workerinput")


def is_below(path: PurePosixPath, folders: tuple[str, ...]) -> str:
    """Return the folder of *folders* that *path* is in, empty if there is none."""
    return next((folder for folder in folders if path.is_relative_to(folder)), "")


def path_of(node_id: str) -> PurePosixPath:
    """Return the path of the module of a test, relative to the root."""
    return PurePosixPath(node_id.partition("::")[0])


def place(node_id: str) -> int:
    """Return a number that is small for what is to begin early."""
    folder = is_below(path_of(node_id), FIRST)
    return FIRST.index(folder) if folder else len(FIRST)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if is_distributed(config):
        items.sort(key=lambda item: place(item.nodeid))


class ByModule(LoadScopeScheduling):
    """xdist's ``loadscope`` with modules for scopes, and in the order of collection."""

    def _split_scope(self, nodeid: str) -> str:
        path = path_of(nodeid)
        return is_below(path, TOGETHER) or str(path)

    def schedule(self) -> None:
        self.config.option.loadscopereorder = False
        super().schedule()

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
