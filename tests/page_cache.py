"""Which pages of a file are in memory."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np

from tests.waiting import wait_until

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


def resident_share(path: Path, offset: int = 0, size: int | None = None) -> float:
    """The share of the pages of [offset, offset + size) in the page cache, 0 to 1. *offset* is a page's start."""
    length = path.stat().st_size - offset if size is None else size
    with path.open("r+b") as file, mmap.mmap(file.fileno(), length, offset=offset) as view:
        states = np.zeros(-(-length // mmap.PAGESIZE), dtype=np.uint8)
        buffer = np.frombuffer(view, dtype=np.uint8)
        failed = _libc.mincore(buffer.ctypes.data, length, states.ctypes.data)
        del buffer
    if failed:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
    return float((states & 1).mean())


def evict(path: Path) -> None:
    """Have the pages of *path* leave the page cache.

    The kernel is asked, and keeps a page that another processor has just had in hand: it is asked again.
    """
    with path.open("r+b") as file:
        os.fsync(file.fileno())

        def is_out() -> bool:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return resident_share(path) == 0

        wait_until(is_out, describe=f"{path} is not in the page cache")


def keeps_pages(directory: Path) -> bool:
    """Whether files below *directory* lie in memory anyway (tmpfs), so that their pages never leave it."""
    probe = directory / ".pages"
    probe.write_bytes(bytes(mmap.PAGESIZE))
    try:
        descriptor = os.open(probe, os.O_RDWR)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
        return resident_share(probe) > 0
    finally:
        probe.unlink()
