"""Starts the worker processes, notices at once when one dies, and brings it back.

A worker finds its memory, its sockets and its peers by what it is handed; all of it is open here, so that its successor
gets the same. A worker that cannot live is started again with growing pauses, and the store's flags say what is
missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from mqcore import clock, layout
from mqcore._fast.segment.boards import SharedSegment
from mqcore.broker.listeners import Listeners
from mqcore.broker.nursery import ForkedProcess, Nursery
from mqcore.broker.restart_pause import RestartPause
from mqcore.config import BrokerRole, Settings
from mqcore.errors import WorkerError
from mqcore.orphans import claim
from mqcore.transport.tls import ServerMaterial
from mqcore.workers.handover import Handover, Peer
from mqcore.workers.settings_sheet import SettingsSheet, Sheet
from mqcore.workers.time_sheet import TimeSheet

logger = logging.getLogger(__name__)

KIND = layout.constants("WorkerKind")
COMMAND = layout.constants("WorkerCommand")
STATE = layout.constants("WorkerState")
STORE_FLAG = layout.constants("StoreFlag")
# What the broker cannot do without a kind of worker; set when one of it keeps dying, cleared when all stay up.
NEEDED_FOR = {
    "flush": STORE_FLAG["WORKER_MISSING"],
    "reput": STORE_FLAG["WORKER_MISSING"],
    "pull": STORE_FLAG["PULL_CLOSED"],
}
FOLLOWERS = ("send", "pull", "flush", "ha", "timer")
"""The kinds of workers that go by settings which may change; what the reput worker goes by is fixed with the files."""

FOLLOW_DEADLINE_S = 5.0
MISSING_AFTER_DEATHS = 3
STEADY_AFTER_S = 2.0
START_DEADLINE_S = 20.0
STOP_DEADLINE_S = 10.0
STATE_POLL_S = 0.005
BROKER_ROW = 0
LONG_MAX = 2**63 - 1


@dataclass(slots=True)
class Worker:
    """One worker: what it is, and the process that is it now."""

    kind: str
    number: int
    row: int
    wake: int
    is_wanted: bool = True
    """Not before somebody has use for it: see ``Supervisor.want``."""
    process: subprocess.Popen[bytes] | ForkedProcess | None = None
    pid_fd: int = -1
    started_at: float = 0.0
    pause: RestartPause = field(default_factory=RestartPause)
    restarts: int = 0
    restart: asyncio.TimerHandle | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.number}"

    @property
    def peer(self) -> Peer:
        return Peer(self.row, self.wake)

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None


class Supervisor:
    """All workers of one broker. *on_started* gets (worker, our end of its link) each time one is started."""

    def __init__(
        self,
        settings: Settings,
        segment: SharedSegment,
        listeners: Listeners,
        on_started: Callable[[Worker, socket.socket], None],
        broker_wake: int,
        nursery: Nursery | None = None,
    ) -> None:
        """Workers are forked in the *nursery*; without one they are programs of their own, and take longer to start."""
        self._settings = settings
        self._nursery = nursery
        self._segment = segment
        self._listeners = listeners
        self._on_started = on_started
        self._broker_wake = broker_wake
        self._is_stopping = False
        self._settings_version = 0
        self._sheet = SettingsSheet.create()
        self._time_sheet = TimeSheet.create()
        clock.on_move(self._tell_time)
        self._certificates = Sheet.create()
        self.workers: list[Worker] = []
        counts = {"send": settings.mqcore.send_worker_nums, "pull": settings.mqcore.pull_worker_nums}
        for kind in ("flush", "reput", "pull", "send", "ha", "timer"):
            for number in range(counts.get(kind, 1)):
                row = len(self.workers) + 1
                wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
                # A broker that nobody copies and that copies nobody needs no process for it.
                is_copied = settings.store.broker_role is not BrokerRole.ASYNC_MASTER or settings.failover.is_group
                is_wanted = kind != "ha" or is_copied
                # One without messages that wait needs none that keeps them.
                is_wanted = is_wanted and kind != "timer"
                self.workers.append(Worker(kind, number, row, wake, is_wanted))
                segment.describe_worker(row, KIND[kind.upper()], number)
        self._tell_time()
        # It has nothing of the log mapped before a slave comes, and holds no page up.
        segment.set_worker_word(self.of_kind("ha")[0].row, "released", LONG_MAX)

    def of_kind(self, kind: str) -> list[Worker]:
        return [worker for worker in self.workers if worker.kind == kind]

    # Starting ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start every worker that is wanted, and wait until they run. Raises WorkerError if one does not get there."""
        await self._start_all([worker for worker in self.workers if worker.is_wanted])

    async def start_kind(self, kind: str) -> None:
        """Start the workers of *kind*, unless they are wanted already, and wait as ``start`` does."""
        unwanted = [worker for worker in self.of_kind(kind) if not worker.is_wanted]
        if not self._is_stopping:
            for worker in unwanted:
                worker.is_wanted = True
            await self._start_all(unwanted)

    async def _start_all(self, wanted: list[Worker]) -> None:
        for worker in wanted:
            self._start(worker)
        deadline = time.monotonic() + START_DEADLINE_S
        for worker in wanted:
            while self._segment.worker_word(worker.row, "state") != STATE["RUNNING"]:
                if not worker.is_alive and worker.restarts > 0:
                    raise WorkerError(f"worker {worker.name} could not start; its own words are in the log above")
                if time.monotonic() >= deadline:
                    raise WorkerError(f"worker {worker.name} did not start within {START_DEADLINE_S:.0f} s")
                await asyncio.sleep(STATE_POLL_S)

    def want(self, kind: str) -> None:
        """Start the workers of *kind* that were not wanted so far; they stay wanted."""
        for worker in self.of_kind(kind):
            if not worker.is_wanted and not self._is_stopping:
                worker.is_wanted = True
                self._restart(worker)

    def _start(self, worker: Worker) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._segment.set_worker_word(worker.row, "state", STATE["STARTING"])
            self._segment.set_worker_word(worker.row, "command", COMMAND["RUN"])
            self._segment.set_worker_word(worker.row, "sleeping", 0)
            self._segment.set_worker_word(worker.row, "settings_version", -1)
            self._segment.set_worker_word(worker.row, "pid", 0)
            handover = self._handover(worker, theirs.fileno())
            descriptor = handover.write()
            try:
                worker.process = self._born(worker, descriptor, handover.descriptors())
            finally:
                os.close(descriptor)
        claim(worker.process)
        worker.started_at = time.monotonic()
        worker.pid_fd = os.pidfd_open(worker.process.pid)
        self._segment.set_worker_word(worker.row, "pid", worker.process.pid)
        asyncio.get_running_loop().add_reader(worker.pid_fd, self._on_exit, worker)
        self._on_started(worker, ours)

    def _born(self, worker: Worker, handover: int, descriptors: list[int]) -> subprocess.Popen[bytes] | ForkedProcess:
        if self._nursery is not None:
            # What keeps it from forking may keep this process, too; if so it is said below.
            with contextlib.suppress(OSError):
                return self._nursery.start(worker.kind, handover, descriptors)
        return subprocess.Popen(
            [sys.executable, "-m", "mqcore.workers", worker.kind, str(handover)],
            stdin=subprocess.DEVNULL,
            pass_fds=[handover, *descriptors],
        )

    def _handover(self, worker: Worker, link: int) -> Handover:
        return Handover(
            kind=worker.kind,
            number=worker.number,
            row=worker.row,
            parent_pid=os.getpid(),
            shared_fd=self._segment.fd,
            wake=worker.wake,
            link=link,
            settings=self._settings.to_json(),
            settings_version=self._settings_version,
            sheet=self._sheet.fd,
            time_sheet=self._time_sheet.fd if worker.kind == "timer" else -1,
            certificates=self._certificates.fd if worker.kind == "send" else -1,
            listeners=[(s.fileno(), vip) for s, vip in self._listeners.clients] if worker.kind == "send" else [],
            ha_listener=self._listeners.slaves.fileno() if worker.kind == "ha" else -1,
            senders=[peer.peer for peer in self.of_kind("send")],
            pullers=[peer.peer for peer in self.of_kind("pull")],
            reput=self.of_kind("reput")[0].peer,
            flush=self.of_kind("flush")[0].peer,
            ha=self.of_kind("ha")[0].peer,
            timer=self.of_kind("timer")[0].peer,
            broker=Peer(BROKER_ROW, self._broker_wake),
        )

    # Settings ---------------------------------------------------------------------------------------------------

    def show(self, material: ServerMaterial) -> None:
        """Put what the ports show of TLS where send workers find it: at their start, and with the next settings."""
        self._certificates.write_text(material.to_json().encode(), self._settings_version)

    async def publish(self, settings: Settings, version: int) -> None:
        """Let every worker go by *settings*; those that are started from now on get them too.

        Returns when all that run follow. Raises WorkerError with the names of those that have not in time.
        """
        self._settings, self._settings_version = settings, version
        self._sheet.write(settings, version)
        self._segment.set("settings_version", version)
        followers = [worker for worker in self.workers if worker.kind in FOLLOWERS]
        for worker in followers:
            self.wake(worker)
        deadline = time.monotonic() + FOLLOW_DEADLINE_S
        while late := [worker for worker in followers if self._is_behind(worker, version)]:
            if time.monotonic() >= deadline:
                names = ", ".join(worker.name for worker in late)
                raise WorkerError(f"the settings have changed, and {names} did not follow in {FOLLOW_DEADLINE_S:g} s")
            await asyncio.sleep(STATE_POLL_S)

    def _is_behind(self, worker: Worker, version: int) -> bool:
        # One that is not running starts with what holds then.
        return worker.is_alive and self._segment.worker_word(worker.row, "settings_version") < version

    def _tell_time(self) -> None:
        """Somebody has skipped some time, as tests do."""
        self._time_sheet.write(clock.skips())
        for worker in self.of_kind("timer"):
            self.wake(worker)

    # Dying ------------------------------------------------------------------------------------------------------

    def _on_exit(self, worker: Worker) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(worker.pid_fd)
        os.close(worker.pid_fd)
        worker.pid_fd = -1
        assert worker.process is not None
        status = worker.process.wait()
        self._segment.set_worker_word(worker.row, "pid", 0)
        # What it held is given up by the others at once: clients must not wait for its successor's first breath.
        self._segment.set_worker_word(worker.row, "generation", self._segment.worker_word(worker.row, "generation") + 1)
        if worker.kind == "ha":
            # Its slaves are gone with it, and no send may wait for them.
            self._segment.set("slave_count", 0)
        for sender in self.of_kind("send"):
            self.wake(sender)
        if self._is_stopping:
            return
        lived_s = time.monotonic() - worker.started_at
        pause_ms = worker.pause.after(lived_s, self._settings.mqcore)
        worker.restarts += 1
        logger.error(
            "worker died name=%s pid=%d status=%s lived_s=%.1f restart_in_ms=%d",
            worker.name, worker.process.pid, describe_status(status), lived_s, pause_ms,
        )  # fmt: skip
        self._note_missing(worker)
        worker.restart = loop.call_later(pause_ms / 1000, self._restart, worker)

    def _note_missing(self, worker: Worker) -> None:
        flag = NEEDED_FOR.get(worker.kind, 0)
        if worker.pause.young_deaths >= MISSING_AFTER_DEATHS and flag and not self._segment.get("store_flags") & flag:
            self._segment.set_flags(flag)
            logger.error("worker %s does not stay up: what needs it is refused until it does", worker.name)

    def check(self) -> None:
        """Take back what was refused for want of workers that have been up for a while; called now and then."""
        now = time.monotonic()
        for flag in set(NEEDED_FOR.values()):
            needed = [worker for worker in self.workers if NEEDED_FOR.get(worker.kind) == flag]
            is_steady = all(worker.is_alive and now - worker.started_at >= STEADY_AFTER_S for worker in needed)
            if is_steady and self._segment.get("store_flags") & flag:
                self._segment.clear_flags(flag)
                logger.info("workers stay up again: %s", ", ".join(worker.name for worker in needed))

    def _restart(self, worker: Worker) -> None:
        worker.restart = None
        if self._is_stopping:
            return
        try:
            self._start(worker)
        except OSError as error:
            logger.error("worker cannot be started name=%s error=%s", worker.name, error)
            worker.restart = asyncio.get_running_loop().call_later(worker.pause.next_ms / 1000, self._restart, worker)

    # Stopping ---------------------------------------------------------------------------------------------------

    async def drain(self, kind: str) -> None:
        """Have workers of *kind* take nothing new and finish what they have."""
        await self._command(kind, "DRAIN", {STATE["DRAINED"], STATE["STOPPED"]})

    async def stop(self, kind: str) -> None:
        """Have workers of *kind* stop, and wait until their processes have ended."""
        self._is_stopping = True
        await self._command(kind, "STOP", {STATE["STOPPED"]})
        for worker in self.of_kind(kind):
            if worker.restart is not None:
                worker.restart.cancel()
            if worker.process is not None:
                await self._end(worker)

    async def _command(self, kind: str, command: str, wanted: set[int]) -> None:
        self._is_stopping = True
        deadline = time.monotonic() + STOP_DEADLINE_S
        for worker in self.of_kind(kind):
            self._segment.set_worker_word(worker.row, "command", COMMAND[command])
            self.wake(worker)
        for worker in self.of_kind(kind):
            while worker.is_alive and self._segment.worker_word(worker.row, "state") not in wanted:
                if time.monotonic() >= deadline:
                    logger.error("worker does not follow command=%s name=%s", command, worker.name)
                    break
                await asyncio.sleep(STATE_POLL_S)

    async def _end(self, worker: Worker) -> None:
        assert worker.process is not None
        deadline = time.monotonic() + STOP_DEADLINE_S
        while worker.process.poll() is None and time.monotonic() < deadline:
            await asyncio.sleep(STATE_POLL_S)
        if worker.process.poll() is None:
            worker.process.kill()
            worker.process.wait()

    def wake(self, worker: Worker) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_write(worker.wake, 1)

    def close(self) -> None:
        """End what is left at once and give the descriptors back."""
        self._is_stopping = True
        for worker in self.workers:
            if worker.restart is not None:
                worker.restart.cancel()
            if worker.process is not None and worker.process.poll() is None:
                worker.process.kill()
                worker.process.wait()
            if worker.pid_fd >= 0:
                asyncio.get_running_loop().remove_reader(worker.pid_fd)
                os.close(worker.pid_fd)
                worker.pid_fd = -1
            os.close(worker.wake)
        clock.off_move(self._tell_time)
        os.close(self._sheet.fd)
        os.close(self._time_sheet.fd)
        os.close(self._certificates.fd)


def describe_status(status: int) -> str:
    """An exit status in words: ``exit 1`` or the signal's name."""
    if status >= 0:
        return f"exit {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
