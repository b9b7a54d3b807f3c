"""What the broker prints at its start can be pasted: it sends a first message and receives it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rigs import MqcoreBroker
from tests.rigs.ports import free_broker_ports, free_port
from tests.rigs.process import Child
from tests.waiting import wait_until

DEADLINE_S = 60.0


def commands(printed: Path) -> list[list[str]]:
    """The words of each whole indented line."""
    lines = printed.read_text().splitlines(keepends=True)
    return [shlex.split(line) for line in lines if line.startswith("  ") and line.endswith("\n")]


def test_the_printed_lines_send_and_receive_a_first_message(tmp_path: Path) -> None:
    with MqcoreBroker(tmp_path / "store") as broker:
        printed = tmp_path / "store.mqcore" / "broker.out"
        # It prints when it has started, which is a moment after it began to serve.
        wait_until(lambda: len(commands(printed)) == 2, DEADLINE_S, "the lines are printed")
        send, consume = commands(printed)
        sent = subprocess.run(send, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        assert sent.returncode == 0, sent.stderr
        received = subprocess.run(consume, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        assert received.returncode == 0, received.stderr
        assert "hello, world" in received.stdout
        broker.stop()


@pytest.mark.slow
def test_commands_that_cannot_work_are_not_printed(tmp_path: Path) -> None:
    """A broker whose name servers are silent serves all the same, and says what is missing in their place."""
    printed, name_server = tmp_path / "broker.out", f"127.0.0.1:{free_port()}"
    settings = {"bindAddress": "127.0.0.1", "listenPort": free_broker_ports().listen, "storePathRootDir": tmp_path}
    arguments = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    small = ["--set", "mappedFileSizeCommitLog=4194304"]
    with Child([sys.executable, "-m", "mqcore.broker", "-n", name_server, *arguments, *small], log=printed):
        wait_until(lambda: "No name server has answered" in printed.read_text(), DEADLINE_S, "it says so")
        wait_until(lambda: "runs inside this broker" in printed.read_text(), DEADLINE_S, "it says all of it")
    assert f"python -m mqcore.namesrv --port {name_server.rpartition(':')[2]}" in printed.read_text()
    assert commands(printed) == []
