"""Runs the everyday tests: two processes side by side, then a second look, alone, at one or two failures.

Most tests wait for other processes, so two of them at once take hardly longer than one. What the second share prints
follows what the first prints.

A test among real processes shares the machine with JVMs, Spark and everything else of a long run, which may stop any
of its processes for seconds at any point. Where it passes in a process of its own, with brokers of its own, the run is
green and says loudly which test it was: what needed a second look is a bug, in the test or in the product, that is to
be found. Unit tests and tests of loss (the marker ``fault``) get none, and three failures are no accident.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import FrameType

import pytest

SELECTION = ("-m", "not slow and not root")
SHARES = (
    ("tests/integration", "tests/fault", "tests/unit"),
    ("tests/interop", "tests/spark", "tests/compat", "tests/docs", "benchmarks/harness"),
)
SECOND_LOOK_FOLDERS = ("tests/integration", "tests/interop", "tests/spark", "tests/docs")
FAILURES_MAX = 2


@dataclass
class Outcome:
    """Pytest's exit code, and what failed: node id to whether a second look is allowed."""

    code: int = pytest.ExitCode.INTERNAL_ERROR
    failures: dict[str, bool] = field(default_factory=dict)


class Failures:
    """A pytest plugin that notes what fails."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            path = PurePosixPath(report.nodeid.partition("::")[0])
            is_among_processes = any(path.is_relative_to(folder) for folder in SECOND_LOOK_FOLDERS)
            self._outcome.failures[report.nodeid] = is_among_processes and "fault" not in report.keywords


class Share:
    """A running process with some of the tests. Its output goes to ours at once, or is shown in the end."""

    def __init__(self, arguments: Sequence[str], directory: Path, number: int, *, at_once: bool) -> None:
        self._result = directory / f"outcome-{number}.json"
        self._output = None if at_once else (directory / f"output-{number}.txt").open("w+")
        command = [sys.executable, "-m", "tests.everyday", str(self._result), *arguments]
        # In a group of its own: an interrupt from the terminal reaches it once, through us.
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._output, process_group=0
        )

    def finish(self) -> Outcome:
        """Wait for its end, and show its output; a process that died has no outcome but an internal error."""
        self._process.wait()
        if self._output is not None:
            self._output.seek(0)
            shutil.copyfileobj(self._output, sys.stdout)
            sys.stdout.flush()
            self._output.close()
        return Outcome(**json.loads(self._result.read_text())) if self._result.exists() else Outcome()

    def interrupt(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)


def run_share(result: Path, arguments: Sequence[str]) -> int:
    """Be the process of a share: run pytest, and write the outcome to *result*."""
    outcome = Outcome()
    outcome.code = int(pytest.main(list(arguments), plugins=[Failures(outcome)]))
    result.write_text(json.dumps({"code": outcome.code, "failures": outcome.failures}))
    return outcome.code


def run_shares(shares: Sequence[Sequence[str]], arguments: Sequence[str]) -> list[Outcome]:
    """Run pytest on the folders of each share, side by side."""
    with tempfile.TemporaryDirectory(prefix="mqcore-everyday-") as directory:
        running: list[Share] = []
        try:
            for number, folders in enumerate(shares):
                running.append(Share([*arguments, *folders], Path(directory), number, at_once=number == 0))
            return [share.finish() for share in running]
        except BaseException:
            for share in running:
                share.interrupt()
            for share in running:
                share.finish()
            raise


def deserve_a_second_look(failures: dict[str, bool]) -> bool:
    return 0 < len(failures) <= FAILURES_MAX and all(failures.values())


def leave(number: int, _frame: FrameType | None) -> None:
    """Being told to end is an exception, so that the shares are told too."""
    raise SystemExit(128 + number)


def main(shares: Sequence[Sequence[str]] = SHARES, arguments: Sequence[str] = SELECTION) -> int:
    """Return an exit code as pytest's: of the second look where there was one."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
    outcomes = run_shares(shares, arguments)
    failures = {test: allowed for outcome in outcomes for test, allowed in outcome.failures.items()}
    code = max(outcome.code for outcome in outcomes)
    if code != pytest.ExitCode.TESTS_FAILED or not deserve_a_second_look(failures):
        return code
    names = " and ".join(failures)
    print(f"\nSECOND LOOK, alone, at {names}", flush=True)
    code = subprocess.run([sys.executable, "-m", "pytest", *failures], check=False).returncode
    outcome = "passed alone: it fails by chance, find out why" if code == 0 else "failed again"
    print(f"SECOND LOOK: {outcome}: {names}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(run_share(Path(sys.argv[1]), sys.argv[2:]) if len(sys.argv) > 1 else main())
