"""A broker of the model: the coordinator, a log of whole records, and connections whose messages are late or lost."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mqcore.broker.failover.coordinator import Coordinator, Phase
from mqcore.broker.failover.facts import LeaderFacts, LogFacts, MemberFacts
from mqcore.broker.failover.group_state import GroupState
from mqcore.store.epochs import EpochEntry, common_point, held_by

LIVES_MAX: Final = 1_000_000


class Violation(AssertionError):
    """What must hold does not."""


class StuckError(Violation):
    """Nothing is broken, and the group does not serve."""


class Hello(NamedTuple):
    """A slave's first message."""

    seen_epoch: int
    epochs: tuple[EpochEntry, ...]
    end: int


class Welcome(NamedTuple):
    """A master's answer to it."""

    term: int
    epochs: tuple[EpochEntry, ...]
    end: int


class Frame(NamedTuple):
    """Records of a master's log from *offset* on, and how far everybody has it."""

    term: int
    offset: int
    records: tuple[int, ...]
    epochs: tuple[EpochEntry, ...]
    confirmed: int


class Ack(NamedTuple):
    """How far a slave has what the master of *term* has."""

    term: int
    end: int


@dataclass(eq=False, slots=True)
class Link:
    """A connection of two processes. Each direction keeps its order; who closes it still has sent what is under way."""

    slave: Process
    master: Process
    up: deque[Hello | Ack] = field(default_factory=deque)
    down: deque[Welcome | Frame] = field(default_factory=deque)
    is_closed_by_slave: bool = False
    is_closed_by_master: bool = False
    sent: int = -1
    """Up to where the master has sent its log; -1 before the welcome."""
    is_joined: bool = False
    whole_at: int = 0
    """The end of the master's log when it was asked."""


@dataclass(eq=False, slots=True)
class Process:
    """What a broker loses when its process ends."""

    broker: Broker
    coordinator: Coordinator
    links: list[Link] = field(default_factory=list)
    """As master, those of its slaves."""
    upstream: Link | None = None
    is_leaving: bool = False
    leads: GroupState | None = None
    epoch_start: int = 0
    acked: dict[int, int] = field(default_factory=dict)
    required: tuple[int, frozenset[int]] = (0, frozenset())
    """As the coordinator wants it."""
    in_use: tuple[int, frozenset[int]] = (0, frozenset())
    """As the ha worker goes by it."""
    confirmed: int = 0
    watched: int = -1
    """Revision up to which the watch has brought the engine's states; -1 before the first was read."""

    def leader_facts(self, silent_ms: int) -> LeaderFacts:
        """Return what the ha worker says of its slaves; those that are not connected are silent for so long."""
        assert self.leads is not None
        assert self.coordinator.state is not None
        connected = {link.slave.broker.me for link in self.links if not link.is_closed_by_master and link.sent >= 0}
        members = {
            other: MemberFacts(acked=self.acked.get(other, -1), connected=other in connected, silent_ms=silent_ms)
            for other in (connected | self.coordinator.state.isr) - {self.broker.me}
        }
        return LeaderFacts(self.epoch_start, self.confirmed, self.in_use[0], members)

    def confirm(self) -> None:
        """Move what is confirmed to what all required have."""
        if self.leads is None:
            return
        others = self.in_use[1] - {self.broker.me}
        reached = min([len(self.broker.records), *(self.acked.get(other, -1) for other in others)])
        if self.broker.me in self.in_use[1]:
            self.confirmed = max(self.confirmed, reached)


@dataclass(eq=False, slots=True)
class Broker:
    """What a broker keeps on its disk: records (their values are unique), epochs, and its identity."""

    me: int
    records: list[int] = field(default_factory=list)
    epochs: tuple[EpochEntry, ...] = ()
    synced: int = 0
    seen_epoch: int = 0
    is_trusted: bool = True
    cutting_to: int | None = None
    lives: int = 0
    process: Process | None = None

    @property
    def nonce(self) -> int:
        """Of its newest process, and of no other."""
        return self.me * LIVES_MAX + self.lives

    def facts(self) -> LogFacts:
        """Return what the coordinator is told of the log."""
        return LogFacts(self.epochs[-1].epoch if self.epochs else 0, len(self.records), self.is_trusted)

    def lose_power(self, kept: int) -> None:
        """Lose what is behind *kept*, and the process."""
        assert kept >= self.synced
        del self.records[kept:]
        self.process = None
        self.is_trusted = False

    def recover(self) -> None:
        """Find the log again: a cut that was begun is done, and no epoch begins behind the end."""
        if self.cutting_to is not None:
            self.finish_cut()
        self.epochs = held_by(self.epochs, len(self.records))

    def cut(self, point: int, epochs: tuple[EpochEntry, ...]) -> None:
        """Forget what is behind *point*. The mark comes first, then the epochs, then the bytes."""
        self.cutting_to = point
        self.epochs = held_by(epochs, point)

    def finish_cut(self) -> None:
        """Remove the bytes, and the mark."""
        assert self.cutting_to is not None
        del self.records[self.cutting_to :]
        self.synced = min(self.synced, len(self.records))
        self.cutting_to = None


def joins(broker: Broker, welcome: Welcome, is_member: bool) -> int:
    """Return where *broker*'s log is to be cut to go on as its master's."""
    point = common_point(broker.epochs, len(broker.records), welcome.epochs, welcome.end)
    if point is None and is_member:
        raise Violation(f"broker {broker.me} is in sync, and its log has nothing of its master's")
    return 0 if point is None else point


def is_up(process: Process | None) -> bool:
    """Whether a process runs and has not asked for an operator."""
    return process is not None and process.broker.process is process and process.coordinator.phase is not Phase.STOPPED
