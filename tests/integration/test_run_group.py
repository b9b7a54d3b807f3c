"""``make run-group``: a group on this machine to try out."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from mqcore.testing.leftovers import children_of, those_left
from tests.rigs import etcd
from tests.rigs.command_line import CommandLine
from tests.rigs.ports import free_broker_ports, free_port
from tests.rigs.process import Child
from tests.waiting import wait_until

DEADLINE_S = 120.0
MASTER = re.compile(r"  broker\d  \S+  pid (\d+)  member \d+, the master")


class RunningGroup:
    """The program, what it prints, and all processes that it has started."""

    def __init__(self, child: Child, name_server: str) -> None:
        self.child = child
        self.name_server = name_server

    @property
    def printed(self) -> str:
        return self.child.log.read_text()

    def await_line(self, text: str) -> None:
        def is_there() -> bool:
            assert self.child.is_alive, self.child.error("has ended")
            return text in self.printed

        wait_until(is_there, DEADLINE_S, f"it prints {text!r}")

    @property
    def master_pid(self) -> int:
        found = MASTER.search(self.printed)
        assert found is not None, self.printed
        return int(found[1])

    def processes(self) -> list[psutil.Process]:
        return [psutil.Process(self.child.pid), *children_of(self.child.pid)]

    @property
    def mqcore(self) -> CommandLine:
        return CommandLine(self.name_server)


@contextlib.contextmanager
def running(directory: Path) -> Iterator[RunningGroup]:
    # The port behind a broker's is its own, too: so is that behind an etcd's.
    ports = [str(free_broker_ports().listen) for _ in range(6)]
    name_server = free_port()
    command = [sys.executable, "-m", "mqcore.testing.group", directory / "store", "--namesrv-port", str(name_server)]
    command += ["--broker-ports", *ports[:3], "--etcd-ports", *ports[3:]]
    environment = {"PATH": f"{etcd.program().parent}:{os.environ['PATH']}"}
    with Child(command, log=directory / "group.out", env=environment) as child:
        yield RunningGroup(child, f"127.0.0.1:{name_server}")


def test_without_etcd_it_says_what_to_install(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mqcore.testing.group", str(tmp_path / "store")]
    done = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "apt-get install etcd-server" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(bool(etcd.missing_tools()), reason=f"etcd cannot run here: {etcd.missing_tools()}")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_it_serves_brings_back_who_is_killed_and_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path) as group:
        group.await_line("ha switch --to")
        group.mqcore.output("send", "hello", "--body", "hello, world")
        os.kill(group.master_pid, signal.SIGKILL)
        assert group.mqcore.output("consume", "hello", "--group", "first", "-n", "1") == "hello, world\n"
        group.await_line("is back, pid")

        def are_in_sync() -> bool:
            code, out, _ = group.mqcore.run("ha", "status", "--output", "json")
            return code == 0 and [row["inSync"] for row in json.loads(out)] == [True] * 3

        wait_until(are_in_sync, DEADLINE_S, "the group is whole again")
        processes = group.processes()
        assert len(processes) > 3 + 1 + 3
        os.kill(group.child.pid, number)
        assert those_left(processes, DEADLINE_S) == []
        if number is not signal.SIGKILL:
            assert "Traceback" not in group.printed


@pytest.mark.slow
@pytest.mark.skipif(bool(etcd.missing_tools()), reason=f"etcd cannot run here: {etcd.missing_tools()}")
def test_a_part_that_cannot_start_is_named_with_the_end_of_its_log(tmp_path: Path) -> None:
    # A store that is a file.
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "broker2").write_text("no directory")
    with running(tmp_path) as group:
        wait_until(lambda: not group.child.is_alive, DEADLINE_S, "it has given up")
        assert "the group does not serve: broker2; " in group.printed
