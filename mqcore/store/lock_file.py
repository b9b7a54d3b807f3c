"""The file ``lock``: one process at a time holds a store directory, ours or a Java broker's.

Java takes a POSIX record lock, so we do; flock() would not be seen by it. Such a lock belongs to the process and is
lost when the process closes any descriptor of the file: nobody else here may open it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from pathlib import Path

from mqcore.errors import StoreLockedError

LOCK_TEXT = b"lock"
FLOCK = struct.Struct("@hhqqi4x")
"""Linux's struct flock: type, whence, start, length, and whose lock it is."""


class LockFile:
    """An exclusive lock on byte 0 of the file, from acquire() to release()."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    def acquire(self) -> None:
        """Take the lock without waiting. Raises StoreLockedError if another process has it."""
        if self._descriptor >= 0:
            raise StoreLockedError(f"this process holds {self.path} already")
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            os.pwrite(descriptor, LOCK_TEXT, 0)
            os.fsync(descriptor)
        except OSError as error:
            holder = holder_of(descriptor)
            os.close(descriptor)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise StoreLockedError(f"another process holds {self.path}: {holder}") from error
            raise
        self._descriptor = descriptor

    def release(self) -> None:
        """Give the lock up; the file stays. Without a lock it does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def is_held(path: Path) -> bool:
    """Whether another process holds the lock file at *path*; it is not taken. Not for a process that holds it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        asked = fcntl.fcntl(descriptor, fcntl.F_GETLK, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
    finally:
        os.close(descriptor)
    return int(FLOCK.unpack(asked)[0]) != fcntl.F_UNLCK


def holder_of(descriptor: int) -> str:
    """Say in words which process has the lock on byte 0 of an open file."""
    asked = fcntl.fcntl(descriptor, fcntl.F_GETLK, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
    pid = int(FLOCK.unpack(asked)[4])
    if pid <= 0:  # nobody has it any more, or somebody in another container
        return "one that cannot be seen from here, or has just ended"
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        words = ""
    return f"pid {pid}" + (f", {words}" if words else "")
