"""What the machine gives this process."""

from __future__ import annotations

import os
from pathlib import Path

# Of control groups, version 2 and version 1, as a process inside a container sees them.
MEMORY_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def memory_bytes() -> int:
    """The memory that this process can have, page cache included: the machine's, or the container's if that is less."""
    return min([physical_bytes(), *(limit for limit in map(_limit, MEMORY_LIMITS) if limit > 0)])


def physical_bytes() -> int:
    """The memory of the machine, whoever may have it."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _limit(path: Path) -> int:
    # 0: none. Version 2 says "max" for that.
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0
