"""What the test process and the broker process of a test say to each other: one JSON object a line, over two pipes.

The first line that the broker process reads is its ``Launch``. It answers ``{"ok": true, "seconds": ...}`` when it
serves, or ``{"ok": false, "error": ..., "ports_taken": ...}`` and ends. Then each order is answered in turn.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Self

ADVANCE = "advance"
CREATE_TOPIC = "create_topic"
STOP = "stop"


@dataclass(frozen=True, slots=True)
class Launch:
    """How a broker process starts. *settings* are property names; *skips* is the time that was skipped before."""

    settings: dict[str, str]
    directory: str
    """The test's own directory; the broker process removes it if it outlives the test process."""
    parent_pid: int
    topics: dict[str, int] = field(default_factory=dict)
    skips: list[tuple[int, int]] = field(default_factory=list)

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Self:
        return cls(**json.loads(line))


@dataclass(frozen=True, slots=True)
class Order:
    """One order. ADVANCE: *at_ms*, *duration_ms*; CREATE_TOPIC: *topic*, *queues*; STOP needs nothing."""

    what: str
    at_ms: int = 0
    duration_ms: int = 0
    topic: str = ""
    queues: int = 0

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Self:
        return cls(**json.loads(line))


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of an order. *ports_taken*: the start failed for a reason that other ports would mend."""

    ok: bool
    error: str = ""
    ports_taken: bool = False
    seconds: float = 0.0

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Self:
        return cls(**json.loads(line))
