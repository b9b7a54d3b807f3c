"""Message trace by the broker's rules, namespaces, and unit mode: what Apache's clients make of names and answers."""

from __future__ import annotations

import pytest

from mqcore.client import Client, Message, ReceivedMessage, Retry
from mqcore.protocol.names import is_retry_topic
from tests.rigs import ApacheServer, Corpus, JavaConsumer, JavaDriver, Mqadmin, RunningBroker, StartBroker, wire
from tests.waiting import wait_until

pytestmark = pytest.mark.compat

QUEUES = 2
COUNT = 6
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
DEADLINE_S = 60.0
UPDATE_BROKER_CONFIG = 25
GET_TOPICS_OF_UNITS = {"unit": 311, "unit subscribers": 312, "subscribers of no unit": 313}
GET_SYSTEM_TOPICS = {"broker": 305, "name server": 304}


def await_deliveries(member: JavaConsumer, count: int) -> None:
    wait_until(lambda: member.count() >= count, DEADLINE_S, f"{count} deliveries")


def traces(broker: RunningBroker, topic: str = TRACE_TOPIC) -> int:
    wait_until(lambda: wire.is_dispatched(broker.broker_address), describe="dispatched")
    return sum(wire.max_offset(broker.broker_address, topic, queue_id) for queue_id in range(8))


@pytest.mark.slow
def test_java_traces_what_it_sends_and_receives_and_mqadmin_shows_it(
    start_broker: StartBroker, corpus: Corpus, java_4_9_8: JavaDriver, mqadmin_4_9_8: Mqadmin
) -> None:
    broker = start_broker({"traceTopicEnable": "true"})
    assert wire.has_route(broker.name_server, TRACE_TOPIC)
    wire.create_topic(broker.broker_address, "Traced", queues=QUEUES)
    wait_until(lambda: wire.has_route(broker.name_server, "Traced"), describe="route")
    with java_4_9_8.consumer(broker.name_server, "Traced", "G_Traced", trace="yes") as consumer:

        def is_traced() -> bool:
            """Send one more: a producer that is shut down gives its traces half a second, and loses the rest."""
            sent = java_4_9_8.produce(broker.name_server, "Traced", corpus.path, count=1, mode="sync", trace="yes")
            (message,) = sent.sent
            await_deliveries(consumer, 1)
            printed = mqadmin_4_9_8.run(broker.name_server, "queryMsgTraceById", "-i", message.message_id).rows()
            return {"Pub", "Sub"} <= {row[0] for row in printed if row[-1] == "success"}

        wait_until(is_traced, DEADLINE_S, "both ends of a message are traced")
        consumer.stop()


def test_nobody_traces_where_the_broker_says_so(
    start_broker: StartBroker, corpus: Corpus, java_4_9_8: JavaDriver
) -> None:
    """traceOn goes out with each answer to a send, also after it has changed, and producers go by it."""
    broker = start_broker({"traceTopicEnable": "true", "traceOn": "false", "regionId": "here"})
    wire.create_topic(broker.broker_address, "Untraced", queues=QUEUES)
    wait_until(lambda: wire.has_route(broker.name_server, "Untraced"), describe="route")

    def send() -> None:
        options = {"count": COUNT, "mode": "sync", "trace": "yes"}
        assert java_4_9_8.produce(broker.name_server, "Untraced", corpus.path, **options).failures == 0

    def fields() -> dict[str, str]:
        header = {
            "producerGroup": "P", "topic": "Untraced", "defaultTopic": "TBW102", "defaultTopicQueueNums": "1",
            "queueId": "0", "sysFlag": "0", "bornTimestamp": "0", "flag": "0", "properties": "", "unitMode": "false",
        }  # fmt: skip
        return wire.call(broker.broker_address, 10, header, b"x").ext_fields

    assert (fields()["TRACE_ON"], fields()["MSG_REGION"]) == ("false", "here")
    send()
    assert traces(broker) == 0
    assert wire.call(broker.broker_address, UPDATE_BROKER_CONFIG, {}, b"traceOn=true").code == wire.SUCCESS
    assert fields()["TRACE_ON"] == "true"

    def is_traced() -> bool:
        send()
        return traces(broker) > 0

    wait_until(is_traced, DEADLINE_S, "traces now")


def test_the_trace_topic_may_have_another_name(start_broker: StartBroker) -> None:
    broker = start_broker({"traceTopicEnable": "true", "msgTraceTopicName": "Traces_of_ours"})
    assert wire.has_route(broker.name_server, "Traces_of_ours")
    system = wire.call(broker.broker_address, GET_SYSTEM_TOPICS["broker"]).json()["topicList"]
    assert "Traces_of_ours" in system
    refused = wire.call(broker.broker_address, 215, {"topic": "Traces_of_ours"})
    assert (refused.code, refused.remark) == (1, "The topic[Traces_of_ours] is conflict with system topic.")


def test_members_of_a_namespace_see_their_own_names_and_others_do_not(
    mq_broker: RunningBroker, corpus: Corpus, java_4_9_8: JavaDriver, java_5_3_3: JavaDriver
) -> None:
    """The broker has only the long names. A retried message shows its short name again."""
    long_name = "shop%Orders"
    for topic in ("Orders", long_name):
        wire.create_topic(mq_broker.broker_address, topic, queues=QUEUES)
        wait_until(lambda topic=topic: wire.has_route(mq_broker.name_server, topic), describe="route")
    inside = {"namespace": "shop"}
    with (
        java_4_9_8.consumer(mq_broker.name_server, "Orders", "G", refusals={"L0": 1}, poll_ms=500, **inside) as member,
        java_5_3_3.consumer(mq_broker.name_server, "Orders", "G") as other,
    ):
        java_5_3_3.produce(mq_broker.name_server, "Orders", corpus.path, count=COUNT, **inside)
        await_deliveries(member, COUNT + 1)
        received = member.stop()
        assert other.stop() == []
    assert {message.topic for message in received} == {"Orders"}
    assert sorted(message.key for message in received) == sorted(["L0", *(f"L{line}" for line in range(COUNT))])
    assert wire.has_route(mq_broker.name_server, "%RETRY%shop%G")
    # A client of Python says the long names.
    with Client(mq_broker.name_server) as mq, mq.producer("shop%P") as producer:
        assert producer.send(Message(long_name, b"x")).queue.topic == long_name


def test_python_and_java_members_of_a_namespace_understand_each_other(
    mq_broker: RunningBroker, corpus: Corpus, java_4_9_8: JavaDriver, java_5_3_3: JavaDriver
) -> None:
    """What either sends the other receives by its short name, once more when it fails, and they share one group."""
    topic, lines = "Bills", corpus.lines()[:COUNT]
    wire.create_topic(mq_broker.broker_address, f"bank%{topic}", queues=QUEUES)
    wait_until(lambda: wire.has_route(mq_broker.name_server, f"bank%{topic}"), describe="route")
    inside = {"namespace": "bank"}
    seen: list[tuple[str, str, int]] = []

    def handle(message: ReceivedMessage) -> None:
        seen.append((message.topic, message.keys[0], message.reconsume_times))
        if message.keys == ("L0",) and message.reconsume_times == 0:
            raise Retry(delay_level=1)

    with Client(mq_broker.name_server, namespace="bank") as mq, mq.producer("P") as producer:
        with mq.consumer("G_python", topic, handler=handle, from_where="earliest"):
            java_5_3_3.produce(mq_broker.name_server, topic, corpus.path, count=COUNT, **inside)
            wait_until(lambda: len(seen) == COUNT + 1, DEADLINE_S, "what Java sent, and one again")
        assert {name for name, _, _ in seen} == {topic}
        assert [times for _, key, times in seen if key == "L0"] == [0, 1]
        with java_4_9_8.consumer(
            mq_broker.name_server, topic, "G_java", refusals={"L0": 1}, poll_ms=500, **inside
        ) as member:
            await_deliveries(member, COUNT + 1)
            for number, line in enumerate(lines):
                producer.send(Message(topic, line, keys=[f"python-{number}"]))
            await_deliveries(member, 2 * COUNT + 1)
            received = member.stop()
        with (
            java_4_9_8.consumer(mq_broker.name_server, topic, "G_both", poll_ms=500, **inside),
            mq.consumer("G_both", topic, handler=handle) as own,
        ):
            # One queue each: neither takes the other for a member of another group.
            wait_until(
                lambda: [queue.topic for queue in own.queues if not is_retry_topic(queue.topic)] == [topic],
                DEADLINE_S,
                "the queues are shared",
            )
    assert {message.topic for message in received} == {topic}
    keys = [message.key for message in received]
    assert sorted(key for key in keys if key.startswith("python")) == [f"python-{number}" for number in range(COUNT)]


def listed(name_server: str) -> dict[str, list[str]]:
    """The name server's lists of topics of units, and of the system."""
    codes = {**GET_TOPICS_OF_UNITS, "system": GET_SYSTEM_TOPICS["name server"]}
    answers = {name: wire.call(name_server, code) for name, code in codes.items()}
    return {name: sorted(answer.json().get("topicList") or []) for name, answer in answers.items()}


def test_units_are_marked_at_the_broker_and_listed_by_the_name_server(
    mq_broker: RunningBroker, shared_apache: ApacheServer, corpus: Corpus, java_4_9_8: JavaDriver
) -> None:
    """A topic made by a producer of a unit, and the retry topic of a group of one; as with Apache's servers."""
    for broker in (mq_broker, shared_apache):
        options = {"count": 1, "mode": "sync", "unit_mode": "yes"}
        assert java_4_9_8.produce(broker.name_server, "UnitTopic", corpus.path, **options).failures == 0
        with java_4_9_8.consumer(broker.name_server, "UnitTopic", "UnitGroup", unit_mode="yes") as member:
            await_deliveries(member, 1)
            member.stop()
    units = {"unit", "unit subscribers", "subscribers of no unit"}

    def units_of(broker: RunningBroker) -> dict[str, list[str]]:
        found = listed(broker.name_server)
        return {name: [topic for topic in found[name] if "Unit" in topic] for name in units}

    wait_until(lambda: "%RETRY%UnitGroup" in units_of(mq_broker)["unit subscribers"], describe="the topics are known")
    wait_until(lambda: "%RETRY%UnitGroup" in units_of(shared_apache)["unit subscribers"], describe="there, too")
    assert units_of(mq_broker) == units_of(shared_apache)
    assert units_of(mq_broker)["unit"] == ["UnitTopic"]


def test_the_system_has_the_topics_of_apaches_servers(mq_broker: RunningBroker, shared_apache: ApacheServer) -> None:
    def system(broker: RunningBroker) -> tuple[set[str], list[str]]:
        at_broker = wire.call(broker.broker_address, GET_SYSTEM_TOPICS["broker"]).json()["topicList"]
        return set(at_broker), listed(broker.name_server)["system"]

    assert system(mq_broker) == system(shared_apache)
