"""What the machine gives this process."""

from __future__ import annotations

import os
from pathlib import Path

CONTROL_GROUPS = Path("/sys/fs/cgroup")
OWN_GROUP = Path("/proc/self/cgroup")
# Of control groups, version 2 and version 1, as a process inside a container sees them.
MEMORY_LIMITS = (CONTROL_GROUPS / "memory.max", CONTROL_GROUPS / "memory" / "memory.limit_in_bytes")


def memory_bytes() -> int:
    """The memory that this process can have, page cache included.

    It is the machine's, or a container's or a service's if that is less.
    """
    limits = map(_limit, [*MEMORY_LIMITS, *group_limits(OWN_GROUP)])
    return min([physical_bytes(), *(limit for limit in limits if limit > 0)])


def group_limits(own: Path) -> list[Path]:
    """Return where the limits of a process's control group and of those around it are, by what *own* says (version 2).

    A service of systemd sees the machine's control groups, and has a limit in its own (MemoryMax).
    """
    try:
        (group,) = [line.removeprefix("0::/") for line in own.read_text().splitlines() if line.startswith("0::/")]
    except (OSError, ValueError):
        return []
    inside = CONTROL_GROUPS / group
    return [place / "memory.max" for place in (inside, *inside.parents) if place.is_relative_to(CONTROL_GROUPS)]


def physical_bytes() -> int:
    """The memory of the machine, whoever may have it."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _limit(path: Path) -> int:
    # 0: none. Version 2 says "max" for that.
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0
