"""What the kernel's tests stand on: a shared segment to look into, and processes that die when they are told to."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from mqcore import layout
from mqcore._fast.log.append import CommitLogWriter
from mqcore._fast.segment.boards import SharedSegment
from mqcore.codes import TRANSACTION_MASK
from mqcore.store.log.record import PackedHost, Record, decode
from mqcore.store.paths import file_name
from tests.unit.store_builder import COUNTED, memory_directory

CHILD = Path(__file__).with_name("fast_child.py")
REPLY_DEADLINE_S = 60.0
WORD = struct.Struct("=q")
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


class RawRing:
    """One ring of a segment, by the tables: the twin of rings.pyx for tests that stand at the other end."""

    def __init__(self, fd: int, region: str, number: int) -> None:
        (entry,) = [entry for entry in layout.REGIONS if entry.name == region]
        self._map = mmap.mmap(fd, 0)
        self._at = layout.region_offsets()[region] + number * entry.row_size
        self._capacity = entry.row_size - layout.RING_HEAD.size

    def pop(self) -> tuple[int, bytes] | None:
        """The oldest entry as (kind, payload), or None."""
        while (head := self._word("head")) != self._word("tail"):
            at = self._data(head)
            size, kind = layout.RING_ENTRY.struct.unpack_from(self._map, at)
            if size >= 0:
                start = at + layout.RING_ENTRY.size
                payload = self._map[start : start + size]
                self._store("head", head + -(-(layout.RING_ENTRY.size + size) // 8) * 8)
                return kind, payload
            self._store("head", head + self._capacity - head % self._capacity)
        return None

    def push(self, kind: int, payload: bytes) -> None:
        """Append an entry to a ring that is nearly empty and far from its end."""
        tail = self._word("tail")
        at = self._data(tail)
        layout.RING_ENTRY.struct.pack_into(self._map, at, len(payload), kind)
        start = at + layout.RING_ENTRY.size
        self._map[start : start + len(payload)] = payload
        self._store("tail", tail + -(-(layout.RING_ENTRY.size + len(payload)) // 8) * 8)

    @property
    def is_empty(self) -> bool:
        return self._word("head") == self._word("tail")

    def _data(self, position: int) -> int:
        return self._at + layout.RING_HEAD.size + position % self._capacity

    def _word(self, name: str) -> int:
        (value,) = WORD.unpack_from(self._map, self._at + layout.RING_HEAD.offsets[name])
        return int(value)

    def _store(self, name: str, value: int) -> None:
        WORD.pack_into(self._map, self._at + layout.RING_HEAD.offsets[name], value)


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

    def pids(self) -> list[int]:
        """The process ids of the children that are there now."""
        return [child.pid for child in psutil.Process(self._process.pid).children()]

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


# The commit log ---------------------------------------------------------------------------------------------------

HOST = PackedHost(b"\x7f\x00\x00\x01", 10911)
TOPIC = b"orders"


class Log:
    """A commit log and its segment: appended to by the kernel, read back by the readable twin of the record."""

    def __init__(self, directory: Path, segment: SharedSegment, file_size: int = 64 * 1024) -> None:
        self.directory = directory
        self.segment = segment
        self.file_size = file_size
        self.writer = self.another_writer()

    def another_writer(self, *, max_message_size: int | None = None, lock_timeout_ms: int = 60_000) -> CommitLogWriter:
        size = self.file_size if max_message_size is None else max_message_size
        return CommitLogWriter(self.segment, str(self.directory), self.file_size, size, lock_timeout_ms)

    @property
    def end(self) -> int:
        return self.segment.get("wrote_offset")

    def append(self, body: bytes = b"body", writer: CommitLogWriter | None = None, **changes: Any) -> Appended:
        """Append a message to queue 0 of TOPIC, or what *changes* say."""
        message = {
            "topic": TOPIC, "queue_id": 0, "body": body, "properties": b"KEYS\x01k", "flag": 0, "sys_flag": 0,
            "born_timestamp": 1, "born_address": HOST.address, "born_port": 5000, "store_address": HOST.address,
            "store_port": HOST.port,
        }  # fmt: skip
        return Appended(*(writer or self.writer).append(**{**message, **changes}))

    def queue_row(self, queue_id: int = 0, topic: bytes = TOPIC) -> int:
        return self.segment.queue_row(topic, queue_id)

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of one file."""
        path = self.directory / file_name(offset - offset % self.file_size)
        with path.open("rb") as file:
            file.seek(offset % self.file_size)
            return file.read(size)

    def walk(self) -> Iterator[Record]:
        """Every record from 0 to the published end. Raises CorruptRecordError at the first damage."""
        at = 0
        while at < self.end:
            rest = self.file_size - at % self.file_size
            data = self.read(at, rest)
            total_size, magic = layout.BLANK_RECORD.struct.unpack_from(data)
            if magic == layout.BLANK_MAGIC:
                assert total_size == rest, (
                    f"filler of {total_size} bytes at {at}, {rest} bytes before the end of its file"
                )
                at += rest
                continue
            record = decode(data, at)
            assert record.physical_offset == at, f"the record at {at} says {record.physical_offset}"
            yield record
            at += record.total_size
        assert at == self.end, f"the last record ends at {at}, the published end is {self.end}"

    def check(self) -> list[Record]:
        """Every record; nothing is torn, queue offsets are dense, and nothing but zeros lies behind the end."""
        records = list(self.walk())
        next_offsets: dict[tuple[bytes, int], int] = {}
        for record in records:
            if record.sys_flag & TRANSACTION_MASK not in COUNTED:
                continue
            key = (record.topic, record.queue_id)
            assert record.queue_offset == next_offsets.get(key, 0), f"queue offset {record.queue_offset} of {key}"
            next_offsets[key] = record.queue_offset + 1
        for (topic, queue_id), next_offset in next_offsets.items():
            assert self.segment.queue_word(self.queue_row(queue_id, topic), "next_offset") == next_offset
        assert self.segment.get("intent_end") == 0
        assert not any(self.read(self.end, self.file_size)), "bytes behind the published end"
        return records


@dataclass(frozen=True, slots=True)
class Appended:
    """What CommitLogWriter.append answers."""

    status: int
    offsets: list[int]
    end: int
    queue_offset: int
    timestamp: int
    size: int


@contextlib.contextmanager
def commit_log(file_size: int = 64 * 1024) -> Iterator[Log]:
    """An empty commit log in memory."""
    with memory_directory() as directory, shared_segment() as segment:
        yield Log(directory, segment, file_size)
