"""Who is process 1 of a container is given everybody's orphans, and has to bury them, as init does.

A probe, or a shell, that is run in the container and leaves children behind would fill its table of processes
otherwise. A server needs no tini for that, nor to be stopped: it takes SIGTERM by itself, and tells its workers.
"""

from __future__ import annotations

import asyncio
import os
import signal
import weakref
from typing import Final, Protocol

INIT: Final = 1
LOOK_AGAIN_S: Final = 1.0


class Child(Protocol):
    """As ``subprocess.Popen``."""

    pid: int
    returncode: int | None


_own: weakref.WeakSet[Child] = weakref.WeakSet()


def claim(process: Child) -> None:
    """Say that *process* is buried by who has started it."""
    _own.add(process)


def bury_when_init() -> None:
    """From now on bury the orphans that this process is given, if it is process 1; call it in the event loop."""
    if os.getpid() == INIT:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, bury)
        loop.call_soon(bury)  # those that ended before


def bury() -> None:
    """Take the exit status of every child that has ended and was not claimed."""
    while (ended := next_ended()) is not None:
        if any(process.pid == ended and process.returncode is None for process in _own):
            # Nobody behind it is shown to us before its owner has taken it; that is a matter of moments.
            asyncio.get_running_loop().call_later(LOOK_AGAIN_S, bury)
            return
        os.waitpid(ended, os.WNOHANG)


def next_ended() -> int | None:
    """The number of a child that has ended, whose status is left where it is; None if there is none."""
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return None if found is None else found.si_pid
