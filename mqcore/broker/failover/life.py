"""The life of a broker in its group: what lives, and how it ends. The next one begins with what is said here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from mqcore.broker.ports import Caller, GroupLog


@dataclass(frozen=True, slots=True)
class LiveAgain:
    """The next life begins with the store as it is."""

    why: str


@dataclass(frozen=True, slots=True)
class CutLog:
    """The next life begins with the log up to *point* only."""

    point: int


@dataclass(frozen=True, slots=True)
class CopyAgain:
    """The next life begins with the log up to *point* only: a sync has failed, and who knows what is behind it."""

    point: int


@dataclass(frozen=True, slots=True)
class EmptyStore:
    """The next life begins with an empty store."""

    why: str


@dataclass(frozen=True, slots=True)
class StopForGood:
    """There is no next life before an operator has looked at *reason*."""

    reason: str


LifeEnd = LiveAgain | CutLog | CopyAgain | EmptyStore | StopForGood


class LivingBroker(Protocol):
    """The broker that lives, as its driver needs it."""

    @property
    def group_log(self) -> GroupLog: ...

    @property
    def log_start(self) -> int:
        """The start of the log's first file."""
        ...

    @property
    def lost_from(self) -> int | None:
        """From where on the log may be on no disk, ever: a sync has failed. None if none has."""
        ...

    @property
    def caller(self) -> Caller: ...

    @property
    def addresses(self) -> tuple[str, str]:
        """Where it answers requests, and where it listens for slaves."""
        ...

    def follow(self, address: str, ha_address: str) -> None:
        """The log is copied from there: so are the tables."""
        ...

    async def prepare_to_lead(self) -> None:
        """Make good whatever the log says, up to its end."""
        ...

    async def promote(self, epoch_start: int) -> None:
        """It leads: begin what only a master does."""
        ...

    def demote(self) -> None:
        """It leads no more."""
        ...

    def refuse_sends(self, is_refused: bool) -> None:
        """Too few brokers are in sync, or enough again."""
        ...

    def refuse_new_sends(self, is_refused: bool) -> None:
        """What has been taken is brought to its end; who sends from now on is to look for another master."""
        ...

    def register_anew(self) -> None:
        """Name servers are to know it by another id."""
        ...
