"""With MQ_DEBUG=1 or MQ_SANITIZE=1, what the debug build has found not to hold, in whichever process of whichever test.

A worker that ends so is started again by its broker, and the test may well pass: the run does not.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

DEBUG = "1" in (os.environ.get("MQ_DEBUG"), os.environ.get("MQ_SANITIZE"))
VARIABLE = "MQ_CHECK_LOG"


def found() -> list[str]:
    path = Path(os.environ[VARIABLE])
    return path.read_text().splitlines() if path.exists() else []


def is_main(config: pytest.Config) -> bool:
    return DEBUG and not hasattr(config, "workerinput")


def pytest_configure(config: pytest.Config) -> None:
    if is_main(config):
        os.environ[VARIABLE] = str(Path(tempfile.mkdtemp(prefix="mqcore-checks-")) / "found")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if is_main(session.config) and found():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if is_main(config) and found():
        terminalreporter.section("what must hold, and did not", red=True, bold=True)
        for line in found():
            terminalreporter.write_line(line)
