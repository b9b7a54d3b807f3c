"""What the boards say of topics, groups and the broker's processes, in plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class TopicFigures:
    """A topic that exists. Counts are since the start; *max_offset* is that of its queues together."""

    topic: str
    put_nums: int
    put_bytes: int
    max_offset: int


class UnconsumedQueue(NamedTuple):
    """A queue that a group has not consumed to its end."""

    offset_row: int
    queue_id: int
    committed: int


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """A consumer group with a topic that it has an offset of, or has read from since the start.

    *committed* is -1 where it has no offset. The four behind it are of the queues that have one.
    """

    group: str
    topic: str
    get_nums: int
    get_bytes: int
    committed: int
    lag: int
    in_flight: int
    ready: int
    max_offset: int
    unconsumed: Callable[[], Sequence[UnconsumedQueue]]


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """A process of the broker. *words* are those of its row by their names in ``layout.WORKER_ROW``."""

    name: str
    kind: str
    pid: int
    """0 = it does not run."""
    state: str
    """A name of WorkerState."""
    is_wanted: bool
    stays_up: bool
    """Whether it has not died again and again, each time when it had just been started."""
    words: Mapping[str, int]
