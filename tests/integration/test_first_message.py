"""What the broker prints at its start can be pasted: it sends a first message and receives it."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

from tests.rigs import MqcoreBroker
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
