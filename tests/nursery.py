"""A process that imports a module and forks those that run it: see ``tests/rigs/nursery.py``, its only user.

    python -m tests.nursery MODULE [ANOTHER]...

It forks for each line on its standard input that is an object of arguments, environment, directory and log, and says on
its standard output which processes were born, and how they have ended. One that has ended is there, as it is with
others whose parent has not looked yet, until it is told to bury it. It has imported nothing else of the tests: a module
that lacks an import of its own is to fail here as well.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import sys
from collections.abc import Mapping
from typing import Any

SET_PARENT_DEATH_SIGNAL = 1


def say(event: str, **more: object) -> None:
    print(json.dumps({"event": event, **more}), flush=True)


def become(module: str, order: Mapping[str, Any], parent: int) -> None:
    """Run *module* in this fork as ``python -m`` would."""
    ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(log)
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["directory"])
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.argv = [module, *order["arguments"]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def look(alive: set[int]) -> None:
    """Say of each of *alive* that has ended how, and take it out."""
    for pid in list(alive):
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is not None:
            alive.remove(pid)
            is_killed = ended.si_code != os.CLD_EXITED
            say("ended", pid=pid, status=-ended.si_status if is_killed else ended.si_status)


def main(module: str, *others: str) -> None:
    gc.disable()
    for name in (f"{module}.__main__", *others):
        importlib.import_module(name)
    del sys.modules[f"{module}.__main__"]  # it is to run anew
    gc.freeze()
    parent = os.getpid()
    for number in (signal.SIGINT, signal.SIGTERM):  # of a terminal: its owner says when
        signal.signal(number, signal.SIG_IGN)
    heard, rings = os.pipe()
    for end in (heard, rings):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(rings, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    say("ready")
    alive: set[int] = set()
    unread = b""
    while True:
        ready = select.select([0, heard], [], [])[0]
        if heard in ready:
            os.read(heard, 1 << 10)
            look(alive)
        if 0 not in ready:
            continue
        chunk = os.read(0, 1 << 16)
        if not chunk:
            return
        *lines, unread = (unread + chunk).split(b"\n")
        for line in lines:
            order = json.loads(line)
            if "bury" in order:
                os.waitpid(order["bury"], 0)
                continue
            pid = os.fork()
            if pid == 0:
                os.close(heard)
                os.close(rings)
                become(module, order, parent)
                return
            alive.add(pid)
            say("born", pid=pid)
            look(alive)


if __name__ == "__main__":
    main(*sys.argv[1:])
