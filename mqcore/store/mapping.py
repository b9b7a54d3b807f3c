"""Files of consume queues and index that are being written: found by name, and mapped whole."""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path


def digit_names(directory: Path) -> list[str]:
    """Return the names in *directory* that are numbers; none if it is not there."""
    try:
        return [entry.name for entry in directory.iterdir() if entry.name.isascii() and entry.name.isdigit()]
    except FileNotFoundError:
        return []


def map_for_writing(path: Path, size: int) -> mmap.mmap:
    """Map the whole file. Raises OSError, EUCLEAN if it has another length than *size*."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if os.fstat(descriptor).st_size != size:
            raise OSError(errno.EUCLEAN, os.strerror(errno.EUCLEAN), str(path))
        return mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)
