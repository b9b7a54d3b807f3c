"""Copies of the log: that which a slave's ha worker makes, and how all of them are."""

from __future__ import annotations

from typing import Protocol

from mqcore.broker.replication import ReplicationFacts


class Replica(Protocol):
    """What the broker process of a slave sees of it, and may ask for."""

    @property
    def end(self) -> int:
        """The end of the log, bytes."""
        ...

    @property
    def is_copying(self) -> bool:
        """Whether it is connected to the master, or about to be."""
        ...

    @property
    def is_dispatched(self) -> bool:
        """Whether all of the log is in consume queues."""
        ...

    def newest_record(self) -> tuple[int, bytes] | None:
        """The newest record of the log, as far as it can be found: where it lies, and its bytes. None if there is none.

        It is found from the newest one that is in a consume queue on.
        """
        ...

    def follow(self, host: str, port: int, start: int) -> None:
        """Copy from the master that listens for slaves at *host*, an address in figures, and *port*.

        An empty log begins at *start*, the start of a file; 0 is all there is, -1 where the master, which has nothing
        yet, begins.
        """
        ...


class ReplicationView(Protocol):
    """How the log is copied, to slaves and from a master."""

    def facts(self) -> ReplicationFacts: ...
