"""The debug build ends a process in which something does not hold; the other build has no trace of the checks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fast_rig import shared_segment

from mqcore._fast.base.process import is_checked

DEBUG = "1" in (os.environ.get("MQ_DEBUG"), os.environ.get("MQ_SANITIZE"))
# A ring whose consumer has read more than its producer wrote.
BREAK_A_RING = """
import mmap, struct, sys
from mqcore import layout
from mqcore._fast.segment.boards import SharedSegment
from mqcore._fast.segment.rings import PullRequestRing
fd = int(sys.argv[1])
ring = PullRequestRing(SharedSegment.attach(fd), 0, 0)
with mmap.mmap(fd, 0) as segment:
    head = layout.region_offsets()["pull_request_rings"] + layout.RING_HEAD.offsets["head"]
    segment[head : head + 8] = struct.pack("=q", 1 << 20)
print(ring.push(b"payload"))
"""


def test_the_build_in_use_is_the_one_that_was_asked_for() -> None:
    assert is_checked() == DEBUG


@pytest.mark.skipif(DEBUG, reason="of the build without checks")
def test_the_checks_of_the_debug_build_are_not_in_the_other() -> None:
    import mqcore._fast.segment.rings as rings

    assert b"does not hold" not in Path(rings.__file__).read_bytes()


@pytest.mark.skipif(not DEBUG, reason="of the debug build: make debug-build, MQ_DEBUG=1")
def test_what_does_not_hold_ends_its_process_and_is_written_down(tmp_path: Path) -> None:
    log = tmp_path / "found"
    with shared_segment() as segment:
        ended = subprocess.run(
            [sys.executable, "-c", BREAK_A_RING, str(segment.fd)],
            pass_fds=[segment.fd],
            env={**os.environ, "MQ_CHECK_LOG": str(log)},
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert ended.returncode == -signal.SIGABRT, ended.stderr
    assert "a ring's head and tail are no further apart than its capacity" in ended.stderr
    assert log.read_text() == "".join(line for line in ended.stderr.splitlines(True) if "does not hold" in line)
