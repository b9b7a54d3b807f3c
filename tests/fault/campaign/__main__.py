"""Many rounds of the campaign, side by side.

    python -m tests.fault.campaign [--mode sync] [--rounds 200] [--seconds 60] [--side-by-side 3] [--directory D]
                                   [--seed S]

Round number n has the seed S + n, which plays its faults again: ``--seed SEED --rounds 1``. Prints a line for each
round, and a table at the end. Of a round that has found a violation everything is kept in the directory; it goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import json
import math
import random
import shutil
import signal
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.fault.campaign.checker import RULES
from tests.fault.campaign.clocks import missing_namespaces
from tests.fault.campaign.faults.table import left_out
from tests.fault.campaign.modes import Mode
from tests.fault.campaign.round import FAILED, Report, Setting
from tests.rigs import etcd
from tests.rigs.process import Child, ChildError

HANGS_AFTER_S: Final = 900.0
"""A round takes so much longer than its faults at most."""

ENDED: Final = "the_round_ends"
LOOK_S: Final = 0.2
SUMMED: Final = ("epochs", "ok", "unknown", "refused", "may_be_lost", "reads")


class Running:
    """A round that is played by a process of its own."""

    def __init__(self, home: Path, setting: Setting) -> None:
        self.home = home
        self.setting = setting
        self._until_s = time.monotonic() + setting.seconds + HANGS_AFTER_S
        text = json.dumps(dataclasses.asdict(setting))
        command = [sys.executable, "-m", "tests.fault.campaign.round", str(home), text]
        self._child = Child(command, log=home.with_suffix(".out"))

    def report(self) -> Report | None:
        """Return what came of it; None as long as it is played."""
        if self._child.is_alive and time.monotonic() < self._until_s:
            return None
        is_late = self._child.is_alive
        self.end()
        if is_late:
            return self._failed("it hangs")
        lines = self._child.log.read_text().splitlines()
        try:
            values = json.loads(lines[-1])
            return Report(**{**values, "mode": Mode(values["mode"])})
        except (IndexError, ValueError, TypeError):
            return self._failed(self._child.log_tail())

    def _failed(self, why: str) -> Report:
        return Report(self.setting.seed, self.setting.mode, violations=[(ENDED, why)])

    def end(self) -> None:
        """End it, in order if it obeys: disks are unmounted then."""
        with contextlib.suppress(ChildError):
            self._child.stop()


def play_all(settings: Sequence[Setting], directory: Path, side_by_side: int) -> Iterator[Report]:
    """Play rounds, so many at once, and yield what came of each when it is over."""
    left = iter(settings)
    running: list[Running] = []
    try:
        while True:
            for setting in itertools.islice(left, side_by_side - len(running)):
                running.append(Running(directory / f"{setting.mode}-{setting.seed}", setting))
            if not running:
                return
            time.sleep(LOOK_S)
            for round_ in tuple(running):
                report = round_.report()
                if report is not None:
                    running.remove(round_)
                    _keep_or_forget(round_.home, report)
                    yield report
    finally:
        for round_ in running:
            round_.end()


def _keep_or_forget(home: Path, report: Report) -> None:
    if not report.violations:
        shutil.rmtree(home, ignore_errors=True)
        home.with_suffix(".out").unlink()


def table(reports: Sequence[Report]) -> str:
    """Everything together: sums, violations by rule, and for each fault how long nothing was acknowledged after it."""
    sums = {
        "rounds": len(reports),
        "faults": sum(len(report.away) for report in reports),
        **{name: sum(getattr(report, name) for report in reports) for name in SUMMED},
    }
    lines = [" ".join(f"{name}={value}" for name, value in sums.items()), "rounds with violations, by rule:"]
    broken = Counter(rule for report in reports for rule in {rule for rule, _ in report.violations})
    lines += [f"  {rule:60} {broken[rule]}" for rule in (*(rule.__name__ for rule in RULES), FAILED, ENDED)]
    lines.append("s after a heal until the next acknowledgement: count, median, 99th of a hundred, longest")
    away: defaultdict[str, list[float]] = defaultdict(list)
    for report in reports:
        for name, away_s in report.away:
            away[name].append(away_s)
    for name, times in sorted(away.items()):
        times.sort()
        p99 = times[math.ceil(len(times) * 0.99) - 1]
        lines.append(f"  {name:50} {len(times):5} {statistics.median(times):8.2f} {p99:8.2f} {times[-1]:8.2f}")
    missing = [*left_out(), *filter(None, [missing_namespaces() and f"other monotonic clocks: {missing_namespaces()}"])]
    lines.append("left out on this machine: " + ("; ".join(missing) or "nothing"))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", type=Mode, choices=list(Mode), default=Mode.SYNC)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--side-by-side", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=Path("campaign"))
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--one-machine", action="store_true", help="without machines, disks and clocks of their own")
    given = parser.parse_args()
    if etcd.missing_tools():
        parser.error(etcd.missing_tools())
    settings = [
        Setting(given.seed + number, given.seconds, given.mode, has_machines=not given.one_machine)
        for number in range(given.rounds)
    ]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    given.directory.mkdir(parents=True, exist_ok=True)
    reports: list[Report] = []
    for report in play_all(settings, given.directory.absolute(), given.side_by_side):
        reports.append(report)
        print(report.line(), flush=True)
        for rule, what in report.violations[:3]:
            print(f"    {rule}: {what[-2000:]}", flush=True)
    print(table(reports), flush=True)
    return any(report.violations for report in reports)


if __name__ == "__main__":
    sys.exit(main())
