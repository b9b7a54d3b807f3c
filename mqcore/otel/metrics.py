"""Metrics of clients. What is counted anyway is told when it is asked for, by observable instruments.

Only durations are recorded as they come, where they are asked for, one for each request and for each call of a handler:
OpenTelemetry has no histogram that can be observed. A batch of messages is one request.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeVar
from weakref import WeakKeyDictionary

from opentelemetry.metrics import CallbackOptions, Histogram, Meter, MeterProvider, Observation, get_meter_provider

from mqcore.client.consume.membership import CallsWatch
from mqcore.client.model.counters import ConsumerCounts, ProducerCounts, SendWatch, TopicSends
from mqcore.client.model.latency import Latency
from mqcore.otel import conventions as sem
from mqcore.version import __version__

MESSAGE_UNIT: Final = "{message}"
QUANTILES: Final = {"0.5": "p50_s", "0.95": "p95_s", "0.99": "p99_s", "1": "max_s"}

Key = tuple[tuple[str, sem.Value], ...]
K = TypeVar("K")


class Watched(Protocol):
    """A producer or a consumer of mqcore.aio, as far as metrics know it."""

    @property
    def group(self) -> str: ...

    @property
    def has_ended(self) -> bool: ...


class WatchedProducer(Watched, Protocol):
    @property
    def counts(self) -> ProducerCounts: ...

    def sends(self) -> dict[str, TopicSends]: ...

    def watch_sends(self, watch: SendWatch) -> None: ...


class WatchedConsumer(Watched, Protocol):
    @property
    def counts(self) -> ConsumerCounts: ...

    def received(self) -> dict[str, int]: ...

    def watch_calls(self, watch: CallsWatch) -> None: ...


class Metrics:
    """The instruments of one meter provider, which all its clients share: an instrument is to be made only once."""

    def __init__(self, provider: MeterProvider) -> None:
        self._lock = threading.Lock()
        self._producers: list[WatchedProducer] = []
        self._consumers: list[WatchedConsumer] = []
        self._sent_before: defaultdict[Key, int] = defaultdict(int)  # by those that have been closed
        self._received_before: defaultdict[Key, int] = defaultdict(int)
        meter = provider.get_meter(sem.SCOPE, __version__)
        self._observe_counts(meter)
        self._observe_present(meter)
        self._operations = _duration(meter, sem.OPERATION_DURATION, "Duration of requests to brokers")
        self._calls = _duration(meter, sem.PROCESS_DURATION, "Duration of handlers' calls")

    def add_producer(self, producer: WatchedProducer, *, durations: bool) -> None:
        """Count what *producer* sends."""
        if durations:
            producer.watch_sends(SendDurations(self._operations))
        with self._lock:
            self._keep_totals()
            self._producers.append(producer)

    def add_consumer(self, consumer: WatchedConsumer, *, durations: bool) -> None:
        """Count what *consumer* receives."""
        if durations:
            consumer.watch_calls(CallDurations(self._calls, consumer.group))
        with self._lock:
            self._keep_totals()
            self._consumers.append(consumer)

    def _keep_totals(self) -> None:
        """Under the lock: let go of those that have been closed, and keep what they have counted."""
        for producer in [one for one in self._producers if one.has_ended]:
            self._producers.remove(producer)
            _add_sent(self._sent_before, producer)
        for consumer in [one for one in self._consumers if one.has_ended]:
            self._consumers.remove(consumer)
            _add_received(self._received_before, consumer)

    # What is observed.

    def _observe_counts(self, meter: Meter) -> None:
        meter.create_observable_counter(
            sem.SENT_MESSAGES,
            [lambda options: self._totals(self._sent_before, _add_sent, self._producers)],
            MESSAGE_UNIT,
            "Messages that producers have sent, or tried to",
        )
        meter.create_observable_counter(
            sem.CONSUMED_MESSAGES,
            [lambda options: self._totals(self._received_before, _add_received, self._consumers)],
            MESSAGE_UNIT,
            "Messages that consumers have pulled",
        )

    def _observe_present(self, meter: Meter) -> None:
        def gauge(name: str, observe: Callable[[CallbackOptions], list[Observation]], unit: str, words: str) -> None:
            meter.create_observable_gauge(name, [observe], unit, words)

        gauge("mqcore.client.send.in_flight", self._sends_in_flight, MESSAGE_UNIT, "Messages on their way to a broker")
        gauge("mqcore.client.receive.in_flight", self._received_in_flight, MESSAGE_UNIT, "Messages pulled and not done")
        gauge("mqcore.client.lag", self._lag, MESSAGE_UNIT, "Messages not done in the queues that are held")
        gauge("mqcore.client.send.latency", self._send_latency, "s", "Quantiles, from giving a message to its receipt")
        gauge("mqcore.client.process.latency", self._call_latency, "s", "Quantiles of what handlers' calls have taken")

    def _totals(
        self, before: defaultdict[Key, int], add: Callable[[defaultdict[Key, int], K], None], members: Sequence[K]
    ) -> list[Observation]:
        with self._lock:
            self._keep_totals()
            totals = defaultdict(int, before)
            for member in members:
                add(totals, member)
        return [Observation(total, dict(key)) for key, total in totals.items()]

    def _sends_in_flight(self, options: CallbackOptions) -> list[Observation]:
        return _summed((_of_producer(group), counts.in_flight) for group, counts in self._of_producers())

    def _received_in_flight(self, options: CallbackOptions) -> list[Observation]:
        return _summed((_of_consumer(group), counts.in_flight) for group, counts in self._of_consumers())

    def _lag(self, options: CallbackOptions) -> list[Observation]:
        return _summed((_of_consumer(group), counts.lag) for group, counts in self._of_consumers())

    def _send_latency(self, options: CallbackOptions) -> list[Observation]:
        return _quantiles((_of_producer(group), counts.latency) for group, counts in self._of_producers())

    def _call_latency(self, options: CallbackOptions) -> list[Observation]:
        return _quantiles((_of_consumer(group), counts.latency) for group, counts in self._of_consumers())

    def _of_producers(self) -> list[tuple[str, ProducerCounts]]:
        with self._lock:
            return [(one.group, one.counts) for one in self._producers if not one.has_ended]

    def _of_consumers(self) -> list[tuple[str, ConsumerCounts]]:
        with self._lock:
            return [(one.group, one.counts) for one in self._consumers if not one.has_ended]


class SendDurations:
    """Records what requests of a producer took."""

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram
        self._attributes: dict[str, sem.Attributes] = {}

    def __call__(self, topic: str, count: int, seconds: float, error: BaseException | None) -> None:
        attributes = self._attributes.get(topic)
        if attributes is None:
            attributes = self._attributes[topic] = sem.operation(sem.SEND, sem.SEND, topic)
        if error is not None:
            attributes = attributes | {sem.ERROR_TYPE: sem.error_type(type(error))}
        self._histogram.record(seconds, attributes)


class CallDurations:
    """Records what calls of a consumer's handler took."""

    def __init__(self, histogram: Histogram, group: str) -> None:
        self._histogram = histogram
        self._group = group
        self._attributes: dict[str, sem.Attributes] = {}

    def __call__(self, topic: str, times_ms: Sequence[float], error: BaseException | None) -> None:
        attributes = self._attributes.get(topic)
        if attributes is None:
            attributes = sem.operation(sem.PROCESS, sem.PROCESS, topic) | {sem.GROUP: self._group}
            self._attributes[topic] = attributes
        record = self._histogram.record
        for time_ms in times_ms[:-1]:
            record(time_ms / 1000, attributes)
        if error is not None:
            attributes = attributes | {sem.ERROR_TYPE: sem.error_type(type(error))}
        record(times_ms[-1] / 1000, attributes)


def _add_sent(totals: defaultdict[Key, int], producer: WatchedProducer) -> None:
    for topic, sends in producer.sends().items():
        key = tuple(sem.operation(sem.SEND, sem.SEND, topic).items())
        totals[key] += sends.sent
        for kind, count in sends.failed.items():
            totals[*key, (sem.ERROR_TYPE, sem.error_type(kind))] += count


def _add_received(totals: defaultdict[Key, int], consumer: WatchedConsumer) -> None:
    for topic, count in consumer.received().items():
        attributes = sem.operation(sem.RECEIVE, sem.RECEIVE, topic) | {sem.GROUP: consumer.group}
        totals[tuple(attributes.items())] += count


def _of_producer(group: str) -> sem.Attributes:
    return {sem.SYSTEM: "rocketmq", "mqcore.producer.group": group}


def _of_consumer(group: str) -> sem.Attributes:
    return {sem.SYSTEM: "rocketmq", sem.GROUP: group}


def _summed(found: Iterable[tuple[sem.Attributes, int]]) -> list[Observation]:
    """Return the sums: a program may have several clients with members of one group."""
    totals: defaultdict[Key, int] = defaultdict(int)
    for attributes, value in found:
        totals[tuple(attributes.items())] += value
    return [Observation(total, dict(key)) for key, total in totals.items()]


def _quantiles(found: Iterable[tuple[sem.Attributes, Latency]]) -> list[Observation]:
    """Return the quantiles of each, of several with the same attributes the largest."""
    most_s: dict[Key, float] = {}
    for attributes, latency in found:
        for quantile, name in QUANTILES.items() if latency.count else ():
            key = (*attributes.items(), ("quantile", quantile))
            most_s[key] = max(getattr(latency, name), most_s.get(key, 0.0))
    return [Observation(seconds, dict(key)) for key, seconds in most_s.items()]


def _duration(meter: Meter, name: str, words: str) -> Histogram:
    return meter.create_histogram(name, "s", words, explicit_bucket_boundaries_advisory=sem.DURATION_BOUNDS_S)


_of_provider: WeakKeyDictionary[MeterProvider, Metrics] = WeakKeyDictionary()
_of_global: list[Metrics] = []
"""Those of the global provider, at most one: it stands for another one once the program has set it."""

_lock = threading.Lock()


def metrics_of(provider: MeterProvider | None) -> Metrics:
    """Return the metrics of *provider*, or of the global one, made when they are first asked for."""
    with _lock:
        if provider is None:
            if not _of_global:
                _of_global.append(Metrics(get_meter_provider()))
            return _of_global[0]
        found = _of_provider.get(provider)
        if found is None:
            found = _of_provider[provider] = Metrics(provider)
        return found
