"""The broker process's end of the nursery, in which workers are forked: see ``workers/nursery.py``."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from mqcore._fast.base.process import adopt_orphans
from mqcore.leaving import live
from mqcore.workers.nursery import ANSWER, DESCRIPTORS_MAX, tend

logger = logging.getLogger(__name__)

FIRST_ANSWER_S: Final = 20.0
"""It imports what workers run first, and a machine may be busy."""
ANSWER_S: Final = 2.0


@dataclass(slots=True, weakref_slot=True, eq=False)
class ForkedProcess:
    """A child of this process that the nursery has forked, as ``subprocess.Popen`` has one."""

    pid: int
    returncode: int | None = None

    def poll(self) -> int | None:
        """How it has ended, as ``Popen.returncode`` says it; None if it lives."""
        return self._wait(os.WNOHANG)

    def wait(self) -> int:
        """As ``poll``, when it has ended."""
        status = self._wait(0)
        assert status is not None
        return status

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _wait(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


class Nursery:
    """The process that forks workers. It is a help: who does without it starts them as programs of their own."""

    def __init__(self, pid: int, requests: socket.socket) -> None:
        self.pid = pid
        self._requests = requests
        self._answer_s = FIRST_ANSWER_S
        self._is_closed = False

    @classmethod
    def fork(cls) -> Self | None:
        """Fork it, while this process has one thread; None if it has more. Neither the nursery nor what it forks comes
        back from here: they exit.
        """
        if len(list(Path("/proc/self/task").iterdir())) > 1:
            return None
        adopt_orphans()
        parent_pid = os.getpid()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            ours.close()
            live(lambda: tend(theirs, parent_pid))
        theirs.close()
        return cls(pid, ours)

    def start(self, kind: str, handover: int, descriptors: Sequence[int]) -> ForkedProcess:
        """Fork a worker of this *kind*, which has read its *handover*, and the *descriptors* that are in it.

        Waits for an answer. Raises OSError if none comes, and then the nursery is gone, and what it may have forked
        ends by itself: its row names another one (``run_worker``).
        """
        if self._is_closed or len(descriptors) >= DESCRIPTORS_MAX:
            raise OSError(errno.ENOTCONN, f"no nursery for {len(descriptors)} descriptors")
        try:
            self._requests.settimeout(self._answer_s)
            socket.send_fds(self._requests, [kind.encode()], [handover, *descriptors])
            answer = self._requests.recv(ANSWER.size)
            if len(answer) < ANSWER.size:
                raise ConnectionResetError(errno.ECONNRESET, "it has ended")
        except OSError as error:
            logger.error("nursery does not answer pid=%d error=%s", self.pid, error)
            self.close()
            raise
        self._answer_s = ANSWER_S
        (pid,) = ANSWER.unpack(answer)
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        return ForkedProcess(pid)

    def close(self) -> None:
        """Let it end, and bury it."""
        if self._is_closed:
            return
        self._is_closed = True
        self._requests.close()
        # As process 1, its orphans and it are buried by ``orphans.bury``.
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
