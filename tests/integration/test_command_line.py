"""The commands of administration: what they print, as what they end, and that they destroy nothing without --yes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mqcore import aio
from mqcore.admin.consume_command import Printer, watching, what_is_missing
from mqcore.admin.output import yaml_text
from mqcore.admin.running import hint_of
from mqcore.client import Client, Message, Reject
from mqcore.client.admin.times import parse_time
from mqcore.client.errors import RemotingConnectError, SendFailedError
from tests.integration.client_helpers import make_topic, read_queue, running_broker, send_numbers
from tests.integration.told_brokers import told_cluster
from tests.rigs import RunningBroker, wire
from tests.rigs.command_line import CommandLine
from tests.waiting import wait_until

DEADLINE_S = 60


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    yield from running_broker(tmp_path_factory.mktemp("command_line"))


@pytest.fixture
def topic(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    return make_topic(broker, request.node.name, queues=2)


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    return "G_" + "".join(c if c.isalnum() else "_" for c in request.node.name)


@pytest.fixture
def mqcore(broker: RunningBroker) -> CommandLine:
    return CommandLine(broker.name_server)


def send_and_consume(broker: RunningBroker, topic: str, group: str, *, consume: bool = True) -> None:
    """Put four messages into each queue, and let *group* consume them."""

    async def work() -> None:
        async with aio.Client(broker.name_server) as mq:
            await mq.admin.create_group(group)
            ends = {queue: await mq.max_offset(queue) for queue in await mq.queues(topic)}
            await send_numbers(mq, topic, range(4), each_queue=True)
            for queue, end in ends.items():
                await read_queue(mq, queue, 4, end)
                if consume:
                    await mq.commit_offset(group, queue, end + 4)

    asyncio.run(work())


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["topic", "route", "Nowhere"], 3, "No route info of this topic: Nowhere"),
        (["consume", "Nowhere", "-e"], 3, "No route info of this topic: Nowhere"),
        (["topic", "create", "T", "--cluster", "Nowhere"], 3, "cluster 'Nowhere' has no broker"),
        (["topic", "create", "not legal"], 2, "illegal characters"),
        (["send", "T", "--body", ""], 1, "body length is zero"),
        (["send", "T"], 1, "there was nothing to send"),
        (["send", "T", "--body", "x", "--property", "x"], 2, "wanted name=value"),
        (["send", "T", "--body", "x", "--property", "TAGS=x"], 2, "is used by system"),
        (["send", "T", "--count", "2"], 2, "--count needs --body or --file"),
        (["consume", "T", "-f", "%z"], 2, "unknown %z in the format"),
        (["consume", "T", "-e", "--group", "G"], 2, "does not go with --group"),
        (["-n", "127.0.0.1:1", "topic", "list"], 1, "connect to ['127.0.0.1:1'] failed"),
        (["-n", "nonsense:x", "topic", "list"], 2, "name server address: got 'nonsense:x'"),
        (["nothing"], 2, "No such command"),
    ],
)
def test_errors_are_one_sentence_and_an_exit_code(
    mqcore: CommandLine, arguments: list[str], code: int, said: str
) -> None:
    exit_code, out, error = mqcore.run(*arguments)
    assert (exit_code, out) == (code, ""), error
    assert said in error
    assert "Traceback" not in error


@pytest.mark.parametrize("arguments", [("topic", "list"), ("send", "T", "--body", "x")])
def test_who_names_a_broker_for_a_name_server_is_told_so(broker: RunningBroker, arguments: tuple[str, ...]) -> None:
    code, out, error = CommandLine(broker.broker_address).run(*arguments)
    assert (code, out) == (1, "")
    assert "not supported: this is a broker, and that is for a name server" in error
    assert "hint: what was given is no name server" in error


def test_what_can_be_done_about_an_error_is_said_behind_it() -> None:
    error = SendFailedError("T", ("a",), 9, 10001, "connect to 127.0.0.1:1 failed")
    assert "may have been stored" in hint_of(error)
    error.__cause__ = RemotingConnectError("connect to 127.0.0.1:1 failed")
    assert "brokerIP1" in hint_of(error)


async def test_a_consumer_that_gets_nothing_says_what_it_waits_for(
    broker: RunningBroker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with aio.Client(broker.name_server) as mq:
        assert await what_is_missing(mq, topic) == ""
        said = ""
        async with watching(mq, "Nope", Printer(lambda message: None, 1)):
            while "mqcore topic create Nope" not in said:
                await asyncio.sleep(0.01)
                said += capsys.readouterr().err
        assert said.startswith("waiting: no broker has the topic Nope")
    async with told_cluster("far") as cluster:
        await cluster.brokers[0].server.stop()
        async with aio.Client(cluster.address) as mq:
            assert "a broker's address is the one that it registered (brokerIP1)" in await what_is_missing(mq, "Far")


def test_a_cluster_that_is_well_is_found_so(mqcore: CommandLine, broker: RunningBroker, tmp_path: Path) -> None:
    found = {(row["check"], row["subject"]): row for row in mqcore.json("doctor", "--all", "--store", str(tmp_path))}
    assert found[("name server", broker.name_server)]["found"] == "knows 1 broker names"
    assert found[("broker", "broker-a 0")]["found"] == f"answers at {broker.broker_address}"
    assert found[("disk speed", str(tmp_path))]["found"].startswith("a sync takes ")
    assert list(tmp_path.iterdir()) == []
    assert all(row["mend"] for row in found.values() if row["state"] != "ok")


def test_a_name_server_that_is_not_there_is_an_error(broker: RunningBroker) -> None:
    code, out, _ = CommandLine(f"{broker.name_server};127.0.0.1:1").run("doctor", "--output", "json")
    assert code == 1
    assert [row["subject"] for row in json.loads(out) if row["state"] == "error"] == ["127.0.0.1:1"]


def test_a_topic_lives_and_dies_by_commands(mqcore: CommandLine, broker: RunningBroker, topic: str) -> None:
    name = topic + "_own"
    at = broker.broker_address
    created = {"topic": name, "brokers": {at: "created"}}
    assert mqcore.json("topic", "create", name, "--queues", "2") == created
    assert mqcore.json("topic", "update", name, "--write-queues", "1", "--perm", "r")["brokers"] == {at: "updated"}
    assert mqcore.rows("topic", "route", name)[0][2:5] == ["2", "1", "R--"]
    assert {row["maxOffset"] for row in mqcore.json("topic", "stats", name)} == {0}
    assert name in mqcore.json("topic", "list", "--cluster", "DefaultCluster")
    code, out, err = mqcore.run("topic", "delete", name)
    assert (code, out) == (2, "")
    assert f"this would delete the topic {name} with all its messages; add --yes to do it" in err
    assert mqcore.json("topic", "delete", name, "--yes")["brokers"][at] == "deleted"
    assert mqcore.run("topic", "route", name)[0] == 3
    assert mqcore.run("topic", "delete", name, "--yes")[0] == 3


def test_statistics_of_a_topic(mqcore: CommandLine, broker: RunningBroker, topic: str, group: str) -> None:
    send_and_consume(broker, topic, group)
    rows = mqcore.json("topic", "stats", topic)
    assert [(row["broker"], row["queueId"], row["minOffset"], row["maxOffset"], row["messages"]) for row in rows] == [
        ("broker-a", 0, 0, 4, 4),
        ("broker-a", 1, 0, 4, 4),
    ]
    assert rows[0]["lastUpdate"].endswith("Z")
    assert mqcore.json("topic", "groups", topic) == [group]


def test_a_group_lives_and_dies_by_commands(mqcore: CommandLine, broker: RunningBroker, group: str) -> None:
    at = broker.broker_address
    assert mqcore.json("group", "create", group, "--retry-max", "5") == {"group": group, "brokers": {at: "created"}}
    assert mqcore.json("group", "update", group, "--disable")["brokers"] == {at: "updated"}
    assert mqcore.json("group", "show", group) == [
        {"broker": at, "consumeEnable": False, "broadcastEnable": True, "retryMax": 5, "retryQueues": 1}
    ]
    assert mqcore.rows("group", "show", group) == [[at, "no", "yes", "5", "1"]]
    assert group in mqcore.json("group", "list")
    assert "TOOLS_CONSUMER" not in mqcore.json("group", "list")
    assert "TOOLS_CONSUMER" in mqcore.json("group", "list", "--all")
    assert mqcore.run("group", "delete", group)[0] == 2
    assert mqcore.json("group", "delete", group, "--yes")["brokers"] == {at: "deleted"}
    assert mqcore.run("group", "show", group)[0] == 3
    assert mqcore.run("group", "update", group)[0] == 2


def test_the_members_of_a_group_are_shown(mqcore: CommandLine, broker: RunningBroker, topic: str, group: str) -> None:
    code, out, err = mqcore.run("group", "members", group)
    assert (code, out) == (3, "")
    assert "is not online" in err
    with Client(broker.name_server) as mq, mq.pull_consumer(group, {topic: "a"}):
        assert mqcore.json("group", "members", group)[0]["clientId"] == mq.client_id
        assert mqcore.json("group", "subscription", group)[0] == {
            "topic": topic, "expression": "a", "type": "TAG", "conflict": None,
        }  # fmt: skip
        running = mqcore.json("group", "running", group, mq.client_id, "--stacks")
        assert [row["topic"] for row in running["queues"]] == [topic] * 2
        assert running["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
        assert "mqcore" in running["stacks"]
        assert "PROP_CONSUME_TYPE" in mqcore.output("group", "running", group, mq.client_id)


def test_offsets_are_listed_reset_skipped_and_cloned(
    mqcore: CommandLine, broker: RunningBroker, topic: str, group: str
) -> None:
    send_and_consume(broker, topic, group)
    where = ["offset", "reset", group, topic]
    assert mqcore.rows(*where, "--to", "earliest", "--dry-run") == [
        [topic, "broker-a", "0", "4", "0"],
        [topic, "broker-a", "1", "4", "0"],
    ]
    assert mqcore.run(*where, "--to", "earliest")[0] == 2
    assert [row["after"] for row in mqcore.json(*where, "--to", "1", "--yes")] == [1, 1]
    mqcore.output(*where, "--to", "90m", "--queue", "broker-a/1", "--yes")
    listed = mqcore.json("offset", "list", group, topic)
    assert [(row["queueId"], row["consumerOffset"], row["lag"]) for row in listed] == [(0, 1, 3), (1, 0, 4)]
    mqcore.output("offset", "clone", group, group + "_copy", "--yes")
    mqcore.output("offset", "skip", group, topic, "--yes")
    assert [row["lag"] for row in mqcore.json("offset", "list", group)] == [0, 0]
    assert [row["lag"] for row in mqcore.json("offset", "list", group + "_copy")] == [3, 4]
    assert mqcore.run(*where, "--to", "99", "--yes")[0] == 1
    assert mqcore.run(*where, "--to", "99", "--queue", "broker-a/7", "--yes")[0] == 3
    assert mqcore.run("offset", "list", group + "_nobody")[0] == 3
    for wrong in (["--to", "sometime"], ["--to", "1", "--queue", "7"], []):
        assert mqcore.run(*where, *wrong, "--yes")[0] == 2


def test_lag_is_shown_for_a_group_and_for_all(
    mqcore: CommandLine, broker: RunningBroker, topic: str, group: str
) -> None:
    send_and_consume(broker, topic, group)
    send_and_consume(broker, topic, group, consume=False)
    value = mqcore.json("lag", group)
    assert (value["group"], value["lag"], value["topics"]) == (group, 8, {topic: 8})
    assert value["delaySeconds"] > 0
    assert [row["lag"] for row in value["queues"]] == [4, 4]
    code, _, err = mqcore.run("lag", group, topic)
    assert (code, err.split(",")[0]) == (0, "lag 8")
    (mine,) = [row for row in mqcore.json("lag") if row["group"] == group]
    assert (mine["lag"], mine["members"]) == (8, 0)


def test_watching_lag_goes_on_until_it_is_interrupted(broker: RunningBroker, topic: str, group: str) -> None:
    send_and_consume(broker, topic, group)
    command = [sys.executable, "-m", "mqcore.admin.main", "lag", group, "--watch", "--interval", "0.1"]
    environment = {**os.environ, "NAMESRV_ADDR": broker.name_server}
    with subprocess.Popen(
        [*command, "--output", "json"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert [json.loads(process.stdout.readline())["lag"] for _ in range(3)] == [0, 0, 0]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, err
    assert b"Traceback" not in err


def test_messages_are_sent_got_and_queried(mqcore: CommandLine, broker: RunningBroker, topic: str) -> None:
    receipt = json.loads(
        mqcore.output("message", "send", topic, "--body", "hello", "--key", "k1", "--tag", "t", "--json")
    )
    wait_until(
        lambda: wire.max_offset(broker.broker_address, topic, receipt["queueId"]) == 1, describe="the message is there"
    )
    place = f"{receipt['broker']}/{receipt['queueId']}/{receipt['offset']}"
    for found in (
        mqcore.json("message", "get", topic, receipt["msgId"]),
        mqcore.json("message", "get", topic, receipt["offsetMsgId"]),
        mqcore.json("message", "get", topic, "--at", place),
    ):
        assert (found["body"], found["keys"], found["tag"]) == ("hello", ["k1"], "t")
    wait_until(lambda: mqcore.json("message", "query", topic, "k1"), describe="the index has the key")
    (row,) = mqcore.rows("message", "query", topic, "k1", "--begin", "1h")
    assert row[3] == receipt["msgId"]
    assert row[-1] == "hello"
    assert mqcore.json("message", "query", topic, "k1", "--end", "2020-01-01") == []
    assert mqcore.run("message", "get", topic, "nonsense")[0] == 3
    assert mqcore.run("message", "get", topic, "--at", "broker-a/0/99")[0] == 3
    assert mqcore.run("message", "get", topic)[0] == 2
    assert mqcore.run("message", "get", topic, "--at", "0/99")[0] == 2
    assert mqcore.run("message", "query", topic, "k1", "--begin", "whenever")[0] == 2


def test_a_message_is_consumed_directly(mqcore: CommandLine, broker: RunningBroker, topic: str, group: str) -> None:
    with Client(broker.name_server) as mq:
        with mq.producer("P_" + group) as producer:
            receipt = producer.send(aio.Message(topic, b"x"))
        wait_until(lambda: mq.max_offset(receipt.queue) == 1, describe="the message is there")
        with mq.consumer(group, topic, handler=lambda message: None):
            place = [group, mq.client_id, receipt.offset_msg_id, "--topic", topic]
            assert mqcore.json("message", "consume-directly", *place)["result"] == "CR_SUCCESS"


def test_dead_letters_are_listed_shown_exported_and_sent_again(
    mqcore: CommandLine, broker: RunningBroker, topic: str, group: str, tmp_path: Path
) -> None:
    def refuse(message: aio.ReceivedMessage) -> None:
        raise Reject

    for command in ("list", "export"):
        code, out, error = mqcore.run("dlq", command, group)
        assert (code, out) == (3, ""), error
        assert f"no broker has the group {group}" in error
    mqcore.output("group", "create", group)
    assert mqcore.json("dlq", "list", group) == []
    with Client(broker.name_server) as mq:
        with mq.producer("P_" + group) as producer:
            for number in range(2):
                producer.send(aio.Message(topic, b"%d" % number))
        with mq.consumer(group, topic, handler=refuse, from_where="earliest"):
            wait_until(lambda: len(mqcore.json("dlq", "list", group)) == 2, describe="two dead letters")
    listed = mqcore.json("dlq", "list", group)
    assert {row["originTopic"] for row in listed} == {topic}
    assert len(mqcore.rows("dlq", "list", group)) == 2
    code, out, err = mqcore.run("dlq", "list", group, "-n", "1")
    assert (code, len(out.splitlines())) == (0, 2)
    assert "there are more than these 1" in err
    msg_id = listed[0]["msgId"]
    assert mqcore.json("dlq", "show", group, msg_id)["body"] == listed[0]["body"]
    mqcore.output("dlq", "export", group, str(tmp_path / "dead.jsonl"))
    exported = [json.loads(line) for line in (tmp_path / "dead.jsonl").read_text().splitlines()]
    assert exported == listed
    assert mqcore.run("dlq", "resend", group, msg_id)[0] == 2
    assert mqcore.run("dlq", "resend", group, "--yes")[0] == 2
    assert mqcore.json("dlq", "resend", group, msg_id, "--yes") == {"group": group, "messages": {msg_id: "sent"}}
    assert len(mqcore.rows("dlq", "resend", group, "--all", "--yes")) == 2
    assert mqcore.run("dlq", "resend", group, "nonsense", "--yes")[0] == 3


def test_brokers_and_clusters_are_shown_and_set_up(mqcore: CommandLine, broker: RunningBroker, topic: str) -> None:
    (row,) = mqcore.json("cluster", "list")
    assert (row["cluster"], row["broker"], row["brokerId"], row["address"]) == (
        *("DefaultCluster", "broker-a", 0),
        broker.broker_address,
    )
    with Client(broker.name_server) as mq, mq.producer("P") as producer:
        producer.send(Message(topic, b"x"))
    # A broker takes its rates every second.
    wait_until(lambda: (mqcore.json("cluster", "list")[0]["putTps"] or 0) > 0, describe="messages per second")
    assert row["version"]
    assert "bootTimestamp" in mqcore.json("broker", "status", "broker-a")
    before = mqcore.json("broker", "config", "broker-a", "fileReservedTime")["fileReservedTime"]
    change = ["broker", "config", "broker-a", "--set", "fileReservedTime=70"]
    assert mqcore.run(*change)[0] == 2
    assert mqcore.json(*change, "--yes") == {"fileReservedTime": "70"}
    mqcore.output("broker", "config", "broker-a", "--set", f"fileReservedTime={before}", "--yes")
    assert mqcore.run("broker", "config", "broker-a", "noSuchSetting")[0] == 3
    assert mqcore.run("broker", "config", "broker-a", "--set", "noSuchSetting=1", "--yes")[0] == 3
    assert mqcore.run("broker", "status", "broker-z")[0] == 3
    assert mqcore.run("broker", "clean", "broker-a")[0] == 2
    mqcore.output("broker", "clean", "broker-a", "--yes")
    assert mqcore.run("broker", "wipe-write-perm", "broker-a")[0] == 2
    mqcore.output("broker", "wipe-write-perm", "broker-a", "--yes")
    mqcore.output("broker", "add-write-perm", "broker-a")


def test_name_servers_are_shown_and_keep_values(mqcore: CommandLine, broker: RunningBroker) -> None:
    assert "kvConfigPath" in mqcore.json("namesrv", "config")[broker.name_server]
    assert mqcore.run("namesrv", "kv", "get", "CLI", "k")[0] == 3
    mqcore.output("namesrv", "kv", "put", "CLI", "k", "a value")
    assert mqcore.output("namesrv", "kv", "get", "CLI", "k") == "a value\n"
    assert mqcore.json("namesrv", "kv", "list", "CLI") == {"k": "a value"}
    assert mqcore.run("namesrv", "kv", "delete", "CLI", "k")[0] == 2
    mqcore.output("namesrv", "kv", "delete", "CLI", "k", "--yes")
    assert mqcore.run("namesrv", "kv", "get", "CLI", "k")[0] == 3


def test_producers_are_listed(mqcore: CommandLine, broker: RunningBroker, topic: str, group: str) -> None:
    assert mqcore.run("producer", "list", group)[0] == 3
    with Client(broker.name_server, heartbeat_interval_s=0.2) as mq, mq.producer(group) as producer:
        producer.send(aio.Message(topic, b"x"))
        wait_until(lambda: mqcore.json("producer", "list").get(group), describe="the heart-beat")
        assert mqcore.json("producer", "list", group)[0]["clientId"] == mq.client_id


@pytest.mark.parametrize(
    "arguments",
    [["topic", "create", "not legal"], ["group", "create", "not legal"], ["lag", "G", "--namesrv"]],
)
def test_what_is_wrong_is_said_in_a_sentence(mqcore: CommandLine, arguments: list[str]) -> None:
    code, out, err = mqcore.run(*arguments)
    assert code in (1, 2)
    assert out == ""
    assert "Traceback" not in err


def test_yaml_says_the_same_as_json(mqcore: CommandLine, broker: RunningBroker, topic: str) -> None:
    text = mqcore.output("topic", "route", topic, "--output", "yaml")
    assert text == (
        f"topic: {topic}\n"
        "queues:\n"
        "  - broker: broker-a\n"
        "    cluster: DefaultCluster\n"
        "    addresses:\n"
        f'      "0": "{broker.broker_address}"\n'
        "    readQueues: 2\n"
        "    writeQueues: 2\n"
        "    perm: RW-\n"
        "orderTopicConf: null\n"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "{}\n"),
        ([], "[]\n"),
        ([1, [2, 3], {"a": []}], "- 1\n- - 2\n  - 3\n- a: []\n"),
        ({"a": {"b": [{"c": 1, "d": None}]}}, "a:\n  b:\n    - c: 1\n      d: null\n"),
        (["yes", "1", "a: b", "", "- x"], '- "yes"\n- "1"\n- "a: b"\n- ""\n- "- x"\n'),
        (["#", "x\ny", "häh"], '- "#"\n- "x\\ny"\n- "häh"\n'),
        ({"true": True, "1.5": 1.5}, '"true": true\n"1.5": 1.5\n'),
    ],
)  # fmt: skip
def test_yaml_text_is_read_back_as_the_same(value: Any, text: str) -> None:
    assert yaml_text(value) == text


def test_times_are_read() -> None:
    at = parse_time("2026-01-31T12:00")
    assert at is not None
    assert at.isoformat() == "2026-01-31T12:00:00+00:00"
    assert parse_time("2026-01-31T12:00+02:00") is not None
    ago = parse_time("2d")
    later = parse_time("-1h")
    assert ago is not None
    assert later is not None
    assert ago < later
    assert parse_time("soon") is None


def test_what_each_member_would_get_is_told_before_there_is_one(mqcore: CommandLine, topic: str) -> None:
    rows = mqcore.json("topic", "allocate", topic, "b", "a")
    assert [(row["client"], row["queueId"]) for row in rows] == [("a", 0), ("b", 1)]
    assert len(mqcore.json("topic", "allocate", topic, "a", "--strategy", "CONSISTENT_HASH")) == 2
    assert mqcore.run("topic", "allocate", "Nowhere", "a")[0] == 3


def test_brokers_clean_up_and_name_servers_are_set_up(mqcore: CommandLine, broker: RunningBroker) -> None:
    assert mqcore.run("topic", "clean-unused")[0] == 2
    assert mqcore.json("topic", "clean-unused", "--yes")["brokers"] == {broker.broker_address: "cleaned"}
    assert mqcore.run("namesrv", "config", "--set", "x=y")[0] == 2
    code, out, err = mqcore.run("namesrv", "config", "--set", "orderMessageEnable=true", "--yes", "-o", "json")
    assert code == 0, err
    assert list(json.loads(out)["brokers"].values()) == ["updated"]


def test_every_reading_command_prints_tsv_of_equal_lines(
    mqcore: CommandLine, broker: RunningBroker, topic: str, group: str
) -> None:
    send_and_consume(broker, topic, group)
    for arguments in (
        ["topic", "list"], ["topic", "route", topic], ["topic", "stats", topic], ["group", "list"],
        ["group", "show", group], ["offset", "list", group], ["lag", group], ["lag"], ["cluster", "list"],
        ["broker", "status", "broker-a"], ["broker", "config", "broker-a"], ["namesrv", "config"],
        ["doctor", "--all"], ["explain", group, "--all"], ["consume", topic, "-e"],
    ):  # fmt: skip
        _, out, err = mqcore.run(*arguments, "-o", "tsv")
        heading, *lines = out.splitlines()
        assert lines, (arguments, err)
        assert {line.count("\t") for line in lines} == {heading.count("\t")}, arguments
