"""``mqcore top`` in a terminal, and without one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from mqcore.client import Client, Message
from tests.integration.client_helpers import make_topic
from tests.rigs import RunningBroker
from tests.rigs.command_line import CommandLine
from tests.rigs.terminal import Terminal
from tests.waiting import wait_until

MQCORE = [sys.executable, "-m", "mqcore.admin.main"]
BEHIND = 7
DEADLINE_S = 60
LEFT = b"\x1b[?25h\x1b[?1049l"
"""The cursor and the screen that were there before."""


@pytest.fixture
def group(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    """A group that is behind in a topic called as itself."""
    name = "top_" + "".join(letter if letter.isalnum() else "_" for letter in request.node.name)[:80]
    make_topic(broker, name, queues=1)
    with Client(broker.name_server) as mq:
        mq.admin.create_group(name)
        with mq.producer("sender_" + name) as producer:
            for number in range(BEHIND + 1):
                producer.send(Message(name, b"%d" % number))
        (queue,) = mq.queues(name)
        mq.admin.set_offset(name, queue, 1)
    return name


@pytest.fixture
def terminal(broker: RunningBroker) -> Iterator[Terminal]:
    with Terminal([*MQCORE, "-n", broker.name_server, "top", "--every", "0.3"]) as found:
        yield found


def line_with(lines: list[str], word: str) -> list[str]:
    (found,) = [line.split() for line in lines if word in line]
    return found


def test_tables_are_shown_by_their_keys(terminal: Terminal, group: str) -> None:
    lines = terminal.shows("1 brokers 1", "SEND99", "broker-a")
    assert lines[0].startswith("mqcore top")
    assert len(lines) == 24
    assert "q quit" in lines[-1]
    terminal.press("2")
    lines = terminal.shows("send-0", "pull-0", "reput-0", "flush-0", "CPU", "WAIT", "MEM")
    assert line_with(lines, "send-0")[1] == "broker-a"
    terminal.press(f"3/{group[-20:]}\r")
    assert line_with(terminal.shows("STORED", group[:30]), group[:30])[-1] == str(BEHIND + 1)
    terminal.press("4")
    row = line_with(terminal.shows("DELAY", group[:30]), group[:30])
    assert row[-2] == str(BEHIND)
    terminal.press("\x1b5")
    assert "master" in line_with(terminal.shows("ROLE", "BEHIND"), "broker-a")
    terminal.press("q")
    assert terminal.ends() == 0
    assert terminal.modes() == terminal.modes_before
    wait_until(lambda: terminal.written.endswith(LEFT), describe="the screen is given back")


def test_rates_are_of_now(terminal: Terminal, broker: RunningBroker, group: str) -> None:
    terminal.shows("SEND99")
    terminal.press(f"3/{group[-20:]}\r")
    terminal.shows("STORED", group[:30])

    def is_sent_to() -> bool:
        producer.send(Message(group, b"more"))
        rows = [line.split() for line in terminal.lines() if line.startswith(group[:30])]
        return any(row[1] not in ("0", "-") for row in rows)

    with Client(broker.name_server) as mq, mq.producer("sender_" + group) as producer:
        wait_until(is_sent_to, DEADLINE_S, "the topic has a rate")


def test_a_pause_holds_the_screen_and_another_size_is_followed(terminal: Terminal) -> None:
    terminal.shows("SEND99")
    terminal.press(" ")
    terminal.shows("PAUSED")
    terminal.resize(140, 40)
    lines = terminal.shows("VERSION", "ADDRESS")
    assert "q quit" in lines[39]
    terminal.resize(60, 12)
    lines = terminal.shows("1-5 table")
    wait_until(lambda: terminal.lines()[11].startswith("1-5 table"), DEADLINE_S, "the help stands in the last line")
    terminal.press("p")
    terminal.shows("every 0.3 s")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 128 + 15), (signal.SIGHUP, 128 + 1)], ids=str
)
def test_a_signal_ends_it_and_the_terminal_is_as_before(terminal: Terminal, number: int, code: int) -> None:
    terminal.shows("SEND99")
    assert terminal.modes() != terminal.modes_before
    terminal.process.send_signal(number)
    assert terminal.ends() == code
    assert terminal.modes() == terminal.modes_before
    wait_until(lambda: terminal.written.endswith(LEFT), describe="the screen is given back")


FAULTY = """
import sys
from mqcore.admin import main, top_data
looks = []
async def look(self, honest=top_data.Looker.look):
    looks.append(1)
    if len(looks) > 2:
        raise RuntimeError("a fault of ours")
    return await honest(self)
top_data.Looker.look = look
main.main()
"""


def test_a_fault_is_told_behind_the_screen(broker: RunningBroker) -> None:
    command = [sys.executable, "-c", FAULTY, "-n", broker.name_server, "top", "--every", "0.3"]
    with Terminal(command, lines=60) as terminal:
        assert terminal.ends() == 1
        assert terminal.modes() == terminal.modes_before
        behind = terminal.written.partition(LEFT)[2]
        assert b"a fault of ours" in behind or terminal.shows("a fault of ours")


def test_ctrl_z_gives_the_terminal_back_until_it_goes_on(terminal: Terminal) -> None:
    terminal.shows("SEND99")
    terminal.process.send_signal(signal.SIGTSTP)
    os.waitid(os.P_PID, terminal.process.pid, os.WSTOPPED | os.WNOWAIT)
    assert terminal.modes() == terminal.modes_before
    wait_until(lambda: terminal.written.endswith(LEFT), describe="the screen is given back")
    terminal.process.send_signal(signal.SIGCONT)
    # What is typed before that is dropped.
    wait_until(lambda: terminal.modes() != terminal.modes_before, DEADLINE_S, "it has the terminal again")
    wait_until(lambda: not terminal.written.endswith(LEFT), DEADLINE_S, "and draws")
    terminal.press("2")
    terminal.shows("send-0")


def test_a_cluster_that_is_not_there_is_said_before_the_screen_is_taken() -> None:
    with Terminal([*MQCORE, "-n", "127.0.0.1:1", "top"]) as terminal:
        assert terminal.ends() == 1
        terminal.shows("connect to")
        assert b"\x1b[?1049h" not in terminal.written


def test_once_prints_all_tables(broker: RunningBroker, group: str) -> None:
    text = CommandLine(broker.name_server).output("top", "--once", "--every", "0.2")
    for word in ("brokers", "workers", "topics", "groups", "replicas", "send-0", group):
        assert word in text
    found = CommandLine(broker.name_server).json("top", "--once", "--every", "0.2")
    (row,) = [row for row in found["groups"] if row["group"] == group]
    assert (row["lag"], row["outRate"]) == (BEHIND, 0)
    assert row["delayS"] > 0
    (topic,) = [row for row in found["topics"] if row["topic"] == group]
    assert topic == {"topic": group, "inRate": 0, "outRate": 0, "messages": BEHIND + 1}
    assert {row["process"] for row in found["processes"]} >= {"broker", "send-0", "pull-0", "reput-0", "flush-0"}
    assert all(row["cpu"] is not None and row["memory"] > 0 for row in found["processes"])
    assert found["errors"] == []


def test_json_goes_on_line_by_line_until_it_is_ended(broker: RunningBroker) -> None:
    command = [*MQCORE, "-n", broker.name_server, "top", "-o", "json", "--every", "0.2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        times = [json.loads(process.stdout.readline())["time"] for _ in range(3)]
        process.terminate()
    assert times == sorted(set(times))


def test_who_does_not_ask_for_details_is_given_rocketmqs_table(broker: RunningBroker) -> None:
    table = CommandLine(broker.name_server).json("broker", "status", "broker-a")
    assert [key for key in table if key.startswith(("process_", "latency_"))] == []


def test_only_the_broker_or_cluster_that_was_asked_for(broker: RunningBroker) -> None:
    line = CommandLine(broker.name_server)
    assert len(line.json("top", "--once", "--every", "0.2", "--broker", "broker-a")["brokers"]) == 1
    code, _, said = line.run("top", "--once", "--broker", "nobody")
    assert (code, "nobody" in said) == (3, True)
    code, _, said = line.run("top", "--once", "--cluster", "Nowhere")
    assert (code, "Nowhere" in said) == (3, True)
