"""What a worker process asks of the system: a name, an end with its parent, and words before a SIGBUS ends it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import psutil

from tests.waiting import wait_until

SIGBUS_STATUS = 135


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)


def test_a_process_shows_the_name_it_was_given() -> None:
    program = (
        "from mqcore._fast.base.process import name_process; name_process('mq-a-name-that-is-long');"
        "print(open('/proc/self/comm').read())"
    )
    assert run(program).stdout.strip() == "mq-a-name-that-"


CHILD = (
    "import os, sys, time; from mqcore._fast.base.process import die_with_parent; die_with_parent(int(sys.argv[1]));"
)
PARENT = f"""
import os, subprocess, sys
program = {CHILD!r} + "print('up', flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", program, str(os.getpid())], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_worker_dies_with_its_parent() -> None:
    pid = int(run(PARENT).stdout)
    wait_until(lambda: not is_running(pid), describe=f"process {pid} has ended")


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_worker_whose_parent_is_gone_already_ends_at_once() -> None:
    ended = run(CHILD + "print('went on')", str(os.getpid() + 1))
    assert (ended.returncode, ended.stdout) == (0, "")


def test_a_file_cut_short_under_its_mapping_is_said_in_words(tmp_path: Path) -> None:
    program = """
import mmap, os, sys
from mqcore._fast.base.process import end_on_sigbus
end_on_sigbus()
with open(sys.argv[1], "w+b") as file:
    file.truncate(8192)
    view = mmap.mmap(file.fileno(), 8192)
    file.truncate(0)
    view[5000]
print("went on")
"""
    ended = run(program, str(tmp_path / "file"))
    assert (ended.returncode, ended.stdout) == (SIGBUS_STATUS, "")
    assert "a mapped store file was cut short or cannot be read" in ended.stderr


ASK = "import os; from mqcore._fast.base.process import ask_for_short_slices as ask;"


def test_a_worker_gets_the_slices_it_asks_for_and_stays_as_nice_as_it_was() -> None:
    asked = run(ASK + "os.nice(3 - os.nice(0)); print(ask(200_000), os.nice(0))")
    assert asked.stdout.split() == ["200000" if knows_slices() else "0", "3"], asked.stderr


def knows_slices() -> bool:
    major, minor = platform.release().split(".")[:2]
    return (int(major), int(minor)) >= (6, 12)


def test_a_policy_that_somebody_has_chosen_for_a_worker_stays() -> None:
    asked = run(
        ASK + "os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)); print(ask(200_000));"
        "print(os.sched_getscheduler(0) == os.SCHED_BATCH)"
    )
    assert asked.stdout.split() == ["0", "True"], asked.stderr
