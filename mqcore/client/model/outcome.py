"""What became of messages that were handed to the application."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from mqcore.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Done:
    """Returned by a handler: the first *count* messages are done, or all, and the others failed and come again.

    *delay_level* says when, as Retry's does; -1 makes them dead letters. Returning anything else means all are done.

    With *commit* false, which is for orderly consumers, the group's offset stays in front of them: should this member
    die, they come again. A later return for the same queue commits them, a Rollback brings them back.
    """

    count: int | None = None
    delay_level: int = 0
    commit: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        if self.count is not None and self.count < 0:
            raise ConfigError(f"Done: got {self.count}, wanted how many messages are done, from the first on")


class Abandoned(Exception):
    """Nobody will say what became of the message: it was neither done nor a failure, and comes again."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a handler made of its messages: the first *done* are done.

    *error* is what it raised; *delay_level* and *pause_s* are for the messages that are not done. The others are
    described in Done and Rollback.
    """

    done: int
    error: BaseException | None = None
    delay_level: int = 0
    pause_s: float | None = None
    commit: bool = True
    rollback: bool = False


ALL_DONE = tuple(Outcome(count) for count in range(2))
"""The outcomes that nearly every message has."""


class ConsumeCode(IntEnum):
    """How a handler ended; the context code of a SUB_AFTER record."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURN_NULL = 3
    FAILED = 4
