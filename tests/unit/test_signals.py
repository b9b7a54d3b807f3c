"""SIGHUP has a server read its files again, unless it is the terminal that goes."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

from tests.waiting import wait_until

DEADLINE_S = 60.0
PROGRAM = """
import asyncio, os, sys
from pathlib import Path
from mqcore.errors import ConfigError
from mqcore.signals import Signals

async def serve(said):
    async def reload():
        said.write("read again\\n")
        said.flush()
        raise ConfigError("nonsense")
    stop = asyncio.Event()
    Signals(stop, reload).install()
    said.write("ready\\n")
    said.flush()
    await stop.wait()
    said.write("stopped\\n")

if len(sys.argv) > 2:
    os.open(sys.argv[2], os.O_RDWR)  # the first that a leader of a session opens is its terminal
with Path(sys.argv[1]).open("w") as said:
    asyncio.run(serve(said))
"""

HANGS_UP_WHILE_IT_READS = """
import asyncio, os, signal, sys
from mqcore.signals import Signals

async def serve():
    reads = []
    async def reload():
        reads.append("read")
        if len(reads) > 1:
            stop.set()
            return
        heard = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, heard.set)
        for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGUSR1):
            os.kill(os.getpid(), number)
        await heard.wait()
    stop = asyncio.Event()
    Signals(stop, reload).install()
    os.kill(os.getpid(), signal.SIGHUP)
    await stop.wait()
    await asyncio.sleep(0)
    print(reads)

asyncio.run(serve())
"""


def test_a_hangup_while_files_are_read_has_them_read_once_more() -> None:
    """It may tell of a change that came behind the reading."""
    done = subprocess.run(
        [sys.executable, "-c", HANGS_UP_WHILE_IT_READS],
        start_new_session=True, capture_output=True, text=True, timeout=DEADLINE_S,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "['read', 'read']\n"), done.stderr


def test_a_server_reads_its_files_again_and_goes_on(tmp_path: Path) -> None:
    said = tmp_path / "said"
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(said)], start_new_session=True) as process:
        for round_number in range(3):
            if round_number:
                process.send_signal(signal.SIGHUP)
            wait_until(
                lambda wanted=round_number: said.exists() and said.read_text().count("\n") == 1 + wanted,
                DEADLINE_S,
                "it has heard",
            )
        process.terminate()
        assert process.wait(DEADLINE_S) == 0
    assert said.read_text().split("\n") == ["ready", "read again", "read again", "stopped", ""]


def test_a_server_ends_with_its_terminal(tmp_path: Path) -> None:
    said = tmp_path / "said"
    terminal, other_end = pty.openpty()
    program = [sys.executable, "-c", PROGRAM, str(said), os.ttyname(other_end)]
    with subprocess.Popen(program, start_new_session=True) as process:
        os.close(other_end)
        wait_until(lambda: said.exists() and said.read_text() == "ready\n", DEADLINE_S, "it serves")
        os.close(terminal)
        assert process.wait(DEADLINE_S) == 0
    assert said.read_text() == "ready\nstopped\n"
