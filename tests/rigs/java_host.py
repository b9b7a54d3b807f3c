"""Several Java clients in one JVM: a JVM takes longer to start than most of them need for all that they do."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections.abc import Sequence

from .process import STOP_DEADLINE_S, Child
from .talkers import READY_DEADLINE_S, await_event


class JavaHost:
    """A JVM that runs sub-commands of the driver side by side; *child* is the sub-command host."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._port = int(await_event(child, "listening", READY_DEADLINE_S)["port"])

    @property
    def is_alive(self) -> bool:
        return self._child.is_alive

    def guest(self, words: Sequence[str]) -> Guest:
        """Start the sub-command *words*."""
        return Guest(self._child, self._port, words)

    def kill(self) -> None:
        self._child.kill()


class Guest(Child):
    """One sub-command in a JVM with others: it is talked with as a process is, by a connection.

    It does not die as a killed process does: it hears that it is left alone, and ends in order, in its own time.
    """

    def __init__(self, host: Child, port: int, words: Sequence[str]) -> None:
        self.log = host.log
        self.name = f"{words[0]} in {host.name}"
        self._unread = b""
        self._host = host
        self._connection: socket.socket | None = socket.create_connection(("127.0.0.1", port), READY_DEADLINE_S)
        self._connection.settimeout(None)
        self.tell("\t".join(words))

    @property
    def pid(self) -> int:
        """The JVM's, which is not its alone."""
        return self._host.pid

    @property
    def is_alive(self) -> bool:
        if self._connection is None or not self._host.is_alive:
            return False
        if not select.select([self._connection], [], [], 0)[0]:
            return True
        return bool(self._connection.recv(1, socket.MSG_PEEK))

    def _source(self) -> int:
        assert self._connection is not None
        return self._connection.fileno()

    def tell(self, line: str) -> None:
        assert self._connection is not None
        try:
            self._connection.sendall(line.encode() + b"\n")
        except OSError:
            raise self.error(f"went away before it was told {line!r}") from None

    def end_input(self) -> None:
        assert self._connection is not None
        with contextlib.suppress(OSError):  # it has gone
            self._connection.shutdown(socket.SHUT_WR)

    def wait(self, deadline_s: float = STOP_DEADLINE_S) -> int:
        """Wait until it has come to its end, whatever it says until then; 0."""
        end = time.monotonic() + deadline_s
        while self._connection is not None:
            left_s = max(0.0, end - time.monotonic())
            if not select.select([self._connection], [], [], left_s)[0]:
                raise self.error(f"still running after {deadline_s} s")
            with contextlib.suppress(ConnectionError):
                if os.read(self._source(), 1 << 16):
                    continue
            self.kill()
        return 0

    def stop(self, deadline_s: float = STOP_DEADLINE_S) -> int:
        self.end_input()
        return self.wait(deadline_s)

    def kill(self) -> None:
        """Leave it alone."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def cpu_time_s(self) -> float:
        raise NotImplementedError("its JVM is not its alone")
