"""Free ports of this machine for a broker that keeps them over restarts.

Numbers come from below the kernel's range for outgoing connections: else a client that connects again and again while
the broker is down could be given the broker's port itself, or even reach itself.
"""

from __future__ import annotations

import random
import socket
from typing import NamedTuple

from mqcore.address import FAST_PORT_DISTANCE

LOWEST_PORT = 12_000
HIGHEST_PORT = 32_000
TRIES_MAX = 1_000


class PortPair(NamedTuple):
    """Where a broker and its name server listen."""

    broker: int
    name_server: int


def free_ports() -> PortPair:
    """Return ports that nobody is bound to now; two programs that ask at once may still be given the same."""
    broker = _free_port(needed_below=FAST_PORT_DISTANCE)
    while True:
        name_server = _free_port()
        if name_server not in (broker, broker - FAST_PORT_DISTANCE):
            return PortPair(broker, name_server)


def _free_port(needed_below: int = 0) -> int:
    for _ in range(TRIES_MAX):
        port = random.randint(LOWEST_PORT, HIGHEST_PORT)
        if _is_free(port) and (not needed_below or _is_free(port - needed_below)):
            return port
    raise OSError(f"no free port between {LOWEST_PORT} and {HIGHEST_PORT} in {TRIES_MAX} tries")


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
