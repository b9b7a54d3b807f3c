"""A client that is instrumented tells OpenTelemetry what it does, on both faces and all its ways, and stays as fast."""

from __future__ import annotations

import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry.context import attach, detach
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from mqcore import aio, otel
from mqcore.client import Client, Message, Producer, ReceivedMessage, Reject, TransactionState
from mqcore.client.errors import MessageRefusedError
from mqcore.client.produce.blocking import BlockingSender
from mqcore.testing import message as message_of
from tests.integration.client_helpers import DEADLINE_S, RunningBroker, eventually, make_topic
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
TRACE_ID, SPAN_ID = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7
TRACEPARENT = f"00-{TRACE_ID:032x}-{SPAN_ID:016x}-01"
MESSAGE_MAX = 4 << 20


@dataclass(slots=True)
class Seen:
    """What was told to OpenTelemetry's SDK."""

    exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    reader: InMemoryMetricReader = field(default_factory=InMemoryMetricReader)
    tracers: TracerProvider = field(default_factory=TracerProvider)
    meters: MeterProvider = field(init=False)

    def __post_init__(self) -> None:
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider([self.reader])

    def close(self) -> None:
        self.tracers.shutdown()
        self.meters.shutdown()

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def span(self, name: str) -> ReadableSpan:
        """Return the only span of that name, waiting for it."""
        wait_until(lambda: self.spans(name), DEADLINE_S, f"a span {name}")
        (found,) = self.spans(name)
        return found

    def points(self, name: str) -> dict[frozenset[Any], Any]:
        """Return the data points of a metric by their attributes."""
        data = self.reader.get_metrics_data()
        resources = [] if data is None else data.resource_metrics
        metrics = [metric for one in resources for scope in one.scope_metrics for metric in scope.metrics]
        return {
            frozenset((point.attributes or {}).items()): point
            for metric in metrics
            if metric.name == name
            for point in metric.data.data_points
        }


@pytest.fixture
def seen() -> Iterator[Seen]:
    seen = Seen()
    yield seen
    seen.close()


@pytest.fixture
def topic(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    return make_topic(broker, request.node.name, queues=1)


@pytest.fixture
def group(topic: str) -> str:
    return "G_" + topic


@pytest.fixture
def mq(broker: RunningBroker, seen: Seen) -> Iterator[Client]:
    with Client(broker.name_server) as mq:
        otel.instrument(mq, tracer_provider=seen.tracers, meter_provider=seen.meters, durations=True)
        yield mq


def attributes(topic: str, operation: str, **more: object) -> frozenset[Any]:
    found = {
        "messaging.system": "rocketmq",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }
    named = {name.replace("__", "."): value for name, value in more.items()}
    return frozenset((found | {"messaging.destination.name": topic} | named).items())


def ids(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def parent(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def links(span: ReadableSpan) -> set[tuple[int, int]]:
    return {(link.context.trace_id, link.context.span_id) for link in span.links}


def received(mq: Client, group: str, topic: str, count: int) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    with mq.pull_consumer(group, topic, from_where="earliest") as consumer:
        while len(found) < count:
            found += consumer.poll(DEADLINE_S)
    return found


def test_a_handler_s_span_goes_on_with_the_sender_s_trace(mq: Client, seen: Seen, topic: str, group: str) -> None:
    tracer = seen.tracers.get_tracer("test")
    inside: list[int] = []

    def handle(message: ReceivedMessage) -> None:
        inside.append(trace.get_current_span().get_span_context().span_id)

    with mq.producer("P") as producer, tracer.start_as_current_span("request") as request:
        receipt = producer.send(Message(topic, b"body", tag="new", keys=["k1", "k2"]))
    with mq.consumer(group, topic, handler=handle, from_where="earliest"):
        process = seen.span(f"process {topic}")
    send = seen.span(f"send {topic}")
    assert parent(send) == (request.get_span_context().trace_id, request.get_span_context().span_id)
    assert parent(process) == ids(send)
    assert inside == [ids(process)[1]]
    assert (send.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert send.attributes is not None
    assert process.attributes is not None
    common = {
        "messaging.system": "rocketmq",
        "messaging.destination.name": topic,
        "messaging.message.id": receipt.msg_id,
        "messaging.destination.partition.id": f"{receipt.queue.broker_name}/0",
        "messaging.message.body.size": 4,
        "messaging.rocketmq.message.tag": "new",
        "messaging.rocketmq.message.keys": ("k1", "k2"),
        "messaging.rocketmq.message.type": "normal",
    }
    assert common.items() <= dict(send.attributes).items()
    assert common.items() <= dict(process.attributes).items()
    assert send.attributes["messaging.operation.name"] == send.attributes["messaging.operation.type"] == "send"
    assert process.attributes["messaging.operation.name"] == "process"
    assert process.attributes["messaging.consumer.group.name"] == group
    assert send.attributes["messaging.client.id"] == mq.client_id
    assert str(send.attributes["server.port"]).isdecimal()
    pull = seen.span(f"receive {topic}")
    assert (pull.kind, links(pull)) == (SpanKind.CLIENT, {ids(send)})


async def test_a_client_of_asyncio_has_the_same_spans(
    broker: RunningBroker, seen: Seen, topic: str, group: str
) -> None:
    inside: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        inside.append(trace.get_current_span().get_span_context().span_id)

    async with aio.Client(broker.name_server) as mq:
        otel.instrument(mq, tracer_provider=seen.tracers, meter_provider=seen.meters)
        async with mq.producer("P") as producer:
            await producer.send(Message(topic, b"1"))
            future = await producer.send_soon(Message(topic, b"2"), shard_key="order 1")
            await future
        async with mq.consumer(group, topic, handler=handle, from_where="earliest"):
            await eventually(lambda: len(seen.spans(f"process {topic}")) == 2, "both are handled")
    sends, processes = seen.spans(f"send {topic}"), seen.spans(f"process {topic}")
    assert [parent(span) for span in processes] == [ids(span) for span in sends]
    assert inside == [ids(span)[1] for span in processes]
    assert sends[1].attributes is not None
    assert sends[1].attributes["messaging.rocketmq.message.group"] == "order 1"
    assert seen.points("messaging.client.sent.messages")[attributes(topic, "send")].value == 2
    consumed = seen.points("messaging.client.consumed.messages")
    assert consumed[attributes(topic, "receive", messaging__consumer__group__name=group)].value == 2


def test_the_context_of_any_language_is_taken_up(
    broker: RunningBroker, mq: Client, seen: Seen, topic: str, group: str
) -> None:
    with Client(broker.name_server) as other, other.producer("P") as producer:
        foreign = {"traceparent": TRACEPARENT, "tracestate": "congo=t61rcWkgMzE", "baggage": "user=ada"}
        producer.send(Message(topic, b"x", properties=foreign))
    told: list[object] = []

    def handle(message: ReceivedMessage) -> None:
        told.append(baggage.get_baggage("user", otel.context_of(message)))

    with mq.consumer(group, topic, handler=handle, from_where="earliest"):
        process = seen.span(f"process {topic}")
    assert parent(process) == (TRACE_ID, SPAN_ID)
    assert process.parent is not None
    assert process.parent.trace_state["congo"] == "t61rcWkgMzE"
    assert told == ["ada"]


WAYS: dict[str, Callable[[Producer, Message], object]] = {
    "send": lambda producer, message: producer.send(message),
    "send_soon": lambda producer, message: producer.send_soon(message).result(DEADLINE_S),
    "send_oneway": lambda producer, message: producer.send_oneway(message),
    "send_batch": lambda producer, message: producer.send_batch([message]),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_send_carries_the_context(mq: Client, seen: Seen, topic: str, group: str, way: str) -> None:
    given = Message(topic, b"x", properties={"mine": "kept"})
    token = attach(baggage.set_baggage("user", "ada"))
    try:
        with mq.producer("P") as producer:
            WAYS[way](producer, given)
    finally:
        detach(token)
    (message,) = received(mq, group, topic, 1)
    pull = seen.span(f"receive {topic}")
    sender = seen.span(f"create {topic}" if way == "send_batch" else f"send {topic}")
    trace_id, span_id = ids(sender)
    assert message.properties["traceparent"].startswith(f"00-{trace_id:032x}-{span_id:016x}-0")
    assert message.properties["baggage"] == "user=ada"
    assert message.properties["mine"] == "kept"
    assert given.properties == {"mine": "kept"}
    assert links(pull) == {ids(sender)}


def test_a_batch_s_span_has_links_to_its_messages(mq: Client, seen: Seen, topic: str, group: str) -> None:
    sizes: list[int] = []
    with mq.producer("P") as producer:
        producer.send_batch([Message(topic, b"%d" % number) for number in range(3)])
    created = seen.spans(f"create {topic}")
    send = seen.span(f"send {topic}")
    assert send.attributes is not None
    assert send.attributes["messaging.batch.message_count"] == 3
    assert links(send) == {ids(span) for span in created}

    def handle(messages: Sequence[ReceivedMessage]) -> None:
        sizes.append(len(messages))

    with mq.consumer(group, topic, batch_handler=handle, batch_size=3, from_where="earliest"):
        process = seen.span(f"process {topic}")
    assert sizes == [3]
    assert links(process) == {ids(span) for span in created}
    assert process.parent is None


def test_what_fails_is_on_the_span_and_among_the_metrics(mq: Client, seen: Seen, topic: str, group: str) -> None:
    def handle(message: ReceivedMessage) -> None:
        raise Reject

    error_type = "mqcore.errors.MessageRefusedError"
    with mq.producer("P", max_message_size_bytes=2 * MESSAGE_MAX, compression="none") as producer:
        producer.send(Message(topic, b"x"))
        with pytest.raises(MessageRefusedError):
            producer.send(Message(topic, bytes(MESSAGE_MAX + 1)))
        good, bad = seen.spans(f"send {topic}")
        assert bad.attributes is not None
        assert bad.attributes["error.type"] == error_type
        assert (good.status.status_code, bad.status.status_code) == (StatusCode.UNSET, StatusCode.ERROR)
        sent = seen.points("messaging.client.sent.messages")
        assert sent[attributes(topic, "send")].value == 1
        assert sent[attributes(topic, "send", error__type=error_type)].value == 1
    with mq.consumer(group, topic, handler=handle, from_where="earliest"):
        settle = seen.span(f"reject {topic}")
    process = seen.span(f"process {topic}")
    assert process.attributes is not None
    assert process.attributes["error.type"] == "mqcore.client.errors.Reject"
    assert settle.attributes is not None
    assert settle.attributes["messaging.operation.type"] == "settle"
    assert ids(settle)[0] == ids(process)[0] == ids(good)[0]


def test_both_halves_of_a_transaction_have_spans(mq: Client, seen: Seen, topic: str, group: str) -> None:
    with mq.transaction_producer("P", lambda message: TransactionState.UNKNOWN) as producer:
        producer.send_in_transaction(Message(topic, b"x"), lambda message, receipt: TransactionState.COMMIT)
    half, end = seen.span(f"send {topic}"), seen.span(f"commit {topic}")
    assert half.attributes is not None
    assert half.attributes["messaging.rocketmq.message.type"] == "transaction"
    assert end.attributes is not None
    assert end.attributes["messaging.operation.type"] == "settle"
    assert end.attributes["messaging.message.id"] == half.attributes["messaging.message.id"]
    (message,) = received(mq, group, topic, 1)
    assert ids(half)[1] == trace.get_current_span(otel.context_of(message)).get_span_context().span_id


def test_a_question_and_its_answer_are_one_trace(mq: Client, seen: Seen, topic: str, group: str) -> None:
    with mq.producer("P") as producer:

        def answer(message: ReceivedMessage) -> None:
            producer.reply(message, b"pong")

        with mq.consumer(group, topic, handler=answer, from_where="earliest"):
            reply = producer.request(Message(topic, b"ping"), DEADLINE_S)
            process = seen.span(f"process {topic}")
    request = seen.span(f"request {topic}")
    (answered,) = (span for span in seen.exporter.get_finished_spans() if parent(span) == ids(process))
    assert request.kind is SpanKind.CLIENT
    assert parent(process) == ids(request)
    assert reply.body == b"pong"
    assert ids(answered)[1] == trace.get_current_span(otel.context_of(reply)).get_span_context().span_id


def test_who_iterates_spans_the_work_itself(mq: Client, seen: Seen, topic: str, group: str) -> None:
    with mq.producer("P") as producer:
        producer.send(Message(topic, b"x"))
    with mq.consumer(group, topic, from_where="earliest") as consumer:
        for message in consumer:
            with otel.processing(message, group=group, tracer_provider=seen.tracers):
                break
    assert parent(seen.span(f"process {topic}")) == ids(seen.span(f"send {topic}"))


def test_metrics_are_what_was_counted_and_outlive_who_counted(mq: Client, seen: Seen, topic: str, group: str) -> None:
    for _ in range(2):
        with mq.producer("P") as producer:
            for _ in range(3):
                producer.send(Message(topic, b"x"))
            for _ in range(5):
                producer.send_soon(Message(topic, b"x"))
            producer.flush()
            assert seen.points("mqcore.client.send.latency")
    assert seen.points("messaging.client.sent.messages")[attributes(topic, "send")].value == 16
    requests = seen.points("messaging.client.operation.duration")[attributes(topic, "send")]
    assert 2 * (3 + 1) <= requests.count <= 16
    assert requests.explicit_bounds[0] == 0.005
    assert not seen.points("mqcore.client.send.latency")
    done = threading.Semaphore(0)
    with mq.consumer(group, topic, handler=lambda message: done.release(), from_where="earliest") as consumer:
        for _ in range(16):
            assert done.acquire(timeout=DEADLINE_S)
        wait_until(lambda: consumer.counts.in_flight == 0, DEADLINE_S, "all is settled")
        of_group = frozenset({("messaging.system", "rocketmq"), ("messaging.consumer.group.name", group)})
        assert seen.points("mqcore.client.lag")[of_group].value == 0
        calls = attributes(topic, "process", messaging__consumer__group__name=group)
        assert seen.points("messaging.process.duration")[calls].count == 16
    consumed = seen.points("messaging.client.consumed.messages")
    assert consumed[attributes(topic, "receive", messaging__consumer__group__name=group)].value == 16


def test_what_members_of_one_group_in_several_clients_have_is_added_up(
    broker: RunningBroker, mq: Client, seen: Seen, topic: str, group: str
) -> None:
    with mq.producer("P") as producer:
        producer.send_batch([Message(topic, b"x")] * 6)
    with Client(broker.name_server) as other:
        otel.instrument(other, meter_provider=seen.meters, spans=False)
        of_group = frozenset({("messaging.system", "rocketmq"), ("messaging.consumer.group.name", group)})
        with mq.pull_consumer(group, topic, from_where="earliest"), other.pull_consumer(group, topic):
            wait_until(lambda: seen.points("mqcore.client.lag")[of_group].value == 6, DEADLINE_S, "the lag of both")


def test_the_fast_ways_stay(broker: RunningBroker, seen: Seen, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[str] = []
    attempt = BlockingSender.attempt

    def noted(self: BlockingSender, *arguments: Any) -> Any:
        attempts.append("short")
        return attempt(self, *arguments)

    monkeypatch.setattr(BlockingSender, "attempt", noted)
    for spans in (False, True):
        with Client(broker.name_server) as mq:
            otel.instrument(mq, tracer_provider=seen.tracers, meter_provider=seen.meters, spans=spans)
            with mq.producer("P") as producer:
                assert (type(producer) is Producer) is not spans
                producer.send(Message(topic, b"x"))  # it finds the route
                attempts.clear()
                producer.send(Message(topic, b"x"))
                assert attempts == ["short"]
                futures = [producer.send_soon(Message(topic, b"x")) for _ in range(100)]
                assert len({id(future.batch) for future in futures}) < 50
                producer.flush()
    assert seen.points("messaging.client.sent.messages")[attributes(topic, "send")].value == 2 * 102
    assert not seen.points("messaging.client.operation.duration")


def test_a_message_without_a_context_begins_a_trace(seen: Seen) -> None:
    with otel.processing(message_of(b"x", topic="T"), tracer_provider=seen.tracers):
        pass
    assert seen.span("process T").parent is None


def test_every_new_client_is_watched_until_it_is_not(broker: RunningBroker, seen: Seen, topic: str) -> None:
    otel.Instrumentor().instrument(tracer_provider=seen.tracers, meter_provider=seen.meters, skip_dep_check=True)
    try:
        with Client(broker.name_server) as mq, mq.producer("P") as producer:
            producer.send(Message(topic, b"x"))
    finally:
        otel.Instrumentor().uninstrument()
    assert seen.span(f"send {topic}")
    with Client(broker.name_server) as mq, mq.producer("P") as producer:
        assert type(producer) is Producer


@pytest.mark.parametrize("module", ["mqcore", "mqcore.client", "mqcore.aio"])
def test_nothing_of_opentelemetry_is_imported_unless_it_is_asked_for(module: str) -> None:
    program = f"import sys, {module}; sys.exit('opentelemetry' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_opentelemetry_instrument_finds_it_by_its_entry_point() -> None:
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    place = EntryPoint("mqcore", entries["opentelemetry_instrumentor"]["mqcore"], "opentelemetry_instrumentor")
    assert place.load() is otel.Instrumentor


def test_without_the_package_an_error_names_the_extra() -> None:
    program = "import sys; sys.modules['opentelemetry'] = None\nimport mqcore.otel"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "pip install 'mqcore[otel]'" in done.stderr
