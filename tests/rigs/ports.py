"""Free loopback ports for servers that cannot bind port 0.

A broker's ports hang together: it listens on the configured port, on that port minus two (the fast channel) and on
that port plus one (replication). Numbers come from below the kernel's range for outgoing connections, so that no
client takes them between check and use. Each is given away once, as long as the process lives that it was given to:
who was given a port has not bound it yet when the next one asks, and binds it again when a server restarts. Test runs
at the same time know of each other by a lock on one byte of a common file for each port.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
from pathlib import Path
from typing import NamedTuple

LOWEST_PORT = 12_000
HIGHEST_PORT = 32_000
TRIES_MAX = 1_000

# Not where temporary files are, which each run may have for itself: ports are the machine's.
LOCKS = Path(f"/dev/shm/mqcore-test-ports.{os.getuid()}")

_given: set[int] = set()
_locks: dict[int, int] = {}
"""Process to descriptor of LOCKS: the locks are one process's, and its first close of the file would end them all."""


class BrokerPorts(NamedTuple):
    """The three ports of one broker."""

    listen: int
    fast: int
    ha: int


def _is_ours(port: int) -> bool:
    """Take *port* for this process, until its end; False if another process has it."""
    pid = os.getpid()
    if pid not in _locks:
        _locks[pid] = os.open(LOCKS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(_locks[pid], fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _is_free(port: int) -> bool:
    if port in _given:
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
        return True


def _take(*ports: int) -> bool:
    """Take *ports* for good if all are free."""
    if not (all(map(_is_free, ports)) and all(map(_is_ours, ports))):
        return False
    _given.update(ports)
    return True


def free_broker_ports() -> BrokerPorts:
    """Three ports that nobody is bound to now or was given before, at random."""
    for _ in range(TRIES_MAX):
        listen = random.randint(LOWEST_PORT, HIGHEST_PORT)
        ports = BrokerPorts(listen, listen - 2, listen + 1)
        if _take(*ports):
            return ports
    raise RuntimeError(
        f"no three free ports in a broker's pattern between {LOWEST_PORT} and {HIGHEST_PORT} in {TRIES_MAX} tries"
    )


def free_port() -> int:
    """One port that nobody is bound to now or was given before, at random."""
    for _ in range(TRIES_MAX):
        port = random.randint(LOWEST_PORT, HIGHEST_PORT)
        if _take(port):
            return port
    raise RuntimeError(f"no free port between {LOWEST_PORT} and {HIGHEST_PORT} in {TRIES_MAX} tries")
