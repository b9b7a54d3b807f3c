"""What ``mqcore doctor`` has found: one thing that was looked at, how it is, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Health(StrEnum):
    """How it is: well, not as it should be, or not working."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """*subject* is whose it is: this machine, a directory, a name server, a broker, a group."""

    check: str
    subject: str
    state: Health
    found: str
    mend: str = ""
