"""One round of a campaign: a group is broken one way after the other under load, and what it did is looked at.

``python -m tests.fault.campaign.round DIRECTORY SETTING`` plays one; the setting is JSON. What is seen lies in the
directory, and the last line of the output is the report, JSON.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import json
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mqcore.errors import MQError
from tests.fault import ext4
from tests.fault.campaign import clocks
from tests.fault.campaign.checker import check, times_without_service
from tests.fault.campaign.evidence import Evidence, Fault, Log, Outcome
from tests.fault.campaign.faults.table import Kind, Work, draw, load
from tests.fault.campaign.modes import Mode
from tests.fault.campaign.rig import BROKERS, Group
from tests.rigs import network

PROGRAM: Final = ("tests.fault.campaign.program",)
CALM_S: Final = {Mode.SYNC: (0.5, 3.0), Mode.ASYNC: (4.0, 10.0), Mode.FLUSHED: (0.5, 3.0)}
"""What is acknowledged around a fault says nothing of an asynchronous group: there is more between two of them."""

FAILED: Final = "the_group_can_be_healed"


@dataclass(frozen=True, slots=True)
class Setting:
    """What follows from it, and from nothing else: the faults and the times between them, though not what they meet."""

    seed: int
    seconds: float
    mode: Mode = Mode.SYNC
    size: int = BROKERS
    has_machines: bool = True
    """Whether machines, disks and clocks are broken as well, as far as there can be any here."""
    program: Sequence[str] = PROGRAM
    """What is run as a broker."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """What brokers of a group have besides those of the mode."""

    def group(self, home: Path, chance: random.Random) -> Group:
        is_group = self.size > 1
        return Group(
            home,
            chance,
            has_machines=self.has_machines and not network.missing_tools(),
            has_disks=self.has_machines and not ext4.missing_means(),
            has_clocks=self.has_machines and not clocks.missing_compiler(),
            has_times=self.has_machines and not clocks.missing_namespaces(),
            size=self.size,
            program=self.program,
            properties={**self.mode.properties, **self.properties} if is_group else {},
        )


@dataclass(slots=True)
class Report:
    """What came of a round. *away*: how long after each heal nothing was acknowledged, s, by the fault's name."""

    seed: int
    mode: Mode
    seconds: float = 0.0
    load: float = 0.0
    epochs: int = 0
    ok: int = 0
    unknown: int = 0
    refused: int = 0
    may_be_lost: int = 0
    """Acknowledged while a fault went on that may cost it."""
    reads: int = 0
    away: list[tuple[str, float]] = field(default_factory=list)
    violations: list[tuple[str, str]] = field(default_factory=list)

    @property
    def away_s(self) -> float:
        return max((away_s for _, away_s in self.away), default=0.0)

    def line(self) -> str:
        """Everything of the round that fits one line."""
        broken = Counter(rule for rule, _ in self.violations)
        return (
            f"seed={self.seed} mode={self.mode} faults={len(self.away)} epochs={self.epochs} ok={self.ok}"
            f" unknown={self.unknown} refused={self.refused} reads={self.reads} away={self.away_s:.1f}s"
            f" may_be_lost={self.may_be_lost} load={self.load:.1f} took={self.seconds:.0f}s"
            f" violations={dict(broken) or 0} [{' '.join(name for name, _ in self.away)}]"
        )


def play(home: Path, setting: Setting, work: Work | None = None) -> tuple[Report, Evidence]:
    """Break one thing after the other for so long, and look at what was seen. *work* is done at the end, under load."""
    chance = random.Random(setting.seed)
    began_s = time.monotonic()
    faults: list[Fault] = []
    failure = ""
    home.mkdir(parents=True, exist_ok=True)
    with (home / "faults.jsonl").open("a") as file, setting.group(home, chance) as group:
        log = Log(file)

        def suffer(kind: Kind) -> None:
            print(f"{time.monotonic():.1f} {kind.name}", flush=True)
            faults.append(kind.do(group, chance, setting.mode))
            log.write(faults[-1])
            group.await_service(faults[-1].healed_s, faults[-1].back_within_s)

        try:
            with group.under_load():
                end_s = time.monotonic() + setting.seconds
                while time.monotonic() < end_s:
                    time.sleep(chance.uniform(*CALM_S[setting.mode]))
                    suffer(draw(chance, group))
                if work is not None:
                    suffer(Kind(work, weight=1))
            group.await_whole()
        except (AssertionError, MQError, OSError):
            failure = traceback.format_exc()
            print(failure, flush=True)
        group.stop_all()
        evidence = group.evidence()
        evidence.faults += faults
        report = report_of(setting, evidence, failure)
        if report.violations:
            group.keep_stores()
    report.seconds = time.monotonic() - began_s
    return report, evidence


def report_of(setting: Setting, evidence: Evidence, failure: str) -> Report:
    # Of a group that was not healed, brokers may lack what they would have got.
    violations = [(FAILED, failure)] if failure else [(found.rule, found.what) for found in check(evidence)]
    ok = evidence.count(Outcome.OK)
    return Report(
        setting.seed,
        setting.mode,
        load=load(),
        epochs=len({lead.epoch for lead in evidence.leads}),
        ok=ok,
        unknown=evidence.count(Outcome.UNKNOWN),
        refused=evidence.count(Outcome.REFUSED),
        may_be_lost=ok - evidence.without_losses().count(Outcome.OK),
        reads=len(evidence.reads),
        away=[(fault.name, away_s) for fault, away_s in times_without_service(evidence)],
        violations=violations,
    )


def leave(number: int, frame: object) -> None:
    """Say where this process is, and end it with all that it has started."""
    faulthandler.dump_traceback()
    sys.exit(f"ended by signal {number}")


def main(directory: str, text: str) -> int:
    signal.signal(signal.SIGTERM, leave)
    values = json.loads(text)
    report, _ = play(Path(directory), Setting(**{**values, "mode": Mode(values["mode"])}))
    print(json.dumps(dataclasses.asdict(report)), flush=True)
    return bool(report.violations)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
