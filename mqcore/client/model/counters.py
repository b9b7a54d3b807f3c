"""What a client has sent and received, in figures: as objects, and for a callback now and then.

Nothing is done for a message: batches and pulls are counted as wholes, a plain send by the connection that it went
over, and what is under way is known anyway. So the fast ways stay, which hooks would switch off.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProducerCounts:
    """A producer's messages since its start. A message that is tried again counts once, when that has ended."""

    sent: int
    """Stored by a broker, or sent one-way."""
    failed: int
    """Given up: their send has raised, or their future has an error."""
    in_flight: int
    in_flight_bytes: int


@dataclass(frozen=True, slots=True)
class ConsumerCounts:
    """A consumer's messages since its start."""

    received: int
    """Pulled from brokers; a message that comes again counts again."""
    failed: int
    """Failed deliveries: messages that are to come again, or dead letters. Of those that were polled nobody knows."""
    in_flight: int
    """Pulled, and not done."""
    lag: int
    """What is not done of the queues that are held, in flight or still at the brokers, by their last answers."""


@dataclass(frozen=True, slots=True)
class ClientCounts:
    """The open producers and consumers of a client, by group."""

    producers: Mapping[str, ProducerCounts]
    consumers: Mapping[str, ConsumerCounts]


CountsCallback = Callable[[ClientCounts], object]


class SendTally:
    """How many messages of a producer were sent, and how many not. From any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.sent = 0
        self.failed = 0

    def add(self, sent: int, failed: int = 0) -> None:
        with self._lock:
            self.sent += sent
            self.failed += failed
