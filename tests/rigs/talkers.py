"""What drivers of other people's clients have in common: options, events, a report at the end."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .process import Child
from .reports import SentMessage

READY_DEADLINE_S = 120.0
ANSWER_DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class Produced:
    """The outcome of a run of a producer: counts, seconds of sending, and each message in the order of the answers."""

    messages: int
    accepted: int
    failures: int
    seconds: float
    sent: list[SentMessage]


def arguments(options: Mapping[str, object]) -> list[str]:
    """Keyword arguments as a driver's options, underscores as hyphens; None means not given."""
    given = [(name, value) for name, value in options.items() if value is not None]
    return list(itertools.chain.from_iterable((f"--{name.replace('_', '-')}", str(value)) for name, value in given))


def await_event(child: Child, event: str, deadline_s: float = READY_DEADLINE_S) -> dict[str, Any]:
    """Read an event; a child that fails to give it is killed first."""
    try:
        return child.read_event(event, deadline_s)
    except BaseException:
        child.kill()
        raise


class Talker:
    """A driver process with a report; leaving the context kills it if it is still there."""

    def __init__(self, child: Child, report: Path) -> None:
        self.child = child
        self._report = report

    @property
    def report(self) -> Path:
        """Where the report goes."""
        return self._report

    def ask(self, order: str) -> dict[str, Any]:
        """Tell the driver an order that it answers at once by an event of the same name."""
        self.child.tell(order)
        return self.child.read_event(order, ANSWER_DEADLINE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.child.kill()
