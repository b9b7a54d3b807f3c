"""What a master of a group is for clients while too few are in sync, and while it may have been replaced."""

from __future__ import annotations

import logging
from typing import Final

from mqcore import clock
from mqcore.config import BrokerRole, Settings

from .announcer import Announcer
from .facts import LeaderFacts, MemberFacts
from .group_state import GroupState
from .life import LivingBroker

logger = logging.getLogger(__name__)

CUT_OFF_S: Final = 0.5
"""A process that has stood still looks cut off until it has asked the engine."""


class Service:
    """Of member *me*, in one life. To be asked to ``look`` again and again while it is the master."""

    def __init__(self, settings: Settings, me: int, announcer: Announcer) -> None:
        self._options = settings.failover
        self._is_sync = settings.store.broker_role is BrokerRole.SYNC_MASTER
        self._me = me
        self._announcer = announcer
        self._is_refusing = False
        self._cut_off_since_s: float | None = None
        self.is_hidden = False
        """Whether name servers are not to know it as the master."""

    def look(self, host: LivingBroker, state: GroupState, leader: LeaderFacts) -> None:
        """Let *host* refuse sends, or not, and be found, or not."""
        is_cut_off = self._is_cut_off(state, leader)
        self._refuse_sends(host, state, is_cut_off=is_cut_off)
        self._hide(host, is_cut_off=is_cut_off)

    def _is_cut_off(self, state: GroupState, leader: LeaderFacts) -> bool:
        """Whether others may have elected a master: the engine does not answer, and one who could be it is silent."""
        if not self._announcer.is_expiring:
            return False
        members = leader.members
        return any(not members.get(other, MemberFacts(-1, False)).connected for other in state.isr - {self._me})

    def _refuse_sends(self, host: LivingBroker, state: GroupState, *, is_cut_off: bool) -> None:
        """Sends are refused while too few are in sync; asynchronous, also while another may be the master."""
        is_refused = len(state.isr) < self._options.min_in_sync_replicas or (is_cut_off and not self._is_sync)
        if is_refused != self._is_refusing:
            self._is_refusing = is_refused
            host.refuse_sends(is_refused)
            in_sync = " ".join(map(str, sorted(state.isr)))
            logger.warning("sends are %s in_sync=%s", "refused" if is_refused else "taken again", in_sync)

    def _hide(self, host: LivingBroker, *, is_cut_off: bool) -> None:
        """Let clients not find a master that may have been replaced, until it is known that it has not."""
        now = clock.monotonic_s()
        self._cut_off_since_s = (self._cut_off_since_s or now) if is_cut_off else None
        is_hidden = self._cut_off_since_s is not None and now - self._cut_off_since_s >= CUT_OFF_S
        if is_hidden != self.is_hidden:
            self.is_hidden = is_hidden
            logger.warning("name servers are told of %s", "no master" if is_hidden else "this master again")
            host.register_anew()
