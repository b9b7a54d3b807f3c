"""What the kernel's tests stand on: a shared segment to look into, and processes that die when they are told to."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mqcore import layout
from mqcore._fast.boards import SharedSegment

CHILD = Path(__file__).with_name("fast_child.py")
REPLY_DEADLINE_S = 60.0
ROWS = {region.name: region.row for region in layout.REGIONS if region.row is not None}


@contextlib.contextmanager
def shared_segment() -> Iterator[SharedSegment]:
    """A segment of its own, whose descriptor is given back."""
    segment = SharedSegment.create()
    try:
        yield segment
    finally:
        os.close(segment.fd)


class RawSegment:
    """The rows of a segment as NumPy sees them through the tables: what a reader of LAYOUT.md would find."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, 0)

    def rows(self, region: str) -> NDArray[np.void]:
        """Every row of a region, shape (rows,); a writable view."""
        row = ROWS[region]
        count = next(entry.count for entry in layout.REGIONS if entry.name == region)
        return np.frombuffer(self._map, row.dtype, count, layout.region_offsets()[region])

    @property
    def board(self) -> NDArray[np.void]:
        """The one row of the store board; ``board["wrote_offset"]`` reads, ``board["wrote_offset"] = 1`` writes."""
        return self.rows("board")[0:1].reshape(())


class Mortals:
    """A process that makes children that do one thing each and die as they are told; see fast_child.py for the things.

    The children are forked from a small process of their own, since forking a test run would copy its threads' locks.
    """

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        self._ours.settimeout(REPLY_DEADLINE_S)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(CHILD), str(theirs.fileno())], pass_fds=[theirs.fileno()]
            )

    def begin(self, segment: SharedSegment, verb: str, **arguments: Any) -> None:
        """Start children; ``finish`` waits for them."""
        socket.send_fds(self._ours, [json.dumps({"verb": verb, **arguments}).encode()], [segment.fd])

    @property
    def have_ended(self) -> bool:
        """Whether ``finish`` will answer at once."""
        return bool(select.select([self._ours], [], [], 0)[0])

    def finish(self) -> list[int]:
        """The exit statuses of the children, -9 for one that was killed."""
        answer: list[int] = json.loads(self._ours.recv(65536))
        return answer

    def run(self, segment: SharedSegment, verb: str, **arguments: Any) -> list[int]:
        """Start children and wait until they have ended."""
        self.begin(segment, verb, **arguments)
        return self.finish()

    def close(self) -> None:
        self._ours.close()
        try:
            self._process.wait(REPLY_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def mortals() -> Iterator[Mortals]:
    """Mortals for as long as the block lasts."""
    found = Mortals()
    try:
        yield found
    finally:
        found.close()
