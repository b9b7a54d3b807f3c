"""What a backup costs: of gigabytes whole, of what is new, checked and restored, beside a plain copy of the files.

    python -m benchmarks.backup [--gigabytes N] [--size BYTES] [DIRECTORY]

Fills a commit log of files of 1 GiB, lets its pages leave memory, and prints for each step bytes a second and the
processor time per gigabyte of this process with its threads, the kernel's part of it apart. *plain copy* reads and
writes the same bytes, syncs them, and looks at none.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from mqcore._fast.log.append import CommitLogWriter
from mqcore._fast.segment.boards import SharedSegment
from mqcore.store.abort_file import AbortFile
from mqcore.store.backup.checking import check_backup
from mqcore.store.backup.directory import BackupDirectory
from mqcore.store.backup.making import make_backup
from mqcore.store.backup.restoring import restore
from mqcore.store.checkpoint import Checkpoint

FILE_SIZE = 1 << 30
STEP_SIZE = 8 << 20
GB = 1e9
NEW_SHARE = 0.1
QUEUES = 16


class Log:
    """A store with a commit log that grows."""

    def __init__(self, root: Path, body_size: int) -> None:
        self.root = root
        self.commit_log = root / "commitlog"
        self.commit_log.mkdir(parents=True)
        self._segment = SharedSegment.create()
        self._writer = CommitLogWriter(self._segment, str(self.commit_log), FILE_SIZE, body_size)
        self._bodies = [os.urandom(body_size) for _ in range(64)]
        self._count = 0
        self._flushed_ms = 0

    @property
    def end(self) -> int:
        return int(self._segment.get("wrote_offset"))

    def grow(self, size: int) -> None:
        """Append messages until the log has *size* more bytes, and let them leave memory."""
        end, host = self.end + size, bytes((127, 0, 0, 1))
        while self.end < end:
            self._flushed_ms = time.time_ns() // 1_000_000
            for _ in range(1000):
                self._count += 1
                self._writer.append(
                    topic=b"Kept", queue_id=self._count % QUEUES, body=self._bodies[self._count % 64],
                    properties=b"KEYS\x01k%d" % self._count, flag=0, sys_flag=0, born_timestamp=1, born_address=host,
                    born_port=1, store_address=host, store_port=1,
                )  # fmt: skip
        self.cool()

    def cool(self) -> None:
        """Have everything on disk, as a broker that runs says, and out of memory what is not mapped for writing."""
        Checkpoint(self._flushed_ms, self._flushed_ms).write(self.root / "checkpoint")
        AbortFile(self.root / "abort").create()
        self._writer.release(self.end - self.end % FILE_SIZE)
        for path in self.commit_log.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def processor_s() -> tuple[float, float]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime, usage.ru_stime


@contextmanager
def timed(what: str, size: int) -> Iterator[None]:
    began, (user, system) = time.monotonic(), processor_s()
    yield
    taken = time.monotonic() - began
    user, system = processor_s()[0] - user, processor_s()[1] - system
    print(
        f"{what:24} {size / GB:6.2f} GB {taken:7.2f} s {size / 1e6 / taken:7.0f} MB/s   processor per GB: "
        f"{user * GB / size:5.2f} s and in the kernel {system * GB / size:5.2f} s",
        flush=True,
    )


def plain_copy(source: Path, target: Path, end: int) -> None:
    target.mkdir()
    buffer = memoryview(bytearray(STEP_SIZE))
    for path in sorted(source.iterdir()):
        left = min(FILE_SIZE, end - int(path.name))
        with path.open("rb", buffering=0) as reading, (target / path.name).open("wb", buffering=0) as writing:
            while left > 0 and (size := reading.readinto(buffer[: min(STEP_SIZE, left)])):
                writing.write(buffer[:size])
                left -= size
            os.fsync(writing.fileno())


def measure(home: Path, gigabytes: float, body_size: int) -> None:
    log = Log(home / "store", body_size)
    log.grow(int(gigabytes * GB))
    size = log.end
    steps: list[tuple[str, Callable[[], object]]] = [
        ("plain copy", partial(plain_copy, log.commit_log, home / "copy", size)),
        ("backup", partial(make_backup, log.root, home / "backup")),
        ("verify", partial(check_backup, BackupDirectory(home / "backup"))),
        ("restore", partial(restore, home / "backup", home / "new")),
    ]
    for what, work in steps:
        with timed(what, size):
            work()
        log.cool()
        for name in ("copy", "new"):
            shutil.rmtree(home / name, ignore_errors=True)
    log.grow(int(size * NEW_SHARE))
    with timed("backup of what is new", log.end - size):
        make_backup(log.root, home / "backup")
    began = time.monotonic()
    make_backup(log.root, home / "backup")
    print(f"{'backup of nothing':24} {time.monotonic() - began:18.2f} s")
    assert not check_backup(BackupDirectory(home / "backup")).problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=3.0)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("directory", nargs="?", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as home:
        measure(Path(home), arguments.gigabytes, arguments.size)
    return 0


if __name__ == "__main__":
    sys.exit(main())
