"""The group that elects its master, as an operator sees it through one of its brokers."""

from __future__ import annotations

from typing import Protocol

from mqcore.protocol.group_bodies import GroupFacts
from mqcore.protocol.ha_bodies import EpochCache


class GroupControl(Protocol):
    """What may be asked of a group by way of any of its brokers."""

    @property
    def member(self) -> int:
        """Return this broker's id in the group, from 1 on."""
        ...

    @property
    def epoch(self) -> int:
        """Return the greatest epoch that it has heard of."""
        ...

    @property
    def is_master(self) -> bool:
        """Whether this broker serves as the master: from its promotion on, until its mastership ends."""
        ...

    @property
    def takes_changes(self) -> bool:
        """Whether it is the master, and does not give its place away: what clients want done is for another else."""
        ...

    @property
    def registered_id(self) -> int:
        """Return the id by which name servers are to know this broker: 0 for a master that may be found."""
        ...

    def epoch_cache(self) -> EpochCache:
        """Return who wrote which part of this broker's log, and whether it leads."""
        ...

    def facts(self) -> GroupFacts:
        """Return what this broker knows of its group."""
        ...

    def check_order(self, to: int, *, unclean: bool = False) -> None:
        """Raise UnfitMemberError if member *to* cannot be had to lead next, as far as this broker knows."""
        ...

    async def order(self, to: int, *, unclean: bool = False) -> None:
        """Have member *to* lead next; *unclean*: although what others have may be lost.

        A master takes no sends until it does, for some seconds at most; then it takes the order back.
        It has not happened when this returns. Raises EngineError, and as ``check_order`` before anything is changed.
        """
        ...

    def check_remove(self, member: int) -> None:
        """Raise UnfitMemberError if *member* cannot be forgotten, as far as this broker knows."""
        ...

    async def remove(self, member: int) -> None:
        """Forget a member that is gone for good. Its id is not given again.

        Raises EngineError, and as ``check_remove`` before anything is changed.
        """
        ...
