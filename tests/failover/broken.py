"""The protocol with one of its rules taken out, each time another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mqcore.broker.failover.coordinator import Coordinator
from mqcore.broker.failover.effects import Effect
from mqcore.broker.failover.facts import GroupOrder, LeaderFacts, LogFacts, MemberFacts, Surroundings
from mqcore.broker.failover.group_state import GroupState
from mqcore.store.epochs import EpochEntry
from tests.failover.replica import Broker, Link
from tests.failover.world import World


class TrustsItself(Coordinator):
    """Who has lost what it acknowledged stands all the same."""

    def _is_trusted(self, log: LogFacts) -> bool:
        return True


class SwapsBeforeTheBit(Coordinator):
    """A member is stored as in sync before acknowledgements need it."""

    def _is_required_by_all(self, leader: LeaderFacts) -> bool:
        return True


class SwapsBeforeItHasAll(Coordinator):
    """A member is stored as in sync before it has what was acknowledged."""

    def _has_caught_up(self, facts: MemberFacts, leader: LeaderFacts) -> bool:
        return True


class LetsGoBeforeTheSwap(Coordinator):
    """A member is left out of acknowledgements before it is out of the stored set."""

    def _wanted_required(self) -> frozenset[int]:
        return self._pending.state.isr if self._pending is not None else super()._wanted_required()


class TakesSilenceForNo(Coordinator):
    """A swap without an answer counts as not done."""

    def _on_unknown(self) -> list[Effect]:
        self._pending = None
        return self._follow_required() if self.state is not None and self._is_mine(self.state) else []


class GoesOnWithItsEpoch(Coordinator):
    """A master's next process takes the mastership for its own."""

    def _is_mine(self, state: GroupState) -> bool:
        return state.master == self.me


class StandsFromOutside(Coordinator):
    """Whoever is there stands, in sync or not."""

    def _may_stand(self, log: LogFacts, alive: object) -> bool:
        return self.state is not None and log.trusted


class LosesUnasked(Coordinator):
    """Who may have less than others stands when nobody has allowed that."""

    def _may_lose(self, now_ms: int, around: Surroundings) -> bool:
        return True


class ObeysOldOrders(Coordinator):
    """What was allowed in an epoch is done in a later one."""

    def _is_of_now(self, order: GroupOrder) -> bool:
        return True


class TakesALaterLifeForTheMaster(Coordinator):
    """A master whose next process is there counts as there, though that process will not lead."""

    def _has_ended(self, around: Surroundings) -> bool:
        return self.state is not None and self.state.master not in around.alive


class ForgetsItsCut(Broker):
    """A cut that is not finished is not begun again."""

    def recover(self) -> None:
        self.cutting_to = None
        super().recover()


class NeverCuts(Broker):
    """A slave goes on from its own end, whoever wrote what is before it."""

    def cut(self, point: int, epochs: tuple[EpochEntry, ...]) -> None:
        self.epochs = epochs


class TrustsItselfTooSoon(World):
    """Who has lost something counts as whole again with the first bytes from a master."""

    def is_whole(self, broker: Broker, link: Link) -> bool:
        return True


Rule = type[Coordinator] | type[Broker] | type[World]

RULES: Final[dict[Rule, Mapping[str, float]]] = {
    TrustsItself: {"lose_power": 4},
    SwapsBeforeTheBit: {"take_required": 8},
    SwapsBeforeItHasAll: {},
    LetsGoBeforeTheSwap: {"close": 8},
    TakesSilenceForNo: {"give_up": 60},
    GoesOnWithItsEpoch: {},
    StandsFromOutside: {},
    LosesUnasked: {},
    ObeysOldOrders: {"order_unclean": 4},
    ForgetsItsCut: {},
    NeverCuts: {},
    TrustsItselfTooSoon: {"lose_power": 3, "sync": 5, "start": 100},
}
"""What is taken out, and what happens more often then, so that a loss is found soon."""

SERVICE_RULES: Final[dict[Rule, Mapping[str, float]]] = {TakesALaterLifeForTheMaster: {}}
"""The same of rules without which nothing is lost, but a group may wait for ever."""


def world_of(rule: Rule) -> type[World]:
    """Return the world in which brokers keep all rules but this one."""
    values: dict[str, object] = {"weights": (RULES | SERVICE_RULES)[rule]}
    if issubclass(rule, World):
        return type(rule.__name__, (rule,), values)
    values["coordinator" if issubclass(rule, Coordinator) else "broker"] = rule
    return type(rule.__name__, (World,), values)
