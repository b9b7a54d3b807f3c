"""The command line against Apache's name server and broker: what it sends, reads, explains and measures there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mqcore.client import Client, Message, Reject, Retry
from tests.rigs import ApacheServer, make_topic
from tests.rigs.command_line import CommandLine
from tests.waiting import wait_until


@pytest.fixture
def mqcore(shared_apache: ApacheServer) -> CommandLine:
    return CommandLine(shared_apache.name_server)


def findings(mqcore: CommandLine, *arguments: str) -> dict[str, str]:
    """Return what is not well, by check; nothing when the command could not say."""
    code, out, _ = mqcore.run("explain", *arguments, "--look", "0.3", "-o", "json")
    return {row["check"]: row["found"] for row in json.loads(out)} if code < 2 else {}


def test_lines_are_sent_to_apache_and_read_from_any_place(mqcore: CommandLine, shared_apache: ApacheServer) -> None:
    topic = make_topic(shared_apache, "CommandLineLines", queues=1)
    lines = b"\n".join(json.dumps({"body": str(number), "tag": "t", "keys": ["k"]}).encode() for number in range(300))
    code, out, err = mqcore.run("send", topic, "--json-lines", "--shard-key", "x", "-o", "json", stdin=lines)
    assert code == 0, err
    assert [json.loads(line)["offset"] for line in out.splitlines()] == list(range(300))

    def read(*more: str) -> list[str]:
        return mqcore.output("consume", topic, "-e", *more).split()

    wait_until(lambda: len(read()) == 300, describe="Apache has dispatched all")
    assert read("--from", "-2") == ["298", "299"]
    assert read("--from", "5", "--until", "7") == ["5", "6"]
    assert read("--from", "-1h", "-c", "1", "--tag", "t || u") == ["0"]
    assert read("--tag", "other") == []
    code, out, err = mqcore.run("consume", topic, "-e", "--sql", "a = 1")
    assert (code, out) == (1, ""), "enablePropertyFilter is off there"
    assert "enablePropertyFilter" in err or "SQL92" in err


def test_why_a_group_of_apaches_does_not_consume(mqcore: CommandLine, shared_apache: ApacheServer) -> None:
    topic, group = make_topic(shared_apache, "CommandLineWhy", queues=1), "CommandLineWhy"

    def refuse(message: Any) -> None:
        raise Reject("never") if message.body == b"never" else Retry

    assert findings(mqcore, group, topic)["members"] == "no member is online"
    with Client(shared_apache.name_server) as mq, mq.producer("P") as producer:
        with mq.consumer(group, {topic: "a"}, handler=refuse, from_where="earliest"):
            wait_until(lambda: mqcore.run("group", "members", group)[0] == 0, describe="the member is online")
            other = producer.send(Message(topic, b"x", tag="b")).msg_id
            dead = producer.send(Message(topic, b"never", tag="a")).msg_id
            failed = producer.send(Message(topic, b"later", tag="a")).msg_id
            wait_until(lambda: "its tag is 'b'" in findings(mqcore, group, other, "--topic", topic).get("filter", ""))
            wait_until(lambda: "given up" in findings(mqcore, group, dead).get("dead letters", ""))
            wait_until(lambda: findings(mqcore, group, failed).get("retries", "").startswith("failed "))
        mqcore.output("group", "update", group, "--disable")
        found = findings(mqcore, group, topic)
    assert "consuming is disabled" in found["consume enabled"]
    assert "were given up" in found["dead letters"]


def test_apache_is_measured(mqcore: CommandLine, shared_apache: ApacheServer) -> None:
    topic = make_topic(shared_apache, "CommandLineBench", queues=2)
    sent = mqcore.json("bench", "send", topic, "-c", "200", "--no-batching", "--in-flight", "8")
    assert (sent["messages"], sent["failed"]) == (200, 0)
    got = mqcore.json("bench", "consume", topic, "-c", "200")
    assert got["messages"] == 200


def test_what_can_be_known_of_apaches_replicas_is_shown(mqcore: CommandLine, shared_apache: ApacheServer) -> None:
    code, out, err = mqcore.run("ha", "status", "-o", "json")
    assert code == 0, err
    (row,) = json.loads(out)
    assert (row["broker"], row["brokerId"], row["role"], row["state"]) == ("broker-a", 0, "ASYNC_MASTER", "NOT TOLD")
    assert row["end"] >= 0
    assert f"broker-a ({shared_apache.broker_address}): no broker of mqcore, nor of RocketMQ 5" in err
    code, out, _ = mqcore.run("ha", "status", "--address", shared_apache.broker_address, "-o", "json")
    assert (code, json.loads(out)[0]["brokerId"]) == (0, 0)
