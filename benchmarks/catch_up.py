"""How fast an empty slave catches up with a master that is at work, and what producers notice of it.

    python -m benchmarks.catch_up [--gib N] [--load CxW] [--body-size BYTES] [--rate MB] [--slave-idle]
                                  [--apache RELEASE] [DIRECTORY]

A master is filled with messages. Producers are measured on it; then a slave with an empty store is started, and they
are measured again while it copies, and once more when it keeps up. Shown are MB/s from the slave's first byte until it
has what was there at that moment, processor time for each KiB that it has got, and what producers saw. `--load ""`
leaves the producers out. With `--apache` a pair of Apache's brokers does the same afterwards; its slave asks for the
newest file only, so a file is as large as all of the log there. With `--rate` our master has haFlowControlEnable, and
sends a slave so much in a second at most. With `--slave-idle` the slave gets the processors when nobody else wants
them: as far as that goes on one machine it is then another one, and producers notice what their master does for it.

On a virtual machine that gives free pages back to its host, the first touch of a page costs two microseconds per KiB,
whoever touches it, and that is most of what is shown: `--fill-memory` has page cache be recycled instead.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import click
import psutil

from benchmarks.harness.brokers import APACHE_JVM, STORE_PROPERTIES, address_of
from benchmarks.harness.loads import Load, LoadSession, Measurement
from benchmarks.harness.memory import filled_memory
from tests.rigs import ApacheBroker, ApacheServer, MqcoreBroker, wire
from tests.waiting import wait_until

DEADLINE_S: Final = 600.0
SLICE_S: Final = 1.0
FILL_REQUESTS: Final = 4096
TOPIC: Final = "CatchUp"
LOOK_S: Final = 0.05
"""Asking a broker how far it is takes a part of a millisecond of its processor."""

KEPT_UP_SLICES: Final = 3
GIB: Final = 1 << 30
ROLE: Final = {"brokerIP2": "127.0.0.1", "haSendHeartbeatInterval": "1000"}
Server = MqcoreBroker | ApacheServer
Slave = MqcoreBroker | ApacheBroker


class Producers:
    """Producers at work in a thread of their own, and what they have seen, a slice at a time."""

    def __init__(self, address: str, load: str, body_size: int) -> None:
        self._session = LoadSession(address_of(address), Load.parse(f"send:{load}", body_size=body_size), TOPIC)
        self._session.measure(SLICE_S)
        self._stop = threading.Event()
        self._seen: list[Measurement] = []
        self._thread = threading.Thread(target=self._work, daemon=True)

    def slices(self, count: int) -> list[Measurement]:
        """Let them work for so long, with nothing else to do."""
        return [self._session.measure(SLICE_S) for _ in range(count)]

    def _work(self) -> None:
        while not self._stop.is_set():
            self._seen.append(self._session.measure(SLICE_S))

    def begin(self) -> None:
        """Let them work until end()."""
        self._thread.start()

    def end(self) -> list[Measurement]:
        """What they saw; of the slice that was under way as well."""
        self._stop.set()
        self._thread.join()
        return self._seen


def say(what: str, seen: Sequence[Measurement]) -> None:
    """Print the medians of what producers saw."""

    def middle(name: str) -> float:
        return float(sorted(getattr(each, name) for each in seen)[len(seen) // 2])

    print(
        f"  producers {what}: {middle('messages_per_s'):,.0f} messages/s, p50 {middle('p50_us'):,.0f} us,"
        f" p99 {middle('p99_us'):,.0f} us"
    )


def log_end(address: str) -> int:
    """The end of a broker's log, bytes; 0 if it is empty."""
    table = wire.call(address, wire.GET_BROKER_RUNTIME_INFO).json()["table"]
    return max(0, int(table["commitLogMaxOffset"]))


def fill(master: Server, size: int, body_size: int) -> None:
    """Send until the log has *size* bytes."""
    load = Load.parse("batch:4x4", body_size=body_size)
    session = LoadSession(address_of(master.broker_address), load, TOPIC)
    while (left := size - log_end(master.broker_address)) > 0:
        session.measure(DEADLINE_S, request_limit=min(FILL_REQUESTS, left // (load.batch_size * body_size) + 1))


def worker_seconds(pid: int) -> dict[str, float]:
    """Processor time of each process of a broker by its name, seconds."""
    found: dict[str, float] = {}
    for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        times = process.cpu_times()
        found[process.name()] = found.get(process.name(), 0.0) + times.user + times.system
    return found


def apache_file_size(size: int) -> str:
    """A file for all of a log of *size* bytes, and for what comes meanwhile."""
    return str(min(2 * GIB - 1, 2 * size) // 4096 * 4096)


@contextmanager
def running_master(home: Path, apache: str, size: int, rate: int) -> Iterator[Server]:
    """A master with nothing in it; a slave of Apache's gets the last file only, which is then as large as the log."""
    properties = {**STORE_PROPERTIES, **ROLE, "brokerRole": "ASYNC_MASTER"}
    if apache:
        properties["mappedFileSizeCommitLog"] = apache_file_size(size)
        with ApacheServer(apache, home / "master", properties, jvm_options=APACHE_JVM) as server:
            yield server
        return
    if rate:
        properties |= {"haFlowControlEnable": "true", "maxHaTransferByteInSecond": str(rate * 10**6)}
    with MqcoreBroker(home / "master", properties) as broker:
        yield broker


def start_slave(home: Path, apache: str, master: Server, size: int) -> Slave:
    """An empty slave, which may have begun to copy when this returns."""
    properties = {**STORE_PROPERTIES, **ROLE, "brokerRole": "SLAVE", "brokerId": "1"}
    if isinstance(master, MqcoreBroker):
        return MqcoreBroker(home / "slave", {**properties, "namesrvAddr": master.name_server})
    properties["mappedFileSizeCommitLog"] = apache_file_size(size)
    slave = ApacheBroker(apache, home / "slave", master.name_server, properties, jvm_options=APACHE_JVM)
    slave.await_service()
    return slave


def let_others_go_first(pid: int) -> None:
    """Give all that runs below *pid*, and what it starts, the processors when nobody else wants them."""
    for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        for thread in process.threads():
            with suppress(ProcessLookupError):
                os.sched_setscheduler(thread.id, os.SCHED_IDLE, os.sched_param(0))


def catch_up(slave: Slave, address: str, master: Server) -> None:
    """Wait until the slave has what its master has now, and print how long that took."""
    wait_until(lambda: log_end(address) > 0, DEADLINE_S, "the slave has begun")
    began, first, wanted = time.monotonic(), log_end(address), log_end(master.broker_address)
    before = [worker_seconds(broker) for broker in (pid_of(master), slave.pid)]
    while log_end(address) < wanted:
        if time.monotonic() - began > DEADLINE_S:
            raise click.ClickException(f"the slave has not caught up within {DEADLINE_S:.0f} s")
        time.sleep(LOOK_S)
    taken_s, size = time.monotonic() - began, log_end(address) - first
    print(f"  caught up: {size / GIB:.2f} GiB, {size / taken_s / 1e6:.0f} MB/s")
    for name, pid, then in zip(("master", "slave"), (pid_of(master), slave.pid), before, strict=True):
        now = worker_seconds(pid)
        shares = {kind: (now[kind] - then.get(kind, 0.0)) / size * 1024 * 1e6 for kind in now}
        print(f"  {name}, us/KiB:", ", ".join(f"{kind} {us:.2f}" for kind, us in shares.items() if us >= 0.005))


def pid_of(server: Server) -> int:
    return server.pid if isinstance(server, MqcoreBroker) else server.broker.pid


def measure(home: Path, apache: str, size: int, load: str, body_size: int, rate: int, *, slave_is_idle: bool) -> None:
    """Fill a master, and let a slave catch up."""
    print(f"apache {apache}" if apache else "mqcore")
    with running_master(home, apache, size, rate) as master:
        fill(master, size, body_size)
        producers = Producers(master.broker_address, load, body_size) if load else None
        if producers:
            say("without a slave", producers.slices(KEPT_UP_SLICES))
        slave = start_slave(home, apache, master, size)
        try:
            if slave_is_idle:
                let_others_go_first(slave.pid)
            if producers:
                producers.begin()
            catch_up(slave, slave.broker_address if isinstance(slave, MqcoreBroker) else slave.address, master)
            if producers:
                say("while it catches up", producers.end())
                say("when it keeps up", producers.slices(KEPT_UP_SLICES))
        finally:
            slave.kill()


@click.command(help=__doc__)
@click.option("--gib", default=2.0, show_default=True, help="What is there to be copied.")
@click.option("--load", default="8x1", show_default=True, help="Connections and requests in flight of the producers.")
@click.option("--body-size", default=1024, show_default=True)
@click.option("--rate", default=0, help="MB that our master sends a slave in a second, at most; 0 is no limit.")
@click.option("--slave-idle", is_flag=True, help="The slave gets the processors when nobody else wants them.")
@click.option("--apache", default="", help="A release of RocketMQ to be measured, too.")
@click.option("--fill-memory", is_flag=True, help="Fill free memory with page cache first.")
@click.argument("directory", required=False, type=click.Path(path_type=Path))
def main(
    gib: float,
    load: str,
    body_size: int,
    rate: int,
    slave_idle: bool,
    apache: str,
    fill_memory: bool,
    directory: Path | None,
) -> None:
    for release in ["", *([apache] if apache else [])]:
        with tempfile.TemporaryDirectory(dir=directory) as home, ExitStack() as stack:
            if fill_memory:
                stack.enter_context(filled_memory(Path(home)))
            measure(Path(home), release, int(gib * GIB), load, body_size, rate, slave_is_idle=slave_idle)


if __name__ == "__main__":
    main()
