"""A second look, alone, at one or two failures among real processes (``pytest --second-look``).

A test among real processes shares the machine with JVMs, Spark and everything else of a long run, which may stop any
of its processes for seconds at any point. Where it passes in a process of its own, with brokers of its own and the same
seed, the run is green and says loudly which test it was, and RECORD keeps what it said when it failed: what needed a
second look is a bug, in the test or in the product, that is to be found. Unit tests and tests of loss (the marker
``fault``) get none, three failures are no accident, and neither is the end of a whole process.
"""

from __future__ import annotations

import datetime
import subprocess
import sys
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from .scheduling import is_below, path_of
from .seeds import replay

FOLDERS = ("tests/integration", "tests/interop", "tests/spark", "tests/docs")
FAILURES_MAX = 2
RECORD = ".second-looks.txt"
TEXT_MAX = 16_000
GIT_DEADLINE_S = 10.0


@dataclass(frozen=True, slots=True)
class Failure:
    """What a test that failed said, and whether it may be looked at again."""

    text: str
    may_be_chance: bool


class Failures:
    """Notes what fails, and what it said."""

    def __init__(self) -> None:
        self.tests: dict[str, Failure] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            # xdist's own word that a process has gone has no phase.
            is_one_test = report.when in ("setup", "call", "teardown")
            may_be_chance = bool(is_below(path_of(report.nodeid), FOLDERS)) and "fault" not in report.keywords
            before = self.tests.get(report.nodeid, Failure("", True))
            self.tests[report.nodeid] = Failure(
                before.text + text_of(report), before.may_be_chance and may_be_chance and is_one_test
            )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        # With several processes this counts as a failed test, though none of the module's has run.
        if report.failed:
            self.tests[report.nodeid] = Failure(report.longreprtext, False)

    def deserve_a_second_look(self) -> bool:
        return 0 < len(self.tests) <= FAILURES_MAX and all(failure.may_be_chance for failure in self.tests.values())


def text_of(report: pytest.TestReport) -> str:
    """What the test said: the error, then what it printed and logged, and the ends of its brokers' logs."""
    sections = "".join(f"\n--- {title}\n{content}" for title, content in report.sections)
    return f"\n--- {report.when}\n{report.longreprtext}{sections}"


def commit(directory: Path) -> str:
    """Return the commit that is checked out, as far as git can tell."""
    command = ["git", "-C", str(directory), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_DEADLINE_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return "commit unknown"
    return f"commit {done.stdout.strip()}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--second-look", action="store_true", help="run one or two failures among real processes once more, alone"
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, int, int]:
    if not config.option.second_look:
        return (yield)
    failures = Failures()
    config.pluginmanager.register(failures)
    code = yield
    if code != pytest.ExitCode.TESTS_FAILED or not failures.deserve_a_second_look():
        return code
    return look_again(config, failures.tests)


def look_again(config: pytest.Config, failures: Mapping[str, Failure]) -> int:
    """Run what failed in a process of its own, write the record, and return its exit code."""
    names = " and ".join(failures)
    print(f"\nSECOND LOOK, alone, at {names}", flush=True)
    command = [sys.executable, "-m", "pytest", *replay(config).split(), *failures]
    code = subprocess.run(command, cwd=config.rootpath, check=False).returncode
    outcome = "passed alone: it fails by chance, find out why" if code == 0 else "failed again"
    record = config.rootpath / RECORD
    write_record(record, outcome, replay(config), failures)
    print(f"SECOND LOOK: {outcome}: {names}\nWhat was said when it failed: {record}", flush=True)
    return code


def write_record(path: Path, outcome: str, seed: str, failures: Mapping[str, Failure]) -> None:
    """Add to the file *path* what failed, when, with which commit and seed, and what it said."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    with path.open("a") as file:
        for test, failure in failures.items():
            file.write(f"{'=' * 120}\n{now} {test}\n{outcome}; {commit(path.parent)}; {seed}\n")
            file.write(failure.text[-TEXT_MAX:] + "\n")
