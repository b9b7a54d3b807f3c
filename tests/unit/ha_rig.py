"""The ha worker's loop in a thread of a test, as a master or as a slave, and the other ends of its connections."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from fast_rig import Log

from mqcore import layout
from mqcore._fast.ha.loop import HaLoop
from mqcore._fast.segment.boards import SharedSegment
from mqcore.store.paths import file_name
from mqcore.workers.ha import Master
from tests.waiting import wait_until

COMMAND = layout.constants("WorkerCommand")
STATE = layout.constants("WorkerState")
SLAVE = layout.constants("SlaveState")
MASTER = layout.constants("MasterState")
STORE_FLAG = layout.constants("StoreFlag")
HEAD = layout.HA_FRAME_HEAD
REPORT = layout.HA_REPORT
FILE_SIZE = 1 << 16
BROKER_ROW, HA_ROW, SEND_ROW, REPUT_ROW, FLUSH_ROW = range(5)
DEADLINE_S = 30.0
PATIENT_MS = 600_000
LOOPBACK = bytes((127, 0, 0, 1))


class End:
    """The other end of a connection of the loop."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.socket.settimeout(DEADLINE_S)
        self._received = b""

    def take(self, size: int) -> bytes:
        """The next bytes, so many."""
        while len(self._received) < size:
            data = self.socket.recv(65536)
            if not data:
                raise EOFError("the loop has closed the connection")
            self._received += data
        taken, self._received = self._received[:size], self._received[size:]
        return taken

    def is_closed(self) -> bool:
        """Wait for the loop to close it."""
        with contextlib.suppress(ConnectionResetError):
            while self.socket.recv(65536):
                pass
        return True


class SlaveEnd(End):
    """A slave's end."""

    def report(self, end: int) -> None:
        self.socket.sendall(REPORT.struct.pack(end))

    def frame(self) -> tuple[int, bytes]:
        """The next frame: where it belongs, and its bytes."""
        offset, size = HEAD.struct.unpack(self.take(HEAD.size))
        return offset, self.take(size)

    def copy(self, start: int, end: int) -> bytes:
        """Frames until *end* is reached, which must follow each other from *start* on; heart-beats are left out."""
        data = b""
        while start + len(data) < end:
            offset, body = self.frame()
            assert offset == start + len(data)
            data += body
        assert start + len(data) == end
        return data


class MasterEnd(End):
    """The master's end."""

    def report(self) -> int:
        """The slave's next report."""
        (end,) = REPORT.struct.unpack(self.take(REPORT.size))
        return int(end)

    def frame(self, offset: int, data: bytes = b"") -> None:
        self.socket.sendall(HEAD.struct.pack(offset, len(data)) + data)


class LoopRig(ABC):
    """A running loop over the log in *directory*; *options* are those in which it differs from others."""

    def __init__(self, segment: SharedSegment, directory: Path, file_size: int, **options: Any) -> None:
        self.segment = segment
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.send_wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.other_wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        """Of those who follow the log."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self._link, self._theirs = socket.socketpair()
        self._open: list[socket.socket] = [self._listener, self._link, self._theirs]
        self._options: dict[str, Any] = {
            "row": HA_ROW, "wake": self._wake, "link": self._theirs.fileno(), "listener": self._listener.fileno(),
            "senders": [(SEND_ROW, self.send_wake)], "broker": (BROKER_ROW, self._wake),
            "reput": (REPUT_ROW, self.other_wake), "flush": (FLUSH_ROW, self.other_wake),
            "commit_log": str(directory), "commit_log_file_size": file_size, "waits_for_slaves": False,
            "is_slave": False, "wakes_flush": False, "heartbeat_ms": PATIENT_MS, "silence_ms": PATIENT_MS,
            "frame_size_max": 32768, "bytes_per_s": 0, "from_first_file": False, "in_group": False,
            "acks_flushed": False,
        } | options  # fmt: skip
        self.start()

    def start(self) -> None:
        self.segment.set_worker_word(HA_ROW, "state", STATE["STARTING"])
        self.segment.set_worker_word(HA_ROW, "command", COMMAND["RUN"])
        self._loop = HaLoop(self.segment, self._options)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        wait_until(lambda: self.word("state") == STATE["RUNNING"], describe="the loop runs")

    @abstractmethod
    def _serve(self) -> None:
        """Run the loop until it is told to stop, as the worker does."""

    def word(self, name: str) -> int:
        return self.segment.worker_word(HA_ROW, name)

    def wake(self) -> None:
        os.eventfd_write(self._wake, 1)

    @property
    def slaves_address(self) -> tuple[str, int]:
        """Where slaves connect to."""
        host, port = self._listener.getsockname()
        return host, port

    def stop(self) -> None:
        self.segment.set_worker_word(HA_ROW, "command", COMMAND["STOP"])
        self.wake()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()

    def close(self) -> None:
        if self._thread.is_alive():
            self.stop()
        del self._loop
        for end in self._open:
            end.close()
        for wake in (self._wake, self.send_wake, self.other_wake):
            os.close(wake)


class HaRig(LoopRig):
    """The loop of a master."""

    def __init__(self, log: Log, **changes: Any) -> None:
        self._slaves: list[SlaveEnd] = []
        super().__init__(log.segment, log.directory, log.file_size, **changes)

    def _serve(self) -> None:
        version = self.segment.get("settings_version")
        while self._loop.run(version):
            self._loop.use(self._options)
            version = self.segment.get("settings_version")

    def change(self, **changes: Any) -> None:
        self._options |= changes
        self.segment.add("settings_version", 1)
        self.wake()

    def connect(self, reports: int | None = None) -> SlaveEnd:
        slave = SlaveEnd(socket.create_connection(self.slaves_address, DEADLINE_S))
        self._slaves.append(slave)
        if reports is not None:
            slave.report(reports)
        return slave

    def row(self, slave: SlaveEnd) -> dict[str, Any]:
        """The row of a connection; waits for it."""
        port = slave.socket.getsockname()[1]
        found: list[dict[str, Any]] = []

        def look() -> bool:
            found[:] = [row for row in self.segment.slaves() if row["port"] == port]
            return bool(found)

        wait_until(look, describe="the slave has a row")
        return found[0]

    def await_state(self, slave: SlaveEnd, state: str) -> None:
        wait_until(lambda: self.row(slave)["state"] == SLAVE[state], describe=f"the slave is {state}")

    def close(self) -> None:
        # Without slaves there is nobody to wait for.
        for slave in self._slaves:
            slave.socket.close()
        super().close()


class ReplicaRig(LoopRig):
    """The loop of a slave whose log lies in *directory*, and the place where its master listens."""

    def __init__(self, segment: SharedSegment, directory: Path, **changes: Any) -> None:
        self.directory = directory
        segment.set_flags(STORE_FLAG["SLAVE"])
        self._door = socket.create_server(("127.0.0.1", 0))
        self._door.settimeout(DEADLINE_S)
        options = {"senders": [], "is_slave": True, "wakes_flush": True} | changes
        super().__init__(segment, directory, FILE_SIZE, **options)
        self._open.append(self._door)

    def _serve(self) -> None:
        master = Master(self._loop, self.segment)
        while self._loop.run(self.segment.get("settings_version")):
            master.follow()

    @property
    def end(self) -> int:
        return self.segment.get("wrote_offset")

    def meet(self, start: int = 0) -> MasterEnd:
        """Tell the loop where its master is, and be that."""
        return MasterEnd(self._meet(start))

    def _meet(self, *start_and_term: int) -> socket.socket:
        self.segment.set_master(LOOPBACK, self._door.getsockname()[1], *start_and_term)
        self.wake()
        connection, _ = self._door.accept()
        self._open.append(connection)
        return connection

    def await_end(self, end: int) -> None:
        wait_until(lambda: self.end >= end, describe=f"the log goes to {end}")
        assert self.end == end

    def await_loss(self) -> None:
        wait_until(lambda: self.segment.get("master_state") == MASTER["UNKNOWN"], describe="the master is left")

    def bytes_at(self, offset: int, size: int) -> bytes:
        found = b""
        while size > len(found):
            at = offset + len(found)
            path = self.directory / file_name(at - at % FILE_SIZE)
            found += path.read_bytes()[at % FILE_SIZE :][: size - len(found)] if path.exists() else bytes(size)
        return found[:size]


def bytes_of(log: Log, start: int, end: int) -> bytes:
    """Bytes of a log, which may lie in several files."""
    found = b""
    while start < end:
        size = min(end - start, log.file_size - start % log.file_size)
        found += log.read(start, size)
        start += size
    return found


def log_bytes(log: Log) -> bytes:
    return bytes_of(log, 0, log.end)


def bounds(log: Log) -> list[int]:
    """Where records and fillers end."""
    ends = [record.physical_offset + record.total_size for record in log.walk()]
    return sorted({0, *ends, *range(FILE_SIZE, log.end, FILE_SIZE)})


def fill(log: Log, bytes_min: int, body: bytes = b"x" * 1000) -> None:
    end = log.end + bytes_min
    while log.end < end:
        log.append(body)
