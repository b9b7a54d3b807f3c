"""What the workers have counted, in plain values."""

from __future__ import annotations

from dataclasses import dataclass

from mqcore.layout import PUT_TALLY_BOUNDS_MS


@dataclass(frozen=True, slots=True)
class BrokerTotals:
    """Counts since the start, over all workers. Puts are of every message that was appended, whoever asked for it.

    ``put_latency`` has a tally for each of PUT_TALLY_BOUNDS_MS and one for what took longer; with SYNC_FLUSH a put ends
    with its flush.
    """

    put_nums: int = 0
    put_bytes: int = 0
    put_failed: int = 0
    put_time_max_ms: int = 0
    put_latency: tuple[int, ...] = (0,) * (len(PUT_TALLY_BOUNDS_MS) + 1)
    get_found: int = 0
    get_miss: int = 0
    get_nums: int = 0
    get_bytes: int = 0
    get_time_max_ms: int = 0


@dataclass(frozen=True, slots=True)
class PutCount:
    """Messages and bytes that send workers acknowledged for a topic by themselves."""

    topic: str
    nums: int
    bytes: int


@dataclass(frozen=True, slots=True)
class GetCount:
    """Messages and bytes handed out of one queue to one group, and in how many answers."""

    topic: str
    group: str
    queue_id: int
    nums: int
    bytes: int
    times: int
