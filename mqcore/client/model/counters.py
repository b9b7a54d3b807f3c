"""What a client has sent and received, in figures: as objects, and for a callback now and then.

Nothing is done for a message of a batch or a pull: these are counted as wholes, with what they took; a plain send is
counted by the connection that it went over, which needs no lock, and what is under way is known anyway. So the fast
ways stay, which hooks would switch off.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mqcore.client.model.latency import Histogram, Latency


@dataclass(frozen=True, slots=True)
class ProducerCounts:
    """A producer's messages since its start. A message that is tried again counts once, when that has ended."""

    sent: int
    """Stored by a broker, or sent one-way."""
    failed: int
    """Given up: their send has raised, or their future has an error."""
    in_flight: int
    in_flight_bytes: int
    latency: Latency = field(default=Latency(), compare=False)
    """From a message's being given to the broker's answer, with all attempts; of a batch from its first message's."""


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
    latency: Latency = field(default=Latency(), compare=False)
    """What the handler's calls took; without a handler from handing a message out to settling it. Polled ones: none."""


@dataclass(frozen=True, slots=True)
class ClientCounts:
    """The open producers and consumers of a client, by group."""

    producers: Mapping[str, ProducerCounts]
    consumers: Mapping[str, ConsumerCounts]


CountsCallback = Callable[[ClientCounts], object]


SendWatch = Callable[[str, int, float, BaseException | None], object]
"""(topic, messages, seconds, error): is told of each request that has ended."""


class TopicSends:
    """What became of the messages to one topic. *failed* is by the error's class."""

    __slots__ = ("failed", "sent", "times")

    def __init__(self) -> None:
        self.sent = 0
        self.failed: dict[type[BaseException], int] = {}
        self.times = Histogram()


class SendTally:
    """What became of a producer's messages, by topic. From any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._topics: dict[str, TopicSends] = {}
        self.watch: SendWatch | None = None

    def add(self, topic: str, count: int, seconds: float, error: BaseException | None = None) -> None:
        """Note that *count* messages to *topic* were sent, or failed with *error*, after *seconds*."""
        with self._lock:
            topic_sends = self._topics.get(topic)
            if topic_sends is None:
                topic_sends = self._topics[topic] = TopicSends()
            if error is None:
                topic_sends.sent += count
                topic_sends.times.add(seconds, count)
            else:
                kind = type(error)
                topic_sends.failed[kind] = topic_sends.failed.get(kind, 0) + count
        if self.watch is not None:
            self.watch(topic, count, seconds, error)

    def by_topic(self) -> dict[str, TopicSends]:
        """Return a copy of what has been noted."""
        found: dict[str, TopicSends] = {}
        with self._lock:
            for topic, noted in self._topics.items():
                copied = found[topic] = TopicSends()
                copied.sent, copied.failed = noted.sent, dict(noted.failed)
                copied.times.add_all(noted.times)
        return found
