"""How a failover group is, as one of its brokers knows it, and what an operator may ask of it. RocketMQ has neither."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from mqcore.protocol.json_body import JsonBody


class GroupChange(StrEnum):
    """What CHANGE_FAILOVER_GROUP may be asked for, with the words of its header field ``action``."""

    SWITCH = "switch"
    """A member that is in sync leads next: nothing is lost."""
    UNCLEAN_ELECT = "unclean-elect"
    """A member leads next, whatever it lacks: that is lost."""
    REMOVE = "remove"
    """A member that is gone for good is forgotten."""


@dataclass(frozen=True, slots=True)
class MemberStatus(JsonBody):
    """A member as this broker knows it: from what it announces, and on the master from its acknowledgements."""

    member: int = 0
    address: str = ""
    """Where it answers, as it announced last; empty = unknown."""
    is_there: bool = False
    """Whether it announces itself."""
    is_in_sync: bool = False
    is_trusted: bool = False
    """It has all that it ever acknowledged, as far as it says."""
    is_removed: bool = False
    is_leaving: bool = False
    last_epoch: int = 0
    """The newest epoch that wrote in its log, as it announced last."""
    end: int = -1
    """Of its log, as it announced last; -1 = unknown."""
    acked: int = -1
    """Asked of the master only: -1 = nothing in this epoch, or not known here."""
    behind_bytes: int = 0
    behind_ms: int = 0
    priority: int = 0


@dataclass(frozen=True, slots=True)
class GroupFacts(JsonBody):
    """What a broker knows of its group. *master* and *epoch* are those of the state that it has read last."""

    cluster: str = ""
    broker_name: str = ""
    me: int = 0
    phase: str = ""
    """A name of ``coordinator.Phase``, in lower case."""
    is_master: bool = False
    epoch: int = 0
    master: int | None = None
    master_address: str = ""
    in_sync: frozenset[int] = frozenset()
    end: int = 0
    confirmed: int = 0
    epoch_start: int = -1
    """Of a master; -1 of others."""
    changed_ms: int = 0
    """When this broker's role changed last; 0 = it has none yet."""
    why: str = ""
    """Why it did, in words."""
    engine_silent_ms: int = -1
    """How long ago the engine answered last; -1 = never."""
    member_statuses: list[MemberStatus] = field(default_factory=list)
