"""Apache's Java clients, 4.9.8 and 5.3.3, send through the broker and receive from it as from Apache's own."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.rigs import (
    Corpus,
    JavaConsumer,
    JavaDriver,
    QueueName,
    ReceivedMessage,
    RunningBroker,
    StartBroker,
    allocated,
    gather,
    wire,
)
from tests.rigs.deliveries import (
    await_committed,
    check_each_exactly_once,
    check_intact,
    check_queue_order,
    sent_by_key,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.compat

TAGS = ("TagA", "TagB", "TagC")
QUEUES = 8
ARRIVAL_DEADLINE_S = 120.0


@pytest.fixture
def as_4_9(mq_broker: RunningBroker) -> None:
    """Skips a test about something that Apache changed in 5.x when its 5.x broker is the one tested."""
    if mq_broker.apache_version.startswith("5"):
        pytest.skip("Apache's 5.x broker behaves differently from 4.9 on purpose")


def await_fair_shares(consumers: list[JavaConsumer], queues: int = QUEUES) -> None:
    """Wait until the consumers of a group share the queues evenly, each queue having one owner."""
    everything = [QueueName("broker-a", queue_id) for queue_id in range(queues)]
    wait_until(
        lambda: (
            allocated(consumers) == everything
            and all(len(consumer.queues()) == queues // len(consumers) for consumer in consumers)
        ),
        deadline_s=ARRIVAL_DEADLINE_S,
        describe="the consumers share the queues",
    )


def await_deliveries(consumers: list[JavaConsumer], count: int, deadline_s: float = ARRIVAL_DEADLINE_S) -> None:
    wait_until(
        lambda: sum(consumer.count() for consumer in consumers) >= count,
        deadline_s=deadline_s,
        describe=f"{count} deliveries",
    )


def await_readable(broker: RunningBroker) -> None:
    """Wait until what was acknowledged can be pulled and looked up: it gets into queues and index a moment later."""
    wait_until(lambda: wire.is_dispatched(broker.broker_address), describe="everything is dispatched")


def share_a_corpus(
    broker: RunningBroker,
    topic: str,
    corpus: Corpus,
    producer: JavaDriver,
    consumers: list[JavaDriver],
    deadline_s: float,
) -> None:
    """Send a corpus to consumers of one group that are there already, and check all promises about it."""
    running = [java.consumer(broker.name_server, topic, f"G_{topic}", instance=java.version) for java in consumers]
    try:
        await_fair_shares(running)
        produced = producer.produce(broker.name_server, topic, corpus.path, tags=",".join(TAGS), deadline_s=deadline_s)
        sent = sent_by_key(produced)
        assert produced.messages == corpus.count
        await_deliveries(running, corpus.count, deadline_s)
        await_committed(broker.broker_address, f"G_{topic}", topic, QUEUES, running)
        received = [consumer.stop() for consumer in running]
    finally:
        for consumer in running:
            consumer.child.kill()
    everything = [message for part in received for message in part]
    check_each_exactly_once(sent, everything)
    check_intact(corpus.lines(), sent, everything)
    assert all(message.tags == TAGS[int(message.key[1:]) % len(TAGS)] for message in everything)
    queues = [check_queue_order(part) for part in received]
    assert sorted(queue for part in queues for queue in part) == list(range(QUEUES)), "each queue has one consumer"


def test_two_releases_of_consumers_share_a_corpus_from_a_4_9_8_producer(
    mq_broker: RunningBroker, topic: str, corpus: Corpus, java_4_9_8: JavaDriver, java_5_3_3: JavaDriver
) -> None:
    share_a_corpus(mq_broker, topic, corpus, java_4_9_8, [java_4_9_8, java_5_3_3], deadline_s=240)


def test_two_releases_of_consumers_share_a_corpus_from_a_5_3_3_producer(
    mq_broker: RunningBroker, topic: str, java_4_9_8: JavaDriver, java_5_3_3: JavaDriver, tmp_path: Path
) -> None:
    small = gather(tmp_path / "small.txt", 4_000)
    share_a_corpus(mq_broker, topic, small, java_5_3_3, [java_5_3_3, java_4_9_8], deadline_s=120)


@pytest.mark.slow
def test_two_releases_of_consumers_share_a_million_lines(
    mq_broker: RunningBroker, topic: str, java_4_9_8: JavaDriver, java_5_3_3: JavaDriver, tmp_path: Path
) -> None:
    million = gather(tmp_path / "million.txt", 1_000_000)
    share_a_corpus(mq_broker, topic, million, java_4_9_8, [java_4_9_8, java_5_3_3], deadline_s=600)


def test_orderly_consumers_get_each_shard_in_the_order_of_its_producer(
    mq_broker: RunningBroker, topic: str, corpus: Corpus, java_4_9_8: JavaDriver, java_5_3_3: JavaDriver
) -> None:
    count, shards = 3_000, 16
    consumers = [
        java.consumer(mq_broker.name_server, topic, f"G_{topic}", instance=java.version, listener="orderly", threads=4)
        for java in (java_4_9_8, java_5_3_3)
    ]
    with consumers[0], consumers[1]:
        await_fair_shares(consumers)
        produced = java_5_3_3.produce(
            mq_broker.name_server, topic, corpus.path, count=count, mode="sync", threads=4, shards=shards
        )
        sent = sent_by_key(produced)
        await_deliveries(consumers, count)
        await_committed(mq_broker.broker_address, f"G_{topic}", topic, QUEUES, consumers)
        received = [consumer.stop() for consumer in consumers]
    everything = [message for part in received for message in part]
    check_each_exactly_once(sent, everything)
    check_intact(corpus.lines(), sent, everything)
    for part in received:
        check_queue_order(part)
        by_shard: dict[int, list[int]] = defaultdict(list)
        for message in part:
            line = int(message.key[1:])
            by_shard[line % shards].append(line)
        assert all(lines == sorted(lines) for lines in by_shard.values())


def test_batches_arrive_as_single_messages(
    mq_broker: RunningBroker, topic: str, corpus: Corpus, java: JavaDriver
) -> None:
    count = 2_000
    produced = java.produce(
        mq_broker.name_server, topic, corpus.path, count=count, mode="batch", batch_size=40, threads=2, tags="T"
    )
    sent = sent_by_key(produced)
    with java.consumer(mq_broker.name_server, topic, f"G_{topic}") as consumer:
        await_deliveries([consumer], count)
        received = consumer.stop()
    check_each_exactly_once(sent, received)
    # A 5.x client puts the id of the batch into the batch's own properties; a 4.9 broker appends these to each message.
    check_intact(corpus.lines(), sent, received, ids=java.version == "4.9.8")
    assert {message.tags for message in received} == {"T"}


def test_a_consumer_gets_only_the_tags_it_asks_for(
    mq_broker: RunningBroker, topic: str, corpus: Corpus, java: JavaDriver
) -> None:
    produced = java.produce(mq_broker.name_server, topic, corpus.path, count=1_500, tags=",".join(TAGS))
    wanted = {key: message for key, message in sent_by_key(produced).items() if int(key[1:]) % len(TAGS) != 1}
    with java.consumer(mq_broker.name_server, topic, f"G_{topic}", tags="TagA || TagC") as consumer:
        await_deliveries([consumer], len(wanted))
        received = consumer.stop()
    check_each_exactly_once(wanted, received)
    assert {message.tags for message in received} == {"TagA", "TagC"}


@pytest.mark.usefixtures("as_4_9")
def test_a_new_consumer_goes_on_where_its_group_stopped(
    mq_broker: RunningBroker, topic: str, corpus: Corpus, java_4_9_8: JavaDriver, java_5_3_3: JavaDriver
) -> None:
    broker, group = mq_broker.broker_address, f"G_{topic}"
    for queue_id in range(QUEUES):
        # Of a group's first commits, when they come at once, Apache's 4.9 broker may forget all but one.
        wire.commit_offset(broker, group, topic, queue_id, 0)

    received: list[ReceivedMessage] = []

    def all_committed() -> bool:
        offsets = [wire.consumer_offset(broker, group, topic, queue_id) for queue_id in range(QUEUES)]
        return sum(offset or 0 for offset in offsets) == len(received)

    for java in (java_4_9_8, java_5_3_3):
        with java.consumer(mq_broker.name_server, topic, group) as consumer:
            await_fair_shares([consumer])
            java.produce(mq_broker.name_server, topic, corpus.path, first=len(received), count=1_000)
            await_deliveries([consumer], 1_000)
            received += consumer.stop()
        wait_until(all_committed, describe="the consumer's offsets are committed")
    check_each_exactly_once([f"L{line}" for line in range(2_000)], received)


def test_a_refused_message_comes_again_as_often_as_it_is_refused(
    mq_broker: RunningBroker, topic: str, corpus: Corpus, java: JavaDriver
) -> None:
    refusals = {"L3": 2, "L7": 1}
    java.produce(mq_broker.name_server, topic, corpus.path, count=20, tags="TagA")
    with java.consumer(
        mq_broker.name_server, topic, f"G_{topic}", refusals=refusals, tags="TagA", poll_ms=500
    ) as consumer:
        await_deliveries([consumer], 20 + sum(refusals.values()))
        received = consumer.stop()
    times = Counter(message.key for message in received)
    assert times == Counter({f"L{line}": 1 + refusals.get(f"L{line}", 0) for line in range(20)})
    for key in refusals:
        again = [message for message in received if message.key == key]
        assert [message.reconsume_times for message in again] == list(range(len(again)))
        assert len({message.body_sha1 for message in again}) == 1
        assert {message.topic for message in again} == {topic}


def test_a_message_refused_too_often_goes_to_the_dead_letter_queue(
    mq_broker: RunningBroker, topic: str, corpus: Corpus, java: JavaDriver
) -> None:
    java.produce(mq_broker.name_server, topic, corpus.path, count=4)
    with java.consumer(
        mq_broker.name_server, topic, f"G_{topic}", refusals={"L2": 99}, max_reconsume_times=1, poll_ms=500
    ) as consumer:
        await_deliveries([consumer], 5)
        dead_letters = f"%DLQ%G_{topic}"
        wait_until(
            lambda: (
                wire.has_route(mq_broker.name_server, dead_letters)
                and wire.max_offset(mq_broker.broker_address, dead_letters, 0) == 1
            ),
            deadline_s=ARRIVAL_DEADLINE_S,
            describe="a dead letter",
        )
        received = consumer.stop()
    assert Counter(message.key for message in received) == {"L0": 1, "L1": 1, "L2": 2, "L3": 1}


def test_an_orderly_consumer_holds_its_queue_while_it_refuses(
    mq_broker: RunningBroker, topic: str, corpus: Corpus, java: JavaDriver
) -> None:
    java.produce(mq_broker.name_server, topic, corpus.path, count=32, mode="sync", shards=1)
    with java.consumer(
        mq_broker.name_server, topic, f"G_{topic}", refusals={"L5": 2}, listener="orderly", suspend_ms=100
    ) as consumer:
        await_deliveries([consumer], 34)
        received = consumer.stop()
    assert [message.key for message in received] == [f"L{line}" for line in (*range(5), 5, 5, *range(5, 32))]


def test_pull_consumers_read_any_range(mq_broker: RunningBroker, topic: str, corpus: Corpus, java: JavaDriver) -> None:
    produced = java.produce(mq_broker.name_server, topic, corpus.path, count=2_000, mode="sync", shards=4)
    sent = sent_by_key(produced)
    await_readable(mq_broker)
    everything = java.pull(mq_broker.name_server, topic)
    check_each_exactly_once(sent, everything)
    check_intact(corpus.lines(), sent, everything)
    tail = java.pull(mq_broker.name_server, topic, queue_id=2, **{"from": 400})
    assert [message.queue_offset for message in tail] == list(range(400, 500))


def test_lite_pull_consumers_read_from_where_they_seek(
    mq_broker: RunningBroker, topic: str, corpus: Corpus, java: JavaDriver
) -> None:
    if java.version == "5.3.3" and mq_broker.apache_version == "4.9.8":
        pytest.skip("the 5.x lite pull consumer asks with request code 361, which Apache's 4.9.8 broker does not know")
    produced = java.produce(mq_broker.name_server, topic, corpus.path, count=2_000, mode="sync", shards=4)
    sent = sent_by_key(produced)
    await_readable(mq_broker)
    tail = java.lite_pull(mq_broker.name_server, topic, queue_id=1, count=300, **{"from": 200})
    assert [message.queue_offset for message in tail] == list(range(200, 500))
    check_intact(corpus.lines(), sent, tail)


@pytest.mark.usefixtures("as_4_9")
def test_lookups_find_offsets_and_messages(
    mq_broker: RunningBroker, topic: str, corpus: Corpus, java: JavaDriver
) -> None:
    before_ms = int(time.time() * 1000) - 1
    produced = java.produce(mq_broker.name_server, topic, corpus.path, count=40, mode="sync", shards=4, tags="TagA")
    by_key = sent_by_key(produced)
    await_readable(mq_broker)
    offsets = java.offsets(mq_broker.name_server, topic, time_ms=before_ms)
    assert [(queue["queueId"], queue["min"], queue["max"], queue["at"]) for queue in offsets] == [
        (queue_id, 0, 10 if queue_id < 4 else 0, 0) for queue_id in range(QUEUES)
    ]
    assert all(before_ms < queue["earliestStoreTimeMs"] <= time.time() * 1000 for queue in offsets[:4])
    late = java.offsets(mq_broker.name_server, topic, time_ms=int(time.time() * 1000) + 60_000)
    assert [queue["at"] for queue in late[:4]] == [9, 9, 9, 9], "after the last message: the last message"

    origin = by_key["L17"]
    by_offset_id = java.view(mq_broker.name_server, topic, origin.offset_message_id)
    by_unique_id = java.view(mq_broker.name_server, topic, origin.message_id)
    (found,) = java.query(mq_broker.name_server, topic, "L17")
    for message in (by_offset_id, by_unique_id, found):
        assert (message["key"], message["tags"], message["topic"]) == ("L17", "TagA", topic)
        assert (message["queueId"], message["queueOffset"]) == (origin.queue_id, origin.queue_offset)
        assert message["size"] == len(corpus.lines()[17])
    assert by_unique_id["physicalOffset"] == found["physicalOffset"] == by_offset_id["physicalOffset"]


def test_a_delayed_message_comes_after_its_delay(
    mq_broker: RunningBroker, topic: str, corpus: Corpus, java: JavaDriver
) -> None:
    with java.consumer(mq_broker.name_server, topic, f"G_{topic}") as consumer:
        await_fair_shares([consumer])
        begin = time.monotonic()
        produced = java.produce(mq_broker.name_server, topic, corpus.path, count=10, delay_level=2)
        await_deliveries([consumer], 10)
        assert time.monotonic() - begin >= 2, "level 2 is two seconds: SHORT_DELAYS"
        received = consumer.stop()
    assert produced.failures == 0
    check_each_exactly_once([f"L{line}" for line in range(10)], received)
    assert {message.topic for message in received} == {topic}
    assert [message.body_size for message in sorted(received, key=lambda message: int(message.key[1:]))] == [
        len(line) for line in corpus.lines()[:10]
    ]


def test_a_request_gets_its_reply(
    mq_broker: RunningBroker, topic: str, corpus: Corpus, java_4_9_8: JavaDriver, java_5_3_3: JavaDriver
) -> None:
    for asker, answerer in ((java_4_9_8, java_5_3_3), (java_5_3_3, java_4_9_8)):
        with answerer.answerer(mq_broker.name_server, topic, f"G_{topic}_{answerer.version[0]}"):
            replies = asker.request(mq_broker.name_server, topic, corpus.path, count=5)
        lines = corpus.lines()
        assert [(reply["key"], reply["body"]) for reply in replies] == [
            (f"L{line}", "re: " + lines[line].decode()) for line in range(5)
        ]


@pytest.mark.usefixtures("as_4_9")
def test_only_committed_transactions_are_delivered(start_broker: StartBroker, corpus: Corpus, java: JavaDriver) -> None:
    broker = start_broker({"transactionCheckInterval": "2000", "transactionTimeOut": "1000"})
    wire.create_topic(broker.broker_address, "Transactions")
    with (
        java.consumer(broker.name_server, "Transactions", "G_Transactions") as consumer,
        java.transact(broker.name_server, "Transactions", corpus.path, count=40) as producer,
    ):
        checked = producer.await_checks(deadline_s=180)
        await_deliveries([consumer], 20)
        sent = producer.finish()
        received = consumer.stop()
    assert checked["unasked"] == 0
    assert checked["checks"] >= 20
    assert Counter(message.status for message in sent) == {
        "COMMIT_MESSAGE": 10,
        "ROLLBACK_MESSAGE": 10,
        "UNKNOW": 20,
    }
    check_each_exactly_once([f"L{line}" for line in range(0, 40, 2)], received)


@pytest.mark.usefixtures("as_4_9")
def test_an_sql_expression_filters_messages(start_broker: StartBroker, corpus: Corpus, java: JavaDriver) -> None:
    broker = start_broker({"enablePropertyFilter": "true"})
    wire.create_topic(broker.broker_address, "Filtered")
    java.produce(broker.name_server, "Filtered", corpus.path, count=300, tags=",".join(TAGS))
    with java.consumer(
        broker.name_server,
        "Filtered",
        "G_Filtered",
        sql="TAGS IS NOT NULL AND TAGS IN ('TagA', 'TagC') AND KEYS <> 'L0'",
    ) as consumer:
        await_deliveries([consumer], 199)
        received = consumer.stop()
    check_each_exactly_once([f"L{line}" for line in range(1, 300) if line % 3 != 1], received)
