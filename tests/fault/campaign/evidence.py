"""What was seen of a group of brokers that was broken again and again: lines of JSON, written while it happens.

A place is a queue and an offset of the one topic of a campaign. Times are monotonic seconds of the machine it runs on.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, TextIO

Place = tuple[int, int]
"""Queue id and queue offset."""


class Outcome(StrEnum):
    """What a producer knows of its message."""

    OK = "ok"
    UNKNOWN = "unknown"
    REFUSED = "refused"
    """Nothing was stored, for certain."""


@dataclass(frozen=True, slots=True)
class Send:
    """A message that was sent once, and what became of it. *offset* is that of its receipt, -1 without one."""

    producer: int
    queue: int
    sequence: int
    outcome: Outcome
    offset: int
    began_s: float
    ended_s: float
    why: str = ""

    @property
    def message(self) -> str:
        return message_id(self.producer, self.queue, self.sequence)


@dataclass(frozen=True, slots=True)
class Read:
    """A message that was received, by whom, and where it lay."""

    reader: str
    queue: int
    offset: int
    message: str
    at_s: float


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """Where the broker that leads *epoch* says that the group has got to, and where the queue ends that can be read."""

    epoch: int
    queue: int
    offset: int
    end: int
    at_s: float


@dataclass(frozen=True, slots=True)
class Lead:
    """A life of a broker that says that it leads *epoch*."""

    epoch: int
    broker: str
    life: str


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that was done to the group, and when it was healed.

    *costs_from_s*: what was acknowledged or read from then on until it was healed may be lost; infinite: nothing may.
    *back_within_s*: so long after it was healed a message is to be acknowledged.
    """

    name: str
    began_s: float
    healed_s: float
    costs_from_s: float = math.inf
    back_within_s: float = math.inf

    def may_cost(self, at_s: float) -> bool:
        """Whether what a client learned then may be lost."""
        return self.costs_from_s <= at_s <= self.healed_s


LAST_SIZE: Final = 1 << 16

Line = Send | Read | GroupOffset | Lead | Fault
KINDS: Final[dict[str, type[Line]]] = {kind.__name__: kind for kind in (Send, Read, GroupOffset, Lead, Fault)}


@dataclass(frozen=True, slots=True)
class Replica:
    """A broker's files when all was over. *blocks* are digests of its log, each of as many bytes, up to its end."""

    name: str
    end: int
    blocks: tuple[str, ...]
    epochs: tuple[tuple[int, int], ...]
    """Epoch and start of each."""
    messages: dict[Place, list[str]]
    """All records that a place was given to."""


@dataclass(slots=True)
class Evidence:
    """All of a campaign."""

    sends: list[Send] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    group_offsets: list[GroupOffset] = field(default_factory=list)
    leads: list[Lead] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    replicas: list[Replica] = field(default_factory=list)

    def add(self, lines: Iterable[Line]) -> None:
        lists: dict[type[Line], list[Line]] = {
            Send: self.sends, Read: self.reads, GroupOffset: self.group_offsets, Lead: self.leads, Fault: self.faults,
        }  # type: ignore[dict-item]  # fmt: skip
        for line in lines:
            lists[type(line)].append(line)

    def without_losses(self) -> Evidence:
        """Return what must hold: without what clients learned while a fault went on that may cost that.

        What was acknowledged then may have been stored or not.
        """
        if all(math.isinf(fault.costs_from_s) for fault in self.faults):
            return self

        def is_sure(at_s: float) -> bool:
            return not any(fault.may_cost(at_s) for fault in self.faults)

        return dataclasses.replace(
            self,
            sends=[
                send if is_sure(send.ended_s) else dataclasses.replace(send, outcome=Outcome.UNKNOWN, offset=-1)
                for send in self.sends
            ],
            reads=[read for read in self.reads if is_sure(read.at_s)],
            group_offsets=[seen for seen in self.group_offsets if is_sure(seen.at_s)],
        )

    def count(self, outcome: Outcome) -> int:
        return sum(send.outcome == outcome for send in self.sends)


def message_id(producer: int, queue: int, sequence: int) -> str:
    return f"{producer}/{queue}/{sequence}"


class Log:
    """Writes lines into a file, each as soon as it is known."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, line: Line) -> None:
        self._file.write(json.dumps([type(line).__name__, *dataclasses.astuple(line)]) + "\n")
        self._file.flush()


def read_lines(path: Path) -> list[Line]:
    """Return what was written; a last line that is not whole was being written when its writer was killed."""
    return [_line(text) for text in path.read_text().splitlines(keepends=True) if text.endswith("\n")]


def last_lines(path: Path) -> list[Line]:
    """Return what was written last."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LAST_SIZE))
        texts = file.read().decode().splitlines(keepends=True)
    return [_line(text) for text in texts[1:] if text.endswith("\n")]


def _line(text: str) -> Line:
    kind, *values = json.loads(text)
    line = KINDS[kind](*values)
    return dataclasses.replace(line, outcome=Outcome(line.outcome)) if isinstance(line, Send) else line
