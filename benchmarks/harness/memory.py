"""Fills the machine's free memory with page cache, as it is on a machine that has been up for a while.

On a virtual machine that gives its free pages back to the host, the first touch of a free page costs more than two
microseconds per KiB, whoever touches it: then a broker that writes more bytes a second is charged for the host's work.
Clean page cache is not free, and is recycled without asking the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

READ_SIZE = 1 << 22
LEFT_FREE = 3 << 30


@contextmanager
def filled_memory(directory: Path) -> Iterator[int]:
    """Read a sparse file as large as the free memory, but for LEFT_FREE bytes; gives its size. It goes at the end."""
    size = max(0, int(psutil.virtual_memory().free) - LEFT_FREE)
    path = directory / "ballast"
    with path.open("wb") as file:
        file.truncate(size)
    try:
        buffer = bytearray(READ_SIZE)
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
        yield size
    finally:
        path.unlink()
