"""The npm client ali-ons sends through the broker and receives from it, also together with the Java client."""

from __future__ import annotations

import pytest

from tests.rigs import AliOns, Corpus, JavaDriver, RunningBroker
from tests.rigs.deliveries import check_each_exactly_once, check_intact, check_queue_order, sent_by_key
from tests.waiting import wait_until

pytestmark = pytest.mark.compat

QUEUES = 4
COUNT = 2_000
TAGS = ("TagA", "TagB")
ARRIVAL_DEADLINE_S = 120.0


def test_what_it_sends_it_receives(mq_broker: RunningBroker, topic: str, corpus: Corpus, ali_ons: AliOns) -> None:
    sent = sent_by_key(ali_ons.produce(mq_broker.name_server, topic, corpus.path, count=COUNT, tags=",".join(TAGS)))
    with ali_ons.consumer(mq_broker.name_server, topic, f"G_{topic}") as consumer:
        wait_until(lambda: consumer.count() >= COUNT, deadline_s=ARRIVAL_DEADLINE_S, describe="all messages came")
        received = consumer.stop()
    check_each_exactly_once(sent, received)
    check_intact(corpus.lines(), sent, received, prefix="N", ids=False)
    assert check_queue_order(received) == set(range(QUEUES))
    assert all(message.tags == TAGS[int(message.key[1:]) % 2] for message in received)


def test_a_java_consumer_receives_what_it_sends(
    mq_broker: RunningBroker, topic: str, corpus: Corpus, ali_ons: AliOns, java_4_9_8: JavaDriver
) -> None:
    with java_4_9_8.consumer(mq_broker.name_server, topic, f"G_{topic}") as consumer:
        sent = sent_by_key(ali_ons.produce(mq_broker.name_server, topic, corpus.path, count=COUNT))
        wait_until(lambda: consumer.count() >= COUNT, deadline_s=ARRIVAL_DEADLINE_S, describe="all messages came")
        received = consumer.stop()
    check_each_exactly_once(sent, received)
    check_intact(corpus.lines(), sent, received, prefix="N", ids=False)


def test_it_receives_the_tags_it_asks_for_from_a_java_producer(
    mq_broker: RunningBroker, topic: str, corpus: Corpus, ali_ons: AliOns, java_5_3_3: JavaDriver
) -> None:
    with ali_ons.consumer(mq_broker.name_server, topic, f"G_{topic}", tags="TagB") as consumer:
        sent = sent_by_key(
            java_5_3_3.produce(mq_broker.name_server, topic, corpus.path, count=COUNT, tags=",".join(TAGS))
        )
        wanted = {key: message for key, message in sent.items() if int(key[1:]) % 2 == 1}
        wait_until(
            lambda: consumer.count() >= len(wanted), deadline_s=ARRIVAL_DEADLINE_S, describe="the tagged messages came"
        )
        received = consumer.stop()
    check_each_exactly_once(wanted, received)
    check_intact(corpus.lines(), sent, received, ids=False)


def test_a_message_it_refuses_comes_again(
    mq_broker: RunningBroker, topic: str, corpus: Corpus, ali_ons: AliOns
) -> None:
    ali_ons.produce(mq_broker.name_server, topic, corpus.path, count=10)
    with ali_ons.consumer(mq_broker.name_server, topic, f"G_{topic}", refuse="N4") as consumer:
        wait_until(
            lambda: consumer.count() >= 11, deadline_s=ARRIVAL_DEADLINE_S, describe="the refused message is back"
        )
        received = consumer.stop()
    again = [message for message in received if message.key == "N4"]
    assert [(message.outcome, message.reconsume_times) for message in again] == [
        ("ACTION_RETRY", 0),
        ("CONSUME_SUCCESS", 1),
    ]
    assert len({message.body_sha1 for message in again}) == 1
