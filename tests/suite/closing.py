"""What a run says last: what it did not test, and why, what is in quarantine, and the seed if something failed.

The marker ``quarantine(since="2026-11-22", reason="...")`` takes a test out of ``make test``: one that fails by chance
and whose cause has not been found. It is for days, not for good, and each run names what is in it.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Generator, Iterable

import pytest
from xdist.workermanage import WorkerController

from .scheduling import path_of
from .seeds import replay

OUTPUT = "mqcore_quarantined"
SHOWN_MAX = 4

_quarantined = pytest.StashKey[dict[str, str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "quarantine(since, reason): fails by chance, cause unknown; not in make test")
    config.stash[_quarantined] = {}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if (marker := item.get_closest_marker("quarantine")) is not None:
            config.stash[_quarantined][item.nodeid] = described(marker, item.nodeid)


def described(marker: pytest.Mark, node_id: str) -> str:
    """Return since when and why. Raises UsageError if the marker does not say so."""
    since, reason = marker.kwargs.get("since"), marker.kwargs.get("reason")
    try:
        datetime.date.fromisoformat(since)
    except (TypeError, ValueError):
        since = None
    if since is None or not isinstance(reason, str) or not reason or marker.args or len(marker.kwargs) != 2:
        raise pytest.UsageError(f"{node_id}: quarantine needs since='YYYY-MM-DD' and reason='...', and nothing else")
    return f"since {since}: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    # Only the processes that collect know what was left out.
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[OUTPUT] = session.config.stash[_quarantined]
    yield


def pytest_testnodedown(node: WorkerController) -> None:
    output = getattr(node, "workeroutput", None) or {}
    node.config.stash[_quarantined].update(output.get(OUTPUT, {}))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> Generator[None, None, None]:
    yield
    for line in closing_lines(terminalreporter, config):
        terminalreporter.write_line(line, yellow=True)


def closing_lines(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> Iterable[str]:
    stats = terminalreporter.stats
    for reason, tests in skipped(stats.get("skipped", [])).items():
        yield f"NOT TESTED: {len(tests)} in {places(tests)}: {reason}"
    for test, why in sorted(config.stash[_quarantined].items()):
        yield f"IN QUARANTINE: {test} {why}"
    if stats.get("failed") or stats.get("error"):
        yield f"SEED: {replay(config)}"


def skipped(reports: Iterable[pytest.TestReport | pytest.CollectReport]) -> dict[str, list[str]]:
    """Reason to what was skipped for it, the most frequent reason first."""
    found: dict[str, list[str]] = defaultdict(list)
    for report in reports:
        if isinstance(report.longrepr, tuple) and report.outcome == "skipped":
            found[report.longrepr[2].removeprefix("Skipped: ")].append(report.nodeid)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def places(tests: Iterable[str]) -> str:
    folders = sorted({str(path_of(test).parent) for test in tests})
    more = f" and {len(folders) - SHOWN_MAX} more" if len(folders) > SHOWN_MAX else ""
    return ", ".join(folders[:SHOWN_MAX]) + more
