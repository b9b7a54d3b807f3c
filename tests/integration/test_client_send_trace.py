"""A producer's traces reach the trace topic in the background, and never stand in the way of its sends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from mqcore import aio
from mqcore.client.errors import SendFailedError
from mqcore.client.produce.core import ProducerCore
from mqcore.client.telemetry.trace import QUEUE_MAX, TraceBean, TraceContext, TraceDispatcher, TraceKind, TraceSide
from mqcore.codes import RequestCode, ResponseCode
from mqcore.protocol.properties import decode_properties
from tests.integration.client_helpers import DEADLINE_S, eventually, make_topic, read_queue
from tests.integration.told_brokers import ToldBroker, ToldCluster, told_cluster
from tests.rigs import RunningBroker, start_broker_under_test

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"


@pytest.fixture
async def cluster() -> AsyncIterator[ToldCluster]:
    async with told_cluster("only") as cluster:
        yield cluster


@pytest.fixture
def broker(cluster: ToldCluster) -> ToldBroker:
    return cluster.brokers[0]


@pytest.fixture
async def mq(cluster: ToldCluster) -> AsyncIterator[aio.Client]:
    async with aio.Client(cluster.address) as client:
        yield client


def traces(broker: ToldBroker, topic: str = TRACE_TOPIC) -> list[list[str]]:
    """The fields of each trace record that the broker got."""
    values = broker.values(RequestCode.SEND_MESSAGE_V2)
    bodies = [
        command.body
        for command, header in zip(broker.of(RequestCode.SEND_MESSAGE_V2), values, strict=True)
        if header["topic"] == topic
    ]
    records = "".join(body.decode() for body in bodies).split("\x02")
    assert records.pop() == ""
    return [record.split("\x01") for record in records]


async def await_traces(broker: ToldBroker, count: int, topic: str = TRACE_TOPIC) -> list[list[str]]:
    """Wait for *count* trace records; they leave half a second after the first."""
    await eventually(lambda: len(traces(broker, topic)) >= count, f"{count} traces")
    found = traces(broker, topic)
    assert len(found) == count
    return found


async def test_each_send_leaves_a_record(mq: aio.Client, broker: ToldBroker) -> None:
    async with mq.producer("P", trace=True) as producer:
        receipt = await producer.send(aio.Message("T", b"body", tag="t", keys=["k1", "k2"], delay_level=2))
        batch = await producer.send_batch([aio.Message("T", b"x"), aio.Message("T", b"y")])
        first, second = await await_traces(broker, 2)
    assert first[0] == "Pub"
    assert first[2:10] == [
        "DefaultRegion", "P", "T", receipt.msg_id, "t", "k1 k2", broker.server.address, "4",
    ]  # fmt: skip
    assert first[11:] == ["3", receipt.offset_msg_id, "true"]
    assert int(first[10]) >= 0
    assert second[5:8] == [",".join(each.msg_id for each in batch), "null", "null"]
    # One message, or two if the half second was over between the sends.
    headers = [values for values in broker.values(RequestCode.SEND_MESSAGE_V2) if values["topic"] == TRACE_TOPIC]
    assert all(header["producer_group"].startswith("_INNER_TRACE_PRODUCER-P-PRODUCE-") for header in headers)
    keys = [key for header in headers for key in decode_properties(header["properties"])["KEYS"].split()]
    assert sorted(keys) == sorted([receipt.msg_id, "k1", "k2", second[5]])


async def test_a_transaction_leaves_a_record_of_its_half_and_one_of_its_end(mq: aio.Client, broker: ToldBroker) -> None:
    async def check(half: aio.ReceivedMessage) -> aio.TransactionState:
        return aio.TransactionState.COMMIT

    async with mq.transaction_producer("P", check, trace=True) as producer:
        message = aio.Message("T", b"body", tag="t", keys=["k"])
        receipt = await producer.send_in_transaction(message, lambda half, receipt: aio.TransactionState.ROLLBACK)
        half, end = await await_traces(broker, 2)
    assert (half[0], half[5], half[11]) == ("Pub", receipt.msg_id, "1")
    assert end[0] == "EndTransaction"
    assert end[2:] == [
        "DefaultRegion", "P", "T", receipt.msg_id, "t", "k", broker.server.address, "2", receipt.msg_id,
        "ROLLBACK_MESSAGE", "false",
    ]  # fmt: skip


async def test_a_send_that_was_stored_badly_is_traced_as_no_success(mq: aio.Client, broker: ToldBroker) -> None:
    broker.code = ResponseCode.FLUSH_DISK_TIMEOUT
    async with mq.producer("P", trace=True) as producer:
        await producer.send(aio.Message("T", b"x"))
        broker.code = ResponseCode.SUCCESS
        (record,) = await await_traces(broker, 1)
    assert record[-1] == "false"


async def test_what_failed_or_is_not_to_be_traced_leaves_no_record(mq: aio.Client, broker: ToldBroker) -> None:
    async with mq.producer("P", trace=True, retries=0) as producer:
        broker.code = ResponseCode.SYSTEM_ERROR
        with pytest.raises(SendFailedError):
            await producer.send(aio.Message("T", b"x"))
        broker.code = ResponseCode.SUCCESS
        await producer.send_oneway(aio.Message("T", b"x"))
        broker.fields = {"trace_on": "false"}
        await producer.send(aio.Message("T", b"x"))
        broker.fields = {"trace_on": "true", "msg_region": "R"}
        await producer.send(aio.Message("T", b"traced"))
        (record,) = await await_traces(broker, 1)
    assert (record[2], record[9]) == ("R", "6")


async def test_traces_go_to_a_topic_of_one_s_own(mq: aio.Client, broker: ToldBroker) -> None:
    async with mq.producer("P", trace=True, trace_topic="Mine") as producer:
        await producer.send(aio.Message("T", b"x"))
        await producer.send(aio.Message("Mine", b"traces are not traced\x02"))
        records = await await_traces(broker, 2, "Mine")
        await producer.close()
    assert {record[0] for record in records} == {"traces are not traced", "Pub"}
    assert len(broker.sends) == 3


async def test_in_the_cloud_traces_go_to_the_topic_of_the_region(cluster: ToldCluster, broker: ToldBroker) -> None:
    broker.fields = {"msg_region": "R"}
    async with aio.Client(cluster.address, access_channel="CLOUD") as mq, mq.producer("P", trace=True) as producer:
        await producer.send(aio.Message("T", b"x"))
        await await_traces(broker, 1, "rmq_sys_TRACE_DATA_R")


async def test_what_is_left_when_a_producer_closes_is_sent_then(mq: aio.Client, broker: ToldBroker) -> None:
    dispatcher = TraceDispatcher(ProducerCore, mq.instance, "G", TraceSide.CONSUME)
    await dispatcher.start()
    dispatcher.offer(TraceContext(kind=TraceKind.SUB_BEFORE, group="G", beans=(TraceBean(msg_id="ID"),)))
    await dispatcher.close(DEADLINE_S)
    assert (len(traces(broker)), dispatcher.sent) == (1, 1)


async def test_a_full_buffer_drops_records_and_holds_nobody_up(
    mq: aio.Client, broker: ToldBroker, caplog: pytest.LogCaptureFixture
) -> None:
    dispatcher = TraceDispatcher(ProducerCore, mq.instance, "G", TraceSide.CONSUME)
    bean = TraceBean(msg_id="ID")
    taken = [
        dispatcher.offer(TraceContext(kind=TraceKind.SUB_BEFORE, group="G", beans=(bean,)))
        for _ in range(QUEUE_MAX + 7)
    ]
    assert taken == [True] * QUEUE_MAX + [False] * 7
    assert dispatcher.dropped == 7
    assert "trace buffer full" in caplog.text
    await dispatcher.start()
    await eventually(lambda: len(traces(broker)) == QUEUE_MAX, "what was taken")
    await dispatcher.close()


async def test_a_silent_trace_topic_costs_no_send_and_little_of_the_close(
    mq: aio.Client, broker: ToldBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.silent_topics.add(TRACE_TOPIC)
    async with mq.producer("P", trace=True) as producer:
        receipts = [await producer.send(aio.Message("T", b"x")) for _ in range(20)]
        await await_traces(broker, 20)
    assert {receipt.status for receipt in receipts} == {aio.SendStatus.SEND_OK}
    assert "closing with traces unsent" in caplog.text


# A real broker.


@pytest.fixture(scope="module")
def tracing_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with start_broker_under_test(tmp_path_factory.mktemp("trace") / "store", {"traceTopicEnable": "true"}) as broker:
        yield broker


async def test_traces_lie_in_the_trace_topic_of_a_broker(tracing_broker: RunningBroker) -> None:
    topic = make_topic(tracing_broker, "Traced")
    async with aio.Client(tracing_broker.name_server) as mq, mq.producer("P", trace=True) as producer:
        sends = (producer.send(aio.Message(topic, b"x", keys=[f"k{number}"])) for number in range(100))
        receipts = await asyncio.gather(*sends)
        (queue,) = await mq.queues(TRACE_TOPIC)
        records: list[list[str]] = []
        offset = 0
        async with asyncio.timeout(DEADLINE_S):
            while len(records) < len(receipts):
                (message,) = await read_queue(mq, queue, 1, offset)
                records += [record.split("\x01") for record in message.body.decode().split("\x02")[:-1]]
                offset += 1
    assert {record[5] for record in records} == {receipt.msg_id for receipt in receipts}
