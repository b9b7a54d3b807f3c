"""Spans of what a client does, and the context that travels in messages.

The context goes into a message's properties by the global propagator, under the names it gives (``traceparent``,
``tracestate``, ``baggage``): plain user properties, as the instrumentations of RocketMQ's other clients write them, so
that a trace goes on from one language to another.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer

from mqcore.client.errors import BatchPartlySentError
from mqcore.client.model.messages import DEAD_LETTER, Message, ReceivedMessage
from mqcore.client.model.receipt import SendReceipt
from mqcore.client.model.selectors import ShardKey
from mqcore.client.model.transaction import TransactionState
from mqcore.client.telemetry.consumer_hooks import ConsumerHook, FilterContext, SendBackContext
from mqcore.otel import conventions as sem

if TYPE_CHECKING:
    from mqcore.client.produce.batching import SendFuture
    from mqcore.client.session.session import Session

LINKS_MAX: Final = 128
"""Links of a span at most: the SDK keeps no more by default, and each has to be read from a message."""

NS_PER_MS: Final = 1_000_000


def context_of(message: ReceivedMessage) -> Context:
    """Return the context that *message* brings: its sender's, or an empty one."""
    return propagate.extract(message.properties, Context())


def with_context(message: Message, context: Context) -> Message:
    """Return *message* with *context* in its properties."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier, context)
    return message.with_properties(carrier) if carrier else message


def links_to(messages: Iterable[ReceivedMessage]) -> list[Link]:
    """Return links to the senders of *messages*, of the first of them if they are many."""
    found: list[Link] = []
    for message, _ in zip(messages, range(LINKS_MAX), strict=False):
        sender = trace.get_current_span(context_of(message)).get_span_context()
        if sender.is_valid:
            found.append(Link(sender, {sem.MESSAGE_ID: message.msg_id}))
    return found


def failed(span: Span, error: BaseException) -> None:
    """Note on *span* that it ended with *error*."""
    if span.is_recording():
        span.record_exception(error)
        span.set_attribute(sem.ERROR_TYPE, sem.error_type(type(error)))
        span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))


@contextmanager
def current(span: Span) -> Iterator[Span]:
    """Let *span* be the current one in the block, which it ends with."""
    with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield span
        except BaseException as error:
            failed(span, error)
            raise


class Sending:
    """One message on its way: *message* is what is to be sent, *span* ends when it is known what became of it."""

    __slots__ = ("_session", "message", "span")

    def __init__(self, message: Message, span: Span, session: Session) -> None:
        self.message = message
        self.span = span
        self._session = session

    def stored(self, receipt: SendReceipt) -> None:
        """Note where the message was stored."""
        if self.span.is_recording():
            self.span.set_attributes(stored_attributes(receipt, self._session))

    def done(self, future: SendFuture) -> None:
        """End with the outcome of *future*."""
        error = future.exception(0)
        if error is None:
            self.stored(future.result(0))
        else:
            failed(self.span, error)
        self.span.end()


def stored_attributes(receipt: SendReceipt, session: Session) -> sem.Attributes:
    found: sem.Attributes = {sem.MESSAGE_ID: receipt.msg_id, sem.PARTITION: sem.partition(receipt.queue)}
    address = session.routes.master_address(receipt.queue.broker_name)
    if address is not None:
        host, _, port = address.rpartition(":")
        found |= {sem.SERVER_ADDRESS: host.strip("[]"), sem.SERVER_PORT: int(port)}
    return found


class SendSpans:
    """The spans of one client's producers."""

    def __init__(self, tracer: Tracer, session: Session) -> None:
        self._tracer = tracer
        self._session = session
        self._common: sem.Attributes = {sem.CLIENT_ID: session.client_id}
        if session.settings.namespace:
            self._common[sem.NAMESPACE] = session.settings.namespace

    def begin(
        self,
        message: Message,
        shard_key: ShardKey | None = None,
        name: str = sem.SEND,
        kind: SpanKind = SpanKind.PRODUCER,
    ) -> Sending:
        """Begin the span of sending *message*, whose context the message then has."""
        span = self._span(name, sem.SEND, message.topic, kind, sem.of_outgoing(message, shard_key))
        return Sending(with_context(message, trace.set_span_in_context(span)), span, self._session)

    @contextmanager
    def sending(
        self,
        message: Message,
        shard_key: ShardKey | None = None,
        name: str = sem.SEND,
        kind: SpanKind = SpanKind.PRODUCER,
    ) -> Iterator[Sending]:
        """As ``begin``: it is the current span in the block, and ends with it."""
        begun = self.begin(message, shard_key, name, kind)
        with current(begun.span):
            yield begun

    @contextmanager
    def batch(self, messages: Sequence[Message]) -> Iterator[tuple[list[Message], Span]]:
        """Span a batch: each message has a span of its own for its making, to which that of the sending has links."""
        made: list[Message] = []
        links: list[Link] = []
        for message in messages:
            span = self._span(sem.CREATE, sem.CREATE, message.topic, SpanKind.PRODUCER, sem.of_outgoing(message, None))
            made.append(with_context(message, trace.set_span_in_context(span)))
            span.end()
            if len(links) < LINKS_MAX:
                links.append(Link(span.get_span_context()))
        topic = messages[0].topic if messages else ""
        attributes: sem.Attributes = {sem.BATCH_COUNT: len(messages)}
        with current(self._span(sem.SEND, sem.SEND, topic, SpanKind.CLIENT, attributes, links)) as span:
            try:
                yield made, span
            except BatchPartlySentError as error:
                span.set_attribute("mqcore.batch.sent_count", len(error.receipts))
                raise

    @contextmanager
    def ending(self, message: Message, receipt: SendReceipt, state: TransactionState) -> Iterator[None]:
        """Span the telling of a transaction's outcome."""
        attributes = stored_attributes(receipt, self._session) | {sem.KIND: "transaction"}
        with current(self._span(state.name.lower(), sem.SETTLE, message.topic, SpanKind.CLIENT, attributes)):
            yield

    def _span(
        self, name: str, kind: str, topic: str, span_kind: SpanKind, more: sem.Attributes, links: Sequence[Link] = ()
    ) -> Span:
        attributes = sem.operation(name, kind, topic) | self._common | more
        return self._tracer.start_span(f"{name} {topic}", kind=span_kind, attributes=attributes, links=links)


class ProcessSpans:
    """The spans of handlers' calls, of one group or of none that is known."""

    def __init__(self, tracer: Tracer, group: str | None) -> None:
        self._tracer = tracer
        self._common: sem.Attributes = {} if group is None else {sem.GROUP: group}

    @contextmanager
    def processing(self, messages: ReceivedMessage | Sequence[ReceivedMessage]) -> Iterator[Span]:
        """Span the work on one message, in its sender's trace, or on several, in a trace with links to theirs."""
        if isinstance(messages, ReceivedMessage):
            span = self._span(messages.topic, sem.of_received(messages), context_of(messages))
        else:
            attributes: sem.Attributes = {sem.BATCH_COUNT: len(messages)}
            if messages:
                attributes[sem.PARTITION] = sem.partition(messages[0].queue)
            topic = messages[0].topic if messages else ""
            span = self._span(topic, attributes, None, links_to(messages))
        with current(span):
            yield span

    def _span(self, topic: str, more: sem.Attributes, context: Context | None, links: Sequence[Link] = ()) -> Span:
        attributes = sem.operation(sem.PROCESS, sem.PROCESS, topic) | self._common | more
        return self._tracer.start_span(
            f"{sem.PROCESS} {topic}", context, SpanKind.CONSUMER, attributes=attributes, links=links
        )


class ReceiveSpans(ConsumerHook):
    """Spans of the pulls that brought something, and of messages given back; of one consumer."""

    def __init__(self, tracer: Tracer, session: Session) -> None:
        self._tracer = tracer
        self._client_id = session.client_id

    def filter_messages(self, context: FilterContext) -> None:
        if not context.messages:
            return
        topic, ended_ns = context.queue.topic, time.time_ns()
        more: sem.Attributes = {
            sem.BATCH_COUNT: len(context.messages),
            sem.PARTITION: sem.partition(context.queue),
        }
        attributes = self._attributes(sem.RECEIVE, sem.RECEIVE, topic, context.group) | more
        span = self._tracer.start_span(
            f"{sem.RECEIVE} {topic}",
            Context(),
            SpanKind.CLIENT,
            attributes=attributes,
            links=links_to(context.messages),
            start_time=ended_ns - int(context.pull_time_ms * NS_PER_MS),
        )
        span.end(ended_ns)

    def after_send_back(self, context: SendBackContext) -> None:
        message, ended_ns = context.message, time.time_ns()
        name = "reject" if context.delay_level == DEAD_LETTER else "retry"
        attributes = self._attributes(name, sem.SETTLE, message.topic, context.group) | sem.of_received(message)
        if context.delay_level > 0:
            attributes[sem.DELAY_LEVEL] = context.delay_level
        span = self._tracer.start_span(
            f"{name} {message.topic}",
            context_of(message),
            SpanKind.CLIENT,
            attributes=attributes,
            start_time=ended_ns - int(context.cost_ms * NS_PER_MS),
        )
        if not context.is_taken:
            span.set_status(Status(StatusCode.ERROR, "no broker took the message"))
        span.end(ended_ns)

    def _attributes(self, name: str, kind: str, topic: str, group: str) -> sem.Attributes:
        return sem.operation(name, kind, topic) | {sem.GROUP: group, sem.CLIENT_ID: self._client_id}
