"""Brokers under test as forks of a process that has imported what they run: half of what their start costs is that.

What is forked then runs the module as ``python -m`` does, with the arguments, environment, directory and log that it
would have been given (``tests/nursery.py``). Whoever wants other than that, such as an environment, limits or a network
of its own, is started as users do.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .process import Child

MODULE = "mqcore.broker"
LATER = (
    "mqcore.broker.group_server",
    "mqcore.workers.send",
    "mqcore.workers.pull",
    "mqcore.workers.reput",
    "mqcore.workers.flush",
)
"""What they, or those that they fork, import later on."""
BIRTH_DEADLINE_S = 120.0
READ_WHILE_IMPORTED = ("MQ", "PYTHON", "LD_", "MALLOC_", "ASAN", "UBSAN", "LSAN")
"""Variables that begin so have had their effect before a fork could have others."""


def surroundings() -> tuple[object, ...]:
    """What a process inherits and cannot be told: it is as it was when the nursery was started, or it is no use."""
    early = sorted((name, value) for name, value in os.environ.items() if name.startswith(READ_WHILE_IMPORTED))
    network = Path("/proc/thread-self/ns/net").readlink()
    return resource.getrlimit(resource.RLIMIT_NOFILE), os.sched_getaffinity(0), network, early


class Nursery(Child):
    """The process that forks brokers. It belongs to the thread that makes it, and forks for all."""

    def __init__(self, log: Path) -> None:
        super().__init__([sys.executable, "-m", "tests.nursery", MODULE, *LATER], log=log, talks=True)
        self._surroundings = surroundings()
        self._lock = threading.Lock()
        self._ended: dict[int, int] = {}
        self.read_event("ready", BIRTH_DEADLINE_S)

    def suits(self) -> bool:
        """Whether a process that is started now, by this thread, can come from here."""
        return self.is_alive and surroundings() == self._surroundings

    def born(self, arguments: Sequence[str], *, log: Path) -> Born:
        """Fork one that runs the module with *arguments*. Its *log* is there from the first, as with other children."""
        log.touch()
        order = {
            "arguments": list(arguments),
            "log": str(log),
            "environment": dict(os.environ),
            "directory": str(Path.cwd()),
        }
        with self._lock:
            self.tell(json.dumps(order))
            while (event := self._any_event(BIRTH_DEADLINE_S)) is not None:
                if event["event"] == "born":
                    return Born(self, int(event["pid"]), log)
                self._note(event)
        raise self.error("ended before it had forked")

    def status(self, pid: int, deadline_s: float) -> int | None:
        """How the one *pid* has ended, as Popen has it; None if not yet. Who is told keeps it, and it is buried."""
        end = time.monotonic() + deadline_s
        while True:
            with self._lock:
                self._listen()
                if pid in self._ended:
                    self.tell(json.dumps({"bury": pid}))
                    return self._ended.pop(pid)
            left_s = end - time.monotonic()
            if left_s <= 0:
                return None
            # Another thread may hear it.
            select.select([self._source()], [], [], min(left_s, 0.05))

    def _listen(self) -> None:
        while b"\n" in self._unread or select.select([self._source()], [], [], 0)[0]:
            event = self._any_event(BIRTH_DEADLINE_S)
            if event is None:
                raise self.error("has ended, and its brokers with it")
            self._note(event)

    def _note(self, event: Mapping[str, Any]) -> None:
        assert event["event"] == "ended", event
        self._ended[event["pid"]] = event["status"]


class _Process:
    """As much of Popen as Child needs, for a process that the nursery has forked."""

    stdin = stdout = None

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self.pid = pid
        self._nursery = nursery
        self._status: int | None = None

    def poll(self, timeout: float = 0) -> int | None:
        # Of two threads that ask at the same time one is told.
        if self._status is None and (found := self._nursery.status(self.pid, timeout)) is not None:
            self._status = found
        return self._status

    def wait(self, timeout: float) -> int:
        if (status := self.poll(timeout)) is None:
            raise subprocess.TimeoutExpired(MODULE, timeout)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class Born(Child):
    """A process that a nursery has forked."""

    def __init__(self, nursery: Nursery, pid: int, log: Path) -> None:
        self.log = log
        self.name = f"{MODULE} {log.stem}"
        self._unread = b""
        self._process = _Process(nursery, pid)  # type: ignore[assignment]


_nursery: Nursery | None = None
_log: Path | None = None


@contextlib.contextmanager
def nursing(log: Path) -> Iterator[list[int]]:
    """While this lasts, brokers come from a nursery, which is made for the first; gives its pid, once there is one."""
    global _nursery, _log
    _log = log
    try:
        yield pids
    finally:
        _log = None
        if _nursery is not None:
            _nursery.kill()
        _nursery = None
        pids.clear()


pids: list[int] = []
"""The nursery's, if there is one."""


def start(arguments: Sequence[str], *, log: Path, env: Mapping[str, str] | None) -> Child:
    """Start a broker with *arguments*: a fork, or as users do it where there is no nursery that would do."""
    global _nursery
    is_main = threading.current_thread() is threading.main_thread()
    if _nursery is None and _log is not None and is_main:
        _nursery = Nursery(_log)
        pids.append(_nursery.pid)
    if _nursery is not None and env is None and _nursery.suits():
        return _nursery.born(arguments, log=log)
    return Child([sys.executable, "-m", MODULE, *arguments], log=log, env=env)
