"""How a broker's log is copied: values for people."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SlaveFacts:
    """A connection of a slave. *acked* is -1 before its first report."""

    address: str
    state: str
    """A name of ``layout.constants("SlaveState")``."""
    acked: int
    sent: int
    sent_bytes: int
    bytes_per_second: int
    """Sent to it during the last second."""
    behind_bytes: int
    behind_ms: int
    """For how long it has not had everything; 0 if it has."""


@dataclass(frozen=True, slots=True)
class ReplicationFacts:
    """A master's slaves, and a slave's master."""

    end: int
    replicated_end: int
    slaves: tuple[SlaveFacts, ...]
    is_copying: bool
    master_seen_ms: int
    """When the master was last heard; 0 = not connected."""
    master_end: int
    bytes_per_second: int
    """Received from the master during the last second."""
