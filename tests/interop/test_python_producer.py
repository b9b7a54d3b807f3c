"""What only Apache's broker serves so far, and what only its clients and tools can judge, of mqcore's producer."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from mqcore import aio
from mqcore.client.model.transaction import TransactionState
from mqcore.protocol.compression import CompressionType
from tests.integration.client_helpers import eventually
from tests.rigs import ApacheServer, Corpus, JavaDriver, Mqadmin, RunningBroker, gather, maven, wire
from tests.rigs.corpus import Corpus as CorpusFile
from tests.waiting import wait_until

pytestmark = pytest.mark.compat

PROPERTIES = {
    "transactionCheckInterval": "1500",
    "transactionTimeOut": "1000",
    "transactionOpBatchInterval": "100",  # 5.x asks also about what was decided less than this ago
    "traceTopicEnable": "true",
}
COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN
DEADLINE_S = 90.0
LINES = 5
LARGE = b"a line that is long enough to be worth compressing when there are many of it\n" * 200


@pytest.fixture(scope="module", params=["4.9.8", pytest.param("5.3.3", marks=pytest.mark.slow)])
def apache(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheServer]:
    """Apache's broker of each release, which asks about transactions soon."""
    if reason := maven.missing_tools():
        pytest.skip(reason)
    with ApacheServer(request.param, tmp_path_factory.mktemp("apache") / "store", PROPERTIES) as server:
        yield server


def make_topic(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    """Create a topic with four queues, named after the test."""
    name = "".join(c if c.isalnum() else "_" for c in request.node.name)
    wire.create_topic(broker.broker_address, name, queues=4)
    wait_until(lambda: wire.has_route(broker.name_server, name), describe=f"route to {name}")
    return name


@pytest.fixture
def topic(apache: ApacheServer, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own at Apache's broker."""
    return make_topic(apache, request)


@pytest.fixture
async def mq(apache: ApacheServer) -> AsyncIterator[aio.Client]:
    async with aio.Client(apache.name_server) as client:
        yield client


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return gather(tmp_path_factory.mktemp("lines") / "lines.txt", LINES)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """One message that is worth compressing."""
    path: Path = tmp_path_factory.mktemp("large") / "large.txt"
    path.write_bytes(LARGE.replace(b"\n", b" ") + b"\n")
    return CorpusFile(path, 1, {})


async def delivered(mq: aio.Client, topic: str) -> list[aio.ReceivedMessage]:
    """Everything that lies in the queues of *topic*."""
    found: list[aio.ReceivedMessage] = []
    for queue in await mq.queues(topic):
        offset = 0
        while (result := await mq.pull(queue, offset)).messages:
            found += result.messages
            offset = result.next_offset
    return found


async def await_count(mq: aio.Client, topic: str, count: int) -> list[aio.ReceivedMessage]:
    """Wait until *count* messages lie in the queues of *topic*."""
    async with asyncio.timeout(DEADLINE_S):
        while len(found := await delivered(mq, topic)) < count:
            await asyncio.sleep(0.1)
    return found


async def await_delivered(mq: aio.Client, topic: str, bodies: set[bytes]) -> list[aio.ReceivedMessage]:
    """Wait until *bodies* lie in the queues of *topic*, each once, and nothing else does."""
    found = await await_count(mq, topic, len(bodies))
    assert sorted(message.body for message in found) == sorted(bodies)
    return found


# Transactions.


async def test_only_what_is_committed_is_delivered_at_once_or_when_the_broker_asks(mq: aio.Client, topic: str) -> None:
    plan = {b"commit": COMMIT, b"rollback": ROLLBACK, b"late commit": UNKNOWN, b"late rollback": UNKNOWN}
    late = {b"late commit": COMMIT, b"late rollback": ROLLBACK}
    asked: list[aio.ReceivedMessage] = []

    def check(half: aio.ReceivedMessage) -> TransactionState | None:
        """Answer once: a broker that is told twice to commit delivers twice, and asks again until it has heard."""
        asked.append(half)
        if half.properties["TRANSACTION_CHECK_TIMES"] == "1":
            raise ValueError("not yet")
        return late.get(half.body) if half.properties["TRANSACTION_CHECK_TIMES"] == "2" else None

    async with mq.transaction_producer(f"P_{topic}", check) as producer:
        for body, state in plan.items():
            message = aio.Message(topic, body, tag="t", keys=["k"], properties={"p": "v"})
            receipt = await producer.send_in_transaction(message, lambda half, receipt: plan[half.body])
            assert (receipt.state, receipt.status) == (state, aio.SendStatus.SEND_OK)
        found = await await_delivered(mq, topic, {b"commit", b"late commit"})
        twice = Counter({b"late commit": 2, b"late rollback": 2})
        await eventually(lambda: Counter(half.body for half in asked) >= twice, "the second questions", DEADLINE_S)
    assert {(half.topic, half.tag, half.keys, half.properties["p"]) for half in asked} == {(topic, "t", ("k",), "v")}
    assert {(message.topic, message.tag, message.properties["p"]) for message in found} == {(topic, "t", "v")}
    assert {message.body for message in await delivered(mq, topic)} == {b"commit", b"late commit"}


async def test_a_new_producer_of_the_group_is_asked_about_what_the_old_one_left(
    apache: ApacheServer, mq: aio.Client, topic: str
) -> None:
    group = f"P_{topic}"

    async def no_answer(half: aio.ReceivedMessage) -> None:
        return None

    async with aio.Client(apache.name_server) as first, first.transaction_producer(group, no_answer) as producer:
        receipt = await producer.send_half(aio.Message(topic, b"left open"))
    assert await delivered(mq, topic) == []
    asked: list[str] = []

    async def check(half: aio.ReceivedMessage) -> TransactionState | None:
        asked.append(half.msg_id)
        return COMMIT if len(asked) == 1 else None  # it asks again until it has heard, and delivers for each answer

    async with mq.transaction_producer(group, check) as producer:
        await producer.queues(topic)
        await mq.instance.heartbeat()
        (message,) = await await_delivered(mq, topic, {b"left open"})
    assert message.msg_id == receipt.msg_id
    assert set(asked) == {receipt.msg_id}


# Request and reply.


async def test_java_answers_python(
    apache: ApacheServer, mq: aio.Client, topic: str, java_4_9_8: JavaDriver, java_5_3_3: JavaDriver
) -> None:
    java = java_4_9_8 if apache.version == "4.9.8" else java_5_3_3
    answerer = await asyncio.to_thread(java.answerer, apache.name_server, topic, f"G_{topic}")
    with answerer:
        async with mq.producer(f"P_{topic}") as producer:
            asking = (producer.request(aio.Message(topic, b"question %d" % n), DEADLINE_S) for n in range(10))
            replies = await asyncio.gather(*asking)
    assert [reply.body for reply in replies] == [b"re: question %d" % n for n in range(10)]


async def test_python_answers_java(
    apache: ApacheServer, mq: aio.Client, topic: str, lines: Corpus, java_4_9_8: JavaDriver, java_5_3_3: JavaDriver
) -> None:
    java = java_4_9_8 if apache.version == "4.9.8" else java_5_3_3
    async with mq.producer(f"P_{topic}") as producer:

        async def handle(question: aio.ReceivedMessage) -> None:
            await producer.reply(question, b"re: " + question.body)

        async with mq.consumer(f"G_{topic}", topic, handler=handle, from_where="earliest"):
            replies = await asyncio.to_thread(
                java.request, apache.name_server, topic, lines.path, count=LINES, timeout_ms=30_000
            )
    wanted = [(f"L{number}", "re: " + line.decode()) for number, line in enumerate(lines.lines())]
    assert [(reply["key"], reply["body"]) for reply in replies] == wanted


# Compression, which no broker looks into.


async def test_java_reads_what_python_compressed(
    mq_broker: RunningBroker, request: pytest.FixtureRequest, java_4_9_8: JavaDriver, java_5_3_3: JavaDriver
) -> None:
    topic, codecs = make_topic(mq_broker, request), ("zlib", "lz4", "zstd")
    async with aio.Client(mq_broker.name_server) as mq:
        for codec in codecs:
            async with mq.producer(f"P_{codec}", compression=codec) as producer:
                await producer.send(aio.Message(topic, LARGE + codec.encode(), keys=[codec]))
        stored = {message.keys[0]: message for message in await await_count(mq, topic, len(codecs))}
    for codec in codecs:
        assert CompressionType.of(stored[codec].ext.sys_flag).name.lower() == codec
        assert stored[codec].ext.store_size < len(LARGE) / 4
    wanted = {(codec, hashlib.sha1(LARGE + codec.encode()).hexdigest()) for codec in codecs}
    pulls = (asyncio.to_thread(java.pull, mq_broker.name_server, topic) for java in (java_4_9_8, java_5_3_3))
    for found in await asyncio.gather(*pulls):
        assert {(message.key, message.body_sha1) for message in found} == wanted


async def test_python_reads_what_java_compressed(
    mq_broker: RunningBroker,
    request: pytest.FixtureRequest,
    large: Corpus,
    java_4_9_8: JavaDriver,
    java_5_3_3: JavaDriver,
) -> None:
    topic, sends = make_topic(mq_broker, request), [(java_4_9_8, "ZLIB"), (java_5_3_3, "LZ4"), (java_5_3_3, "ZSTD")]
    for java, codec in sends:
        await asyncio.to_thread(
            java.produce, mq_broker.name_server, topic, large.path, compress_type=codec, key_prefix=codec
        )
    async with aio.Client(mq_broker.name_server) as mq:
        found = await await_count(mq, topic, len(sends))
    assert {message.body for message in found} == {large.lines()[0]}
    assert {message.keys for message in found} == {(f"{codec}0",) for _, codec in sends}
    for message in found:
        assert message.keys == (f"{CompressionType.of(message.ext.sys_flag).name}0",)
        assert message.ext.store_size < len(LARGE) / 4


# Traces.


def traced(mqadmin: Mqadmin, name_server: str, *command: str) -> list[list[str]]:
    """The rows of a trace; none until the trace topic and its index are there, when the tool prints an error."""
    return [row for row in mqadmin.run(name_server, *command).rows() if row[0] in ("Pub", "Sub")]


async def test_mqadmin_shows_the_trace_of_a_send(
    apache: ApacheServer, mq: aio.Client, topic: str, mqadmin_4_9_8: Mqadmin, mqadmin_5_3_3: Mqadmin
) -> None:
    mqadmin = mqadmin_4_9_8 if apache.version == "4.9.8" else mqadmin_5_3_3
    async with mq.producer("P_traced", trace=True) as producer:
        receipt = await producer.send(aio.Message(topic, b"x", tag="t", keys=["k"]))
        command = ("queryMsgTraceById", "-i", receipt.msg_id)
        async with asyncio.timeout(DEADLINE_S):
            while not (rows := await asyncio.to_thread(traced, mqadmin, apache.name_server, *command)):
                await asyncio.sleep(0.2)
    assert [(row[0], row[1], row[-1]) for row in rows] == [("Pub", "P_traced", "success")]
