"""Starting, stopping and killing a broker from a test."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from mqcore.clock import now_ms
from mqcore.errors import MQError
from mqcore.readiness import wait_ready
from mqcore.testing.leftovers import children_of, make_directory, remove_stale_directories, wait_ended
from mqcore.testing.ports import free_ports
from mqcore.testing.server.orders import ADVANCE, CREATE_TOPIC, STOP, Answer, Launch, Order

if TYPE_CHECKING:
    from mqcore.testing.broker_async import AsyncRunningBroker

START_DEADLINE_S = 60.0
ORDER_DEADLINE_S = 60.0
STOP_DEADLINE_S = 60.0
START_TRIES = 5
LOG_TAIL_BYTES = 4_000
LINE_SIZE_MAX = 1 << 16

TEST_SETTINGS = {
    "brokerName": "broker-test",
    "bindAddress": "127.0.0.1",
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "mappedFileSizeCommitLog": str(32 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 50_000),
    "maxHashSlotNum": "100000",
    "maxIndexNum": "400000",
    # Patience: a busy machine that runs tests must not make the broker refuse messages.
    "waitTimeMillsInSendQueue": "5000",
    "osPageCacheBusyTimeOutMills": "5000",
}
"""What a broker for tests has unless it is told otherwise: small files, this machine only."""

Topics = str | Mapping[str, int] | Iterable[str]
"""Topics to create: one, their names, or names with numbers of queues."""
QUEUES = 4
SettingValue = str | int | bool


class BrokerStartError(MQError):
    """The broker of a test did not start, or did not obey. The message ends with the end of its log."""


class RunningBroker:
    """A broker with its name server, in a process of its own. Made by ``running_broker``.

    *name_server* and *address* are ``host:port`` and stay the same over ``restart``; *store* is the store directory,
    *log* the broker's log file. May be used from any thread of the process that made it.
    """

    def __init__(
        self,
        *,
        settings: Mapping[str, SettingValue] | None = None,
        topics: Topics = (),
        store: Path | str | None = None,
    ) -> None:
        self._owner_pid = os.getpid()
        self._given = {name: as_text(value) for name, value in (settings or {}).items()}
        self._topics = topics_with_queues(topics)
        remove_stale_directories()
        self._directory, self._alive = make_directory()
        self.store = self._directory / "store" if store is None else Path(store).absolute()
        self.log = self._directory / "broker.log"
        self._ports = free_ports()
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._lock = threading.RLock()
        self._skips: list[tuple[int, int]] = []
        self._has_run = False

    def __repr__(self) -> str:
        state = "running" if self.is_running else "stopped"
        return f"RunningBroker(name_server={self.name_server!r}, address={self.address!r}, {state})"

    @property
    def name_server(self) -> str:
        return f"127.0.0.1:{self._ports.name_server}"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._ports.broker}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The broker process; its workers are its children."""
        assert self._process is not None, "the broker has not been started"
        return self._process.pid

    # Life cycle.

    def start(self) -> None:
        """Start it, again after ``stop`` or ``kill``; it serves when this returns. Without effect while it runs.

        Raises BrokerStartError, for instance when a setting cannot stand.
        """
        self._check_owner()
        with self._lock:
            if self.is_running:
                return
            self._reap()
            for _ in range(START_TRIES):
                answer = self._launch()
                if answer.ok:
                    self._has_run = True
                    return
                self._reap()
                if self._has_run or not answer.ports_taken:
                    break
                self._ports = free_ports()
            raise self._error(f"did not start: {answer.error}")

    def stop(self) -> None:
        """Stop it in order, as SIGTERM would. The store stays until ``close``."""
        self._check_owner()
        with self._lock:
            if self.is_running:
                self._write(Order(STOP))
                self._wait()
            self._reap()

    def restart(self) -> None:
        """Stop it, unless it has been killed, and start it on the same store and ports."""
        with self._lock:
            self.stop()
            self.start()

    def kill(self) -> None:
        """End the broker process by SIGKILL and wait until its workers, which notice by themselves, have ended too."""
        self._check_owner()
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                workers = children_of(self._process.pid)
                self._process.kill()
                self._process.wait()
                wait_ended(workers, STOP_DEADLINE_S)
            self._reap()

    def close(self) -> None:
        """Stop it, or kill it if it does not obey, and remove the temporary directory. Without effect in a fork."""
        if self._owner_pid != os.getpid() or self._alive.closed:
            return
        try:
            self.stop()
        except BrokerStartError:
            self.kill()
            raise
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._alive.close()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # Orders.

    def advance(self, by: timedelta | None = None, *, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Let time pass for what waits: delayed messages, timers, and those that failed and wait for their next try.

        A message that was sent before this call is due that much earlier; one that is sent later waits its full time.
        Survives ``restart``. The rest of the broker, and the clients, go on with the real time.
        """
        duration = (by or timedelta()) + timedelta(hours=hours, minutes=minutes, seconds=seconds)
        skip = (now_ms(), round(duration.total_seconds() * 1000))
        self._order(Order(ADVANCE, at_ms=skip[0], duration_ms=skip[1]))
        self._skips.append(skip)
        while now_ms() <= skip[0]:  # what is sent next must have a later time
            time.sleep(0.001)

    def create_topic(self, topic: str, queues: int = QUEUES) -> None:
        """Create *topic*, or change its number of queues; the name server knows it when this returns."""
        self._order(Order(CREATE_TOPIC, topic=topic, queues=queues))

    # The inside.

    def _settings(self) -> dict[str, str]:
        return {
            "storePathRootDir": str(self.store),
            "storePathCommitLog": str(self.store / "commitlog"),
            **TEST_SETTINGS,
            **self._given,
            "listenPort": str(self._ports.broker),
            "namesrvListenPort": str(self._ports.name_server),
        }

    def _launch(self) -> Answer:
        launch = Launch(
            settings=self._settings(),
            directory=str(self._directory),
            parent_pid=self._owner_pid,
            topics={} if self._has_run else self._topics,
            skips=self._skips,
        )
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mqcore.testing.server"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                process_group=0,  # the terminal's interrupt is for the test process
            )
        self._unread = b""
        self._write(launch)
        return self._answer(START_DEADLINE_S)

    def _order(self, order: Order) -> None:
        self._check_owner()
        with self._lock:
            if not self.is_running:
                raise self._error("is not running")
            self._write(order)
            answer = self._answer(ORDER_DEADLINE_S)
        if not answer.ok:
            raise self._error(f"refused: {answer.error}")

    def _write(self, message: Launch | Order) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(message.encode())
        except BrokenPipeError:
            raise self._error("ended by itself") from None

    def _answer(self, deadline_s: float) -> Answer:
        assert self._process is not None
        assert self._process.stdout is not None
        end = time.monotonic() + deadline_s
        while b"\n" not in self._unread:
            left_s = end - time.monotonic()
            if left_s <= 0 or not wait_ready([self._process.stdout], left_s):
                raise self._error(f"did not answer within {deadline_s:.0f} s")
            chunk = os.read(self._process.stdout.fileno(), LINE_SIZE_MAX)
            if not chunk:
                return Answer(ok=False, error="the process ended")
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return Answer.decode(line)

    def _wait(self) -> None:
        assert self._process is not None
        try:
            status = self._process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            raise self._error(f"did not stop within {STOP_DEADLINE_S:.0f} s") from None
        if status != 0:
            raise self._error(f"ended with status {status}")

    def _reap(self) -> None:
        """Give back what is left of a process that has ended, or is to end."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def _error(self, what: str) -> BrokerStartError:
        log = self.log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace") if self.log.exists() else ""
        return BrokerStartError(f"the broker at {self.address} {what}; its log ends:\n{log}")

    def _check_owner(self) -> None:
        if self._owner_pid != os.getpid():
            raise BrokerStartError(f"the broker belongs to process {self._owner_pid}, this is its child {os.getpid()}")


class BrokerToRun:
    """What ``running_broker`` returns: ``with`` gives a RunningBroker, ``async with`` an AsyncRunningBroker."""

    def __init__(self, broker: RunningBroker) -> None:
        self._broker = broker

    def __enter__(self) -> RunningBroker:
        return self._broker.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._broker.close()

    async def __aenter__(self) -> AsyncRunningBroker:
        from mqcore.testing.broker_async import AsyncRunningBroker  # it imports this module

        starting = asyncio.create_task(asyncio.to_thread(self._broker.__enter__))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait([starting])
            await asyncio.to_thread(self._broker.close)
            raise
        return AsyncRunningBroker(self._broker)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._broker.close)


def running_broker(
    *,
    settings: Mapping[str, SettingValue] | None = None,
    topics: Topics = (),
    store: Path | str | None = None,
) -> BrokerToRun:
    """Return a broker to be used in ``with`` or ``async with``: it serves inside the block and is gone behind it.

    *settings* are property names with values, as in docs/settings.md; *topics* are created before the block begins,
    with four queues each or as many as a mapping says. With *store* the broker opens that store directory, makes it
    when it is not there, and leaves it; without, a temporary one is removed, also when the test process is killed.
    """
    return BrokerToRun(RunningBroker(settings=settings, topics=topics, store=store))


def topics_with_queues(topics: Topics) -> dict[str, int]:
    """Return *topics* in the one form that the rest uses."""
    if isinstance(topics, Mapping):
        return dict(topics)
    return dict.fromkeys([topics] if isinstance(topics, str) else topics, QUEUES)


def as_text(value: SettingValue) -> str:
    """Return *value* as a properties file has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
