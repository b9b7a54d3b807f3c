"""mqcore explain, against a broker: what really keeps a group from consuming is found, and named."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from mqcore.client import Client, Message, ReceivedMessage, Reject, Sql
from tests.integration.client_helpers import make_topic
from tests.rigs import RunningBroker
from tests.rigs.command_line import CommandLine
from tests.waiting import wait_until


@pytest.fixture
def topic(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    return make_topic(broker, request.node.name, queues=1)


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    return "G_" + "".join(c if c.isalnum() else "_" for c in request.node.name)


@pytest.fixture
def mqcore(broker: RunningBroker) -> CommandLine:
    return CommandLine(broker.name_server)


def findings(mqcore: CommandLine, *arguments: str, code: int) -> dict[str, dict[str, Any]]:
    """Return what is not well, by check; the command must end with *code*."""
    found_code, out, err = mqcore.run("explain", *arguments, "--look", "0.3", "--output", "json")
    assert found_code == code, out + err
    return {row["check"]: row for row in json.loads(out)}


def send(broker: RunningBroker, topic: str, body: bytes = b"x", **values: Any) -> str:
    with Client(broker.name_server) as mq, mq.producer("P_" + topic) as producer:
        return producer.send(Message(topic, body, **values)).msg_id


@contextmanager
def consuming(broker: RunningBroker, group: str, topics: Any, handler: Any = None, **settings: Any) -> Iterator[Any]:
    done: list[ReceivedMessage] = []

    def take(message: ReceivedMessage) -> None:
        if handler is not None:
            handler(message)
        done.append(message)

    with Client(broker.name_server) as mq, mq.consumer(group, topics, handler=take, from_where="earliest", **settings):
        yield done


def test_a_group_that_consumes_is_well(mqcore: CommandLine, broker: RunningBroker, topic: str, group: str) -> None:
    with consuming(broker, group, topic) as done:
        msg_id = send(broker, topic)
        wait_until(lambda: done, describe="the message is consumed")
        wait_until(lambda: not lag(mqcore, group), describe="the offset is committed")
        assert findings(mqcore, group, topic, code=0) == {}
        found = findings(mqcore, group, msg_id, code=0)
        assert "the group is past it" in found["place"]["found"]
        assert "lets it through" in found["filter"]["found"]


def lag(mqcore: CommandLine, group: str) -> int:
    code, out, _ = mqcore.run("lag", group, "--output", "json")
    return int(json.loads(out)["lag"]) if code == 0 else 1


def test_nobody_is_there(mqcore: CommandLine, broker: RunningBroker, topic: str, group: str) -> None:
    send(broker, topic)
    found = findings(mqcore, group, topic, code=1)
    assert found["members"]["found"] == "no member is online"
    assert "mqcore group create" in found["group"]["mend"]
    assert "has never committed" in found["offset"]["found"]
    assert findings(mqcore, group, topic + "_misspelt", code=1)["topic"]["found"] == "no broker has it"


def test_a_group_that_may_not_and_a_topic_that_may_not_be_read(
    mqcore: CommandLine, broker: RunningBroker, topic: str, group: str
) -> None:
    with consuming(broker, group, topic):
        wait_until(lambda: mqcore.run("group", "show", group)[0] == 0, describe="the group is there")
        mqcore.output("group", "update", group, "--disable")
        mqcore.output("topic", "update", topic, "--perm", "w")
        found = findings(mqcore, group, topic, code=1)
    assert "consuming is disabled" in found["consume enabled"]["found"]
    assert "its permission is -W-" in found["read permission"]["found"]


@pytest.mark.parametrize(
    ("expression", "said"),
    [("wanted || other", "its tag is 'unwanted'"), (Sql("price > 3"), "its properties are price='2'")],
    ids=["tag", "sql"],
)
def test_a_message_that_the_group_does_not_want(
    mqcore: CommandLine, broker: RunningBroker, topic: str, group: str, expression: Any, said: str
) -> None:
    msg_id = send(broker, topic, tag="unwanted", properties={"price": "2"})
    with consuming(broker, group, {topic: expression}):
        wait_until(lambda: mqcore.run("group", "members", group)[0] == 0, describe="the member is online")
        found = findings(mqcore, group, msg_id, "--topic", topic, code=1)
        assert said in found["filter"]["found"]
        other = findings(mqcore, group, "OTHER_TOPIC", code=1)
        assert "no broker has it" in other["topic"]["found"]
        assert f"they subscribe to {topic}" in other["subscription"]["found"]


def test_members_that_want_different_things(mqcore: CommandLine, broker: RunningBroker, topic: str, group: str) -> None:
    with consuming(broker, group, {topic: "a"}), consuming(broker, group, {topic: "b"}):
        wait_until(lambda: len(members(mqcore, group)) == 2, describe="both are online")
        found = findings(mqcore, group, topic, code=1)
    assert "wants TAG a" in found["subscription"]["found"]
    assert "wants TAG b" in found["subscription"]["found"]


def members(mqcore: CommandLine, group: str) -> list[Any]:
    code, out, _ = mqcore.run("group", "members", group, "--output", "json")
    return list(json.loads(out)) if code == 0 else []


def test_a_handler_that_hangs_and_a_consumer_that_is_paused(
    mqcore: CommandLine, broker: RunningBroker, topic: str, group: str
) -> None:
    stop = False

    def hang(message: ReceivedMessage) -> None:
        while not stop:
            time.sleep(0.01)

    try:
        with consuming(broker, group, topic, hang):
            send(broker, topic)

            def hangs() -> bool:
                _, out, _ = mqcore.run("explain", group, "--look", "0.3")
                return "finished none in" in out and "paused in the program" not in out

            wait_until(hangs, describe="it is seen that the handler hangs")
            stop = True
    finally:
        stop = True
    with Client(broker.name_server) as mq, mq.consumer(group + "2", topic, from_where="earliest") as consumer:
        consumer.pause()
        wait_until(lambda: len(members(mqcore, group + "2")) == 1, describe="it is online")
        send(broker, topic)

        def stands() -> bool:
            _, out, _ = mqcore.run("explain", group + "2", "--look", "0.3")
            return "is paused in the program: it pulls nothing" in out

        wait_until(stands, describe="it is seen that the consumer is paused")


def test_failed_messages_are_followed_to_their_retry_and_to_the_dead_letters(
    mqcore: CommandLine, broker: RunningBroker, topic: str, group: str
) -> None:
    def refuse(message: ReceivedMessage) -> None:
        if message.body == b"never":
            raise Reject("never")
        raise ValueError("not now")

    def said(msg_id: str, check: str) -> str:
        code, out, _ = mqcore.run("explain", group, msg_id, "--output", "json")
        return next((row["found"] for row in json.loads(out) if row["check"] == check), "") if code < 2 else ""

    with consuming(broker, group, topic, refuse):
        dead, failed = send(broker, topic, b"never"), send(broker, topic, b"later")
        wait_until(lambda: "given up after" in said(dead, "dead letters"), describe="the dead letter is found")
        wait_until(lambda: said(failed, "retries").startswith("failed "), describe="the retry is found")
        wait_until(
            lambda: "given up" in mqcore.run("explain", group)[1], describe="the group's dead letters are counted"
        )


def test_offsets_ahead_of_the_queue_and_messages_that_nobody_has(
    mqcore: CommandLine, broker: RunningBroker, topic: str, group: str
) -> None:
    send(broker, topic)
    with Client(broker.name_server) as mq:
        mq.admin.create_group(group)
        (queue,) = mq.queues(topic)
        mq.commit_offset(group, queue, 1000)
    found = findings(mqcore, group, topic, code=1)
    assert "ahead of the queue, which ends at" in found["offset"]["found"]
    code, _, err = mqcore.run("explain", group, "7F00000100002A9F0000000000FFFFFF", "--topic", topic)
    assert code == 3
    assert "was never stored" in err
