"""The broker's listening sockets: the listen port and the fast (VIP) port two below it.

They are held by the broker process, so that connections wait in the backlog while a send worker is started anew.
"""

from __future__ import annotations

import socket

from mqcore.address import FAST_PORT_DISTANCE
from mqcore.config import Settings
from mqcore.errors import ConfigError

FREE_PORT_TRIES = 50


def open_listeners(settings: Settings) -> tuple[list[tuple[socket.socket, bool]], int]:
    """Open both ports; returns [(socket, is the fast port)] and the listen port.

    With listenPort 0 a free pair is looked for. Raises ConfigError that names the address that cannot be had.
    """
    host, wanted = settings.mqcore.bind_address, settings.server.listen_port
    backlog = settings.server.server_socket_backlog
    if wanted != 0:
        main = _listen(host, wanted, backlog)
        try:
            return [(main, False), (_listen(host, wanted - FAST_PORT_DISTANCE, backlog), True)], wanted
        except ConfigError:
            main.close()
            raise
    for _ in range(FREE_PORT_TRIES):
        main = _listen(host, 0, backlog)
        port: int = main.getsockname()[1]
        try:
            return [(main, False), (_listen(host, port - FAST_PORT_DISTANCE, backlog), True)], port
        except ConfigError:
            main.close()
    raise ConfigError(f"listenPort: no pair of free ports on {host} in {FREE_PORT_TRIES} tries")


def _listen(host: str, port: int, backlog: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    except OSError as error:
        raise ConfigError(f"bindAddress: {host} cannot be resolved: {error}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(backlog)
    except OSError as error:
        listener.close()
        raise ConfigError(f"listenPort: cannot listen on {host}:{port}: {error.strerror}") from error
    return listener
