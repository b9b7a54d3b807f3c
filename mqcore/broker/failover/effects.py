"""What the coordinator wants done. They are done in their order; what needs an answer comes back as an event."""

from __future__ import annotations

from dataclasses import dataclass

from .facts import GroupOrder
from .group_state import GroupState


@dataclass(frozen=True, slots=True)
class ReadState:
    """Read the group's state linearizably; ``Coordinator.on_state`` takes it."""


@dataclass(frozen=True, slots=True)
class SwapState:
    """Put *state* in place of the one with revision *expected*, 0 for none; ``on_swap`` takes what came of it.

    The same swap may be asked for again when its outcome is not known.
    """

    expected: int
    state: GroupState


@dataclass(frozen=True, slots=True)
class NoteEpoch:
    """Keep on disk that this epoch was seen, before anything else is done."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Announce:
    """Renew what the group is told of this broker with the end of its log as it is now."""


@dataclass(frozen=True, slots=True)
class Follow:
    """Copy the log of *state*'s master."""

    state: GroupState


@dataclass(frozen=True, slots=True)
class StopFollowing:
    """Close the connection to the master: from now on nothing more is acknowledged to it."""


@dataclass(frozen=True, slots=True)
class Lead:
    """Take over: the epoch begins at the end of the log, and *required* must have what is acknowledged in it.

    *unclean*: what others of the old set had and this broker has not is lost, as was allowed.
    """

    state: GroupState
    required: frozenset[int]
    unclean: bool = False


@dataclass(frozen=True, slots=True)
class Require:
    """Acknowledgements need all of *members*. ``LeaderFacts.required_seen`` says which generation is in use."""

    generation: int
    members: frozenset[int]


@dataclass(frozen=True, slots=True)
class Demote:
    """Append and acknowledge nothing more: *state* has another master, or the mastership has ended."""

    state: GroupState | None


@dataclass(frozen=True, slots=True)
class Give:
    """Let the group know *order*: whom this master would have in its place."""

    order: GroupOrder


@dataclass(frozen=True, slots=True)
class CallOperator:
    """Stop, and say *reason*: going on might lose what was acknowledged."""

    reason: str


Effect = (
    ReadState
    | SwapState
    | NoteEpoch
    | Announce
    | Follow
    | StopFollowing
    | Lead
    | Require
    | Demote
    | Give
    | CallOperator
)
