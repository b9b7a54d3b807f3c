"""What ``doctor`` and ``explain`` have found: what was looked at, how it is, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final

from mqcore.admin.output import show_records, talk

COLUMNS: Final = {"state": "STATE", "check": "CHECK", "subject": "OF", "found": "FOUND", "mend": "WHAT TO DO"}


class Health(StrEnum):
    """How it is: well, not as it should be, or not working."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """*subject* is whose it is: this machine, a directory, a name server, a broker, a group, a topic."""

    check: str
    subject: str
    state: Health
    found: str
    mend: str = ""


def show_findings(findings: Sequence[Finding], output: str, *, everything: bool) -> None:
    """Print what is not well, or everything, and say how much was looked at."""
    shown = [finding for finding in findings if everything or finding.state is not Health.OK]
    show_records([asdict(finding) for finding in shown], output, COLUMNS)
    wrong = sum(finding.state is Health.ERROR for finding in findings)
    doubtful = sum(finding.state is Health.WARNING for finding in findings)
    talk(f"looked at {len(findings)} things: {wrong} wrong, {doubtful} to be looked at")
