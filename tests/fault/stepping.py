"""Stopping a process between any two of its instructions or at any of its system calls, by ptrace(2).

A worker that is stopped while it sleeps, given something to do and then moved on by a chosen number of steps dies
exactly there, every time. So the places where a death could hurt are tried one by one and not left to chance.
"""

from __future__ import annotations

import ctypes
import os
import signal
from types import TracebackType
from typing import Self

PTRACE_CONT = 7
PTRACE_SINGLESTEP = 9
PTRACE_SYSCALL = 24
PTRACE_SETOPTIONS = 0x4200
PTRACE_SEIZE = 0x4206
PTRACE_INTERRUPT = 0x4207
OPTION_SYSCALL_GOOD = 1
WAIT_ALL = 0x40000000
SYSCALL_STOP = signal.SIGTRAP | 0x80

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


def missing_permission() -> str:
    """Why this process may not trace others; empty if it may."""
    return "" if os.geteuid() == 0 else "needs root: ptrace of processes that are not children"


class Stopped:
    """A process whose main thread stands still and is moved on step by step. All calls must come from one thread.

    On leaving it is killed if it still lives.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.is_alive = True
        self._trace(PTRACE_SEIZE, OPTION_SYSCALL_GOOD)
        self._trace(PTRACE_INTERRUPT)
        self._wait()

    def step(self, count: int) -> int:
        """Execute *count* instructions, fewer if the process sleeps in a system call's middle; how many were done."""
        return self._move(PTRACE_SINGLESTEP, count)

    def to_system_call(self, count: int) -> int:
        """Run on to the *count*-th beginning or end of a system call from here."""
        return self._move(PTRACE_SYSCALL, count)

    def kill(self) -> None:
        """SIGKILL where it stands."""
        if self.is_alive:
            os.kill(self.pid, signal.SIGKILL)
            while self.is_alive:
                self._wait()

    def _move(self, request: int, count: int) -> int:
        for done in range(count):
            self._trace(request)
            self._wait()
            if not self.is_alive:
                return done
        return count

    def _trace(self, request: int, data: int = 0) -> None:
        if _libc.ptrace(request, self.pid, None, data) < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"ptrace {request:#x} of {self.pid}: {os.strerror(number)}")

    def _wait(self) -> None:
        _, status = os.waitpid(self.pid, WAIT_ALL)
        self.is_alive = os.WIFSTOPPED(status)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
