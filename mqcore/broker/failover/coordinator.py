"""Who is master, and whose acknowledgements count: the decisions of one broker of a group.

Nothing here has a socket, a file or a clock: events come in with the time (ms of any clock that does not jump), effects
go out, so that the very same code runs in a broker and in a model that plays a million schedules.

What holds, whatever comes late, twice or never (the letters are of docs/failover.md):

- An acknowledgement needs every member of the *required set*. That always contains the stored in-sync set and each one
  that was sent to be stored and is not known to have failed.
- Only a member of the stored set, whose log has all that it ever acknowledged, puts itself in the master's place; it
  stops acknowledging before it does.
- A member is added when the set in use has it and its acknowledgements have reached what is confirmed; one is removed
  from the set in use after the stored set has lost it.
- Each mastership is one epoch of one process. A process that starts anew begins a new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto

from . import effects
from .effects import Effect
from .facts import Announcement, GroupOrder, LeaderFacts, LogFacts, MemberFacts, Surroundings
from .group_state import GroupState


class Phase(Enum):
    """What a coordinator is at."""

    STARTING = auto()
    """The group's state is not known."""
    WAITING = auto()
    """There is no master to follow, and this broker may not, or does not yet, stand."""
    FOLLOWING = auto()
    RANKING = auto()
    """It has stopped acknowledging, and lets those who have more go first."""
    STANDING = auto()
    """Its election is under way, and nobody knows what came of it."""
    LEADING = auto()
    STOPPED = auto()
    """An operator has to look."""


class Outcome(Enum):
    """What came of a swap."""

    DONE = auto()
    REFUSED = auto()
    UNKNOWN = auto()
    """No answer, or a broken connection: it may have been done, and it may yet be."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things are waited for, ms, and how few may be in sync."""

    ranking: int = 100
    rank_step: int = 200
    retry: int = 100
    silent: int = 1_000
    behind: int = 5_000
    near: int = 1 << 20
    """Bytes that a member may be behind what is confirmed when it is made a required one."""
    order: int = 1_000
    """How long an order is waited for before it is given to another."""
    unclean: int = 10_000
    """How long nobody who may stand must have been there before somebody who may not does."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A swap that was sent and not answered for good; it is sent again until it is."""

    expected: int
    state: GroupState
    sent_ms: int


class Coordinator:
    """Decides for broker *me*, whose process is *nonce*. *founder*: it begins a group that has no state yet."""

    def __init__(
        self,
        me: int,
        nonce: str,
        address: str,
        *,
        founder: bool = False,
        seen_epoch: int = 0,
        priority: int = 0,
        elects_unclean: bool = False,
        pace: Pace | None = None,
    ) -> None:
        """*elects_unclean*: when all that are in sync are gone, it may stand and lose what they had."""
        self.me = me
        self.phase = Phase.STARTING
        self.state: GroupState | None = None
        self.revision = 0
        self.seen_epoch = seen_epoch
        self._nonce = nonce
        self._address = address
        self._founder = founder
        self._priority = priority
        self._elects_unclean = elects_unclean
        self._pace = pace or Pace()
        self._pending: Pending | None = None
        self._joining: int | None = None
        self._generation = 0
        self._required: frozenset[int] = frozenset()
        self._ranks_at_ms = 0
        self._stands_at_ms: int | None = None
        self.is_unclean = False
        """Whether it stands, or leads, although others may have more: that is lost."""
        self._nobody_since_ms: int | None = None
        self._is_leaving = False
        self._orders_at_ms = 0

    # ------------------------------------------------------------------------------------------------------ events

    def start(self) -> list[Effect]:
        """Begin."""
        return [effects.ReadState()]

    def on_state(self, revision: int, state: GroupState | None, now_ms: int) -> list[Effect]:
        """Take a state that was read or watched; an old one that comes late is nothing new."""
        if self.phase is Phase.STOPPED:
            return []
        if state is None:
            return self._found(now_ms)
        if revision < self.revision or (revision == self.revision and self.phase is not Phase.STARTING):
            return []
        return self._learn(revision, state)

    def on_swap(
        self, swap: effects.SwapState, outcome: Outcome, revision: int, state: GroupState | None, now_ms: int
    ) -> list[Effect]:
        """Take what came of *swap*: with DONE its revision, with REFUSED the state that is there and its own."""
        pending = self._pending
        if pending is None or (pending.expected, pending.state) != (swap.expected, swap.state):
            return []
        if outcome is Outcome.UNKNOWN:
            return self._on_unknown()
        if outcome is Outcome.DONE:
            return self._learn(revision, swap.state) if revision > self.revision else []
        if state is None:
            # Somebody has emptied the engine. What was agreed on is not known any more.
            return self._stop("the group's state has vanished")
        if revision <= self.revision:
            self._pending = None
            return [effects.ReadState()]
        return self._learn(revision, state)

    def leave(self) -> None:
        """This broker is about to stop: a master gives its place away, and a slave does not stand any more."""
        self._is_leaving = True

    def look(self, now_ms: int, log: LogFacts, around: Surroundings, leader: LeaderFacts | None = None) -> list[Effect]:
        """Do what time, logs and connections ask for. *leader* is wanted of a master."""
        if self._pending is not None:
            wanted = self._repeat(now_ms)
            return wanted if self.phase is not Phase.LEADING else [*wanted, *self._follow_required()]
        if self.phase is Phase.LEADING:
            return self._look_after_members(now_ms, log, around, leader) if leader is not None else []
        if self.phase in (Phase.FOLLOWING, Phase.WAITING, Phase.RANKING) and self.state is not None:
            self._count_survivors(now_ms, log, around)
            return (
                self._stand(now_ms, log, around) if self.phase is Phase.RANKING else self._consider(now_ms, log, around)
            )
        return []

    # ---------------------------------------------------------------------------------------------------- learning

    def _found(self, now_ms: int) -> list[Effect]:
        if self.revision > 0 or self.seen_epoch > 0:
            return self._stop("the group's state has vanished")
        if not self._founder or self._pending is not None:
            self.phase = Phase.WAITING
            return []
        self.phase = Phase.STANDING
        return self._send(0, GroupState(1, self.me, self._nonce, self._address, frozenset({self.me})), now_ms)

    def _learn(self, revision: int, state: GroupState) -> list[Effect]:
        if state.epoch < self.seen_epoch:
            return self._stop(
                f"the group is at epoch {state.epoch}, and {self.seen_epoch} was seen: an old state restored?"
            )
        self.revision, self.state, self._pending = revision, state, None
        noted: list[Effect] = [effects.NoteEpoch(state.epoch)] if state.epoch > self.seen_epoch else []
        self.seen_epoch = state.epoch
        if self._is_mine(state):
            return [*noted, *(self._lead_on() if self.phase is Phase.LEADING else self._lead(state))]
        demotion: list[Effect] = [effects.Demote(state)] if self.phase is Phase.LEADING else []
        return [*noted, *demotion, *self._follow(state)]

    def _is_mine(self, state: GroupState) -> bool:
        return state.master == self.me and state.nonce == self._nonce

    def _lead(self, state: GroupState) -> list[Effect]:
        self.phase = Phase.LEADING
        self._joining = None
        self._generation += 1
        self._required = state.isr
        return [effects.Lead(state, state.isr, self.is_unclean), effects.Require(self._generation, state.isr)]

    def _lead_on(self) -> list[Effect]:
        assert self.state is not None
        if self._joining in self.state.isr:
            self._joining = None
        return self._follow_required()

    def _follow(self, state: GroupState) -> list[Effect]:
        self._joining = None
        if state.master == self.me:
            # A life of this broker before this process: its epoch is not to be continued.
            self.phase = Phase.WAITING
            return []
        self.phase = Phase.FOLLOWING
        return [effects.Follow(state)]

    def _stop(self, reason: str) -> list[Effect]:
        demotion: list[Effect] = [effects.Demote(None)] if self.phase is Phase.LEADING else []
        self.phase = Phase.STOPPED
        self._pending = None
        return [*demotion, effects.StopFollowing(), effects.CallOperator(reason)]

    # ----------------------------------------------------------------------------------------------------- swapping

    def _send(self, expected: int, state: GroupState, now_ms: int) -> list[Effect]:
        self._pending = Pending(expected, state, now_ms)
        return [effects.SwapState(expected, state)]

    def _repeat(self, now_ms: int) -> list[Effect]:
        assert self._pending is not None
        if now_ms - self._pending.sent_ms < self._pace.retry:
            return []
        self._pending = replace(self._pending, sent_ms=now_ms)
        return [effects.SwapState(self._pending.expected, self._pending.state)]

    def _on_unknown(self) -> list[Effect]:
        # It is neither done nor refused until the engine says so: it is asked for again, and counts as both meanwhile.
        return []

    # ------------------------------------------------------------------------------------------------------ standing

    def _may_stand(self, log: LogFacts, alive: Mapping[int, Announcement]) -> bool:
        """Whether an election of this broker can lose nothing that was acknowledged."""
        if self.state is None or self.me not in self.state.isr:
            return False
        return self._is_trusted(log) or self._is_last(log, alive)

    def _is_trusted(self, log: LogFacts) -> bool:
        return log.trusted

    def _is_last(self, log: LogFacts, alive: Mapping[int, Announcement]) -> bool:
        """Whether nobody can have more: all of the set are there, have lost something, and none has more than it."""
        assert self.state is not None
        others = self.state.isr - {self.me}
        if not all(other in alive and not alive[other].trusted for other in others):
            return False
        mine = (log.last_epoch, log.end)
        return all((alive[other].last_epoch, alive[other].end) <= mine for other in others)

    def _count_survivors(self, now_ms: int, log: LogFacts, around: Surroundings) -> None:
        """Note since when nobody has been there who may stand, this broker included."""
        assert self.state is not None
        others = self.state.isr - {self.me}
        is_somebody = any(other in around.alive and around.alive[other].trusted for other in others)
        if is_somebody or around.hears_master or self._may_stand(log, around.alive):
            self._nobody_since_ms = None
        elif self._nobody_since_ms is None:
            self._nobody_since_ms = now_ms

    def _may_lose(self, now_ms: int, around: Surroundings) -> bool:
        """Whether it may stand all the same, and lose what others had: an operator wants it, or has allowed it."""
        if self._is_ordered(around) and around.order is not None and around.order.unclean:
            return True
        return (
            self._elects_unclean
            and self._nobody_since_ms is not None
            and now_ms - self._nobody_since_ms >= self._pace.unclean
        )

    def _is_ordered(self, around: Surroundings) -> bool:
        assert self.state is not None
        return around.order is not None and around.order.to == self.me and self._is_of_now(around.order)

    def _is_of_now(self, order: GroupOrder) -> bool:
        """Whether *order* is of this epoch: an old one must not lose what was acknowledged since."""
        assert self.state is not None
        return order.epoch == self.state.epoch

    def _consider(self, now_ms: int, log: LogFacts, around: Surroundings) -> list[Effect]:
        if self._is_leaving or not self._is_wanted(around):
            return []
        if not self._may_stand(log, around.alive) and not self._may_lose(now_ms, around):
            return []
        self.phase = Phase.RANKING
        # Whom an operator names lets nobody go first.
        self._ranks_at_ms = now_ms + (0 if self._is_ordered(around) else self._pace.ranking)
        self._stands_at_ms = now_ms if self._is_ordered(around) else None
        return [*self._stop_acknowledging(), effects.Announce()]

    def _stop_acknowledging(self) -> list[Effect]:
        return [effects.StopFollowing()]

    def _is_wanted(self, around: Surroundings) -> bool:
        """Whether there is a reason to stand: when is a matter of service, and not of safety."""
        assert self.state is not None
        if self._is_ordered(around):
            return True
        if around.hears_master:
            return False
        return self.state.master == self.me or self._has_ended(around) or around.master_refuses

    def _has_ended(self, around: Surroundings) -> bool:
        """Whether the process that leads is gone. One with its id may be there: that does not go on with its epoch."""
        assert self.state is not None
        said = around.alive.get(self.state.master)
        return said is None or str(said.nonce) != self.state.nonce

    def _rank(self, log: LogFacts, around: Surroundings, *, is_clean: bool) -> int:
        """Return how many others should rather lead, by what they have announced since the master was lost."""
        assert self.state is not None
        mine = (log.last_epoch, log.end, self._priority, -self.me)
        return sum(
            (said.last_epoch, said.end, said.priority, -other) > mine
            for other, said in around.alive.items()
            if other != self.state.master and not said.leaving and (other in self.state.isr or not is_clean)
        )

    def _stand(self, now_ms: int, log: LogFacts, around: Surroundings) -> list[Effect]:
        assert self.state is not None
        if now_ms < self._ranks_at_ms:
            return []
        is_clean = self._may_stand(log, around.alive)
        if self._is_leaving or not (is_clean or self._may_lose(now_ms, around)):
            return self._follow(self.state)
        if self._stands_at_ms is None:
            self._stands_at_ms = now_ms + self._rank(log, around, is_clean=is_clean) * self._pace.rank_step
        if now_ms < self._stands_at_ms:
            return []
        self.phase = Phase.STANDING
        self.is_unclean = not is_clean
        trusted = {other for other, said in around.alive.items() if said.trusted and not said.leaving}
        kept = (self.state.isr & trusted) - {self.state.master} if is_clean else frozenset[int]()
        isr = frozenset({self.me}) | kept
        return self._send(
            self.revision, GroupState(self.state.epoch + 1, self.me, self._nonce, self._address, isr), now_ms
        )

    # ------------------------------------------------------------------------------------------------------- leading

    def _wanted_required(self) -> frozenset[int]:
        assert self.state is not None
        pending = self._pending.state.isr if self._pending is not None else frozenset[int]()
        joining = frozenset({self._joining}) if self._joining is not None else frozenset[int]()
        return self.state.isr | pending | joining

    def _follow_required(self) -> list[Effect]:
        wanted = self._wanted_required()
        if wanted == self._required:
            return []
        self._required = wanted
        self._generation += 1
        return [effects.Require(self._generation, wanted)]

    def _look_after_members(
        self, now_ms: int, log: LogFacts, around: Surroundings, leader: LeaderFacts
    ) -> list[Effect]:
        assert self.state is not None
        given = self._give_away(now_ms, log, around, leader) if self._is_leaving else []
        if given:
            return given
        leaving = {other for other, said in around.alive.items() if said.leaving}
        lost = [
            member
            for member in self.state.isr - {self.me}
            if member in leaving or self._is_lost(leader.members.get(member))
        ]
        if lost:
            self._joining = None
            return self._change_isr(self.state.isr - frozenset(lost), now_ms)
        if self._joining is not None:
            return self._go_on_joining(now_ms, leader)
        for member, facts in leader.members.items():
            if member not in self.state.isr and member not in leaving and self._is_near(facts, leader):
                self._joining = member
                return self._follow_required()
        return self._follow_required()

    def _give_away(self, now_ms: int, log: LogFacts, around: Surroundings, leader: LeaderFacts) -> list[Effect]:
        """Name a member that has all of the log, which has come to rest, in this broker's place."""
        assert self.state is not None
        ready = [
            (said.priority, -other)
            for other, said in around.alive.items()
            if other in self.state.isr and said.trusted and not said.leaving
            if (facts := leader.members.get(other)) is not None and facts.connected and facts.acked >= log.end
        ]
        if not ready or now_ms < self._orders_at_ms:
            return []
        self._orders_at_ms = now_ms + self._pace.order
        return [effects.Give(GroupOrder(-max(ready)[1], self.state.epoch))]

    def _change_isr(self, isr: frozenset[int], now_ms: int) -> list[Effect]:
        assert self.state is not None
        swap = self._send(self.revision, replace(self.state, isr=isr), now_ms)
        # The set in use comes first: before the swap can be done, whoever it adds counts.
        return [*self._follow_required(), *swap]

    def _is_lost(self, facts: MemberFacts | None) -> bool:
        if facts is None:
            return False
        return (not facts.connected and facts.silent_ms > self._pace.silent) or facts.behind_ms > self._pace.behind

    def _is_near(self, facts: MemberFacts, leader: LeaderFacts) -> bool:
        return (
            facts.connected and facts.acked >= leader.epoch_start and leader.confirmed - facts.acked <= self._pace.near
        )

    def _go_on_joining(self, now_ms: int, leader: LeaderFacts) -> list[Effect]:
        assert self.state is not None
        assert self._joining is not None
        facts = leader.members.get(self._joining)
        if facts is None or not facts.connected:
            self._joining = None
            return self._follow_required()
        if not self._is_required_by_all(leader) or not self._has_caught_up(facts, leader):
            return []
        return self._change_isr(self.state.isr | {self._joining}, now_ms)

    def _is_required_by_all(self, leader: LeaderFacts) -> bool:
        """Whether the set in use has the joining one: from then on nothing is confirmed without it."""
        return leader.required_seen >= self._generation

    def _has_caught_up(self, facts: MemberFacts, leader: LeaderFacts) -> bool:
        return facts.acked >= leader.confirmed and facts.acked >= leader.epoch_start
