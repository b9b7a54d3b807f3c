"""mqcore send and mqcore consume against a broker: many lines, many under way, and from any place."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from mqcore.client import Client, Message
from tests.integration.client_helpers import make_topic
from tests.rigs import RunningBroker, wire
from tests.rigs.command_line import CommandLine
from tests.waiting import wait_until


@pytest.fixture
def topic(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    return make_topic(broker, request.node.name, queues=2)


@pytest.fixture
def mqcore(broker: RunningBroker) -> CommandLine:
    return CommandLine(broker.name_server)


def count_of(broker: RunningBroker, topic: str) -> int:
    return sum(wire.max_offset(broker.broker_address, topic, number) for number in range(2))


def test_many_lines_are_under_way_and_keep_the_order_of_a_queue(
    mqcore: CommandLine, broker: RunningBroker, topic: str
) -> None:
    lines = b"".join(b"%d\n" % number for number in range(3000))
    code, out, err = mqcore.run("send", topic, "--queue", "broker-a:1", "-o", "json", stdin=lines)
    assert code == 0, err
    receipts = [json.loads(line) for line in out.splitlines()]
    assert [(row["queueId"], row["offset"]) for row in receipts] == [(1, number) for number in range(3000)]
    wait_until(lambda: count_of(broker, topic) == 3000, describe="all are there")
    assert mqcore.output("consume", topic, "-e").encode() == lines
    assert mqcore.output("consume", topic, "-e", "--queue", "broker-a:0") == ""
    assert mqcore.output("consume", topic, "-e", "--from", "2998", "--queue", "broker-a:1") == "2998\n2999\n"
    assert mqcore.output("consume", topic, "-e", "--from", "-2") == "2998\n2999\n"
    assert mqcore.output("consume", topic, "--from", "5", "--until", "7", "--queue", "broker-a:1") == "5\n6\n"
    assert mqcore.output("consume", topic, "-e", "--from", "latest") == ""
    assert mqcore.output("consume", topic, "-e", "--from", "-1h", "-c", "1") == "0\n"
    assert mqcore.output("consume", topic, "-e", "--from", "2020-01-01", "--until", "2020-01-02") == ""
    code, out, err = mqcore.run("consume", topic, "-e", "--queue", "broker-a:7")
    assert (code, out) == (3, "")
    assert "has no queue broker-a:7" in err


def test_json_lines_become_messages_and_what_is_consumed_is_sent_again(
    mqcore: CommandLine, broker: RunningBroker, topic: str
) -> None:
    rows = [
        {"body": "one", "tag": "a", "keys": ["k1", "k2"], "properties": {"price": "1"}},
        {"bodyBase64": "/wA=", "tag": "b", "shardKey": "s", "properties": {"price": "5"}},
    ]
    code, _, err = mqcore.run("send", topic, "--json-lines", stdin=b"\n".join(json.dumps(row).encode() for row in rows))
    assert (code, err) == (0, "sent 2 messages\n")
    wait_until(lambda: count_of(broker, topic) == 2, describe="both are there")
    assert mqcore.output("consume", topic, "-e", "--tag", "a") == "one\n"
    assert mqcore.output("consume", topic, "-e", "--sql", "price < 3", "-f", "%k %s") == "k1 k2 one"
    copied = mqcore.output("consume", topic, "-e", "-o", "json").encode()
    assert mqcore.run("send", topic, "--json-lines", "-q", stdin=copied)[0] == 0
    wait_until(lambda: count_of(broker, topic) == 4, describe="the copies are there")
    found = [json.loads(line) for line in mqcore.output("consume", topic, "-e", "-o", "json").splitlines()]
    assert (
        sorted((row.get("body"), row["tag"], tuple(row["keys"])) for row in found if "body" in row)
        == [("one", "a", ("k1", "k2"))] * 2
    )
    lines = mqcore.output("consume", topic, "-e", "-o", "tsv").splitlines()
    assert lines[0].split("\t")[0] == "topic"
    assert len(lines) == 5
    assert mqcore.output("consume", topic, "-e", "-o", "yaml").count("---\n") == 4


def test_failed_lines_are_named_and_the_others_sent(mqcore: CommandLine, broker: RunningBroker, topic: str) -> None:
    lines = b'{"body": "1"}\nnonsense\n{"body": "3"}\n{"bdy": "4"}\n{"body": "5"}\n'
    code, out, err = mqcore.run("send", topic, "--json-lines", "--errors-max", "0", stdin=lines)
    assert (code, out.count("SEND_OK")) == (4, 3)
    assert "3 messages acknowledged, 2 failed: line 2 (no JSON" in err
    assert "line 4 (unknown member 'bdy'" in err
    code, out, err = mqcore.run("send", topic, "--json-lines", "--in-flight", "1", stdin=lines)
    assert (code, out.count("SEND_OK")) == (4, 1)
    assert "1 message acknowledged, 1 failed: line 2" in err
    assert "stopped before line 3" in err
    assert mqcore.run("send", topic, "--json-lines", stdin=b"nonsense\n")[0] == 2


def test_the_rate_is_kept_and_delays_are_given(mqcore: CommandLine, broker: RunningBroker, topic: str) -> None:
    began = time.monotonic()
    assert mqcore.run("send", topic, "--body", "x", "-c", "20", "--rate", "50", "-q")[0] == 0
    assert time.monotonic() - began >= 19 / 50
    code, out, _ = mqcore.run("send", topic, "--body", "later", "--delay", "61m", "-o", "json")
    assert code == 0
    assert json.loads(out)["recallHandle"]
    code, out, _ = mqcore.run(
        "send", topic, "--body", "later", "--deliver-at", str(int((time.time() + 3600) * 1000)), "-o", "tsv"
    )
    assert code == 0
    assert out.splitlines()[0].split("\t")[0] == "status"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["send", "T", "--body", "x", "--delay", "1s", "--deliver-at", "5"], "not both"),
        (["send", "T", "--body", "x", "--shard-key", "a", "--queue", "b:1"], "not both"),
        (["send", "T", "--body", "x", "--queue", "b"], "wanted broker:id"),
        (["send", "T", "--body", "x", "--delay", "soon"], "delay: got 'soon'"),
        (["send", "T", "--body", "x", "-K", ":"], "--key-separator is for lines"),
        (["consume", "T", "--tag", "a", "--sql", "b"], "give --tag or --sql"),
        (["consume", "T", "--group", "G", "--queue", "b:1"], "--queue does not go with --group"),
        (["consume", "T", "--group", "G", "--from", "5"], "a group begins at earliest"),
        (["consume", "T", "-f", "%s", "-o", "json"], "--format does not go with --output json"),
        (["consume", "T", "--from", "soon"], "wanted earliest, latest, an offset"),
    ],
)
def test_wrong_usage_is_named(mqcore: CommandLine, arguments: list[str], said: str) -> None:
    code, out, err = mqcore.run(*arguments)
    assert (code, out) == (2, "")
    assert said in err


def test_a_group_begins_at_a_time(mqcore: CommandLine, broker: RunningBroker, topic: str) -> None:
    with Client(broker.name_server) as mq:
        mq.admin.create_group("G_" + topic)
    assert mqcore.run("send", topic, stdin=b"1\n2\n")[0] == 0
    wait_until(lambda: count_of(broker, topic) == 2, describe="both are there")
    assert sorted(mqcore.output("consume", topic, "--group", "G_" + topic, "--from", "-1h", "-c", "2").split()) == [
        "1",
        "2",
    ]


def test_a_message_is_traced_from_its_sender_to_its_consumer(
    mqcore: CommandLine, broker: RunningBroker, topic: str
) -> None:
    with Client(broker.name_server) as mq:
        group = "G_" + topic
        with (
            mq.consumer(group, topic, handler=lambda message: None, from_where="earliest", trace=True),
            mq.producer("P_" + topic, trace=True) as producer,
        ):
            msg_id = producer.send(Message(topic, b"x")).msg_id

            def steps() -> list[tuple[str, str]]:
                code, out, _ = mqcore.run("trace", msg_id, "-o", "json")
                found = json.loads(out) if code == 0 else []
                return [(row["what"], row["group"]) for row in found if row["success"]]

            wanted = [("sent", "P_" + topic), ("consumed", group)]
            wait_until(lambda: steps() == wanted, describe="both are traced")
    code, out, err = mqcore.run("trace", "0" * 32)
    assert (code, out) == (3, "")
    assert "its clients do not trace" in err


def test_a_cluster_is_measured(mqcore: CommandLine, broker: RunningBroker, topic: str) -> None:
    name = topic + "_bench"
    sent = mqcore.json("bench", "send", name, "-c", "500", "--size", "100", "--clients", "2", "--in-flight", "8")
    assert (sent["messages"], sent["bytes"], sent["failed"]) == (500, 50_000, 0)
    assert 0 < sent["p50Ms"] <= sent["p99Ms"] <= sent["maxMs"]
    assert sent["messagesPerSecond"] > 0
    assert name in mqcore.json("topic", "list"), "a topic that it made stays"
    got = mqcore.json("bench", "consume", name, "-c", "500", "--clients", "2")
    assert (got["messages"], got["bytes"]) == (500, 50_000)
    assert got["group"] not in mqcore.json("group", "list"), "nothing stays of a group that it made up"
    code, _, err = mqcore.run("bench", "consume", topic, "--duration", "0.3")
    assert (code, "nothing was consumed" in err) == (1, True)
    assert mqcore.run("bench", "send", name, "-c", "5", "--remove-topic")[0] == 2
    slow = mqcore.json(
        "bench", "send", name, "--duration", "0.5", "--rate", "40", "--no-batching", "--remove-topic", "--yes"
    )
    assert 5 <= slow["messages"] <= 21
    assert name not in mqcore.json("topic", "list")


def test_a_terminal_sees_how_far_sending_is(broker: RunningBroker, topic: str) -> None:
    command = [
        sys.executable,
        "-m",
        "mqcore.admin.main",
        "-n",
        broker.name_server,
        "send",
        topic,
        "--body",
        "x",
        "-c",
        "50",
    ]
    ours, theirs = os.openpty()
    with subprocess.Popen([*command, "-q"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        said = b""
        with contextlib.suppress(OSError), os.fdopen(ours, "rb", buffering=0) as terminal:
            while piece := terminal.read(4096):  # ends with an error of input and output, as terminals do
                said += piece
        assert process.wait(60) == 0
    assert b"50/50" in said
    assert b"sent 50 messages" in said


def test_an_interrupt_ends_sending_in_order(broker: RunningBroker, topic: str) -> None:
    command = [sys.executable, "-m", "mqcore.admin.main", "-n", broker.name_server, "send", topic]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert process.stdout.readline().startswith(b"SEND_OK"), "its receipt does not wait for another line"
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert process.stderr.read() == b"sent 1 message\n"
        assert process.wait(60) == 0
