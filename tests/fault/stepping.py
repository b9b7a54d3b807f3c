"""Stopping a process between any two of its instructions or at any of its system calls, by ptrace(2).

A worker that is stopped while it sleeps, given something to do and then moved on by a chosen number of steps dies
exactly there, every time. So the places where a death could hurt are tried one by one and not left to chance.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import platform
import signal
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

PTRACE_CONT = 7
PTRACE_SINGLESTEP = 9
PTRACE_GETREGS = 12
PTRACE_SETREGS = 13
PTRACE_SYSCALL = 24
PTRACE_SETOPTIONS = 0x4200
PTRACE_SEIZE = 0x4206
PTRACE_INTERRUPT = 0x4207
OPTION_SYSCALL_GOOD = 1
WAIT_ALL = 0x40000000
SYSCALL_STOP = signal.SIGTRAP | 0x80

BREAKPOINT = b"\xcc"
REGISTERS, INSTRUCTION_POINTER = ctypes.c_ulong * 27, 16
CALL_DEADLINE_S = 60.0

_libc = ctypes.CDLL(None, use_errno=True)
_capsule_name = ctypes.pythonapi.PyCapsule_GetName
_capsule_name.restype, _capsule_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


def missing_permission() -> str:
    """Why this process may not trace others; empty if it may."""
    return "" if os.geteuid() == 0 else "needs root: ptrace of processes that are not children"


def missing_breakpoints() -> str:
    """Why other processes cannot be stopped at functions; empty if they can."""
    is_known = platform.machine() == "x86_64"
    return missing_permission() or ("" if is_known else f"breakpoints are written for x86_64, not {platform.machine()}")


class Function(NamedTuple):
    """A function of a kernel that others cimport, so that its address is known wherever the kernel is mapped."""

    module: str
    name: str

    def address_in(self, pid: int) -> int:
        """Where it lies in another process, which runs the same build as this one."""
        module = importlib.import_module(self.module)
        capsule = module.__pyx_capi__[self.name]
        here = _capsule_pointer(capsule, _capsule_name(capsule))
        assert module.__file__ is not None
        return mapped_at(pid, module.__file__) + here - mapped_at(os.getpid(), module.__file__)


def mapped_at(pid: int, path: str) -> int:
    """Where the beginning of the shared object *path* lies in a process."""
    wanted = str(Path(path).resolve())
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if line.endswith(wanted):
            return int(line.partition("-")[0], 16)
    raise AssertionError(f"process {pid} has not loaded {wanted}")


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

    def to_call(self, function: Function, count: int) -> None:
        """Run on to the beginning of the *count*-th call of *function*. Raises AssertionError if there are fewer."""
        address = function.address_in(self.pid)
        for number in range(count):
            if number:
                self.step(1)  # over the instruction that it stands before
            instruction = self._patch(address, BREAKPOINT)
            self._trace(PTRACE_CONT)
            self._await_breakpoint(f"call {number + 1} of {count} of {function.name}")
            self._patch(address, instruction)
            self._stand_at(address)

    def kill(self) -> None:
        """SIGKILL where it stands."""
        if self.is_alive:
            os.kill(self.pid, signal.SIGKILL)
            while self.is_alive:
                self._wait()

    def _patch(self, address: int, code: bytes) -> bytes:
        """Put *code* there; what was there before."""
        with open(f"/proc/{self.pid}/mem", "r+b", buffering=0) as memory:
            memory.seek(address)
            before = memory.read(len(code))
            memory.seek(address)
            memory.write(code)
        return before

    def _await_breakpoint(self, what: str) -> None:
        deadline = time.monotonic() + CALL_DEADLINE_S
        while True:
            pid, status = os.waitpid(self.pid, WAIT_ALL | os.WNOHANG)
            if pid:
                break
            assert time.monotonic() < deadline, f"{what} does not come"
            time.sleep(0.001)
        self.is_alive = os.WIFSTOPPED(status)
        assert self.is_alive, f"{what}: the process has ended, wait status {status:#x}"
        assert os.WSTOPSIG(status) == signal.SIGTRAP, f"{what}: stopped by signal {os.WSTOPSIG(status)}"

    def _stand_at(self, address: int) -> None:
        registers = REGISTERS()
        self._trace(PTRACE_GETREGS, ctypes.addressof(registers))
        registers[INSTRUCTION_POINTER] = address
        self._trace(PTRACE_SETREGS, ctypes.addressof(registers))

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
