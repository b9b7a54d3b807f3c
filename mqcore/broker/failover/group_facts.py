"""How a group is, for people: what one of its brokers knows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """A member as this broker knows it: from what it announces, and on the master from its acknowledgements."""

    member: int
    address: str
    """Empty if it does not announce itself."""
    is_there: bool
    is_in_sync: bool
    is_trusted: bool
    """It has all that it ever acknowledged, as far as it says."""
    is_removed: bool
    is_leaving: bool
    last_epoch: int
    end: int
    """Of its log, as it announced last; -1 = unknown."""
    acked: int
    """Asked of the master only: -1 = nothing in this epoch, or not known here."""
    behind_bytes: int
    behind_ms: int
    priority: int


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """What a broker knows of its group. *master* and *epoch* are those of the state that it has read last."""

    cluster: str
    broker_name: str
    me: int
    phase: str
    """A name of ``coordinator.Phase``, in lower case."""
    is_master: bool
    epoch: int
    master: int | None
    master_address: str
    in_sync: frozenset[int]
    end: int
    confirmed: int
    epoch_start: int
    """Of a master; -1 of others."""
    changed_ms: int
    """When this broker's role changed last; 0 = it has none yet."""
    why: str
    """Why it did, in words."""
    engine_silent_ms: int
    """How long ago the engine answered last; -1 = never."""
    members: tuple[MemberStatus, ...]
