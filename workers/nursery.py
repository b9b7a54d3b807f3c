"""A process that has imported what workers run and forks them: a start, or a restart, costs a fork and no imports.

The broker process forks it before it has threads, and asks it over a socket, by a packet with the kind of a worker and,
beside it, its handover and its descriptors. The answer is the number of a process that is the broker process's own
child, since the one between, which has forked it, has ended, and the broker process adopts orphans: who watches, stops
and buries workers does so as if it had started them itself, and no worker needs the nursery, which may die any time.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import os
import signal
import socket
import struct
from pathlib import Path
from typing import Final

from mqcore._fast.base.process import die_with_parent, name_process, show_command
from mqcore.workers.handover import Handover
from mqcore.workers.start import run_worker

PRELOADED: Final = ("send", "pull", "reput", "flush")
"""The kinds that every broker has."""

ANSWER: Final = struct.Struct("=q")
"""The number of the process, or an error's, negative."""

KIND_SIZE_MAX: Final = 16
DESCRIPTORS_MAX: Final = 200
"""Less than the kernel takes with one packet (SCM_MAX_FD)."""

IGNORED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)
"""A Ctrl-C reaches the whole process group, but the broker process decides who stops when."""


def tend(requests: socket.socket, parent_pid: int) -> int:
    """Fork workers until the other end of *requests* is closed. Who comes back from here was one; its exit status."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    die_with_parent(parent_pid)
    name_process("mq-nursery")
    show_command(["mqcore.workers", "nursery"])
    keep_only(requests.fileno())
    gc.disable()
    for kind in PRELOADED:
        importlib.import_module(f"mqcore.workers.{kind}")
    gc.freeze()
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, KIND_SIZE_MAX, DESCRIPTORS_MAX)
        if not data:
            os._exit(0)
        answer = fork_orphan()
        if answer == 0:
            requests.close()
            return become(data.decode(), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        with contextlib.suppress(BrokenPipeError):
            requests.send(ANSWER.pack(answer))


def keep_only(descriptor: int) -> None:
    """Give back what was inherited besides *descriptor*, output and errors; input is nothing."""
    for number in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if number > 2 and number != descriptor:
            with contextlib.suppress(OSError):  # the listing's own
                os.close(number)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def fork_orphan() -> int:
    """Fork a process whose parent is who adopts orphans: 0 in it, and here its number, or an error's, negative."""
    heard, says = os.pipe()
    try:
        between = os.fork()
    except OSError as error:
        os.close(heard)
        os.close(says)
        return -(error.errno or errno.EAGAIN)
    if between == 0:
        return _fork_between(heard, says)
    os.close(says)
    with os.fdopen(heard, "rb") as source:
        told = source.read(ANSWER.size)
    os.waitpid(between, 0)
    # Nothing was said by one that was killed.
    return int(ANSWER.unpack(told)[0]) if len(told) == ANSWER.size else -errno.EAGAIN


def _fork_between(heard: int, says: int) -> int:
    between = os.getpid()
    os.close(heard)
    try:
        worker = os.fork()
    except OSError as error:
        worker = -(error.errno or errno.EAGAIN)
    if worker != 0:
        os.write(says, ANSWER.pack(worker))
        os._exit(0)
    os.close(says)
    while os.getppid() == between:
        os.sched_yield()
    return 0


def become(kind: str, descriptors: list[int]) -> int:
    """Be the worker *kind*; its handover is the first of *descriptors*, and the others are those that it names."""
    handover = Handover.read(descriptors[0])
    show_command(["mqcore.workers", kind, str(handover.number)])
    return run_worker(kind, handover.moved(dict(zip(handover.descriptors(), descriptors[1:], strict=True))))
