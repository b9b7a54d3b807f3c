"""A port beside those of clients, for people and their tools: the settings ``<name>Port`` and ``<name>Host``."""

from __future__ import annotations

import socket
from typing import Final

from mqcore.broker.listeners import listen_at

BACKLOG: Final = 64


def open_side_port(name: str, host: str, port: int) -> socket.socket:
    """Return a socket that listens there and does not block. Raises ConfigError that names the setting."""
    return listen_at(host, port, BACKLOG, f"{name}Host", f"{name}Port")
