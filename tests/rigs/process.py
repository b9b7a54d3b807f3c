"""Child processes of the tests: they die with their owner, leave a log, and may talk JSON lines.

Each child is started through setpriv(1) with a parent death signal, so that none outlives a test run that was killed.
The shell behind it looks whether the owner had gone before the signal was asked for, and becomes the command otherwise.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

STOP_DEADLINE_S = 60.0
LOG_TAIL_BYTES = 4_000
DIE_WITH_OWNER = ("setpriv", "--pdeathsig", "KILL", "--", "sh", "-c", '[ "$PPID" = "$0" ] && exec "$@"')


class ChildError(AssertionError):
    """A child process ended early, did not answer in time or answered what it should not."""


class Child:
    """One running process.

    Standard error goes to the file *log*; so does standard output unless *talks*, when it is a pipe of lines.
    Standard input is a pipe if the child talks, else empty. As a context manager it kills what is still running on
    leaving.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        talks: bool = False,
        directory: Path | None = None,
    ) -> None:
        """*directory* is where it works, if not where its owner does."""
        self.log = log
        self.name = f"{Path(command[0]).name} {log.stem}"
        self._unread = b""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as sink:
            self._process = subprocess.Popen(
                [*DIE_WITH_OWNER, str(os.getpid()), *map(str, command)],
                stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                stdout=subprocess.PIPE if talks else sink,
                stderr=sink,
                env=None if env is None else {**os.environ, **env},
                cwd=directory,
                bufsize=0,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def cpu_time_s(self) -> float:
        """User and system time of the process and its live descendants so far, seconds."""
        processes = [psutil.Process(self.pid)]
        processes += processes[0].children(recursive=True)
        total = 0.0
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
        return total

    def log_tail(self) -> str:
        return self.log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")

    def error(self, what: str) -> ChildError:
        """An error about this process, with the end of its log."""
        return ChildError(f"{self.name} (pid {self.pid}): {what}; log {self.log} ends:\n{self.log_tail()}")

    def tell(self, line: str) -> None:
        """Write one line to the child's standard input."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode() + b"\n")
        except BrokenPipeError:
            raise self.error(f"went away before it was told {line!r}") from None

    def end_input(self) -> None:
        """Close the child's standard input: it reads the end of its orders."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _source(self) -> int:
        """The descriptor that its lines come from."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def _read_line(self, deadline_s: float) -> bytes | None:
        """The next line of standard output, None at its end."""
        source = self._source()
        end = time.monotonic() + deadline_s
        while b"\n" not in self._unread:
            # Who was not scheduled for so long still finds what has come meanwhile.
            left = max(0.0, end - time.monotonic())
            if not select.select([source], [], [], left)[0]:
                raise self.error(f"printed no line for {deadline_s} s")
            chunk = os.read(source, 1 << 16)
            if not chunk:
                return None
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _any_event(self, deadline_s: float) -> dict[str, Any] | None:
        """The next JSON line, None at the end of standard output. What is not JSON there is passed over."""
        while (line := self._read_line(deadline_s)) is not None:
            if line.startswith(b"{"):
                event: dict[str, Any] = json.loads(line)
                return event
        return None

    def _next_event(self, name: str, deadline_s: float) -> dict[str, Any] | None:
        event = self._any_event(deadline_s)
        if event is not None and event.get("event") != name:
            raise self.error(f"wanted the event {name!r}, got {event}")
        return event

    def read_event(self, name: str, deadline_s: float) -> dict[str, Any]:
        """The next event, which must be *name*."""
        if (event := self._next_event(name, deadline_s)) is None:
            raise self.error(f"ended before the event {name!r}")
        return event

    def read_events_to_end(self, name: str, deadline_s: float) -> list[dict[str, Any]]:
        """All events to the end of standard output, each of which must be *name* and come within *deadline_s*."""
        events = []
        while (event := self._next_event(name, deadline_s)) is not None:
            events.append(event)
        return events

    def read_events_before(self, last: str, deadline_s: float) -> list[dict[str, Any]]:
        """All events up to *last*, each within *deadline_s*. One that is called failed is an error."""
        events = []
        while (event := self._any_event(deadline_s)) is not None and event.get("event") != last:
            if event.get("event") == "failed":
                raise self.error(f"wanted the event {last!r}, got {event}")
            events.append(event)
        if event is None:
            raise self.error(f"ended before the event {last!r}")
        return events

    def wait(self, deadline_s: float = STOP_DEADLINE_S) -> int:
        """Wait for the end of the process and give its exit code, negative for a signal."""
        try:
            code = self._process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise self.error(f"still running after {deadline_s} s") from None
        self._close_pipes()
        return code

    def stop(self, deadline_s: float = STOP_DEADLINE_S) -> int:
        """End the process by SIGTERM and wait for it; kills it and raises ChildError if it does not obey."""
        if self.is_alive:
            self._process.terminate()
        try:
            return self.wait(deadline_s)
        except ChildError:
            self.kill()
            raise

    def kill(self) -> None:
        """End the process by SIGKILL, if it is still there, and reap it."""
        if self.is_alive:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait(STOP_DEADLINE_S)
        self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
