"""A run that goes on where another one stopped: ``pytest --resume`` leaves out the modules that have passed already.

A module has passed when each of its tests has, none skipped, on this tree and in this way: with what is checked out and
changed, the same markers, profile and variables. As soon as it has, RECORD says so, and who takes that file away begins
anew. A run that has nothing left to do is a success.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from xdist.workermanage import WorkerController

from . import checks, seeds
from .scheduling import is_distributed, path_of

RECORD = ".passed.tsv"
INPUT = "mqcore_passed"
SHOWN_MAX = 40
GIT_DEADLINE_S = 60.0
OF_A_RUN = (seeds.VARIABLE, checks.VARIABLE)
"""Variables of ours that are others in each run."""


class Passed:
    """The modules that have passed, and those of this run that may still."""

    def __init__(self, record: Path, tree: str, way: str) -> None:
        self._record = record
        self._tree = tree
        self._way = way
        self.before = self._read()
        self.now: set[str] = set()
        self._tests: Counter[str] = Counter()
        self._spoilt: set[str] = set()

    def _read(self) -> set[str]:
        """The modules that have passed on this tree in this way."""
        if not self._record.exists():
            return set()
        rows = [line.split("\t") for line in self._record.read_text().splitlines()]
        return {module for _, tree, way, module in rows if (tree, way) == (self._tree, self._way)}

    def collected(self, node_ids: Iterable[str]) -> None:
        self._tests = Counter(str(path_of(node_id)) for node_id in node_ids)

    def left(self) -> list[str]:
        """The modules of this run that have not passed."""
        return sorted(set(self._tests) - self.now)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        module = str(path_of(report.nodeid))
        if not report.passed:
            self._spoilt.add(module)
        if report.when == "teardown":
            self._tests[module] -= 1
            # What a debug build finds not to hold, it does not say of which test.
            if not self._tests[module] and module not in self._spoilt and not (checks.DEBUG and checks.found()):
                self._note(module)

    def _note(self, module: str) -> None:
        self.now.add(module)
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        with self._record.open("a") as file:
            file.write(f"{now}\t{self._tree}\t{self._way}\t{module}\n")


_passed = pytest.StashKey[Passed]()


def tree_of(root: Path) -> str:
    """A hash of all files below *root* that git knows or would take. Raises UsageError if git cannot tell."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=GIT_DEADLINE_S, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise pytest.UsageError(f"--resume goes by what git knows of {root}: {error}") from None
    digest = hashlib.sha256()
    for name in sorted(set(listed.split("\0"))):
        if (path := root / name).is_file():
            data = path.read_bytes()
            digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:16]


def way_of(config: pytest.Config) -> str:
    """What else decides which tests of a module run, and how."""
    option = config.option
    ours = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith("MQ"))
    kept = [text for text in ours if not text.startswith(OF_A_RUN)]
    return " ".join([f"-m '{option.markexpr}'", f"-k '{option.keyword}'", str(option.hypothesis_profile), *kept])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--resume", action="store_true", help=f"leave out what has passed on this tree: see {RECORD}")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    if not config.option.resume or is_distributed(config):
        return
    if parts := [argument for argument in config.args if "::" in argument]:
        raise pytest.UsageError(f"--resume goes by whole modules, and not by {parts[0]}")
    passed = Passed(config.rootpath / RECORD, tree_of(config.rootpath), way_of(config))
    config.stash[_passed] = passed
    config.pluginmanager.register(passed)


def pytest_report_header(config: pytest.Config) -> str | None:
    if _passed not in config.stash:
        return None
    return f"resume: {len(config.stash[_passed].before)} modules have passed on this tree, see {RECORD}"


def pytest_configure_node(node: WorkerController) -> None:
    if _passed in node.config.stash:
        # Of all processes the same, of one that follows another one, too: they have to collect the same.
        node.workerinput[INPUT] = sorted(node.config.stash[_passed].before)


def left_out(config: pytest.Config) -> Sequence[str]:
    if is_distributed(config):
        names: Sequence[str] = config.workerinput.get(INPUT, ())
        return names
    return sorted(config.stash[_passed].before) if _passed in config.stash else ()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    names = set(left_out(config))
    out = [item for item in items if str(path_of(item.nodeid)) in names]
    if out:
        items[:] = [item for item in items if str(path_of(item.nodeid)) not in names]
        config.hook.pytest_deselected(items=out)


def pytest_collection_finish(session: pytest.Session) -> None:
    if _passed in session.config.stash:
        session.config.stash[_passed].collected(item.nodeid for item in session.items)


def pytest_xdist_node_collection_finished(node: WorkerController, ids: Sequence[str]) -> None:
    passed = node.config.stash.get(_passed, None)
    if passed is not None and not passed.left():
        passed.collected(ids)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    passed = session.config.stash.get(_passed, None)
    if passed is not None and passed.before and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    passed = config.stash.get(_passed, None)
    if passed is None:
        return
    terminalreporter.section("what has passed on this tree")
    terminalreporter.write_line(f"{len(passed.before)} modules before, {len(passed.now)} in this run")
    left = passed.left()
    for module in left[:SHOWN_MAX]:
        terminalreporter.write_line(f"not passed: {module}")
    if len(left) > SHOWN_MAX:
        terminalreporter.write_line(f"and {len(left) - SHOWN_MAX} more")
