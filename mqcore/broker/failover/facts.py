"""What the coordinator is told about logs and connections, each time that it looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class LogFacts:
    """The log of this broker. *trusted*: it has all that this broker ever acknowledged to a master."""

    last_epoch: int
    end: int
    trusted: bool


@dataclass(frozen=True, slots=True)
class Announcement:
    """What another broker said of itself last; it may be gone since. *leaving*: it is about to stop, in order."""

    last_epoch: int
    end: int
    trusted: bool
    priority: int = 0
    leaving: bool = False
    nonce: int = 0
    """Of its life: 63 random bits."""
    address: str = ""
    ha_address: str = ""


@dataclass(frozen=True, slots=True)
class GroupOrder:
    """A wish of epoch *epoch*, and of no other: that *to* lead next. *unclean*: even if it lacks what others had."""

    to: int
    epoch: int
    unclean: bool = False


@dataclass(frozen=True, slots=True)
class MemberFacts:
    """A slave as the master sees it. *acked* is of this mastership, -1 before the first; times are in ms."""

    acked: int
    connected: bool
    silent_ms: int = 0
    behind_ms: int = 0


@dataclass(frozen=True, slots=True)
class LeaderFacts:
    """What a master's ha worker says. *required_seen* is the generation of the required set that it goes by.

    *members* has all that are in sync or connected; who was never heard is silent since the epoch began.
    """

    epoch_start: int
    confirmed: int
    required_seen: int
    members: Mapping[int, MemberFacts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Why somebody who follows may want to stand: whether frames come from the master, and what is known of the others.

    *alive* has those that announce themselves, this broker left out. *order* is the last one that was given.
    """

    hears_master: bool = False
    master_refuses: bool = False
    alive: Mapping[int, Announcement] = field(default_factory=dict)
    order: GroupOrder | None = None
