"""Runs pytest with the given arguments; one or two failures among real processes get a second look, alone.

Such a test shares the machine with JVMs, Spark and everything else of a long run, which may stop any of its processes
for seconds at any point. Where it passes in a process of its own, with brokers of its own, the run is green and says
loudly which test it was: what needed a second look is a bug, in the test or in the product, that is to be found. Unit
tests and tests of loss (the marker ``fault``) get none, and three failures are no accident.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import PurePosixPath

import pytest

FOLDERS = ("tests/integration", "tests/interop", "tests/spark", "tests/docs")
FAILURES_MAX = 2


class Failures:
    """A pytest plugin that keeps what failed: node id to whether a second look is allowed."""

    def __init__(self, folders: Sequence[str] = FOLDERS) -> None:
        self.allowed: dict[str, bool] = {}
        self._folders = [PurePosixPath(folder) for folder in folders]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            path = PurePosixPath(report.nodeid.partition("::")[0])
            among_processes = any(path.is_relative_to(folder) for folder in self._folders)
            self.allowed[report.nodeid] = among_processes and "fault" not in report.keywords

    def deserve_a_second_look(self) -> bool:
        return 0 < len(self.allowed) <= FAILURES_MAX and all(self.allowed.values())


def main(arguments: Sequence[str]) -> int:
    """Return pytest's exit code: of the second look where there was one."""
    failures = Failures()
    code = int(pytest.main(list(arguments), plugins=[failures]))
    if code != pytest.ExitCode.TESTS_FAILED or not failures.deserve_a_second_look():
        return code
    print(f"\nSECOND LOOK, alone, at {' and '.join(failures.allowed)}", flush=True)
    code = subprocess.run([sys.executable, "-m", "pytest", *failures.allowed], check=False).returncode
    outcome = "passed alone: it fails by chance, find out why" if code == 0 else "failed again"
    print(f"SECOND LOOK: {outcome}: {' and '.join(failures.allowed)}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
