"""The log of a broker in a failover group: whom it is copied from, who copies it, and what all of them have.

Who decides these things is ``broker/failover``; this is how its decisions reach the workers, and what it learns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from mqcore.broker.failover.facts import LeaderFacts


class GroupLog(Protocol):
    """What the coordinator of a failover group may ask of the log, in one life of this broker.

    A life begins as a slave without a master, and is promoted once at most. A member's nonce is a positive number.
    """

    @property
    def end(self) -> int:
        """The end of the log, bytes."""
        ...

    @property
    def confirmed(self) -> int:
        """All members that are required have the log up to here, bytes. It never goes back."""
        ...

    @property
    def master_seen_ms(self) -> int:
        """How long ago the master that is followed sent its last frame; -1 = none came over this connection."""
        ...

    @property
    def is_followed_up(self) -> bool:
        """Whether the ha worker is connected to the master that it was told last."""
        ...

    def introduce(self, member: int, nonce: int) -> None:
        """Say who this broker is, before anything else."""
        ...

    def know(self, nonces: Mapping[int, int]) -> None:
        """Say what each member has announced itself by. Who is missing is let in no more."""
        ...

    def follow(self, host: str, port: int, term: int, start: int) -> None:
        """Copy from the master that listens for slaves at *host*, an address in figures, and leads epoch *term*.

        This log is the start of the master's. An empty one begins at *start*, the start of a file; 0 is all there is.
        """
        ...

    @property
    def doubts_ms(self) -> int:
        """How long it is yet doubted where clients stand."""
        ...

    def doubt(self, duration_ms: int, *, has_some_of_it: bool) -> None:
        """Doubt where clients stand: the master to be followed leads an epoch that may lack what was given out.

        *has_some_of_it*: the log has messages of that epoch already.
        """
        ...

    async def stop_following(self) -> None:
        """Leave the master. Returns when nothing more can be acknowledged to any."""
        ...

    async def lead(self, term: int, *, may_lack: bool = False) -> int:
        """Become the master of epoch *term*, which begins at the end of the log as it is; returns that.

        *may_lack*: messages that were given out may be lost. Groups that have read them are sent back to what is there.

        The epoch is on disk with that start: the end does not move meanwhile, since nobody is followed and nothing is
        appended. Nothing is confirmed before ``require``. Raises StoreError if the log cannot be read to its end.
        """
        ...

    def epoch_offset(self, topic: str, queue_id: int) -> int:
        """Return where the epoch that this broker leads begins in a queue; 0 for one that was not there then."""
        ...

    def require(self, generation: int, members: frozenset[int]) -> None:
        """Confirm from now on what all of *members* have; generations grow from 1 on."""
        ...

    def leader_facts(self, isr: frozenset[int]) -> LeaderFacts:
        """Return what is known of the members in *isr*, and of those that are connected. To be asked often."""
        ...

    async def stop_leading(self) -> None:
        """Append and confirm nothing more; sends that wait are answered SERVICE_NOT_AVAILABLE."""
        ...
