"""The children of fast_rig.Mortals: each does one thing to a shared segment, and dies in the middle of it if told to.

``python fast_child.py DESCRIPTOR`` reads orders from that socket: a JSON object with the verb and its arguments, and
the segment's descriptor beside it. Where a process has to die at a place that the kernel does not stop at, the verb
does by hand, through the tables, what the kernel does up to there.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import random
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from mqcore import layout
from mqcore._fast.base.process import die_with_parent
from mqcore._fast.log.append import CommitLogWriter
from mqcore._fast.log.mapped_file import MappedFiles
from mqcore._fast.segment.boards import SharedSegment
from mqcore._fast.segment.rings import PullRequestRing
from mqcore.store.log.record import PackedHost, Record, encode

HOST = PackedHost(b"\x7f\x00\x00\x01", 10911)
C_CODES = {"q": "=q", "i": "=i"}


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a killed process went on")


class Hands:
    """Locks and fields of a segment, touched by hand."""

    def __init__(self, fd: int) -> None:
        self.map = mmap.mmap(fd, 0)
        self._offsets = layout.region_offsets()
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self.map))

    def lock(self, name: str, *, makes_consistent: bool = True) -> None:
        library, at = ctypes.CDLL(None), ctypes.c_void_p(self._base + layout.STORE_BOARD.offsets[name])
        taken = library.pthread_mutex_lock(at)
        if taken == errno.EOWNERDEAD and makes_consistent:
            taken = library.pthread_mutex_consistent(at)
        assert taken in (0, errno.EOWNERDEAD), f"lock {name}: {taken}"

    def get(self, name: str, region: str = "board", row: int = 0) -> int:
        code, at = self._place(name, region, row)
        (value,) = struct.unpack_from(code, self.map, at)
        return int(value)

    def put(self, name: str, value: int | bytes, region: str = "board", row: int = 0) -> None:
        if isinstance(value, bytes):
            _, at = self._place(name, region, row)
            self.map[at : at + len(value)] = value
            return
        code, at = self._place(name, region, row)
        struct.pack_into(code, self.map, at, value)

    def _place(self, name: str, region: str, row: int) -> tuple[str, int]:
        entry = next(entry for entry in layout.REGIONS if entry.name == region)
        assert entry.row is not None
        (field,) = [field for field in entry.row.fields if field.name == name]
        at = self._offsets[region] + row * entry.row_size + entry.row.offsets[name]
        return C_CODES.get(field.code, ""), at


# Verbs -----------------------------------------------------------------------------------------------------------


def hold_board_lock(segment: SharedSegment, *, region: str, keys: dict[str, Any], count: str, moment: str) -> None:
    """Die over a new row: with the lock taken, the row half filled, whole, or counted and not yet in the index."""
    hands = Hands(segment.fd)
    hands.lock("board_lock")
    row = hands.get(count)
    for name, value in list(keys.items()) if moment != "locked" else []:
        hands.put(name, value.encode() if isinstance(value, str) else value, region, row)
        if moment == "half filled":
            break
    if moment == "counted":
        hands.put(count, row + 1)
    die()


def keep_put_lock(segment: SharedSegment) -> None:
    """Hold the put lock until somebody kills this process."""
    hands = Hands(segment.fd)
    hands.lock("put_lock")
    hands.put("locked_since", int(time.time() * 1000))
    while True:
        signal.pause()


def inherit_put_lock(segment: SharedSegment, *, makes_consistent: bool) -> None:
    """Take the put lock over from a dead owner, and die before anything is repaired."""
    hands = Hands(segment.fd)  # kept to the end: a lock in memory that is unmapped dies unseen
    hands.lock("put_lock", makes_consistent=makes_consistent)
    die()


def hold_put_lock(
    segment: SharedSegment, *, directory: str, file_size: int, topic: str, queue_row: int, body: str, moment: str,
    second: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    """Die over an append, *moment* says where: see MOMENTS in test_fast_append_killed.py, and for pairs
    test_fast_republish.py.
    """
    hands = Hands(segment.fd)
    hands.lock("put_lock")
    hands.put("locked_since", int(time.time() * 1000))
    if moment == "locked":
        die()
    end, next_offset = hands.get("wrote_offset"), hands.get("next_offset", "queues", queue_row)
    queue_id = hands.get("queue_id", "queues", queue_row)
    size = len(encode_record(topic, queue_id, body, next_offset, end))
    second_next, first_size = 0, size
    if second is not None:
        second_next = hands.get("next_offset", "queues", second["queue_row"])
        size += len(encode_record(second["topic"], 0, second["body"], second_next, end))
    rest = file_size - end % file_size
    start = end if size + layout.FILE_END_MIN_BLANK_SIZE <= rest else end + rest
    if start != end:
        MappedFiles(directory, file_size).make(start)
        write(directory, file_size, end, layout.BLANK_RECORD.struct.pack(rest, layout.BLANK_MAGIC))
    if moment == "rolled":
        die()
    if second is not None:
        hands.put("intent_second_next_offset", second_next + 1)
        hands.put("intent_second_queue", second["queue_row"] + 1)
    if moment == "half declared":
        die()
    hands.put("intent_next_offset", next_offset + 1)
    hands.put("intent_topic_row", hands.get("topic_row", "queues", queue_row))
    hands.put("intent_queue_row", queue_row)
    hands.put("intent_count", 1 if second is None else 2)
    hands.put("intent_size", size)
    hands.put("intent_end", start + size)
    if moment == "declared":
        die()
    record = encode_record(topic, queue_id, body, next_offset, start)
    if moment == "half written":
        # Size and magic come last.
        write(directory, file_size, start + 8, record[8 : len(record) // 2])
        die()
    write(directory, file_size, start, record)
    if second is not None:
        record = encode_record(second["topic"], 0, second["body"], second_next, start + first_size)
        write(directory, file_size, start + first_size, record)
    if moment == "written":
        die()
    hands.put("wrote_offset", start + size)
    if moment == "published":
        die()
    hands.put("next_offset", next_offset + 1, "queues", queue_row)
    if moment == "counted":
        die()
    if second is not None:
        hands.put("next_offset", second_next + 1, "queues", second["queue_row"])
        if moment == "counted twice":
            die()
        hands.put("intent_second_queue", 0)
    hands.put("put_times", hands.get("put_times") + (1 if second is None else 2))
    hands.put("put_bytes", hands.get("put_bytes") + size)
    hands.put("intent_end", 0)
    die()


def encode_record(topic: str, queue_id: int, body: str, queue_offset: int, physical_offset: int) -> bytes:
    return encode(
        Record(
            queue_id=queue_id,
            flag=0,
            queue_offset=queue_offset,
            physical_offset=physical_offset,
            sys_flag=0,
            born_timestamp=1,
            born_host=HOST,
            store_timestamp=int(time.time() * 1000),
            store_host=HOST,
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=body.encode(),
            topic=topic.encode(),
            properties=b"",
        )
    )


def write(directory: str, file_size: int, offset: int, data: bytes) -> None:
    with Path(directory, f"{offset - offset % file_size:020d}").open("r+b") as file:
        file.seek(offset % file_size)
        file.write(data)


def append_for_ever(segment: SharedSegment, *, directory: str, file_size: int, topic: str, seed: int) -> None:
    """Append records of all sizes to a few queues until somebody kills this process."""
    chance = random.Random(seed)
    writer = CommitLogWriter(segment, directory, file_size, file_size // 4, 60_000)
    while True:
        status, _, _, _, _, _ = writer.append(
            topic=topic.encode(), queue_id=chance.randrange(4), body=chance.randbytes(chance.randrange(1, 6000)),
            properties=b"KEYS\x01k", flag=0, sys_flag=0, born_timestamp=1, born_address=HOST.address,
            born_port=HOST.port, store_address=HOST.address, store_port=HOST.port,
        )  # fmt: skip
        assert status == 0, f"append: status {status}"


def make_rows(segment: SharedSegment, *, seed: int, topics: int, queues: int) -> None:
    """Make rows of every kind, each key many times over, in an order of its own."""
    keys = [(topic, queue_id) for topic in range(topics) for queue_id in range(queues)]
    random.Random(seed).shuffle(keys)
    for topic, queue_id in keys:
        segment.offset_row(b"group-%d" % (topic % 7), b"topic-%d" % topic, queue_id, True)


def produce(segment: SharedSegment, *, seed: int, count: int, size_max: int) -> None:
    """Push numbered entries of every size into ring (0, 0), trying again while it is full."""
    chance = random.Random(seed)
    ring = PullRequestRing(segment, 0, 0)
    for number in range(count):
        payload = struct.pack("=q", number) + chance.randbytes(chance.randrange(size_max - 8))
        while not ring.push(payload, number % 100):
            os.sched_yield()


VERBS: dict[str, Callable[..., None]] = {
    verb.__name__: verb for verb in (
        hold_board_lock, keep_put_lock, inherit_put_lock, hold_put_lock, append_for_ever, make_rows, produce,
    )
}  # fmt: skip


# Orders ----------------------------------------------------------------------------------------------------------


def start(fd: int, verb: str, arguments: dict[str, Any]) -> int:
    """Fork a child for one verb; its pid once it has come to that, so that it is not killed before."""
    parent = os.getpid()
    ready, is_ready = os.pipe()
    pid = os.fork()
    if pid:
        os.close(is_ready)
        os.read(ready, 1)
        os.close(ready)
        return pid
    status = 1
    try:
        die_with_parent(parent)
        segment = SharedSegment.attach(fd)
        os.close(is_ready)
        VERBS[verb](segment, **arguments)
        status = 0
    finally:
        os._exit(status)


def follow(fd: int, order: dict[str, Any]) -> list[int]:
    """Carry out an order: one child, or one per seed of *seeds*, killed after *kill_after_s* each if that is said."""
    verb, seeds, kills = order.pop("verb"), order.pop("seeds", None), order.pop("kill_after_s", [])
    many = [order] if seeds is None else [{**order, "seed": seed} for seed in seeds]
    pids = [start(fd, verb, arguments) for arguments in many]
    began = time.monotonic()
    for pid, after_s in sorted(zip(pids, kills, strict=False), key=lambda pair: pair[1]):
        time.sleep(max(0.0, began + after_s - time.monotonic()))
        os.kill(pid, signal.SIGKILL)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


def main(descriptor: int) -> None:
    with socket.socket(fileno=descriptor) as orders:
        while True:
            data, fds, _, _ = socket.recv_fds(orders, 65536, 1)
            if not data:
                return
            (fd,) = fds
            statuses = follow(fd, json.loads(data))
            os.close(fd)
            orders.sendall(json.dumps(statuses).encode())


if __name__ == "__main__":
    main(int(sys.argv[1]))
