"""How a client comes to be watched: one that is named, or all that are made from now on."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, TypeVar, cast

from opentelemetry import trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Span, Tracer, TracerProvider

from mqcore.client.asynchronous import Client as AsyncClient
from mqcore.client.consume.polled.consumer import PullConsumer as AsyncPullConsumer
from mqcore.client.consume.push.consumer import Consumer as AsyncConsumer
from mqcore.client.model.messages import ReceivedMessage
from mqcore.client.plain.client import Client, Producer, TransactionProducer
from mqcore.client.produce.producer import Producer as AsyncProducer
from mqcore.client.produce.transactions import TransactionProducer as AsyncTransactionProducer
from mqcore.client.telemetry.instrumentation import NOT_INSTRUMENTED, H, Instrumentation, watch_new_clients
from mqcore.otel import conventions as sem
from mqcore.otel.metrics import Metrics, metrics_of
from mqcore.otel.producers import (
    TracedAsyncProducer,
    TracedAsyncTransactionProducer,
    TracedProducer,
    TracedTransactionProducer,
)
from mqcore.otel.spans import ProcessSpans, ReceiveSpans, SendSpans
from mqcore.version import __version__

T = TypeVar("T")

TRACED: Final[dict[object, type[TracedProducer | TracedAsyncProducer]]] = {
    AsyncProducer: TracedAsyncProducer,
    AsyncTransactionProducer: TracedAsyncTransactionProducer,
    Producer: TracedProducer,
    TransactionProducer: TracedTransactionProducer,
}


def instrument(
    client: Client | AsyncClient,
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    spans: bool = True,
    metrics: bool = True,
    durations: bool = False,
) -> None:
    """Watch *client*, of either face, by the given providers or the global ones.

    It is for what the client makes from now on: call it before its producers, consumers and handlers are made. A
    second call replaces the first one's choices. With *spans* false messages go without a context, and all is as fast
    as without this module. *durations* adds the conventions' two histograms, which are recorded for each request and
    each call of a handler, and cost several times what a fast handler takes.
    """
    client.instrumentation = OpenTelemetry(
        _tracer(tracer_provider) if spans else None,
        metrics_of(meter_provider) if metrics else None,
        durations=durations,
    )


class Instrumentor:
    """Watches every client that is made in this process, as the instrumentors of other libraries do.

    ``opentelemetry-instrument`` finds it by its entry point and needs no change of the program.
    """

    def instrument(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        spans: bool = True,
        metrics: bool = True,
        durations: bool = False,
        **others: object,
    ) -> None:
        """Watch the clients that are made from now on; see ``mqcore.otel.instrument``.

        *others* are what ``opentelemetry-instrument`` tells all instrumentors, and of no use here.
        """
        tracer = _tracer(tracer_provider) if spans else None
        watch_new_clients(OpenTelemetry(tracer, metrics_of(meter_provider) if metrics else None, durations=durations))

    def uninstrument(self, **others: object) -> None:
        """Watch no more new clients; those that are watched go on."""
        watch_new_clients(NOT_INSTRUMENTED)


def processing(
    messages: ReceivedMessage | Sequence[ReceivedMessage],
    *,
    group: str | None = None,
    tracer_provider: TracerProvider | None = None,
) -> AbstractContextManager[Span]:
    """Return a block's ``process`` span, for programs that iterate, receive or poll: handlers have theirs.

    The work on one message goes on in its sender's trace; that on several has a trace of its own, with links to theirs.
    """
    return ProcessSpans(_tracer(tracer_provider), group).processing(messages)


class OpenTelemetry(Instrumentation):
    """What watches clients in the name of OpenTelemetry: by spans, by metrics, or both."""

    def __init__(self, tracer: Tracer | None, metrics: Metrics | None, *, durations: bool) -> None:
        self._tracer = tracer
        self._metrics = metrics
        self._durations = durations

    def make(self, kind: Callable[..., T], *arguments: object) -> T:
        chosen: Any = kind if self._tracer is None else TRACED.get(kind, kind)
        made = chosen(*arguments)
        inner = getattr(made, "_inner", made)  # a plain one's
        if isinstance(inner, AsyncProducer):
            self._watch_producer(made, inner)
        elif isinstance(inner, AsyncConsumer | AsyncPullConsumer):
            self._watch_consumer(inner)
        return cast(T, made)

    def _watch_producer(self, made: Any, inner: AsyncProducer) -> None:
        if self._tracer is not None:
            made.spans = SendSpans(self._tracer, inner.session)
        if self._metrics is not None:
            self._metrics.add_producer(inner, durations=self._durations)

    def _watch_consumer(self, inner: AsyncConsumer | AsyncPullConsumer) -> None:
        if self._tracer is not None:
            inner.add_hook(ReceiveSpans(self._tracer, inner.session))
        if self._metrics is not None:
            self._metrics.add_consumer(inner, durations=self._durations)

    def handler(self, group: str, handler: H, *, is_batch: bool) -> H:
        if self._tracer is None:
            return handler
        spans = ProcessSpans(self._tracer, group)
        if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__):

            async def traced(messages: Any) -> object:
                with spans.processing(messages):
                    return await cast(Any, handler)(messages)

            return cast(H, _named_as(handler, traced))

        def traced_plain(messages: Any) -> object:
            with spans.processing(messages):
                return handler(messages)

        return cast(H, _named_as(handler, traced_plain))


def _named_as(handler: Callable[..., object], wrapper: Callable[..., object]) -> Callable[..., object]:
    return functools.update_wrapper(wrapper, handler)


def _tracer(provider: TracerProvider | None) -> Tracer:
    return trace.get_tracer(sem.SCOPE, __version__, provider)
