"""A server as process 1, as in a container: SIGTERM stops it in order, and it buries the orphans that it is given."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from mqcore.testing.leftovers import children_of
from tests.rigs.ports import free_broker_ports, free_port
from tests.rigs.process import Child
from tests.waiting import wait_until

DEADLINE_S = 60.0
NEW_PROCESSES = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc")


def missing_tools() -> str:
    """The reason why nobody can be process 1 here, empty if somebody can."""
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        return "not installed: unshare, nsenter (util-linux)"
    tried = subprocess.run([*NEW_PROCESSES, "true"], capture_output=True, text=True, check=False)
    return f"no new process numbers: {tried.stderr.strip()}" if tried.returncode != 0 else ""


pytestmark = pytest.mark.skipif(bool(missing_tools()), reason=missing_tools())


class ProcessOne:
    """A server that is process 1 of its own process numbers."""

    def __init__(self, directory: Path, words: list[str], settings: dict[str, str]) -> None:
        self.store = directory / "store"
        arguments = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        command = [*NEW_PROCESSES, sys.executable, "-m", *words, *arguments]
        self.child = Child(command, log=directory / "server.log")
        wait_until(lambda: "boot success" in self._log or not self.child.is_alive, DEADLINE_S, "it serves")
        assert self.child.is_alive, self.child.error("has ended")
        # unshare has one child, which is the server.
        (self.server, *_) = psutil.Process(self.child.pid).children()

    @property
    def _log(self) -> str:
        return self.child.log.read_text()

    def leave_orphans(self, count: int) -> list[psutil.Process]:
        """Run a shell there that leaves children behind; these."""
        enter = ["nsenter", "-t", str(self.server.pid), "--user", "--pid", "--mount", "--preserve-credentials"]
        script = "sleep 600 >&- 2>&- & " * count
        subprocess.run([*enter, "sh", "-c", script], check=True, timeout=DEADLINE_S)

        def found() -> list[psutil.Process]:
            return [child for child in self.server.children() if child.name() == "sleep"]

        wait_until(lambda: len(found()) == count, DEADLINE_S, "it is their parent")
        return found()


BROKER = ["mqcore.broker"]
NAMESRV = ["mqcore.namesrv"]


@pytest.fixture(params=[BROKER, NAMESRV], ids=["broker", "namesrv"])
def process_one(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ProcessOne]:
    words = list(request.param)
    settings = {"listenPort": str(free_broker_ports().listen), "bindAddress": "127.0.0.1"}
    if request.param is BROKER:
        words += ["--store", str(tmp_path / "store")]
        settings |= {"namesrvListenPort": str(free_port()), "mappedFileSizeCommitLog": str(1 << 20)}
    else:
        words += ["--dir", str(tmp_path)]
    started = ProcessOne(tmp_path, words, settings)
    try:
        yield started
    finally:
        started.child.kill()


def test_it_stops_in_order_and_buries_whom_it_is_given(process_one: ProcessOne) -> None:
    server = process_one.server
    assert Path(f"/proc/{server.pid}/status").read_text().split("NSpid:")[1].split("\n")[0].split()[-1] == "1"
    workers = children_of(server.pid)
    orphans = process_one.leave_orphans(3)
    for orphan in orphans:
        orphan.kill()
    wait_until(lambda: not any(orphan.is_running() for orphan in orphans), DEADLINE_S, "they are buried")
    # Whom it has started itself is its supervisor's business, as ever: none is missing, and one that dies comes back.
    assert all(worker.is_running() for worker in workers)
    abort = process_one.store / "abort"
    assert abort.exists() == bool(workers)
    os.kill(server.pid, signal.SIGTERM)
    assert process_one.child.wait(DEADLINE_S) == 0
    assert not abort.exists()


@pytest.mark.parametrize("process_one", [BROKER], indirect=True, ids=["broker"])
def test_a_worker_that_dies_is_told_by_its_own_exit_status_and_comes_back(process_one: ProcessOne) -> None:
    before = {worker.pid for worker in process_one.server.children()}
    (sender,) = [worker for worker in process_one.server.children() if worker.name() == "mq-send-0"]
    sender.kill()
    wait_until(lambda: "status=SIGKILL" in process_one.child.log.read_text(), DEADLINE_S, "its supervisor has seen it")
    wait_until(lambda: len(process_one.server.children()) == len(before), DEADLINE_S, "another one is there")
    (nursery,) = [worker for worker in process_one.server.children() if worker.name() == "mq-nursery"]
    nursery.kill()
    wait_until(lambda: not nursery.is_running(), DEADLINE_S, "it is buried")
