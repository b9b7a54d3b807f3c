"""Administrative calls, and the command line over them: what it prints where, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from mqcore import aio
from mqcore.admin import Admin
from mqcore.client.errors import NoRouteError, NotFoundError
from mqcore.codes import PermName
from mqcore.errors import ArgumentError, MQError
from tests.integration.client_helpers import make_topic, read_queue, running_broker
from tests.rigs import RunningBroker, command_line, wire
from tests.waiting import wait_until

DEADLINE_S = 60


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    yield from running_broker(tmp_path_factory.mktemp("admin"))


@pytest.fixture
async def mq(broker: RunningBroker) -> AsyncIterator[aio.Client]:
    async with aio.Client(broker.name_server) as client:
        yield client


@pytest.fixture
def topic(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    return make_topic(broker, request.node.name, queues=2)


# Typed calls.


async def test_a_topic_is_created_listed_and_routed(mq: aio.Client, broker: RunningBroker) -> None:
    admin = Admin(mq)
    outcomes = await admin.create_topic("Created", read_queues=6, write_queues=3, perm=PermName.READ | PermName.WRITE)
    assert outcomes == {broker.broker_address: None}
    assert "Created" in await admin.list_topics()
    (data,) = (await admin.topic_route("Created")).queue_datas
    assert (data.read_queue_nums, data.write_queue_nums, data.perm) == (6, 3, 6)
    assert len(await mq.queues("Created")) == 6


async def test_topics_that_cannot_be_created_are_refused(mq: aio.Client) -> None:
    admin = Admin(mq)
    with pytest.raises(ArgumentError, match="illegal characters"):
        await admin.create_topic("not legal")
    with pytest.raises(ArgumentError, match="conflict with system topic"):
        await admin.create_topic("TBW102")
    with pytest.raises(NotFoundError, match="cluster 'Nowhere' has no broker"):
        await admin.create_topic("T", cluster="Nowhere")
    (outcome,) = (await admin.create_topic("T", broker_address="127.0.0.1:1")).values()
    assert isinstance(outcome, MQError)
    with pytest.raises(NoRouteError):
        await admin.topic_route("Nowhere")


async def test_the_cluster_is_described(mq: aio.Client, broker: RunningBroker) -> None:
    info = await Admin(mq).cluster_info()
    assert info.cluster_addr_table == {"DefaultCluster": ["broker-a"]}
    assert info.broker_addr_table["broker-a"].broker_addrs == {0: broker.broker_address}


async def test_offsets_tell_what_each_queue_holds(mq: aio.Client, topic: str) -> None:
    async with mq.producer("P") as producer:
        queues = await producer.queues(topic)
        for _ in range(3):
            await producer.send(aio.Message(topic, b"x"), queue=queues[1])
    await read_queue(mq, queues[1], 3)
    found = await Admin(mq).offsets(topic)
    assert {queue.queue_id: (row.min_offset, row.max_offset) for queue, row in found.items()} == {0: (0, 0), 1: (0, 3)}
    assert found[queues[1]].last_update_timestamp > 0


async def test_a_message_is_found_by_either_id_and_by_key(mq: aio.Client, topic: str) -> None:
    admin = Admin(mq)
    async with mq.producer("P") as producer:
        first = await producer.send(aio.Message(topic, b"first", keys=["k1", "k2"]))
        second = await producer.send(aio.Message(topic, b"second", keys=["k2"]))

    async def bodies(key: str) -> list[bytes]:
        return [ext.body for ext in await admin.query_by_key(topic, key)]

    async with asyncio.timeout(60):
        while len(await bodies("k2")) < 2:  # the index follows a moment later
            await asyncio.sleep(0.05)
    assert await bodies("k2") == [b"first", b"second"]
    assert await bodies("k1") == [b"first"]
    assert await bodies("k") == []
    assert (await admin.view_message(topic, first.offset_msg_id)).body == b"first"
    assert (await admin.view_message(topic, second.msg_id)).body == b"second"
    assert await admin.query_by_key(topic, "k2", end=time.time() - 3600) == []


async def test_an_id_that_nobody_has_is_not_found(mq: aio.Client, topic: str) -> None:
    for msg_id in ("nonsense", "7F00000100002A9F00000000FFFFFFF0", "C00002021AD183A605B8693F689FA552"):
        with pytest.raises(NotFoundError, match=f"no message with id {msg_id}"):
            await Admin(mq).view_message(topic, msg_id)


# The command line.


class CommandLine(command_line.CommandLine):
    """Runs ``mqcore`` as a user does, too: called, in a process of its own, with pipes."""

    def __init__(self, name_server: str) -> None:
        super().__init__(name_server)
        self.environment = {**os.environ, "NAMESRV_ADDR": name_server}

    def __call__(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "mqcore.admin.main", *arguments]
        return subprocess.run(command, input=stdin, env=self.environment, capture_output=True, timeout=DEADLINE_S)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "mqcore.admin.main", *arguments]
        return subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.fixture
def mqcore(broker: RunningBroker) -> CommandLine:
    return CommandLine(broker.name_server)


def test_lines_of_standard_input_are_sent_and_read_back_in_order(mqcore: CommandLine, broker: RunningBroker) -> None:
    mqcore.output("topic", "create", "Lines", "--queues", "1")
    sent = mqcore("send", "Lines", "--tag", "t", "--key", "a", "--key", "b", "--property", "x=y=z", stdin=b"1\n2\n\n3")
    assert sent.returncode == 0
    assert [line.split()[:2] for line in sent.stdout.decode().splitlines()] == [
        ["SEND_OK", f"Lines/broker-a/0/{offset}"] for offset in range(3)
    ]
    assert sent.stderr == b"sent 3 messages\n"
    wait_until(lambda: wire.max_offset(broker.broker_address, "Lines", 0) == 3, describe="three messages")
    assert mqcore.output("consume", "Lines", "-e") == "1\n2\n3\n"
    assert mqcore.output("consume", "Lines", "-n", "2") == "1\n2\n"
    text = mqcore.output("consume", "Lines", "-n", "1", "-f", r"%t %b %q %o [%g] [%k] %v%%\t.\n")
    assert text == "Lines broker-a 0 0 [t] [a b] 1%\t.\n"


def test_json_output_has_stable_members(mqcore: CommandLine, topic: str, broker: RunningBroker) -> None:
    receipt = json.loads(mqcore.output("send", topic, "--body", "häh", "--json"))
    assert set(receipt) == {"status", "msgId", "offsetMsgId", "topic", "broker", "queueId", "offset"}
    queue_id = receipt["queueId"]
    wait_until(lambda: wire.max_offset(broker.broker_address, topic, queue_id) == 1, describe="the message is there")
    message = json.loads(mqcore.output("consume", topic, "--json", "-n", "1"))
    assert (message["body"], message["msgId"], message["keys"], message["tag"]) == ("häh", receipt["msgId"], [], None)
    assert set(message) == {
        *("topic", "broker", "queueId", "offset", "msgId", "offsetMsgId", "tag", "keys", "properties"),
        *("bornTimestamp", "storeTimestamp", "reconsumeTimes", "body"),
    }


def test_a_file_is_one_message_and_may_be_binary(mqcore: CommandLine, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "body"
    file.write_bytes(b"\xff\x00\n\n")
    mqcore.output("send", topic, "--file", str(file), "--count", "2")
    message = json.loads(mqcore.output("consume", topic, "--json", "-n", "2").splitlines()[0])
    assert message["bodyBase64"] == "/wAKCg=="
    assert mqcore("consume", topic, "-f", "%v", "-n", "2").stdout == b"\xff\x00\n\n" * 2


def test_a_group_goes_on_where_it_was(mqcore: CommandLine) -> None:
    mqcore.output("topic", "create", "Grouped", "--queues", "1")
    assert mqcore("send", "Grouped", stdin=b"1\n2\n3\n4\n5\n").returncode == 0
    assert mqcore.output("consume", "Grouped", "--group", "CG", "-n", "2") == "1\n2\n"
    assert mqcore.output("consume", "Grouped", "--group", "CG", "-n", "3") == "3\n4\n5\n"


@pytest.mark.parametrize("group", [[], ["--group", "IG"]])
def test_an_interrupt_ends_consuming_in_order(mqcore: CommandLine, topic: str, group: list[str]) -> None:
    mqcore.output("send", topic, "--body", "x", "--count", "3")
    with mqcore.start("consume", topic, *group) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(3)] == [b"x\n"] * 3
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE_S)
    assert (out, err, process.returncode) == (b"", b"got 3 messages\n", 0)


def test_topics_are_listed_and_routed(mqcore: CommandLine, topic: str, broker: RunningBroker) -> None:
    names = mqcore.output("topic", "list").splitlines()
    assert names[0] == "TOPIC"
    assert topic in names
    assert not {"TBW102", "DefaultCluster", "broker-a", "SELF_TEST_TOPIC"} & set(names)
    assert topic in json.loads(mqcore.output("topic", "list", "--output", "json"))
    assert "TBW102" in json.loads(mqcore.output("topic", "list", "--all", "--output", "json"))
    header, row = mqcore.output("topic", "route", topic).splitlines()
    assert header.split() == ["BROKER", "CLUSTER", "READ", "WRITE", "PERM", "ADDRESSES"]
    assert row.split() == ["broker-a", "DefaultCluster", "2", "2", "RW-", f"0={broker.broker_address}"]
    route = json.loads(mqcore.output("topic", "route", topic, "--output", "json"))
    assert route["queues"][0]["addresses"] == {"0": broker.broker_address}


def test_a_stop_in_the_middle_of_sending_is_partial(mqcore: CommandLine, topic: str) -> None:
    done = mqcore("send", topic, stdin=b"good\n" + b"x" * (4 * 1024 * 1024 + 1) + b"\nlater\n")
    assert done.returncode == 4
    assert done.stdout.decode().count("SEND_OK") == 1
    assert b"1 message acknowledged, 1 failed: line 2 (the message body size over max value" in done.stderr
    assert b"stopped before line 3" in done.stderr


def test_the_command_line_says_which_package_is_missing(mqcore: CommandLine) -> None:
    program = (
        "import sys; sys.modules['rich'] = None; sys.argv = ['mqcore', 'topic', 'list']; "
        "from mqcore.admin.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=mqcore.environment, capture_output=True, timeout=DEADLINE_S
    )
    assert done.returncode == 1
    assert b"which comes with mqcore[cli]" in done.stderr
    assert b" -m pip install click rich" in done.stderr
    assert b"Traceback" not in done.stderr
