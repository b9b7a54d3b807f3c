"""When a process counts as ended: when nothing of it runs, whether or not somebody has taken note."""

from __future__ import annotations

import platform
import subprocess
import sys

import psutil
import pytest

from mqcore.testing.leftovers import has_ended, those_left, wait_ended
from tests.waiting import wait_until

EXIT_OF_ONE_THREAD = {"x86_64": 60, "aarch64": 93}.get(platform.machine())
LEADER_LEAVES = f"""
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
ctypes.CDLL(None).syscall({EXIT_OF_ONE_THREAD}, 0)
"""


def is_zombie(process: psutil.Process) -> bool:
    return bool(process.status() == psutil.STATUS_ZOMBIE)


def test_one_that_nobody_has_waited_for_has_ended() -> None:
    with subprocess.Popen(["true"]) as child:
        process = psutil.Process(child.pid)
        wait_until(lambda: is_zombie(process))
        assert has_ended(process)
        assert those_left([process], 0.0) == []
    assert has_ended(process)


def test_one_that_runs_has_not_and_is_killed_in_the_end() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        process = psutil.Process(child.pid)
        assert those_left([process], 0.05) == [process]
        wait_ended([process], 0.05)
        assert child.wait() != 0


@pytest.mark.skipif(EXIT_OF_ONE_THREAD is None, reason=f"number of exit unknown on {platform.machine()}")
def test_one_whose_first_thread_alone_has_ended_has_not() -> None:
    with subprocess.Popen([sys.executable, "-c", LEADER_LEAVES]) as child:
        process = psutil.Process(child.pid)
        wait_until(lambda: is_zombie(process))
        assert not has_ended(process)
        child.kill()
        assert those_left([process], 30.0) == []
