"""A port beside those of clients, for people and their tools: the settings ``<name>Port`` and ``<name>Host``."""

from __future__ import annotations

import socket
from typing import Final

from mqcore.errors import ConfigError

BACKLOG: Final = 64


def open_side_port(name: str, host: str, port: int) -> socket.socket:
    """Return a socket that listens there and does not block. Raises ConfigError that names the setting."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    except OSError as error:
        raise ConfigError(f"{name}Host: {host} cannot be resolved: {error}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(f"{name}Port: cannot listen on {host}:{port}: {error.strerror}") from error
    return listener
