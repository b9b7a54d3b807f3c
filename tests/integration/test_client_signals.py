"""A program that is ``run()`` and nothing else, and is asked to end."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.client import Client, Message
from tests.integration.client_helpers import DEADLINE_S, RunningBroker, make_topic
from tests.rigs.process import Child
from tests.waiting import wait_until

PROGRAMS = {
    "plain": """
import sys
from mqcore.client import Client
app = Client(sys.argv[1])

@app.on(sys.argv[2], group=sys.argv[3], from_where="earliest")
def handle(message):
    print('{"event": "begun"}', flush=True)
    sys.stdin.readline()
    print('{"event": "done"}', flush=True)

app.run()
print('{"event": "over"}', flush=True)
""",
    "aio": """
import asyncio, sys
from mqcore import aio
app = aio.Client(sys.argv[1])

@app.on(sys.argv[2], group=sys.argv[3], from_where="earliest")
async def handle(message):
    print('{"event": "begun"}', flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print('{"event": "done"}', flush=True)

asyncio.run(app.run())
print('{"event": "over"}', flush=True)
""",
}


@pytest.fixture
def topic(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    return make_topic(broker, request.node.name, queues=1)


@pytest.fixture
def group(topic: str) -> str:
    return "G_" + topic


@pytest.fixture
def mq(broker: RunningBroker) -> Iterator[Client]:
    with Client(broker.name_server) as mq:
        yield mq


def program(face: str, broker: RunningBroker, topic: str, group: str, directory: Path) -> Child:
    command = [sys.executable, "-c", PROGRAMS[face], broker.name_server, topic, group]
    return Child(command, log=directory / "program.log", talks=True)


def in_hand(child: Child, mq: Client, topic: str) -> None:
    """Send a message, and wait until the program's handler has it."""
    with mq.producer("P") as producer:
        producer.send(Message(topic, b"x"))
    child.read_event("begun", DEADLINE_S)


def committed(mq: Client, topic: str, group: str) -> int:
    return sum(mq.committed_offset(group, queue) or 0 for queue in mq.queues(topic))


def has_ended_by(child: Child, number: signal.Signals) -> bool:
    """Signal once more; two that come at once would count as one."""
    if child.is_alive:
        os.kill(child.pid, number)
    return not child.is_alive


@pytest.mark.parametrize(
    ("face", "number"), [("plain", signal.SIGTERM), ("aio", signal.SIGTERM), ("plain", signal.SIGINT)]
)
def test_a_program_that_is_asked_to_end_finishes_commits_and_leaves(
    broker: RunningBroker, mq: Client, topic: str, group: str, tmp_path: Path, face: str, number: signal.Signals
) -> None:
    with program(face, broker, topic, group, tmp_path) as child:
        in_hand(child, mq, topic)
        assert len(mq.admin.group_members(group)) == 1
        os.kill(child.pid, number)
        child.tell("finish")
        child.read_event("done", DEADLINE_S)
        child.read_event("over", DEADLINE_S)
        assert child.wait() == 0
    assert committed(mq, topic, group) == 1
    assert mq.admin.group_members(group) == []


def test_a_second_signal_ends_a_program_that_takes_too_long(
    broker: RunningBroker, mq: Client, topic: str, group: str, tmp_path: Path
) -> None:
    with program("plain", broker, topic, group, tmp_path) as child:
        in_hand(child, mq, topic)
        wait_until(lambda: has_ended_by(child, signal.SIGTERM), DEADLINE_S, "the end")
    assert committed(mq, topic, group) == 0
