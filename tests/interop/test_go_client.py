"""Apache's Go client sends through the broker and receives from it, also together with the Java client."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mqcore import otel
from mqcore.client import Client
from tests.rigs import Corpus, GoClient, JavaDriver, RunningBroker, StartBroker, wire
from tests.rigs.deliveries import (
    await_committed,
    check_each_exactly_once,
    check_intact,
    check_queue_order,
    sent_by_key,
)
from tests.rigs.go_client import queues_of_go
from tests.waiting import wait_until

pytestmark = pytest.mark.compat

QUEUES = 4
COUNT = 2_000
TAGS = ("TagA", "TagB")
ARRIVAL_DEADLINE_S = 120.0


@pytest.mark.parametrize("mode", ["sync", "async", "batch"])
def test_what_it_sends_it_receives_and_pulls(
    mq_broker: RunningBroker, topic: str, corpus: Corpus, go_client: GoClient, mode: str
) -> None:
    server = mq_broker.name_server
    sent = sent_by_key(go_client.produce(server, topic, corpus.path, count=COUNT, tags=",".join(TAGS), mode=mode))
    with go_client.consumer(server, topic, f"G_{topic}") as consumer:
        wait_until(lambda: consumer.count() >= COUNT, ARRIVAL_DEADLINE_S, "all messages came")
        received = consumer.stop()
    pulled = go_client.pull(server, topic, f"P_{topic}", broker="broker-a", queues=QUEUES)
    # The answer to a batch names no message, and its client makes nothing up.
    has_ids = mode != "batch"
    for found in (received, pulled):
        check_each_exactly_once(sent, found)
        check_intact(corpus.lines(), sent, found, prefix="G", ids=has_ids)
        assert all(message.tags == TAGS[int(message.key[1:]) % 2] for message in found)
    assert check_queue_order(pulled) == {message.queue_id for message in sent.values()}


def test_a_trace_that_a_go_program_begins_goes_on_in_a_handler_here(
    mq_broker: RunningBroker, topic: str, corpus: Corpus, go_client: GoClient
) -> None:
    trace_id, span_id = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7
    traceparent = f"traceparent=00-{trace_id:032x}-{span_id:016x}-01"
    go_client.produce(mq_broker.name_server, topic, corpus.path, count=1, properties=traceparent)
    exporter, tracers = InMemorySpanExporter(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))

    def processed() -> list[tuple[int, int]]:
        spans = [span for span in exporter.get_finished_spans() if span.name == f"process {topic}"]
        return [(span.parent.trace_id, span.parent.span_id) for span in spans if span.parent is not None]

    with Client(mq_broker.name_server) as mq:
        otel.instrument(mq, tracer_provider=tracers, metrics=False)
        with mq.consumer(f"G_{topic}", topic, handler=lambda message: None, from_where="earliest"):
            wait_until(lambda: processed() == [(trace_id, span_id)], ARRIVAL_DEADLINE_S, "the message's span")


def test_an_orderly_consumer_gets_each_queue_in_order_and_a_refused_message_before_what_follows(
    mq_broker: RunningBroker, topic: str, corpus: Corpus, go_client: GoClient
) -> None:
    server = mq_broker.name_server
    sent = sent_by_key(go_client.produce(server, topic, corpus.path, count=COUNT))
    with go_client.consumer(server, topic, f"G_{topic}", orderly="true", refuse="G40") as consumer:
        wait_until(lambda: consumer.count() >= COUNT + 1, ARRIVAL_DEADLINE_S, "all messages came")
        received = consumer.stop()
    refused = [message for message in received if message.outcome == "SUSPEND"]
    assert [message.key for message in refused] == ["G40"]
    settled = [message for message in received if message.outcome == "SUCCESS"]
    check_each_exactly_once(sent, settled)
    check_intact(corpus.lines(), sent, settled, prefix="G")
    assert check_queue_order(settled) == set(range(QUEUES))


def test_it_shares_a_group_with_a_java_consumer(
    mq_broker: RunningBroker, topic: str, corpus: Corpus, go_client: GoClient, java_4_9_8: JavaDriver
) -> None:
    server, group = mq_broker.name_server, f"G_{topic}"
    everything = set(range(QUEUES))
    with (
        Client(server) as mq,
        go_client.consumer(server, topic, group) as other,
        java_4_9_8.consumer(server, topic, group, poll_ms=1000) as java,
    ):
        go_queues: set[int] = set()
        java_queues: set[int] = set()

        def are_shared() -> bool:
            nonlocal go_queues, java_queues
            go_queues, java_queues = queues_of_go(mq, group, topic), {queue.queue_id for queue in java.queues()}
            return len(go_queues) == len(java_queues) == QUEUES // 2 and go_queues | java_queues == everything

        wait_until(are_shared, ARRIVAL_DEADLINE_S, "each has half of the queues")
        sent = sent_by_key(java_4_9_8.produce(server, topic, corpus.path, count=COUNT, tags=",".join(TAGS)))
        wait_until(lambda: other.count() + java.count() >= COUNT, ARRIVAL_DEADLINE_S, "all messages came")
        # Who stays takes over the queues of who leaves, before the last commit of that one may have come.
        await_committed(mq_broker.broker_address, group, topic, QUEUES, [java])
        of_java, of_go = java.stop(), other.stop()
    check_each_exactly_once(sent, [*of_java, *of_go])
    check_intact(corpus.lines(), sent, [*of_java, *of_go])
    assert {message.queue_id for message in of_go} == go_queues
    assert {message.queue_id for message in of_java} == java_queues


def test_it_receives_what_its_sql_expression_asks_for(
    start_broker: StartBroker, corpus: Corpus, go_client: GoClient
) -> None:
    broker, topic = start_broker({"enablePropertyFilter": "true"}), "Filtered"
    server = broker.name_server
    wire.create_topic(broker.broker_address, topic, queues=QUEUES)
    wait_until(lambda: wire.has_route(server, topic), describe=f"route to {topic}")
    sent = sent_by_key(go_client.produce(server, topic, corpus.path, count=300, tags=",".join(TAGS)))
    wanted = {key: message for key, message in sent.items() if TAGS[int(key[1:]) % 2] == "TagB" and key != "G1"}
    with go_client.consumer(server, topic, f"G_{topic}", sql="TAGS = 'TagB' AND KEYS <> 'G1'") as consumer:
        wait_until(lambda: consumer.count() >= len(wanted), ARRIVAL_DEADLINE_S, "all messages came")
        received = consumer.stop()
    check_each_exactly_once(wanted, received)


def test_it_receives_the_tags_it_asks_for(
    mq_broker: RunningBroker, topic: str, corpus: Corpus, go_client: GoClient
) -> None:
    server = mq_broker.name_server
    sent = sent_by_key(go_client.produce(server, topic, corpus.path, count=COUNT, tags=",".join(TAGS)))
    wanted = {key: message for key, message in sent.items() if int(key[1:]) % 2 == 1}
    with go_client.consumer(server, topic, f"G_{topic}", tags="TagB") as consumer:
        wait_until(lambda: consumer.count() >= len(wanted), ARRIVAL_DEADLINE_S, "the tagged messages came")
        received = consumer.stop()
    check_each_exactly_once(wanted, received)


def test_each_of_two_broadcast_consumers_gets_everything(
    mq_broker: RunningBroker, topic: str, corpus: Corpus, go_client: GoClient
) -> None:
    server = mq_broker.name_server
    sent = sent_by_key(go_client.produce(server, topic, corpus.path, count=COUNT))
    with (
        go_client.consumer(server, topic, f"G_{topic}", broadcasting="true") as one,
        go_client.consumer(server, topic, f"G_{topic}", broadcasting="true") as another,
    ):
        wait_until(lambda: min(one.count(), another.count()) >= COUNT, ARRIVAL_DEADLINE_S, "all messages came")
        received = [one.stop(), another.stop()]
    for found in received:
        check_each_exactly_once(sent, found)


def test_only_committed_transactions_are_delivered(
    start_broker: StartBroker, corpus: Corpus, go_client: GoClient
) -> None:
    broker = start_broker({"transactionCheckInterval": "1000", "transactionTimeOut": "1000"})
    wire.create_topic(broker.broker_address, "Transactions")
    with (
        go_client.consumer(broker.name_server, "Transactions", "G_Transactions") as consumer,
        go_client.transact(broker.name_server, "Transactions", corpus.path, count=40) as producer,
    ):
        checked = producer.await_checks(deadline_s=120)
        wait_until(lambda: consumer.count() >= 20, ARRIVAL_DEADLINE_S, "what was committed came")
        sent = producer.finish()
        received = consumer.stop()
    assert checked["unasked"] == 0
    assert checked["checks"] >= 20
    assert len(sent) == 40
    check_each_exactly_once([f"G{line}" for line in range(0, 40, 2)], received)
