"""What a copy of the log costs: the ha workers of a master and of a slave, and nothing else, on one machine.

    python -m benchmarks.replication [--messages N] [--size BYTES] [DIRECTORY]

Fills a log, lets an empty slave catch up
over loopback, then appends again as fast as one writer can while the slave follows. Prints bytes a second, the
processor time of each side per message, and how far the slave was behind when the last message was appended.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from mqcore import layout
from mqcore._fast.ha.loop import HaLoop
from mqcore._fast.log.append import CommitLogWriter
from mqcore._fast.log.mapped_file import MappedFiles
from mqcore._fast.segment.boards import SharedSegment
from mqcore.workers.ha import Master

FILE_SIZE = 1 << 28
RECORD_REST = 128  # bytes of a record beside its body, and some more
HA_ROW = 1
COMMAND = layout.constants("WorkerCommand")
STATE = layout.constants("WorkerState")
STORE_FLAG = layout.constants("StoreFlag")
LOOPBACK = bytes((127, 0, 0, 1))
FORK = multiprocessing.get_context("fork")


class Side:
    """A segment, and the ha worker over it in a process of its own."""

    def __init__(self, directory: Path, *, is_slave: bool) -> None:
        directory.mkdir(parents=True)
        self.segment = SharedSegment.create()
        if is_slave:
            self.segment.set_flags(STORE_FLAG["SLAVE"])
        self.wake = os.eventfd(0, os.EFD_NONBLOCK)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self._link, self._theirs = socket.socketpair()
        options = {
            "row": HA_ROW, "wake": self.wake, "link": self._theirs.fileno(), "listener": self.listener.fileno(),
            "senders": [], "broker": (0, self.wake), "reput": (2, self.wake), "flush": (3, self.wake),
            "commit_log": str(directory), "commit_log_file_size": FILE_SIZE, "waits_for_slaves": False,
            "is_slave": is_slave, "wakes_flush": False, "heartbeat_ms": 5000, "silence_ms": 20_000,
            "frame_size_max": 32768, "from_first_file": True, "in_group": False, "acks_flushed": False,
        }  # fmt: skip
        self._pipe, theirs = FORK.Pipe()
        self._process = FORK.Process(target=serve, args=(self.segment, options, theirs))
        self._process.start()
        while self.segment.worker_word(HA_ROW, "state") != STATE["RUNNING"]:
            time.sleep(0.001)

    def cpu_s(self) -> float:
        """User and system time of the worker so far, seconds."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def tell(self) -> None:
        os.eventfd_write(self.wake, 1)

    def stop(self) -> None:
        self.segment.set_worker_word(HA_ROW, "command", COMMAND["STOP"])
        self.tell()
        self._process.join()


def serve(segment: SharedSegment, options: dict[str, Any], pipe: Connection) -> None:
    loop = HaLoop(segment, options)
    master = Master(loop, segment)
    while loop.run(0):
        master.follow()


def fill(writer: CommitLogWriter, count: int, size: int) -> None:
    body, host = bytes(size), LOOPBACK
    for _ in range(count):
        writer.append(
            topic=b"Replicated", queue_id=0, body=body, properties=b"KEYS\x01k", flag=0, sys_flag=0, born_timestamp=1,
            born_address=host, born_port=1, store_address=host, store_port=1,
        )  # fmt: skip


def warm(directory: str, start: int, size: int) -> None:
    """Have files and pages ready, as the flush worker has them ahead of those who write."""
    files = MappedFiles(directory, FILE_SIZE)
    for at in range(start - start % FILE_SIZE, start + size, FILE_SIZE):
        files.make(at)
        files.warm(at, FILE_SIZE)


def await_end(slave: SharedSegment, end: int) -> None:
    while slave.get("wrote_offset") < end:
        time.sleep(0.0005)


def report(
    what: str, master: Side, slave: Side, before: tuple[float, float], taken_s: float, count: int, size: int
) -> None:
    cpu = [(side.cpu_s() - then) / count * 1e6 for side, then in zip((master, slave), before, strict=True)]
    print(
        f"{what}: {count} messages, {size / taken_s / 1e6:.0f} MB/s, {count / taken_s:.0f} messages/s; "
        f"processor time per message: master's ha worker {cpu[0]:.2f} us, slave's {cpu[1]:.2f} us"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=300_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("directory", nargs="?", type=Path)
    arguments = parser.parse_args()
    count, size = arguments.messages, arguments.size
    with tempfile.TemporaryDirectory(dir=arguments.directory) as home:
        master, slave = Side(Path(home) / "master", is_slave=False), Side(Path(home) / "slave", is_slave=True)
        writer = CommitLogWriter(master.segment, f"{home}/master", FILE_SIZE, size)
        warm(f"{home}/slave", 0, 2 * count * (size + RECORD_REST))
        fill(writer, count, size)
        end = master.segment.get("wrote_offset")
        before, began = (master.cpu_s(), slave.cpu_s()), time.monotonic()
        slave.segment.set_master(LOOPBACK, master.listener.getsockname()[1], 0)
        slave.tell()
        await_end(slave.segment, end)
        report("catch up", master, slave, before, time.monotonic() - began, count, end)
        before, began = (master.cpu_s(), slave.cpu_s()), time.monotonic()
        fill(writer, count, size)
        behind = master.segment.get("wrote_offset") - slave.segment.get("wrote_offset")
        await_end(slave.segment, master.segment.get("wrote_offset"))
        report(
            "follow", master, slave, before, time.monotonic() - began, count, master.segment.get("wrote_offset") - end
        )
        print(f"behind at the last append: {behind} bytes")
        slave.stop()
        master.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
