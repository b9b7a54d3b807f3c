"""How many connections a process may hold open."""

from __future__ import annotations

import resource


def allow_many_connections() -> None:
    """Let this process and its children open as many descriptors as the system lets them, as a Java machine does."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
