"""The timer worker, as the deciding part sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol


@dataclass(frozen=True, slots=True)
class TimerFacts:
    """How far the timer worker is. Times ms; counts since the start of the broker, but for *pending*."""

    read_time: int = 0
    """Everything in the slots before it is delivered; 0 while there is no timer worker."""
    behind: int = 0
    """Messages of the timer topic that are not in the wheel yet."""
    pending: int = 0
    enqueued: int = 0
    delivered: int = 0


class TimerPort(Protocol):
    """Starts the timer worker, and looks at what it does."""

    async def start(self) -> None:
        """Have the timer worker run, and the send workers give it messages; again is nothing. Raises WorkerError."""
        ...

    def facts(self) -> TimerFacts: ...

    def slot_count(self, slot_time: int) -> int:
        """How many messages wait in the slot of *slot_time*, ms."""
        ...

    def checkpoint(self) -> bytes:
        """The 56 bytes of ``timercheck``."""
        ...

    def metrics(self) -> bytes:
        """The text of ``timermetrics``; empty while there are none."""
        ...


class NoTimers:
    """A broker without a timer worker, for tests that have no workers at all."""

    async def start(self) -> None:
        return None

    def facts(self) -> TimerFacts:
        return TimerFacts()

    def slot_count(self, slot_time: int) -> int:
        return 0

    def checkpoint(self) -> bytes:
        return b""

    def metrics(self) -> bytes:
        return b""


NO_TIMERS: Final = NoTimers()
