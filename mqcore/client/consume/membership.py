"""One consumer as a member of its group: what the parts of a consumer (pulling, consuming, rebalancing) share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mqcore.client.consume.offsets import OffsetStore
from mqcore.client.model.counters import ConsumerCounts
from mqcore.client.model.latency import together
from mqcore.client.model.messages import ReceivedMessage
from mqcore.client.model.process_queue import ProcessQueue
from mqcore.client.model.subscription import now_ms
from mqcore.client.settings.classes import ConsumerSettings, MessageModel
from mqcore.client.telemetry.consumer_hooks import ConsumerHooks
from mqcore.client.telemetry.statistics import TopicStatistics
from mqcore.protocol.heartbeat import SubscriptionData
from mqcore.protocol.message import MessageExt, MessageQueue
from mqcore.protocol.names import retry_topic
from mqcore.protocol.properties import PROPERTY_RETRY_TOPIC

if TYPE_CHECKING:
    from mqcore.client.session.session import Session

HeldQueue = ProcessQueue[ReceivedMessage]

CallsWatch = Callable[[str, Sequence[float], BaseException | None], object]
"""(topic, ms of each call, error of the last): is told of handlers' calls that have ended."""


@dataclass(slots=True)
class Membership:
    """The state of one consumer. ``held`` are its queues now, ``preferred_broker_id`` is what brokers advised."""

    hub: Session
    group: str
    settings: ConsumerSettings
    offsets: OffsetStore
    subscriptions: dict[str, SubscriptionData]
    held: dict[MessageQueue, HeldQueue] = field(default_factory=dict)
    preferred_broker_id: dict[MessageQueue, int] = field(default_factory=dict)
    statistics: defaultdict[str, TopicStatistics] = field(default_factory=lambda: defaultdict(TopicStatistics))
    hooks: ConsumerHooks = field(default_factory=ConsumerHooks)
    watch_calls: CallsWatch | None = None
    paused: bool = False
    started_ms: int = field(default_factory=now_ms)

    @property
    def is_broadcasting(self) -> bool:
        return self.settings.message_model == MessageModel.BROADCASTING

    @property
    def needs_broker_locks(self) -> bool:
        return self.settings.orderly and not self.is_broadcasting

    @property
    def retry_topic(self) -> str:
        return retry_topic(self.group)

    def counts(self) -> ConsumerCounts:
        """Return what has been received, what has failed and what is to be done. From any thread."""
        statistics = list(self.statistics.values())
        totals = [one.totals() for one in statistics]
        held = list(self.held.values())
        in_flight = sum(one.count for one in held)
        return ConsumerCounts(
            received=sum(pulled for pulled, _ in totals),
            failed=sum(failed for _, failed in totals),
            in_flight=in_flight,
            lag=in_flight + sum(one.behind for one in held),
            latency=together(one.calls for one in statistics).latency(),
        )

    def consumed(
        self, topic: str, ok: int, failed: int, times_ms: Sequence[float], error: BaseException | None = None
    ) -> None:
        """Note messages that are done, and that have failed with *error*, after calls that took *times_ms* each."""
        self.statistics[topic].add_consumed(ok, failed, times_ms)
        if self.watch_calls is not None:
            self.watch_calls(topic, times_ms, error)

    def queue_thresholds(self) -> tuple[int, int]:
        """Return how many messages, and how many MiB, one queue may cache; limits of the topic are divided.

        A topic's limit, when set, replaces the queue's.
        """
        settings, held_count = self.settings, max(1, len(self.held))
        count_max, mib_max = settings.pull_threshold_for_queue, settings.pull_threshold_size_for_queue_mib
        if settings.pull_threshold_for_topic != -1:
            count_max = max(1, settings.pull_threshold_for_topic // held_count)
        if settings.pull_threshold_size_for_topic_mib != -1:
            mib_max = max(1, settings.pull_threshold_size_for_topic_mib // held_count)
        return count_max, mib_max

    def topic_shown(self, ext: MessageExt) -> str:
        """Return the topic to show to a handler: a message that came back shows the topic it was first sent to."""
        names, topic = self.hub.namespace, ext.topic
        if topic == names.wrap(self.retry_topic):
            topic = ext.properties.get(PROPERTY_RETRY_TOPIC, topic)
        return names.unwrap(topic)

    def commit(self, held: HeldQueue, offset: int) -> None:
        """Note that everything before *offset* is done, unless the queue has been given up or nothing is to commit."""
        if offset >= 0 and (not held.dropped or held.leaving):
            self.offsets.update(held.queue, offset, increase_only=True)
