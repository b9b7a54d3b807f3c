"""A test that hangs fails by its name, and takes nothing along.

pytest-timeout interrupts it after its time (``timeout`` in pyproject.toml, or its own marker), and its fixtures end its
processes. A test that does not even notice, since it is stuck in an extension or in a fixture, is ended with its whole
process GRACE_S later, if it is one of several (``pytest -n 2``): its stack goes to standard error, xdist names it,
starts another process and goes on. What the dead one had started is found by the environment that it inherited, and
killed.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
from collections.abc import Generator

import psutil
import pytest
from xdist.workermanage import WorkerController

from .scheduling import is_distributed

SLOW_S = 3600.0
"""For tests with the marker ``slow`` and no ``timeout``."""
GRACE_S = 60.0

_stderr = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    if is_distributed(config):
        # Each test has standard error captured while it runs.
        config.stash[_stderr] = os.dup(2)


def pytest_unconfigure(config: pytest.Config) -> None:
    if _stderr in config.stash:
        os.close(config.stash[_stderr])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_S))


def limit_s(item: pytest.Item) -> float:
    """Return the seconds that pytest-timeout gives to *item*, 0 for any number."""
    marker = item.get_closest_marker("timeout")
    if marker is not None:
        return float(marker.args[0] if marker.args else marker.kwargs["timeout"])
    given = item.config.getoption("timeout")
    return float(item.config.getini("timeout") or 0) if given is None else float(given)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    limit = limit_s(item)
    if not limit or not is_distributed(item.config):
        return (yield)
    faulthandler.dump_traceback_later(limit + GRACE_S, exit=True, file=item.config.stash[_stderr])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_testnodedown(node: WorkerController, error: object | None) -> None:
    if error is not None:
        end_processes_of(node.workerinput["testrunuid"], node.gateway.id)


def end_processes_of(run: str, worker: str) -> None:
    """Kill every process that inherited the environment of one process of xdist."""
    marks = {"PYTEST_XDIST_TESTRUNUID": run, "PYTEST_XDIST_WORKER": worker}
    for process in psutil.process_iter():
        # Others' processes do not show their environment; some end between two looks.
        with contextlib.suppress(psutil.AccessDenied, psutil.NoSuchProcess):
            if marks.items() <= process.environ().items():
                process.kill()
