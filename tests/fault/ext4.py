"""A disk of our own whose power can be cut: an ext4 image in memory, mounted through a loop device. Needs root.

``cut`` is EXT4_IOC_SHUTDOWN without a log flush: from that moment nothing more reaches the image, every write and sync
fails with EIO, and after ``remount`` what was not synced is gone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32)
NO_LOG_FLUSH = (2).to_bytes(4, "little")
MEMORY = Path("/dev/shm")


def missing_means() -> str:
    """Why such a disk cannot be had here; empty if it can."""
    if os.geteuid() != 0:
        return "needs root: loop mounts"
    missing = [tool for tool in ("mkfs.ext4", "mount", "umount", "losetup") if shutil.which(tool) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    if not Path("/dev/loop-control").exists():
        return "needs loop devices"
    return ""


class Disk:
    """An ext4 file system of *size* bytes at *path*; unmounted and forgotten on leaving."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        path.mkdir(parents=True)
        descriptor, name = tempfile.mkstemp(prefix="mqcore-disk-", suffix=".img", dir=MEMORY)
        os.truncate(descriptor, size)
        os.close(descriptor)
        self._image = Path(name)
        _run("mkfs.ext4", "-q", "-m", "0", name)
        self._mount()

    def cut(self) -> None:
        """Let nothing more reach the disk."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUTDOWN, NO_LOG_FLUSH)
        finally:
            os.close(descriptor)

    def remount(self) -> None:
        """Come back as after a power cut; no process may have a file of it open."""
        _run("umount", str(self.path))
        self._mount()

    def free_bytes(self) -> int:
        status = os.statvfs(self.path)
        return status.f_bavail * status.f_frsize

    def _mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.path))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        subprocess.run(["umount", str(self.path)], check=False, capture_output=True)
        self._image.unlink()


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
