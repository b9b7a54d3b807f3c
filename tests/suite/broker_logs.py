"""A test that fails shows the ends of the logs of its brokers and other processes."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

TAIL_BYTES = 4_000
WAYS = (("log",), ("child", "log"), ("broker", "child", "log"), ("namesrv", "child", "log"))
"""Where the things that tests hold have the path of a log."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for log in dict.fromkeys(logs(item, call)):
            report.sections.append((f"end of {log}", log.read_bytes()[-TAIL_BYTES:].decode(errors="replace")))
    return report


def logs(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Path]:
    """The log files of the test's fixtures and of the variables of the functions that it was in."""
    held = list(getattr(item, "funcargs", {}).values())
    if call.excinfo is not None:
        for entry in call.excinfo.traceback:
            held += entry.frame.f_locals.values()
    for value in held:
        for way in WAYS:
            found = value
            for name in way:
                # Not getattr: some objects make up attributes as they are asked for.
                found = getattr(found, "__dict__", {}).get(name)
            if isinstance(found, Path) and found.is_file():
                yield found
