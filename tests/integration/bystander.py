"""A broker and a well-behaved client beside whom others misbehave: neither may notice."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from mqcore.layout import WORKER_CAPACITY
from tests.fault.history import History, Load, read_all, wait_for_acks
from tests.fault.rig import (
    DEADLINE_S,
    SMALL_FILES,
    WORKER_KINDS,
    attach_segment,
    check_store,
    find_worker,
    new_history,
    start_broker,
)
from tests.rigs import MqcoreBroker
from tests.rigs.ports import free_port
from tests.rigs.process import Child
from tests.waiting import wait_until

ACKS = 3
BURST_MAX = 4


class Peaceful:
    """The broker, and the history of a client that goes on sending and reading all the time."""

    def __init__(self, broker: MqcoreBroker) -> None:
        self.broker = broker
        self.address = broker.broker_address
        self.name_server = broker.name_server
        self.history: History = new_history(broker, "Peaceful", "peaceful")
        # To look for one means to look at every process of the machine, and each test asks twice.
        self._workers: dict[str, psutil.Process] = {}
        self.load = Load(self.history, self.address, producers=1, burst_max=BURST_MAX, body_size_max=100)

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Whatever happens inside, the client gets every answer, and no process dies."""
        pids = self.pids()
        yield
        wait_for_acks(self.history, ACKS, DEADLINE_S)
        assert self.pids() == pids
        assert (self.history.unanswered, self.history.refused) == (0, {})

    def pids(self) -> dict[str, int]:
        """The process ids of the broker and its workers."""
        return {"broker": self.broker.pid} | {kind: self.worker(kind).pid for kind in WORKER_KINDS}

    def worker(self, kind: str) -> psutil.Process:
        """The live worker of *kind*."""
        if (known := self._workers.get(kind)) is not None and is_at_work(known):
            return known
        self._workers[kind] = find_worker(self.broker, kind)
        return self._workers[kind]

    def memory_bytes(self, kind: str) -> int:
        """The resident memory of a worker, or of the broker process."""
        process = psutil.Process(self.broker.pid) if kind == "broker" else self.worker(kind)
        return int(process.memory_info().rss)

    def word(self, kind: str, name: str) -> int:
        """A field of a worker's row in shared memory, see mqcore.layout."""
        segment = attach_segment(self.broker)
        pid = self.worker(kind).pid
        (row,) = [row for row in range(WORKER_CAPACITY) if segment.worker_word(row, "pid") == pid]
        return segment.worker_word(row, name)

    def log(self) -> str:
        return self.broker.child.log.read_text()


def is_at_work(process: psutil.Process) -> bool:
    """Whether it is there, and not another one of the same number."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def peaceful_broker(
    directory: Path, properties: Mapping[str, str] | None = None, deleted: frozenset[str] = frozenset()
) -> Iterator[Peaceful]:
    """The body of a fixture: at its end everything that the client was promised is there.

    Topics in *deleted* may have been deleted and made again.
    """
    with start_broker(directory, {**SMALL_FILES, **(properties or {})}) as broker:
        peaceful = Peaceful(broker)
        with peaceful.load:
            yield peaceful
        peaceful.history.check(read_all(peaceful.history, peaceful.address))
        assert broker.child.is_alive
        broker.stop()
        assert "Traceback" not in peaceful.log()
        check_store(peaceful.history, broker.store_dir, deleted=deleted)


@contextlib.contextmanager
def lone_name_server(directory: Path) -> Iterator[tuple[Child, str]]:
    """A name server of its own, and its address."""
    port = free_port()
    command = [sys.executable, "-m", "mqcore.namesrv", "--port", str(port), "--dir", str(directory / "namesrv")]
    child = Child(command, log=directory / "namesrv.out")
    try:
        wait_until(lambda: "boot success" in child.log.read_text(), DEADLINE_S, "the name server serves")
        yield child, f"127.0.0.1:{port}"
    finally:
        child.kill()
